"""Who works when: the scheduler alone, and connections under it, with a clock that tests move."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count, pairwise
from typing import Any

import pytest

from tests.wire.served import LOOPS, http1, run
from tests.wire.session import frames
from tests.wire.test_http2 import BLOCK, GREETING
from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.frames import frame
from wigwag.wire.http import Reply, Request
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.connection import PIECE, Connection, Host
from wigwag.wire.server.listen import Listener
from wigwag.wire.server.server import serve
from wigwag.wire.server.shared import SharedResources
from wigwag.wire.server.turns import BUDGET, PERIOD, SLICE, TimeShare, Turns

GET = b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n"


class Loop:
    """Callbacks, called one turn at a time."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self.ready.append(partial(callback, *args))

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()


class Worker:
    """Work that takes as long as the test says, and writes down when it was done."""

    def __init__(self, world: World, name: str, steps: int, seconds: float) -> None:
        self.loop: Any = world.loop
        self.world, self.name, self.steps, self.seconds, self.share = world, name, steps, seconds, TimeShare()

    def work(self, until: float) -> bool:
        while self.steps and self.world.now < until:
            self.steps -= 1
            self.world.now += self.seconds
            self.world.done.append(self.name)
        return self.steps > 0

    def arrive(self, steps: int = 0) -> None:
        self.steps += steps
        if until := self.world.turns.admit(self):
            self.world.turns.done(self, until, self.work(until))


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.loop, self.turns = Loop(), Turns(lambda: self.now)
        self.done: list[str] = []

    def turn(self) -> float:
        """One turn of the loop; return how long it took."""
        before = self.now
        self.loop.turn()
        return self.now - before


def test_small_work_is_done_at_once() -> None:
    world = World()
    Worker(world, "a", 3, SLICE / 10).arrive()
    assert world.done == ["a"] * 3
    assert not world.loop.ready


def test_a_turn_of_the_loop_is_bounded_whatever_the_number_of_clients() -> None:
    world = World()
    for n in range(100):
        Worker(world, f"w{n}", 100, SLICE / 4).arrive()
    assert world.now - 100.0 <= BUDGET + 2 * SLICE
    turns = 0
    while world.loop.ready:
        assert world.turn() <= BUDGET + 2 * SLICE
        turns += 1
    assert len(world.done) == 100 * 100
    assert turns <= 100 * 100 * SLICE / 4 / BUDGET + 3


def test_who_came_during_one_long_request_comes_before_those_who_are_queued() -> None:
    """An event loop calls what is due before it looks at sockets: what is queued must leave it time to look."""
    world = World()
    first, second, quiet = (Worker(world, name, 1, seconds) for name, seconds in (("a", 0.05), ("b", 0.05), ("q", 0.0)))
    second.share.since, second.share.used = world.now, 1.0
    first.arrive()
    second.arrive()
    world.turn()
    quiet.arrive()  # its bytes came while the first one was at work
    while world.loop.ready:
        world.turn()
    assert world.done == ["a", "q", "b"]


def test_the_queue_goes_round() -> None:
    world = World()
    for name in "abc":
        Worker(world, name, 8, 0.6 * SLICE).arrive()
    while world.loop.ready:
        world.turn()
    rounds = "".join(world.done)
    assert rounds == "aabbcc" * 4


def test_a_quiet_client_waits_for_one_turn_at_most_while_others_flood() -> None:
    world = World()
    floods = [Worker(world, f"w{n}", 10_000, SLICE / 4) for n in range(50)]
    for each in floods:
        each.arrive()
    for _ in range(20):  # until it is known who floods
        world.turn()
    quiet = Worker(world, "quiet", 0, SLICE / 10)
    for _ in range(100):
        asked = world.now
        world.done.clear()
        quiet.arrive(1)
        if not quiet.share.queued:
            assert world.done == ["quiet"]
        world.turn()
        assert "quiet" in world.done
        assert world.now - asked <= BUDGET + 3 * SLICE
        for _ in range(4):
            world.turn()


def test_a_client_that_finished_its_flood_does_not_come_first_with_the_next() -> None:
    world = World()
    flood, other = Worker(world, "flood", 100, SLICE / 2), Worker(world, "other", 1000, SLICE / 2)
    flood.arrive()
    other.arrive()
    while flood.steps:
        world.turn()
    world.done.clear()
    flood.arrive(1)
    assert world.done == []
    while other.steps:
        world.turn()
    world.now += 20 * PERIOD
    world.done.clear()
    flood.arrive(1)
    assert world.done == ["flood"]


