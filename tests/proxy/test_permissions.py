"""Permissions of open streams, on a clock that the test moves: reviewed again, shared, and ended one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.pipeline.fakes import FakeClock, run, settle
from wigwag.pipeline.broadcast import Broadcast
from wigwag.proxy.permissions import Permissions
from wigwag.proxy.shares import NamespaceShares
from wigwag.sources.source import Source
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.server.broadcast import BroadcastStream, Message

PERIOD = 240.0
FLAG, OTHER = Source("team-a/checkout", "kubernetes"), Source("team-b/search", "kubernetes")
EXPIRED = RpcError(Code.UNAUTHENTICATED, "expired")
REVOKED = RpcError(Code.PERMISSION_DENIED, "revoked")
DOWN = RpcError(Code.UNAVAILABLE, "cannot ask")


class Desk:
    """Permissions under test, the answers of reviews, and one broadcast for all streams."""

    def __init__(self, random: Callable[[], float] = lambda: 1.0, shares: NamespaceShares | None = None) -> None:
        self.clock, self.broadcast = FakeClock(), Broadcast[Message]()
        self.answers: dict[str, RpcError] = {}
        self.reviews: list[tuple[str, float]] = []
        self.revoked = self.left = 0
        self.permissions = Permissions(self.review, PERIOD, self.count, self.clock, random, shares)
        self.broadcast.publish(Message(lambda: b"first"))

    async def review(self, token: str | None, source: Source, *, cached: bool = True) -> str:
        assert token is not None
        if not cached:
            self.reviews.append((token, self.clock.now() - 1000.0))
        if token in self.answers:
            raise self.answers[token]
        return token.partition("-")[0]

    def count(self) -> None:
        self.revoked += 1

    def join(self, stream: BroadcastStream) -> Broadcast[Message]:
        stream.on_close(self.leave)
        return self.broadcast

    def leave(self) -> None:
        self.left += 1

    async def stream(self, token: str, source: Source = FLAG) -> BroadcastStream:
        stream = BroadcastStream(self.join)
        stream.guard(await self.permissions(token, source))
        assert await anext(stream) == b"first"
        return stream


@asynccontextmanager
async def reviewing(desk: Desk) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(desk.permissions.run())
    await settle()
    yield
    task.cancel()
    await asyncio.wait([task])
    assert desk.clock.pending() == []


async def code_of(stream: BroadcastStream) -> Code:
    with pytest.raises(RpcError) as caught:
        await anext(stream)
    await stream.aclose()
    return caught.value.code


@pytest.mark.parametrize("error", [EXPIRED, REVOKED])
def test_a_stream_ends_when_its_permission_does_and_others_go_on(error: RpcError) -> None:
    async def main() -> None:
        desk = Desk()
        async with reviewing(desk):
            one, two, other = [await desk.stream(token) for token in ("a", "a", "b")]
            waiting = asyncio.create_task(code_of(one))
            desk.answers["a"] = error
            await desk.clock.advance(PERIOD)
            assert await waiting is error.code
            assert await code_of(two) is error.code
            desk.broadcast.publish(Message(lambda: b"second"))
            assert await anext(other) == b"second"
            assert (desk.revoked, desk.left, len(desk.permissions)) == (2, 2, 1)
            await other.aclose()

    run(main)


def test_equal_tokens_and_targets_share_a_review() -> None:
    async def main() -> None:
        desk = Desk()
        async with reviewing(desk):
            streams = [await desk.stream("a") for _ in range(50)] + [await desk.stream("a", OTHER)]
            assert len(desk.permissions) == 2
            for number in range(1, 4):
                await desk.clock.advance(PERIOD)
                assert [token for token, _ in desk.reviews] == ["a"] * 2 * number
            for stream in streams:
                await stream.aclose()

    run(main)


def test_a_permission_is_forgotten_with_its_last_stream() -> None:
    async def main() -> None:
        desk = Desk()
        async with reviewing(desk):
            one, two = await desk.stream("a"), await desk.stream("a")
            await one.aclose()
            assert len(desk.permissions) == 1
            await two.aclose()
            assert (len(desk.permissions), desk.broadcast.subscribers, desk.clock.pending()) == (0, 0, [])
            await desk.clock.advance(10 * PERIOD)
            assert desk.reviews == []

    run(main)


def test_reviews_of_streams_that_were_opened_together_are_spread_out() -> None:
    async def main() -> None:
        desk = Desk(Random(7).random)
        async with reviewing(desk):
            streams = [await desk.stream(str(number)) for number in range(1000)]
            for _ in range(int(PERIOD)):
                await desk.clock.advance(1.0)
            first = dict(reversed(desk.reviews))
            assert len(first) == 1000, "each within the period"
            seconds = [int(when) for when in first.values()]
            assert min(seconds) >= PERIOD / 2
            assert max(map(seconds.count, seconds)) < 40, "of 8 on average"
            for stream in streams:
                await stream.aclose()

    run(main)


def test_if_nobody_can_be_asked_streams_go_on_and_the_review_is_retried() -> None:
    async def main() -> None:
        desk = Desk()
        async with reviewing(desk):
            stream = await desk.stream("a")
            desk.answers["a"] = DOWN
            await desk.clock.advance(PERIOD)
            for _ in range(20):
                await desk.clock.advance(*desk.clock.pending())
            gaps = [later[1] - sooner[1] for sooner, later in zip(desk.reviews, desk.reviews[1:], strict=False)]
            assert gaps[:5] == [5.0, 10.0, 20.0, 40.0, 60.0]
            desk.broadcast.publish(Message(lambda: b"second"))
            assert await anext(stream) == b"second"
            desk.answers["a"] = REVOKED
            await desk.clock.advance(60.0)
            assert await code_of(stream) is Code.PERMISSION_DENIED

    run(main)


def test_a_stream_that_is_ended_may_come_back_when_it_is_allowed_again() -> None:
    async def main() -> None:
        desk = Desk()
        async with reviewing(desk):
            stream = await desk.stream("a")
            desk.answers["a"] = REVOKED
            await desk.clock.advance(PERIOD)
            with pytest.raises(RpcError):
                await desk.permissions("a", FLAG)
            del desk.answers["a"]
            again = await desk.stream("a")
            assert await code_of(stream) is Code.PERMISSION_DENIED
            assert len(desk.permissions) == 1, "the old stream takes nothing with it"
            await again.aclose()

    run(main)


def test_the_end_of_a_broadcast_reaches_streams_through_their_permission() -> None:
    async def main() -> None:
        desk = Desk()
        async with reviewing(desk):
            stream = await desk.stream("a")
            desk.broadcast.end(DOWN)
            assert await code_of(stream) is Code.UNAVAILABLE
            assert len(desk.permissions) == 0

    run(main)


def test_one_namespace_has_half_of_the_streams_and_targets_and_leaves_the_rest_to_others() -> None:
    async def main() -> None:
        desk = Desk(shares=NamespaceShares(streams=6, targets=2))
        async with reviewing(desk):
            held = [await desk.stream(f"mallory-{number}") for number in range(3)]
            for source in (FLAG, OTHER):
                with pytest.raises(RpcError, match="half of the streams"):
                    await desk.permissions("mallory-4", source)
            await desk.stream("alice-1", OTHER)
            await held.pop().aclose()
            with pytest.raises(RpcError, match="half of the targets"):
                await desk.permissions("mallory-4", OTHER)
            await desk.stream("mallory-4")
            for stream in held:
                await stream.aclose()

    run(main)
