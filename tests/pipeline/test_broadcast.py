"""Broadcasts: every subscriber ends on the newest value, and none is the publisher's problem."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.pipeline.fakes import run, settle
from wigwag.pipeline.broadcast import Broadcast


def test_a_late_subscriber_sees_the_current_value_at_once() -> None:
    async def main() -> None:
        broadcast = Broadcast[str]()
        broadcast.publish("old")
        broadcast.publish("now")
        assert await anext(aiter(broadcast)) == "now"

    run(main)


def test_a_slow_reader_gets_the_newest_value_and_never_blocks_the_writer() -> None:
    async def main() -> None:
        broadcast, seen, gate = Broadcast[int](), list[int](), asyncio.Event()

        async def slow() -> None:
            async for value in broadcast:
                seen.append(value)
                await gate.wait()

        async with asyncio.TaskGroup() as group:
            reader = group.create_task(slow())
            await settle()
            for value in range(1000):
                broadcast.publish(value)
                if value == 0:
                    await settle()
            gate.set()
            await settle()
            reader.cancel()
        assert seen == [0, 999]

    run(main)


def test_a_value_set_while_a_reader_is_being_woken_is_not_lost() -> None:
    async def main() -> None:
        broadcast = Broadcast[int]()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(broadcast.after(0))
            await settle()
            broadcast.publish(1)
            broadcast.publish(2)
            assert await waiting == (2, 2)
            assert await broadcast.after(1) == (2, 2)

    run(main)


def test_a_cancelled_reader_leaves_nothing_behind() -> None:
    async def main() -> None:
        broadcast = Broadcast[int]()
        async with asyncio.TaskGroup() as group:
            readers = [group.create_task(broadcast.after(0)) for _ in range(10)]
            await settle()
            for reader in readers:
                reader.cancel()
        assert broadcast.subscribers == 0
        broadcast.publish(1)

    run(main)


def test_thousands_of_readers_are_cheap() -> None:
    async def main() -> float:
        broadcast, readers = Broadcast[int](), 5000
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(broadcast.after(0)) for _ in range(readers)]
            await settle(2)
            before = time.process_time()
            broadcast.publish(1)
            spent = time.process_time() - before
            assert await asyncio.gather(*waiting) == [(1, 1)] * readers
        return spent

    assert run(main) < 0.5  # measured: a few milliseconds


def test_none_is_a_value_like_any_other() -> None:
    async def main() -> None:
        broadcast = Broadcast[None]()
        broadcast.publish(None)
        assert await broadcast.after(0) == (1, None)

    run(main)


def test_an_iteration_stops_at_the_end_after_what_it_has_not_seen() -> None:
    async def main() -> None:
        broadcast = Broadcast[int]()
        broadcast.publish(1)
        reader = aiter(broadcast)
        broadcast.end(RuntimeError("over"))
        broadcast.end(RuntimeError("later"))
        assert [value async for value in reader] == [1]
        with pytest.raises(RuntimeError, match="over"):
            await broadcast.after(1)

    run(main)


def test_whoever_waits_until_a_time_waits_no_longer() -> None:
    async def main() -> None:
        broadcast = Broadcast[int]()
        loop = asyncio.get_running_loop()
        await broadcast.changed(0, loop.time() + 0.001)
        assert (broadcast.serial, broadcast.subscribers) == (0, 0)

    run(main)


def test_a_subscriber_that_leaves_while_all_are_notified_does_not_disturb_the_others() -> None:
    broadcast, notified = Broadcast[int](), list[str]()

    def leaves() -> None:
        notified.append("leaves")
        broadcast.unsubscribe(leaves)

    broadcast.subscribe(leaves)
    broadcast.subscribe(lambda: notified.append("stays"))
    broadcast.publish(1)
    broadcast.publish(2)
    assert notified == ["leaves", "stays", "stays"]
