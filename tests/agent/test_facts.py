"""Facts as context: what is taken from where, in one snapshot with the flags, on every surface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

import wigwag
from tests.agent.process import AgentProcess, write
from tests.pipeline.fakes import FakeClock, FakeWatcher, run, running, settle
from wigwag.agent.assemble import assembler, content
from wigwag.agent.facts import POD, SERVICE, Facts, combined, fact_sources, watch_facts, watching
from wigwag.agent.options import AgentOptions
from wigwag.agent.ownpod import LONGEST_VALUE, pod_facts, read_map
from wigwag.errors import StartError, UsageError
from wigwag.pipeline.broadcast import Broadcast
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Unavailable, Wanted
from wigwag.pipeline.watch import WatchPolicy, closing
from wigwag.serve.context import Enrichment
from wigwag.serve.events import ChangeStreams
from wigwag.serve.management.history import SnapshotHistory
from wigwag.serve.snapshot import Snapshot
from wigwag.sources.source import Source, SourceSettings
from wigwag.wire.http import Request

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
FLAGS = wigwag.load({"flags": {"x": FLAG}}, source="f.json")
ONE, TWO = {"consul": {"web": {"passing": 1}}}, {"consul": {"web": {"passing": 2}}}
FILE, WEB = Source("f.json", "file", 0), Source("consul:///web", SERVICE, 1, required=False)


def mounted(folder: Path, **files: str) -> str:
    """Make a volume of the downward API as the kubelet does: a generation, and a link to it."""
    generation = folder / f"..{len(list(folder.iterdir()))}"
    generation.mkdir()
    for name, text in files.items():
        (generation / name).write_text(text)
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(f"..data/{name}")
    fresh = folder / "..data_tmp"
    fresh.symlink_to(generation.name)
    fresh.rename(folder / "..data")
    return str(folder)


# what is known about a pod


def test_files_go_before_variables_and_a_zone_may_come_with_the_labels() -> None:
    labels = b'app="shop"\ntopology.kubernetes.io/zone="eu-1"\n'
    found = pod_facts({"labels": labels, "name": b"a\n", "uid": b" "}, {"POD_NAME": "b", "POD_NAMESPACE": "ns"})
    assert found == {
        "name": "a",
        "namespace": "ns",
        "zone": "eu-1",
        "labels": {"app": "shop", "topology_kubernetes_io/zone": "eu-1"},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ('a="1"', {"a": "1"}),
        (r'a="x=\"y\" \\ \t\n"', {"a": 'x="y" \\ \t\n'}),
        (r'a="\u00e9\U0001f600\x41"', {"a": "é😀A"}),
        (r'a="\ud800"', {"a": "\ufffd"}),
        ('a="unfinished\nb="2"', {"b": "2"}),
        ('nonsense\n="x"\na=1\n', {}),
        (f'a="{"x" * (LONGEST_VALUE + 1)}"\nb="1"', {"a": "x" * (LONGEST_VALUE + 1), "b": "1"}),
    ],
)
def test_a_file_of_labels_is_read_as_the_kubelet_writes_it(text: str, expected: dict[str, str]) -> None:
    assert read_map(text) == expected


def test_a_long_value_is_no_attribute_but_can_name_flags() -> None:
    text = f'a="{"x" * (LONGEST_VALUE + 1)}"\nb="1"'.encode()
    assert pod_facts({"annotations": text}, {}) == {"annotations": {"b": "1"}}


def test_a_mounted_volume_is_followed(tmp_path: Path) -> None:
    folder = mounted(tmp_path, labels='tier="a"', annotations='note="x"', name="shop-1")
    source = Source("pod", POD, settings=SourceSettings(address=folder))

    async def main() -> None:
        async with closing(watch_facts(source, {"NODE_NAME": "n1"})) as stream:
            found = await anext(aiter(stream))
            assert isinstance(found, Facts)
            known = {"node": "n1", "name": "shop-1", "annotations": {"note": "x"}}
            assert found.attributes == {"pod": {**known, "labels": {"tier": "a"}}}
            mounted(tmp_path, labels='tier="b"', annotations='note="x"', name="shop-1")
            while not isinstance(found := await anext(aiter(stream)), Facts):
                pass
            assert found.attributes == {"pod": {**known, "labels": {"tier": "b"}}}

    run(main)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"POD_NAME": "a", "NODE_NAME": "n", "NODE_ZONE": "z", "POD_IMAGE": "i"}, {"name", "node", "zone", "image"}),
        ({}, None),
    ],
)
def test_without_a_volume_the_environment_is_all_there_is(
    environment: dict[str, str], expected: set[str] | None, tmp_path: Path
) -> None:
    source = Source("pod", POD, settings=SourceSettings(address=str(tmp_path / "none")))

    async def main() -> None:
        async with closing(watch_facts(source, environment)) as stream:
            found = await anext(aiter(stream))
            if expected is None:
                assert isinstance(found, Unavailable)
                assert "nothing is known about this pod; mount the downward API" in found.reason
            else:
                assert isinstance(found, Facts)
                assert found.attributes["pod"].keys() == expected

    run(main)


# what is asked for


def test_sources_of_facts_come_after_those_of_flags_and_are_not_required() -> None:
    options = AgentOptions(context_from_pod=True, context_from_consul=("web", "consul://h:1/db?dc=x&token=abc"))
    found = fact_sources(options, 3, {})
    assert [(each.name, each.provider, each.position, each.required) for each in found] == [
        ("pod", POD, 3, False),
        ("consul:///web", SERVICE, 4, False),
        ("consul://h:1/db?dc=x&token=***", SERVICE, 5, False),
    ]
    assert fact_sources(AgentOptions(), 0, {}) == ()


@pytest.mark.parametrize(
    ("services", "said"),
    [
        (("a/b",), "is not the name of a service"),
        (("web", "consul://h/web"), "is named twice"),
        (("a.b", "a_b"), "is named twice"),
        (("consul://h/web?x=1",), "is not an option"),
        (tuple(f"s{number}" for number in range(101)), "at most 100 services"),
    ],
)
def test_what_cannot_be_meant_is_refused(services: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=f"--context-from-consul: .*{said}"):
        fact_sources(AgentOptions(context_from_consul=services), 0, {})


# in one snapshot with the flags


def test_facts_are_part_of_a_snapshot_and_of_its_id() -> None:
    assemble = assembler(lambda: 0.0)
    plain, one, two, again = (
        assemble({FILE: FLAGS, **({WEB: Facts(facts)} if facts else {})}) for facts in (None, ONE, TWO, ONE)
    )
    assert (plain.facts, one.facts) == ({}, ONE)
    assert plain.id == FLAGS.id
    assert len({snapshot.id for snapshot in (plain, one, two)}) == 3
    assert again.id == one.id
    assert content(again) == content(one) != content(two)
    assert two.flags is one.flags, "flags that did not change are not put together again"
    assert [origin for origin, _ in one.layers()] == [FILE]


def test_facts_alone_are_no_answer() -> None:
    with pytest.raises(StartError, match="no source has answered"):
        assembler(lambda: 0.0)({WEB: Facts(ONE)})


def test_facts_of_several_sources_are_put_together_in_any_order() -> None:
    parts = [Facts({"consul": {"a": {"passing": 1}}}), Facts({"pod": {"name": "x"}}), Facts({"consul": {"b": {}}})]
    assert (
        combined(parts)
        == combined(reversed(parts))
        == {
            "consul": {"a": {"passing": 1}, "b": {}},
            "pod": {"name": "x"},
        }
    )


class World:
    """A pipeline of flags and facts that the test drives."""

    def __init__(self) -> None:
        self.clock, self.fake = FakeClock(), FakeWatcher()
        self.pipeline: Pipeline[Source, Any, Snapshot] = Pipeline(
            [Wanted(FILE), Wanted(WEB, grace=5.0)],
            watching(self.fake.watch, self.fake.watch),
            assembler(self.clock.now),
            key=content,
            policy=WatchPolicy(clock=self.clock),
        )

    def facts(self) -> Any:
        """Return the facts that are published; None: nothing is."""
        return self.pipeline.published.value.facts if self.pipeline.published.serial else None


def test_a_change_of_facts_is_a_new_snapshot_and_trouble_keeps_the_last() -> None:
    async def main() -> None:
        world = World()
        async with running(world.pipeline):
            await world.fake.push(FILE, FLAGS)
            assert world.facts() is None
            await world.fake.push(WEB, Facts(ONE))
            assert world.facts() == ONE
            await world.fake.push(WEB, Facts(ONE))
            assert world.pipeline.published.serial == 1
            await world.fake.push(WEB, Unavailable("down"))
            await world.clock.advance(30)
            assert (world.facts(), world.pipeline.published.serial) == (ONE, 1)
            status = world.pipeline.statuses()[1]
            assert (status.state, status.error, status.age(world.clock.now())) == ("failing", "down", 30.0)
            await world.fake.push(WEB, Facts(TWO))
            assert (world.facts(), world.pipeline.published.serial) == (TWO, 2)

    run(main)


def test_the_first_snapshot_does_not_wait_for_facts_for_ever() -> None:
    async def main() -> None:
        world = World()
        async with running(world.pipeline):
            await world.fake.push(FILE, FLAGS)
            await world.clock.advance(4.9)
            assert world.facts() is None
            await world.clock.advance(0.2)
            assert world.facts() == {}

    run(main)


# on every surface


def test_facts_go_over_what_a_client_sends_and_under_what_the_operator_says() -> None:
    facts = {"consul": {"web": 1}, "pod": {"name": "real"}, "zone": "facts"}
    request = Request(b"POST", b"/", headers=((b"x-zone", b"header"),))
    sent = {"pod": {"name": "forged"}, "user": "u", "zone": "sent"}
    assert Enrichment().apply(sent, request, facts) == {"user": "u", **facts}
    assert Enrichment({"zone": "static"}).apply(sent, request, facts)["zone"] == "static"
    assert Enrichment({"zone": "static"}, {"X-Zone": "zone"}).apply(sent, request, facts)["zone"] == "header"
    assert Enrichment().apply(sent, request, {}) is sent


def test_an_earlier_snapshot_keeps_its_facts_and_its_id() -> None:
    history = SnapshotHistory(5)
    snapshots = [Snapshot(FLAGS, number=number, facts=facts) for number, facts in ((1, ONE), (2, TWO))]
    for snapshot in snapshots:
        history.add(snapshot)
    found = history.find("previous")
    assert (found.facts, found.id, found.flags.id) == (ONE, snapshots[0].id, FLAGS.id)


def test_clients_that_evaluate_elsewhere_are_told_to_fetch_again_when_facts_change() -> None:
    async def main() -> None:
        snapshots = Broadcast(Snapshot(FLAGS, number=1, facts=ONE))
        first = snapshots.value
        stream = ChangeStreams(snapshots).server_sent("")
        welcome = await anext(stream)
        assert first.version("").encode() in welcome
        waiting = asyncio.ensure_future(anext(stream))
        await settle()
        snapshots.publish(Snapshot(FLAGS, number=2, facts=TWO))
        assert b"refetchEvaluation" in await waiting
        late = await anext(ChangeStreams(snapshots).server_sent("", first.version("")))
        assert b"refetchEvaluation" in late, "who comes back after the change is told, too"
        await stream.aclose()  # type: ignore[attr-defined]

    run(main)


RULE = {"if": [{"==": [{"var": "pod.labels.tier"}, "gold"]}, "on"]}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    (tmp_path / "pod").mkdir()
    mounted(tmp_path / "pod", labels='tier="tin"')
    write(tmp_path / "f.json", {"flags": {"x": {**FLAG, "targeting": RULE}}})
    with AgentProcess(f"-ffile:{tmp_path / 'f.json'}", "--context-from-pod", f"--pod-info={tmp_path / 'pod'}") as agent:
        yield agent


def ofrep(agent: AgentProcess, context: Any = None) -> Any:
    return json.loads(agent.fetch("OFREP", "/ofrep/v1/evaluate/flags/x", {"context": context or {}})[1])["value"]


def test_a_label_that_changes_changes_what_flags_evaluate_to_everywhere(agent: AgentProcess, tmp_path: Path) -> None:
    with grpc.insecure_channel(agent.address("sync")) as channel:
        stream = sync_pb2_grpc.FlagSyncServiceStub(channel).SyncFlags(sync_pb2.SyncFlagsRequest(), timeout=20)
        assert json_format.MessageToDict(next(stream).sync_context) == {"pod": {"labels": {"tier": "tin"}}}
        assert ofrep(agent) is False
        assert ofrep(agent, {"pod": {"labels": {"tier": "gold"}}}) is False, "a client cannot make facts up"
        mounted(tmp_path / "pod", labels='tier="gold"')
        assert json_format.MessageToDict(next(stream).sync_context) == {"pod": {"labels": {"tier": "gold"}}}
        stream.cancel()
    assert ofrep(agent) is True
    resolve = "/flagd.evaluation.v1.Service/ResolveBoolean"
    told = json.loads(agent.fetch("evaluation", resolve, {"flagKey": "x"}, content_type="application/json")[1])
    assert told["value"] is True
    everything = "/flagd.evaluation.v1.Service/ResolveAll"
    told = json.loads(agent.fetch("evaluation", everything, {}, content_type="application/json")[1])
    assert told["flags"]["x"]["boolValue"] is True
    assert json.loads(agent.fetch("management", "/debug/evaluate?key=x", {})[1])["value"] is True
    assert json.loads(agent.fetch("management", "/debug/evaluate?key=x&snapshot=previous", {})[1])["value"] is False
    sources = json.loads(agent.fetch("management", "/debug/sources")[1])
    assert [(each["source"], each["provider"], each["state"], each["required"]) for each in sources][1] == (
        "pod",
        "pod",
        "live",
        False,
    )


def test_facts_that_cannot_be_had_do_not_keep_the_agent_from_being_ready(tmp_path: Path) -> None:
    write(tmp_path / "f.json", {"flags": {"x": FLAG}})
    state = tmp_path / "state"
    service = "consul://127.0.0.1:9/web"
    with AgentProcess(
        f"-ffile:{tmp_path / 'f.json'}", f"--context-from-consul={service}", f"--state-dir={state}"
    ) as agent:
        assert agent.fetch("management", "/readyz")[0] == 200
        assert ofrep(agent) is False
        sources = json.loads(agent.fetch("management", "/debug/sources")[1])
        assert "no connection" in sources[1]["error"]
        assert agent.stop() == 0