class Wire(asyncio.Transport):
    """A transport that remembers what is written and whether it may read."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.reading, self.size, self.paused = bytearray(), True, 0, 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.size

    def pause_reading(self) -> None:
        self.reading = False
        self.paused += 1

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False


class Client:
    """One connection of a server whose clock stands still, unless a request moves it."""

    def __init__(self, tasks: asyncio.TaskGroup, seconds: float = 0.0) -> None:
        self.now, self.seconds, self.requests = 1000.0, seconds, 0
        shared = SharedResources(clock=lambda: self.now)
        self.connection, self.wire = Connection(Host(self.answer, WireLimits(), tasks, shared=shared)), Wire()
        self.connection.connection_made(self.wire)

    def answer(self, _request: Request) -> Reply:
        self.requests += 1
        self.now += self.seconds
        return Reply(200, (), b"hello")


def test_pipelined_requests_are_answered_a_slice_at_a_time_and_reading_pauses() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            client = Client(tasks, SLICE / 4)
            data = b"".join(GET % n for n in range(2000))
            client.connection.data_received(data)
            assert client.requests <= 5
            assert client.wire.paused
            answered = [client.requests]
            for _ in range(100):
                await asyncio.sleep(0)
                answered.append(client.requests)
            assert max(after - before for before, after in pairwise(answered)) <= (BUDGET + SLICE) / (SLICE / 4) + 1
            assert client.wire.reading
            assert client.wire.written.count(b"hello") == 2000
            client.connection.connection_lost(None)

    run(test)


class Ticking:
    """A clock that moves by a whole slice with every look."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += SLICE
        return self.now


def test_frames_are_parsed_a_piece_at_a_time() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            shared = SharedResources(clock=Ticking())
            connection, wire = (
                Connection(Host(lambda _: Reply(200), WireLimits(abuse=1 << 30), tasks, shared=shared)),
                Wire(),
            )
            connection.connection_made(wire)
            connection.data_received(GREETING)
            seen = 0
            for _ in range(3):
                await asyncio.sleep(0)
            wire.written.clear()
            pings = frame(f.SETTINGS, 0, 0) * 20_000
            connection.data_received(pings)
            while seen < 20_000:
                before, seen = seen, wire.written.count(frame(f.SETTINGS, f.ACK, 0))
                assert seen - before <= (BUDGET / SLICE + 2) * (PIECE / 9)
                await asyncio.sleep(0)
            connection.connection_lost(None)

    run(test)


@pytest.mark.parametrize("loop", LOOPS)
def test_answers_are_the_same_if_every_slice_ends_at_once(loop: str) -> None:
    async def test() -> None:
        ticks = count(1000)
        shared = SharedResources(clock=lambda: float(next(ticks)))

        def echo(request: Request) -> Reply:
            return Reply(200, (), request.path + request.body)

        async with serve(echo, [Listener(host="127.0.0.1")], WireLimits(idle_seconds=1e9), shared=shared) as server:
            host, port = server.addresses[0].rsplit(":", 1)
            reader, writer = await asyncio.open_connection(host, int(port))
            bodies = deque(b"x" * (n * 997 % 30_000) for n in range(60))
            head = b"POST /%d HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
            writer.write(b"".join(head % (n, len(body)) + body for n, body in enumerate(bodies)))
            for n, body in enumerate(bodies):
                await reader.readuntil(b"\r\n\r\n")
                expected = b"/%d" % n + body
                assert await reader.readexactly(len(expected)) == expected
            writer.close()
            assert b"200" in await http1(server.addresses[0])

    run(test, loop)


def test_requests_of_http2_wait_for_their_turn_too() -> None:
    async def test() -> None:
        async with asyncio.TaskGroup() as tasks:
            client = Client(tasks, SLICE / 4)
            opened = [frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, n, BLOCK) for n in range(1, 401, 2)]
            client.connection.data_received(GREETING + b"".join(opened))
            assert client.requests <= 5
            for _ in range(40):
                await asyncio.sleep(0)
            ended = [
                each for each in frames(bytes(client.wire.written)) if each[0] == f.DATA and each[1] & f.END_STREAM
            ]
            assert len(ended) == 200
            client.connection.connection_lost(None)

    run(test)
