"""Several watches as one: all answer first, a change is one of a part, and an excused trouble holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.pipeline.fakes import FakeWatcher, run, settle
from wigwag.kube.watch.listwatch import KindNotServed, WatchForbidden
from wigwag.kube.watch.merged import MOST_REASONS, merge_watches
from wigwag.kube.watch.objects import ChangeJournal, Objects
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing

X, Y = ("a", "x"), ("b", "y")
FORBIDDEN = WatchForbidden("no right in b")


def objects(**named: int) -> Objects[int]:
    return Objects({X if name == "x" else Y: value for name, value in named.items()}, ChangeJournal())


class Merged:
    """Two parts that the test drives, and the items that were read."""

    def __init__(self) -> None:
        self.watcher, self.items, self.notes = FakeWatcher(), list[Any](), list[tuple[str, Unavailable | None]]()

    async def push(self, part: str, *items: object) -> list[Any]:
        """Let a part yield items; return what was read since."""
        await self.watcher.push(part, *items)
        await settle()
        read, self.items = self.items, []
        return read


@asynccontextmanager
async def merged(is_excused: Callable[[Unavailable], bool] = lambda _: False) -> AsyncIterator[Merged]:
    made = Merged()
    parts = {part: made.watcher.watch(part) for part in ("a", "b")}

    async def read() -> None:
        async with closing(merge_watches(parts, is_excused, lambda *note: made.notes.append(note))) as items:
            async for item in items:
                made.items.append(item)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        await settle()
        yield made
        task.cancel()


def is_forbidden(trouble: Unavailable) -> bool:
    return isinstance(trouble, WatchForbidden)


def test_all_parts_answer_before_anything_is_shown() -> None:
    async def main() -> None:
        async with merged() as made:
            assert await made.push("a", objects(x=1)) == []
            assert await made.push("b", objects(y=1)) == [{X: 1, Y: 1}]
            assert await made.push("b", UNCHANGED) == [UNCHANGED]

    run(main)


def test_a_change_of_one_part_is_known_by_its_key() -> None:
    async def main() -> None:
        async with merged() as made:
            await made.push("a", objects(x=1))
            [before] = await made.push("b", objects(y=1))
            [after] = await made.push("a", objects())
            assert (after, after.changed_since(before)) == ({Y: 1}, {X})
            assert before == {X: 1, Y: 1}, "a value that was read does not change"

    run(main)


def test_a_part_that_fails_is_no_empty_part() -> None:
    async def main() -> None:
        async with merged() as made:
            assert await made.push("a", Unavailable("away")) == [Unavailable("away")]
            assert await made.push("b", objects(y=1)) == [Unavailable("away")]
            assert await made.push("a", objects(x=1)) == [{X: 1, Y: 1}]
            assert await made.push("a", Unavailable("away")) == [Unavailable("away")]
            assert await made.push("b", objects(y=2)) == [{X: 1, Y: 2}, Unavailable("away")]

    run(main)


def test_an_excused_part_holds_up_no_other_and_joins_when_it_answers() -> None:
    async def main() -> None:
        async with merged(is_forbidden) as made:
            await made.push("a", objects(x=1))
            assert await made.push("b", FORBIDDEN) == [{X: 1}], "and no trouble of the whole"
            assert await made.push("b", FORBIDDEN) == [UNCHANGED]
            assert made.notes == [("a", None), ("b", FORBIDDEN)], "each state once"
            assert await made.push("a", objects(x=2)) == [{X: 2}]
            assert await made.push("b", objects(y=1)) == [{X: 2, Y: 1}]
            assert made.notes[2:] == [("b", None)]
            assert await made.push("b", FORBIDDEN) == [UNCHANGED], "what it had stays"
            assert await made.push("a", objects()) == [{Y: 1}]

    run(main)


def test_an_excuse_lasts_through_other_troubles() -> None:
    async def main() -> None:
        async with merged(is_forbidden) as made:
            await made.push("b", FORBIDDEN, Unavailable("away"))
            assert await made.push("a", objects(x=1)) == [{X: 1}, Unavailable("away")]

    run(main)


def test_troubles_are_told_together_and_a_missing_kind_stays_one() -> None:
    async def main() -> None:
        async with merged() as made:
            await made.push("a", KindNotServed("no such kind"))
            [both] = await made.push("b", KindNotServed("no such kind"))
            assert both == KindNotServed("no such kind")
            assert await made.push("b", Unavailable("away")) == [Unavailable("no such kind; away")]

    assert MOST_REASONS > 1
    run(main)


def test_a_part_that_raises_ends_the_watch_and_all_parts_are_closed() -> None:
    async def main() -> None:
        watcher = FakeWatcher()
        parts = {part: watcher.watch(part) for part in ("a", "b")}
        items = merge_watches(parts)
        with pytest.raises(RuntimeError, match="broken"):  # noqa: PT012 - the watcher raises at some point of these
            await watcher.push("a", RuntimeError("broken"))
            await anext(items)
        await settle()
        assert set(watcher.stopped) == {"a", "b"}

    run(main)
