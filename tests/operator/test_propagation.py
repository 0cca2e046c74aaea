"""Which agents there are to ask, what follows from their answers, and how an agent is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.pipeline.fakes import run
from wigwag.operator.injection.agent import AgentParts, agent_container
from wigwag.operator.injection.sources import AgentSource
from wigwag.operator.names import ObjectName
from wigwag.operator.propagation.ask import UNSUPPORTED, AgentAnswer, AgentClient, NoAnswer, SourceAnswer, TargetAnswer
from wigwag.operator.propagation.pods import AgentAddress, AgentPod, ProxyPod, consuming_pod
from wigwag.operator.propagation.progress import (
    AgentState,
    ClientCounts,
    WritePace,
    next_question,
    progress,
    standing,
)
from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec
from wigwag.operator.resources.kubernetes import ResourceRequirements
from wigwag.wire.h1.client import ResponseLimits

FLAG, OTHER = ObjectName("shop", "flags"), ObjectName("shop", "other")
PLACE = AgentAddress("uid", 0, "10.0.0.1", 8014)
AGENT = AgentPod(PLACE, (FLAG,))
NEW, OLD = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def pod(*sources: dict[str, str], name: str = "flagd", arguments: tuple[str, ...] = (), **status: Any) -> bytes:
    container = {"name": name, "args": ["start", *arguments, "--sources", json.dumps(sources)]}
    running = {
        "name": name,
        "restartCount": 2,
        "ready": True,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    given = {"podIP": "10.0.0.1", "containerStatuses": [running], **status}
    metadata = {"namespace": "shop", "name": "web", "uid": "uid"}
    return json.dumps({"metadata": metadata, "spec": {"containers": [container]}, "status": given}).encode()


def test_the_flags_of_an_agent_are_those_of_its_sources_in_order() -> None:
    sources: list[dict[str, str]] = [
        {"uri": "shop/flags", "provider": "kubernetes"},
        {"uri": "/etc/flagd/shop_other/shop_other.flagd.json", "provider": "file"},
        {"uri": "http://example.org/flags.json", "provider": "http"},
        {"uri": "flagd-proxy-svc:8015", "provider": "grpc", "selector": "core.openfeature.dev/ops/flags"},
    ]
    found = consuming_pod(pod(*sources, arguments=("--management-port", "9014"))).agent
    proxied = ObjectName("ops", "flags")
    flags = (FLAG, OTHER, None, proxied)
    assert found == AgentPod(AgentAddress("uid", 2, "10.0.0.1", 9014), flags, frozenset({proxied}), ready=True)


def test_what_the_operator_injects_is_what_it_reads() -> None:
    """The container is that of a sidecar and of a Flagd alike."""
    sources = [AgentSource(uri="shop/flags", provider="kubernetes"), AgentSource(uri="x:1", provider="grpc")]
    parts = AgentParts(image="wigwag", sources=sources, resources=ResourceRequirements(), mounts={})
    container = agent_container(FeatureFlagSourceSpec(sources=[], management_port=9014), parts)
    running = {"name": container["name"], "state": {"running": {}}}
    made = {
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"initContainers": [container]},
        "status": {"podIP": "10.0.0.1", "initContainerStatuses": [running]},
    }
    found = consuming_pod(json.dumps(made).encode()).agent
    assert found == AgentPod(AgentAddress("", 0, "10.0.0.1", 9014), (FLAG, None))


@pytest.mark.parametrize(
    "given",
    [
        pod({"uri": "http://example.org/flags.json", "provider": "http"}),
        pod({"uri": "shop/flags", "provider": "kubernetes"}, name="app"),
        pod({"uri": "shop/flags", "provider": "kubernetes"}, podIP=""),
        pod({"uri": "shop/flags", "provider": "kubernetes"}, podIP="metadata.example"),
        pod({"uri": "shop/flags", "provider": "kubernetes"}, containerStatuses=None),
        pod({"uri": "shop/flags", "provider": "kubernetes"}, containerStatuses=[{"name": "flagd", "state": {}}]),
        pod({"uri": "shop/flags", "provider": "kubernetes"}).replace(b'"uid":', b'"deletionTimestamp": "now", "uid":'),
        b'"nonsense"',
    ],
)
def test_what_has_no_agent_that_runs_is_not_asked(given: bytes) -> None:
    assert consuming_pod(given).agent is None


def test_a_proxy_is_told_by_its_container() -> None:
    proxy = ProxyPod(AgentAddress("uid", 2, "10.0.0.1", 8016), ready=True)
    assert consuming_pod(pod(name="flagd-proxy")).agent == proxy
    given = pod(name="flagd-proxy", arguments=("--management-port", "99999999"))
    assert consuming_pod(given).agent == proxy, "no such port"


def state(digest: str | None, problem: NoAnswer | None = None, agent: AgentPod = AGENT) -> AgentState:
    answer = None if digest is None else AgentAnswer((SourceAnswer(0, digest),))
    return AgentState(agent, answer, problem)


SILENT = NoAnswer("it does not answer")


@pytest.mark.parametrize(
    ("given", "reason", "known"),
    [
        (state(NEW), "", True),
        (state(NEW, SILENT), "", True),
        (state(OLD), "on bbbbbbbb", True),
        (state(OLD, SILENT), "on bbbbbbbb; it does not answer", True),
        (state(""), "it has none of these flags yet", True),
        (state(None, SILENT), "it does not answer", False),
        (state(None), "it was not asked yet", False),
    ],
)
def test_how_an_agent_stands(given: AgentState, reason: str, known: bool) -> None:
    found = standing(given, FLAG, NEW)
    assert (found.reason, found.known) == (reason, known)


def test_an_agent_that_names_a_flag_twice_has_it_when_both_are_there() -> None:
    twice = AgentPod(PLACE, (FLAG, None, FLAG))
    given = AgentState(twice, AgentAnswer((SourceAnswer(0, NEW), SourceAnswer(2, OLD))))
    assert standing(given, FLAG, NEW).reason == "on bbbbbbbb"


def test_a_message_names_ten_agents_and_counts_the_rest() -> None:
    states = [(ObjectName("shop", f"web-{number:02}"), state(OLD)) for number in range(12)]
    others = [(ObjectName("shop", "a"), state(NEW)), (ObjectName("z", "z"), state(None))]
    found = progress(FLAG, NEW, 3, [*states, *others])
    status, condition = found.status(), found.condition()
    assert (status.summary, status.total, status.unknown, len(status.lagging)) == ("1/14", 14, 1, 10)
    assert condition[:2] == ("False", "Progressing")
    assert condition.message.startswith("1/14 agents on aaaaaaaa; lagging: shop/web-00 (on bbbbbbbb); ")
    assert condition.message.endswith("; and 2 more; unknown: z/z (it was not asked yet)")


@pytest.mark.parametrize(
    ("targets", "clients"),
    [
        ([], ClientCounts()),
        ([TargetAnswer("shop/flags", "kubernetes", NEW, 3, 3)], ClientCounts(2, 2)),
        ([TargetAnswer("shop/flags", "kubernetes", NEW, 3, 2)], ClientCounts(2, 1)),
        ([TargetAnswer("shop/flags", "kubernetes", OLD, 3, 3)], ClientCounts(2, 0)),
        ([TargetAnswer("shop/other", "kubernetes", NEW, 3, 3)], ClientCounts()),
        ([TargetAnswer("shop/flags", "file", NEW, 3, 3)], ClientCounts()),
        ([TargetAnswer("shop/flags", "kubernetes", NEW, 2, 2)] * 2, ClientCounts(3, 3)),
    ],
)
def test_subscribers_of_proxies_that_are_no_agents_are_clients(
    targets: list[TargetAnswer], clients: ClientCounts
) -> None:
    agent = AgentPod(PLACE, (FLAG,), frozenset({FLAG}))
    answers = [AgentAnswer(targets=(each,)) for each in targets]
    found = progress(FLAG, NEW, 1, [(ObjectName("shop", "web"), state(NEW, agent=agent))], answers)
    assert found.clients == clients
    assert found.done == (clients.total == clients.current)
    assert found.condition().status == str(found.done)


def test_the_longer_an_agent_takes_the_more_rarely_it_is_asked() -> None:
    def pauses(given: AgentState, *, behind: bool) -> list[float]:
        attempts = (0, 1, 4, 20)
        return [round(next_question(given._replace(attempts=each), behind, lambda: 1.0), 1) for each in attempts]

    assert pauses(state(OLD), behind=True) == [0.2, 0.4, 3.2, 15.0]
    assert pauses(state(None, SILENT), behind=True) == [1.0, 2.0, 16.0, 300.0]
    assert pauses(state(None, NoAnswer(UNSUPPORTED, final=True)), behind=True) == [300.0] * 4
    assert pauses(state(NEW), behind=False) == [300.0] * 4


def test_a_status_is_written_at_most_once_in_a_second_and_ever_more_rarely() -> None:
    pace, times = WritePace(), list[float]()
    for _ in range(7):
        now = (times[-1] if times else 0.0) + pace.wait(times[-1] if times else 0.0, done=False)
        pace = pace.after(now, done=False)
        times.append(now)
    assert times == [0.0, 1.0, 3.0, 7.0, 15.0, 30.0, 45.0]
    assert pace.wait(45.2, done=True) == pytest.approx(0.8), "that all have it is said at once"
    assert pace.after(46.0, done=True).wait(46.0, done=True) == 15.0, "but not again and again, if pods come and go"
    assert pace.of("", 50.0).wait(50.0, done=False) == 10.0
    assert pace.of("", 106.0).wait(106.0, done=False) == 0.0, "it was quiet for a while"
    assert pace.of("other", 45.0).wait(45.0, done=False) == 1.0, "other flags begin anew"


Respond = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]


async def asked(respond: Respond, seconds: float = 30.0) -> Any:
    """Ask a server that responds so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await respond(reader, writer)
        writer.close()

    client = AgentClient(ResponseLimits(connect=30.0, head=seconds, idle=30.0, total=60.0, body_bytes=1000))
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        return await client.ask(*server.sockets[0].getsockname())


