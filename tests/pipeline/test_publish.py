"""Topics: last value, never the writer's problem."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.pipeline.fakes import run, settle
from wigwag.pipeline.publish import History, Topic


def test_a_late_subscriber_sees_the_current_value_at_once() -> None:
    async def main() -> None:
        topic = Topic[str]()
        topic.set("old")
        topic.set("now")
        assert await anext(aiter(topic)) == "now"

    run(main)


def test_a_slow_reader_gets_the_newest_value_and_never_blocks_the_writer() -> None:
    async def main() -> None:
        topic, seen, gate = Topic[int](), list[int](), asyncio.Event()

        async def slow() -> None:
            async for value in topic:
                seen.append(value)
                await gate.wait()

        async with asyncio.TaskGroup() as group:
            reader = group.create_task(slow())
            await settle()
            for value in range(1000):
                topic.set(value)
                if value == 0:
                    await settle()
            gate.set()
            await settle()
            reader.cancel()
        assert seen == [0, 999]

    run(main)


def test_a_value_set_while_a_reader_is_being_woken_is_not_lost() -> None:
    async def main() -> None:
        topic = Topic[int]()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(topic.after(0))
            await settle()
            topic.set(1)
            topic.set(2)
            assert await waiting == (2, 2)
            assert await topic.after(1) == (2, 2)

    run(main)


def test_a_cancelled_reader_leaves_nothing_behind() -> None:
    async def main() -> None:
        topic = Topic[int]()
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(topic.after(0)) for _ in range(10)]
            await settle()
            for reader in readers:
                reader.cancel()
        assert topic._waiting == set()
        topic.set(1)

    run(main)


def test_thousands_of_readers_are_cheap() -> None:
    async def main() -> float:
        topic, readers = Topic[int](), 5000
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(topic.after(0)) for _ in range(readers)]
            await settle(2)
            before = time.perf_counter()
            topic.set(1)
            spent = time.perf_counter() - before
            assert await asyncio.gather(*waiting) == [(1, 1)] * readers
        return spent

    assert run(main) < 0.5  # measured: a few milliseconds


def test_none_is_a_value_like_any_other() -> None:
    async def main() -> None:
        topic = Topic[None]()
        topic.set(None)
        assert await topic.after(0) == (1, None)

    run(main)


@pytest.mark.parametrize(("size", "kept"), [(1, (4,)), (3, (2, 3, 4)), (9, (1, 2, 3, 4))])
def test_a_history_keeps_the_last_values_by_serial(size: int, kept: tuple[int, ...]) -> None:
    history = History[str](size)
    for value in "abcd":
        history.set(value)
    assert history.serials() == kept
    assert [history.get(serial) for serial in (4, 5)] == ["d", None]
    assert (history.value, history.serial) == ("d", 4)
