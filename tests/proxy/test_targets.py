"""One watch per target: when it is opened and closed, what subscribers get, and what they do not notice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from tests.pipeline.fakes import FakeClock, FakeWatcher, run, settle
from wigwag.flags.digests import document_digest
from wigwag.observe import Registry
from wigwag.pipeline.broadcast import Broadcast
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import WatchPolicy
from wigwag.proxy.options import ProxyOptions
from wigwag.proxy.propagation import TargetPropagation
from wigwag.proxy.report import ProxyReport
from wigwag.proxy.targets import Targets
from wigwag.serve.management.propagation import PATH
from wigwag.sources.document import Document
from wigwag.sources.source import Source, SourceSettings
from wigwag.wire.http import Reply, Request
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.server.broadcast import BroadcastStream

A, B, C = (Source(name, "file") for name in ("a", "b", "c"))


def document(text: str) -> Document:
    return Document(f'{{"flags": {{}}, "said": "{text}"}}'.encode())


def encode(text: str, _: object) -> bytes:
    return text.encode()


class House:
    """Targets whose watches the test drives."""

    def __init__(self, **options: Any) -> None:
        self.clock, self.watcher = FakeClock(), FakeWatcher()
        self.targets = Targets(
            ProxyOptions(**options),
            self.watcher.watch,
            WatchPolicy(clock=self.clock, random=lambda: 1.0),
        )
        self.report = ProxyReport(self.targets, self.clock.now)

    async def join(self, source: Source) -> BroadcastStream:
        stream = BroadcastStream(partial(self.targets.join, source, encode))
        stream.open(lambda: None)
        await settle()
        return stream

    @property
    def metrics(self) -> str:
        registry = Registry()
        self.report.register(registry)
        return registry.render()


def said(stream: BroadcastStream) -> str | None:
    broadcast = stream.broadcast
    if broadcast is None or not broadcast.serial:
        return None
    return broadcast.value.framed(lambda message: message).decode().rpartition('": "')[2][:-2]


def serial(stream: BroadcastStream) -> int:
    assert stream.broadcast is not None
    return stream.broadcast.serial


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[House]:
    house = House(**options)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(house.targets.run())
        await settle()
        yield house
        running.cancel()


def test_the_first_subscriber_opens_the_watch_and_the_next_ones_share_it() -> None:
    async def main() -> None:
        async with opened() as house:
            assert house.watcher.running() == []
            first = await house.join(A)
            await house.watcher.push(A, document("one"))
            second = await house.join(A)
            other = await house.join(B)
            assert house.watcher.started == [A, B]
            assert (said(first), said(second), said(other)) == ("one", "one", None)
            assert first.broadcast is second.broadcast

    run(main)


def test_the_watch_is_closed_a_while_after_the_last_subscriber() -> None:
    async def main() -> None:
        async with opened(linger=5.0) as house:
            first, second = await house.join(A), await house.join(A)
            first.close()
            await house.clock.advance(60)
            assert house.watcher.running() == [A]
            second.close()
            await house.clock.advance(4.9)
            assert house.watcher.running() == [A]
            await house.clock.advance(0.2)
            assert house.watcher.running() == []
            assert len(house.targets) == 0

    run(main)


def test_who_comes_back_in_time_finds_watch_and_document() -> None:
    async def main() -> None:
        async with opened(linger=5.0) as house:
            stream = await house.join(A)
            await house.watcher.push(A, document("one"))
            stream.close()
            await house.clock.advance(4)
            stream = await house.join(A)
            await house.clock.advance(60)
            assert said(stream) == "one"
            assert house.watcher.started == [A]

    run(main)


def test_a_target_that_is_opened_again_is_told_the_same_document_anew() -> None:
    async def main() -> None:
        async with opened(linger=0.0) as house:
            for _ in range(2):
                stream = await house.join(A)
                assert said(stream) is None
                await house.watcher.push(A, document("one"))
                assert said(stream) == "one"
                stream.close()
                await house.clock.advance(1)
            assert house.watcher.started == [A, A]

    run(main)


def test_a_target_that_is_not_there_yet_is_silent_until_it_is() -> None:
    async def main() -> None:
        async with opened() as house:
            stream = await house.join(A)
            await house.watcher.push(A, Unavailable("no such file"))
            assert (serial(stream), stream.error) == (0, None)
            await house.watcher.push(A, document("one"))
            assert said(stream) == "one"

    run(main)


@pytest.mark.parametrize(
    "trouble", [Unavailable("gone"), OSError("broken"), Document(b'{"flags": {'), StopAsyncIteration]
)
def test_an_outage_keeps_streams_open_with_the_last_good_document(trouble: object) -> None:
    async def main() -> None:
        async with opened() as house:
            stream = await house.join(A)
            await house.watcher.push(A, document("one"), trouble)
            assert (said(stream), serial(stream), stream.error) == ("one", 1, None)
            assert 'wigwag_proxy_target_up{target="a",provider="file"} 0' in house.metrics
            await house.clock.advance(1)
            late = await house.join(A)
            assert said(late) == "one"
            await house.watcher.push(A, document("two"))
            assert (said(stream), serial(stream)) == ("two", 2)
            assert 'wigwag_proxy_target_up{target="a",provider="file"} 1' in house.metrics

    run(main)


def test_what_is_the_same_is_not_told_again() -> None:
    async def main() -> None:
        async with opened() as house:
            stream = await house.join(A)
            await house.watcher.push(A, document("one"), document("one"), UNCHANGED, document("one"))
            assert serial(stream) == 1

    run(main)


def test_each_way_to_write_a_document_has_a_broadcast_of_its_own() -> None:
    async def main() -> None:
        async with opened() as house:
            plain = await house.join(A)
            await house.watcher.push(A, document("one"))
            shouted = BroadcastStream(partial(house.targets.join, A, lambda text, _: text.upper().encode()))
            shouted.open(lambda: None)
            assert said(shouted) == "ONE"
            await house.watcher.push(A, document("two"))
            assert (said(plain), said(shouted)) == ("two", "TWO")

    run(main)


def test_there_are_so_many_subscribers_and_no_more() -> None:
    async def main() -> None:
        async with opened(max_subscribers=2) as house:
            stream = await house.join(A)
            await house.join(B)
            with pytest.raises(RpcError, match="2 streams are open already") as caught:
                await house.join(A)
            assert caught.value.code is Code.RESOURCE_EXHAUSTED
            stream.close()
            await house.join(A)
            assert "sync_active_streams 2\n" in house.metrics
            assert 'wigwag_proxy_refusals_total{reason="subscribers"} 1' in house.metrics

    run(main)


def test_there_are_so_many_targets_and_who_has_left_makes_room() -> None:
    async def main() -> None:
        async with opened(max_targets=2) as house:
            stream = await house.join(A)
            await house.join(B)
            with pytest.raises(RpcError, match="2 targets are watched already"):
                await house.join(C)
            await house.join(B)
            stream.close()
            stream = await house.join(C)
            assert house.watcher.running() == [B, C]
            await house.watcher.push(C, document("one"))
            assert said(stream) == "one"
            await house.clock.advance(60)
            assert house.watcher.running() == [B, C]

    run(main)


def test_many_who_come_at_once_are_one_change_of_what_is_wanted() -> None:
    async def main() -> None:
        async with opened() as house:
            sources = [Source(f"s{number}", "file") for number in range(500)]
            for source in sources:
                house.targets.join(source, encode, BroadcastStream(lambda _: Broadcast()))
            await settle()
            assert len(house.watcher.running()) == 500

    run(main)


def test_the_end_is_told_to_everybody_and_nobody_gets_in_any_more() -> None:
    async def main() -> None:
        async with opened() as house:
            one, two = await house.join(A), await house.join(B)
            house.targets.close()
            for stream in (one, two):
                assert stream.error is not None
                assert stream.error.code is Code.UNAVAILABLE
            with pytest.raises(RpcError, match="is stopping"):
                await house.join(A)

    run(main)


def test_targets_that_differ_by_their_secrets_are_one_in_the_metrics() -> None:
    """The same series twice would make Prometheus refuse all of them."""

    async def main() -> None:
        async with opened() as house:
            await house.join(A)
            await house.join(Source("a", "file", settings=SourceSettings(auth_header="hush")))
            lines = [line for line in house.metrics.splitlines() if "target=" in line]
            assert len(lines) == len({line.partition(" ")[0] for line in lines}) == 3
            assert "hush" not in house.metrics

    run(main)


def test_a_report_without_names_tells_targets_together() -> None:
    async def main() -> None:
        async with opened() as house:
            await house.join(A)
            await house.watcher.push(A, document("one"))
            registry = Registry()
            ProxyReport(house.targets, house.clock.now, named=False).register(registry)
            found = registry.render()
            assert 'wigwag_proxy_targets{state="live"} 1' in found
            assert "target=" not in found

    run(main)


def test_the_report_tells_states_ages_restarts_and_subscribers() -> None:
    async def main() -> None:
        async with opened() as house:
            await house.join(A)
            await house.join(A)
            await house.join(B)
            await house.watcher.push(A, document("one"))
            await house.watcher.push(B, OSError("broken"))
            await house.clock.advance(2)
            found = house.metrics
            assert 'wigwag_proxy_targets{state="live"} 1' in found
            assert 'wigwag_proxy_targets{state="failing"} 1' in found
            assert 'wigwag_proxy_target_subscribers{target="a",provider="file"} 2' in found
            assert 'wigwag_proxy_target_age_seconds{target="a",provider="file"} 2' in found
            assert 'wigwag_proxy_target_restarts{target="b",provider="file"} 1' in found
            assert 'wigwag_proxy_target_age_seconds{target="b",provider="file"}' not in found

    run(main)


def test_what_is_critical_is_sent_before_what_is_not() -> None:
    def critical(revision: int) -> Document:
        metadata = f'{{"critical": true, "revision": {revision}}}'
        return Document(f'{{"flags": {{"stop": {{"metadata": {metadata}}}}}}}'.encode())

    async def main() -> None:
        async with opened() as house:
            order: list[str] = []
            for source in (A, B, C):
                stream = BroadcastStream(partial(house.targets.join, source, encode))
                stream.open(partial(order.append, source.address))
            await settle()
            for source in (A, C):
                await house.watcher.push(source, document("one"))
            await house.watcher.push(B, critical(1))
            order.clear()
            later = document("two")
            await asyncio.gather(
                *(house.watcher.push(each, later) for each in (A, C)), house.watcher.push(B, critical(2))
            )
            assert order[0] == "b", "though others changed at the same moment"
            assert sorted(order) == ["a", "b", "c"]
            assert 'wigwag_critical_changes_total{passed="first"} 1' in house.metrics

    run(main)


def test_the_page_for_the_operator_says_how_many_have_been_sent_the_newest_document() -> None:
    async def main() -> None:
        async with opened() as house:
            page = TargetPropagation(house.targets).pages()[PATH]

            def said() -> list[dict[str, Any]]:
                reply = page(Request(b"GET", PATH))
                assert isinstance(reply, Reply)
                return list(json.loads(reply.body)["targets"])

            streams = [await house.join(A) for _ in range(3)]
            waits = {"target": "a", "provider": "file", "digest": "", "subscribers": 3, "sent": 0}
            assert said() == [waits]
            await house.watcher.push(A, document("one"))
            first = document_digest({"flags": {}, "said": "one"})
            assert said() == [{**waits, "digest": first}], "nobody has taken it yet"
            for each in streams[:2]:
                await anext(each)
            assert said() == [{**waits, "digest": first, "sent": 2}]
            await house.watcher.push(A, document("two"))
            assert said() == [{**waits, "digest": document_digest({"flags": {}, "said": "two"})}]
            for each in streams:
                each.close()
            assert said()[0]["subscribers"] == 0

    run(main)
