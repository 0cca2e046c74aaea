"""One watch for all who want the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.pipeline.fakes import FakeWatcher, run, settle
from wigwag.kube.client import Kube
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import CONFIG_MAP
from wigwag.kube.watch.decode import plain
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.kubernetes.objects import decode_flag

SPEC, OTHER = KubeWatch(CONFIG_MAP, "a"), KubeWatch(CONFIG_MAP, "b")
ONE, TWO = {("a", "x"): 1}, {("a", "x"): 2}


class FakeHub(Hub):
    """A hub whose watches the test drives."""

    def __init__(self) -> None:
        self.watcher = FakeWatcher()
        super().__init__(lambda: cast("Kube", None), lambda _, spec, decode: self.watcher.watch((spec, decode)))

    async def push(self, *items: object, spec: KubeWatch = SPEC) -> None:
        await self.watcher.push((spec, plain), *items)

    def subscribe(self, spec: KubeWatch = SPEC, decode: Any = plain) -> Any:
        return closing(self.watch(spec, decode))


@asynccontextmanager
async def hub() -> AsyncIterator[FakeHub]:
    hub = FakeHub()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(hub.run())
        yield hub
        running.cancel()


def test_the_first_opens_it_and_the_last_closes_it() -> None:
    async def main() -> None:
        async with hub() as made:
            await settle()
            assert made.watcher.started == []
            async with made.subscribe() as first:
                await made.push(ONE)
                assert await anext(first) == ONE
                async with made.subscribe() as second:
                    assert await anext(second) == ONE, "at once, though nothing has changed"
                    assert made.watcher.started == [(SPEC, plain)]
                assert made.watcher.stopped == []
                await made.push(TWO)
                assert await anext(first) == TWO
            await settle()
            assert made.watcher.stopped == [(SPEC, plain)]

    run(main)


def test_what_is_wanted_otherwise_is_another_watch() -> None:
    async def main() -> None:
        async with (
            hub() as made,
            made.subscribe() as one,
            made.subscribe(OTHER) as two,
            made.subscribe(SPEC, decode_flag) as three,
        ):
            await made.push(ONE)
            await made.push(TWO, spec=OTHER)
            await made.watcher.push((SPEC, decode_flag), {})
            assert [await anext(one), await anext(two)] == [ONE, TWO]
            await made.watcher.push((SPEC, plain), UNCHANGED)
            assert await anext(three) == {}
            assert made.watcher.started == [(SPEC, plain), (OTHER, plain), (SPEC, decode_flag)]

    run(main)


def test_a_slow_reader_ends_with_the_newest_value_and_not_with_what_was_said_last() -> None:
    async def main() -> None:
        async with hub() as made, made.subscribe() as reader:
            await made.push(ONE)
            assert await anext(reader) == ONE
            await made.push(TWO, UNCHANGED, Unavailable("gone"), Unavailable("still gone"))
            assert await anext(reader) == TWO
            assert await anext(reader) == Unavailable("still gone")
            await made.push(UNCHANGED)
            assert await anext(reader) is UNCHANGED

    run(main)


def test_who_comes_while_there_is_trouble_gets_the_last_value_and_the_trouble() -> None:
    async def main() -> None:
        async with hub() as made, made.subscribe() as first:
            await made.push(ONE, Unavailable("gone"))
            assert await anext(first) == ONE
            async with made.subscribe() as second:
                assert [await anext(second), await anext(second)] == [ONE, Unavailable("gone")]

    run(main)


def test_trouble_before_there_is_a_value_is_told() -> None:
    async def main() -> None:
        async with hub() as made, made.subscribe() as reader:
            await made.push(Unavailable("forbidden"))
            assert await anext(reader) == Unavailable("forbidden")
            await made.push({})
            assert await anext(reader) == {}

    run(main)


@pytest.mark.parametrize("end", [OSError("surprise"), StopAsyncIteration])
def test_a_watch_that_fails_fails_for_all_and_the_next_opens_another(end: object) -> None:
    async def main() -> None:
        async with hub() as made:
            async with made.subscribe() as one, made.subscribe() as two:
                await made.push(ONE)
                assert [await anext(one), await anext(two)] == [ONE, ONE]
                await made.push(end)
                for reader in (one, two):
                    with pytest.raises((OSError, RuntimeError)):
                        await anext(reader)
            async with made.subscribe() as reader:
                await made.push(TWO)
                assert await anext(reader) == TWO
            assert len(made.watcher.started) == 2

    run(main)


def test_who_subscribes_while_the_watches_end_waits() -> None:
    async def main() -> None:
        made = FakeHub()
        running = asyncio.ensure_future(made.run())
        async with made.subscribe() as first:
            reading = asyncio.ensure_future(anext(first))
            await settle()
            running.cancel()
            late: list[asyncio.Future[Any]] = []
            while not running.done():  # at every step of the end
                watch = made.watch(OTHER, plain)
                late.append(asyncio.ensure_future(anext(watch)))
                await asyncio.sleep(0)
            assert not any(each.done() for each in late)
            for each in (reading, *late):
                each.cancel()
            await asyncio.wait([running, reading, *late])

    run(main)