def response(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""])
    return head.encode() + body


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (response("404 Not Found", b"secret"), UNSUPPORTED),
        (response("302 Found", b"", "Location: http://127.0.0.1:1/"), "it answers 302"),
        (response("200 OK", b"secret"), "its answer cannot be read"),
        (response("200 OK", b"x" * 2000), "its answer is no HTTP, or too large"),
        (b"secret\r\n\r\n", "its answer is no HTTP, or too large"),
    ],
)
def test_what_is_no_answer_is_put_into_words_that_quote_nothing(answer: bytes, reason: str) -> None:
    async def main() -> None:
        async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            await writer.drain()

        found = await asked(respond)
        assert isinstance(found, NoAnswer)
        assert (found.reason, found.final) == (reason, reason == UNSUPPORTED)

    run(main)


def test_an_agent_that_hangs_is_given_up() -> None:
    async def main() -> None:
        found = await asked(lambda reader, _: reader.read(), 0.2)
        assert found == NoAnswer("it does not answer within 0.2 s")
        assert "there is no connection" in str(await AgentClient().ask("127.0.0.1", 1))

    run(main)


def test_an_answer_is_read() -> None:
    async def main() -> None:
        body = {"sources": [{"priority": 1, "source": "x", "provider": "file", "state": "live", "digest": NEW}]}

        async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(response("200 OK", json.dumps(body).encode()))
            await writer.drain()

        found = await asked(respond)
        assert found.digests() == {1: NEW}

    run(main)
