"""Clients that do not take what they asked for: how many bytes wait for them, and what becomes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.wire.served import run
from tests.wire.session import frames
from tests.wire.test_http2 import BLOCK, GREETING
from tests.wire.test_turns import Wire
from wigwag.pipeline.broadcast import Broadcast
from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.frames import ErrorCode, SettingId, frame
from wigwag.wire.http import Handler, Reply, Request, Response, Stream
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpcs.grpc import BroadcastResponse
from wigwag.wire.server.broadcast import BroadcastStream, Message
from wigwag.wire.server.connection import Connection, Host
from wigwag.wire.server.retained import Retained
from wigwag.wire.server.shared import SharedResources

MB = 1 << 20
LIMITS = WireLimits()
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
NO_WINDOW = GREETING + f.settings({SettingId.INITIAL_WINDOW_SIZE: 0})
WIDE = GREETING + f.settings({SettingId.INITIAL_WINDOW_SIZE: f.MAX_WINDOW}) + f.window_update(0, 1 << 30)


def opened(*ids: int) -> bytes:
    return b"".join(frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, n, BLOCK) for n in ids)


class Stuck(Wire):
    """The transport of a client that reads nothing: what is written stays, until the test takes it."""

    def __init__(self, high: int) -> None:
        super().__init__()
        self.high, self.aborted = high, False
        self.connection: Any

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.size += len(data)
        if self.size > self.high and not self.connection.writer.full:
            self.connection.pause_writing()

    def take(self, size: int = 1 << 30) -> None:
        """Read as the client."""
        self.size = max(0, self.size - size)
        if self.connection.writer.full and not self.size:
            self.connection.resume_writing()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self.aborted = True
        self.connection.connection_lost(None)


def connect(handler: Handler, tasks: asyncio.TaskGroup, shared: SharedResources, limits: WireLimits = LIMITS) -> Stuck:
    connection, wire = Connection(Host(handler, limits, tasks, shared=shared)), Stuck(limits.write_buffer)
    wire.connection = connection
    connection.connection_made(wire)
    return wire


def held(wire: Stuck) -> int:
    """Bytes that are kept for one client."""
    machine = wire.connection.machine
    return int(wire.size + machine.output.retained.size)


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def fresh(_request: Request) -> Response:
    """An answer that no other stream shares."""
    return Reply(200, (), bytes(MB))


def shared() -> SharedResources:
    return SharedResources(clock=lambda: 1000.0)


def test_an_object_counts_once_for_a_connection_and_once_for_the_process() -> None:
    process = Retained()
    one, two, data = Retained(process), Retained(process), bytes(1000)
    for each in (one, one, two):
        each.add(data)
    two.add(bytes(10))
    assert (one.size, two.size, process.size) == (1000, 1010, 1010)
    assert (one.exclusive(), two.exclusive()) == (0, 10)
    one.remove(data)
    two.remove(data)
    assert (one.size, process.size, one.exclusive()) == (1000, 1010, 1000)
    one.remove(data)
    assert (one.size, process.size) == (0, 10)


@pytest.mark.parametrize("greeting", [NO_WINDOW, WIDE], ids=["no window", "no reading"])
def test_one_connection_pins_a_bounded_number_of_bytes(greeting: bytes) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            process = shared()
            wire = connect(fresh, tasks, process)
            wire.connection.data_received(greeting)
            wire.connection.data_received(opened(*range(1, 401, 2)))
            await settled()
            assert held(wire) <= LIMITS.retained_bytes + MB + 2 * LIMITS.write_buffer + 100_000
            assert process.size() <= held(wire)
            wire.abort()
            assert process.size() == 0

    run(test)


def test_requests_that_waited_are_answered_when_the_client_reads() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            wire = connect(fresh, tasks, shared())
            wire.connection.data_received(WIDE)
            wire.connection.data_received(opened(*range(1, 61, 2)))
            for _ in range(300):
                wire.take()
                await asyncio.sleep(0)
            assert wire.connection.machine.streams == {}
            assert held(wire) == 0
            assert len(wire.written) > 30 * MB
            wire.abort()

    run(test)


def test_a_client_of_http1_that_reads_nothing_pins_one_answer() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            wire = connect(fresh, tasks, shared())
            wire.connection.data_received(GET * 20)
            await settled()
            assert held(wire) <= MB + 2 * LIMITS.write_buffer + 100_000
            for _ in range(200):
                wire.take()
                await asyncio.sleep(0)
            assert wire.written.count(b"200 OK") == 20
            assert len(wire.written) > 20 * MB
            wire.abort()

    run(test)


DOCUMENT = bytes(5 * MB)


async def documents() -> AsyncIterator[bytes]:
    yield DOCUMENT
    await asyncio.Event().wait()


def published(_request: Request) -> Response:
    broadcast = Broadcast[Message]()
    broadcast.publish(Message(lambda: DOCUMENT))
    stream = BroadcastStream(lambda _: broadcast)
    return BroadcastResponse(Stream(200, (), stream), stream, lambda message: message, lambda _: ())


@pytest.mark.parametrize("handler", [lambda _: Stream(200, (), documents()), published], ids=["pulled", "published"])
def test_unread_streams_share_their_document(handler: Handler) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            process = shared()
            wires = [connect(handler, tasks, process) for _ in range(60)]
            for wire in wires:
                wire.connection.data_received(WIDE + opened(1))
            await settled()
            assert all(wire.size for wire in wires)
            assert process.size() <= len(DOCUMENT) + len(wires) * 2 * LIMITS.write_buffer
            for wire in wires:
                wire.abort()
            await settled()
            assert process.size() == 0

    run(test)


def test_a_document_leaves_whole_and_in_pieces() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            wire = connect(lambda _: Stream(200, (), documents()), tasks, shared())
            wire.connection.data_received(WIDE + opened(1))
            largest = 0
            for _ in range(100):
                largest = max(largest, wire.size)
                wire.take()
                await asyncio.sleep(0)
            assert sum(len(each[3]) for each in frames(bytes(wire.written)) if each[0] == f.DATA) == len(DOCUMENT)
            assert largest <= 2 * LIMITS.write_buffer + 100_000
            wire.abort()

    run(test)


def test_when_too_much_waits_in_the_process_who_keeps_most_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            process = SharedResources(most=10 * MB, clock=lambda: 1000.0)
            small, large, last = (connect(fresh, tasks, process) for _ in range(3))
            for wire, requests in ((small, 1), (large, 6), (last, 4)):
                wire.connection.data_received(NO_WINDOW)
                wire.connection.data_received(opened(*range(1, 2 * requests, 2)))
                await settled()
            assert process.size() <= 10 * MB
            assert large.connection.writer.lingers
            assert frames(bytes(large.written))[-1][3][4:8] == ErrorCode.ENHANCE_YOUR_CALM.to_bytes(4, "big")
            assert not small.connection.writer.lingers
            assert not last.connection.writer.lingers
            assert process.cut.values == {(): 1}
            for wire in (small, large, last):
                wire.abort()

    with caplog.at_level(logging.WARNING):
        run(test)
    assert [record.getMessage() for record in caplog.records if "slow client" in record.getMessage()]


def test_a_client_that_takes_a_byte_now_and_then_is_cut_off() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            wire = connect(fresh, tasks, shared())
            wire.connection.data_received(GET)
            for now in range(0, 61, 10):
                assert not wire.aborted
                wire.size -= 1
                wire.connection.expire(float(now))
            wire.connection.expire(61.0)
            assert wire.aborted

    run(test)


def test_a_client_that_takes_enough_is_not_cut_off() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            wire = connect(fresh, tasks, shared())
            wire.connection.data_received(GET)
            for now in range(0, 120, 30):
                wire.size -= LIMITS.write_bytes // 2
                wire.connection.expire(float(now))
            assert not wire.aborted
            wire.abort()

    run(test)


def test_handlers_that_fail_are_logged_a_few_times_only(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_request: Request) -> Response:
        raise RuntimeError

    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            wire = connect(fail, tasks, shared())
            wire.connection.data_received(GET * 100)
            assert wire.written.count(b" 500 ") == 100
            wire.abort()

    run(test)
    assert 1 <= sum("handler failed" in record.getMessage() for record in caplog.records) <= 20
