"""An agent that finds out by itself which flags it serves, and where it runs: from annotations, files and the API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_facts import mounted
from tests.pipeline.fakes import FakeWatcher, run, settle
from wigwag.agent.annotations import agent_sources, located
from wigwag.agent.facts import POD, Facts, watch_facts
from wigwag.agent.options import AgentOptions
from wigwag.agent.ownpod import Pod, PodIdentity, decode_pod, described, identify, namespace_of, zone_of
from wigwag.errors import UsageError
from wigwag.kube.errors import ApiError, ApiStatus
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import FEATURE_FLAG
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.document import Document
from wigwag.sources.kubernetes.names import SELF
from wigwag.sources.kubernetes.references import ANNOTATION, MOST, OPERATORS, ORDER, references
from wigwag.sources.source import Source, SourceSettings

WHO = PodIdentity("team", "shop-1")
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
A, B = (json.dumps({"flags": {key: FLAG}}).encode() for key in "ab")


def kubeconfig(folder: Path) -> str:
    """A file that names an API server, which nobody asks."""
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
                "contexts": [{"name": "a", "context": {"cluster": "a", "namespace": "of-config"}}],
                "current-context": "a",
            }
        )
    )
    return str(path)


class FakeHub(Hub):
    """Watches that the test drives, and nodes that it knows of."""

    def __init__(self, **zones: str | None) -> None:
        super().__init__()
        self.watcher, self.zones, self.asked = FakeWatcher(), zones, 0

    def watch(self, spec: KubeWatch, decode: Any, /) -> AsyncIterator[Any]:
        return self.watcher.watch(spec)

    @property
    def kube(self) -> Any:
        return self

    async def get(self, kind: object, node: str) -> dict[str, Any]:
        self.asked += 1
        if self.zones.get(node) is None:
            raise ApiError("GET node", ApiStatus(403, "Forbidden"))
        return {"metadata": {"labels": {"topology.kubernetes.io/zone": self.zones[node]}}}

    async def pod(self, annotations: Mapping[str, str] | None = None, **more: Any) -> None:
        """Say what the API server says of our pod."""
        told = {"metadata": {"name": "shop-1", "namespace": "team", "annotations": annotations, **more}}
        spec = {"nodeName": "n1", "containers": [{"name": "app", "image": "shop:2"}, {"name": "agent", "image": "w"}]}
        made = decode_pod(json.dumps({**told, "spec": spec}).encode())
        await self.watcher.push(WHO.watch(), {("team", "shop-1"): made})

    async def flag(self, name: str, *items: object) -> None:
        """Say what the API server says of a FeatureFlag; bytes are its document."""
        namespace, _, own = name.partition("/")
        held = [{(namespace, own): {"": item}} if isinstance(item, bytes) else item for item in items]
        await self.watcher.push(KubeWatch(FEATURE_FLAG, namespace, own), *held)


class Seen:
    """What a stream has yielded so far."""

    def __init__(self, stream: AsyncIterator[Any]) -> None:
        self._stream, self.items = stream, list[Any]()

    async def collect(self) -> None:
        async with closing(self._stream) as stream:
            async for item in stream:
                self.items.append(item)

    async def take(self) -> list[Any]:
        """Return what came since the last time."""
        await settle()
        found, self.items = self.items, []
        return found


@asynccontextmanager
async def seen(hub: Hub, stream: AsyncIterator[Any]) -> AsyncIterator[Seen]:
    found = Seen(stream)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(hub.run()), group.create_task(found.collect())]
        await settle()
        yield found
        for task in tasks:
            task.cancel()


# what annotations name


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({ANNOTATION: "shop"}, ("team/shop",)),
        ({ANNOTATION: " base , other/shop,, base"}, ("team/base", "other/shop")),
        ({"openfeature.io/standingorder": 'shop"'}, ("team/shop",)),
        ({ORDER: "shop"}, ("team/shop",)),
        ({ORDER: '"shop"', f"{ORDER}-namespace": 'other"'}, ("other/shop",)),
        ({ORDER: "a", ANNOTATION: "b", OPERATORS: "c"}, ("team/b",)),
    ],
)
def test_annotations_name_feature_flags(annotations: dict[str, str], expected: tuple[str, ...]) -> None:
    assert references(annotations, "team") == (expected, "")


@pytest.mark.parametrize(
    "bad", ["team-a/shop2/x", "/shop", "team/", "a b", "x?labels=a", "team-a?labels=", "-a", "x" * 400]
)
@pytest.mark.parametrize("annotation", ["openfeature.dev/featureflag", "openfeature.io/standingorder", ORDER])
def test_a_malformed_name_is_told_and_leaves_the_others(annotation: str, bad: str) -> None:
    names, problem = references({annotation: f"one,{bad},other/two"}, "team")
    assert names == ("team/one", "other/two")
    assert f"the annotation {annotation} of this pod has '" in problem
    assert bad[:80] in problem
    with pytest.raises(UsageError, match="write NAME or NAMESPACE/NAME"):
        references({annotation: bad}, "team")


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({}, "this pod has no annotation openfeature.dev/featureflag; write the name of a FeatureFlag into it"),
        ({OPERATORS: "a"}, "featureflagsource is for the operator"),
        ({ANNOTATION: " , "}, "names 0 FeatureFlags; name 1 to 50"),
        ({ANNOTATION: ",".join(f"f{n}" for n in range(MOST + 1))}, "names 51 FeatureFlags"),
    ],
)
def test_those_that_name_nothing_say_what_to_write(annotations: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        references(annotations, "team")


# who we are


def test_the_environment_tells_which_pod_this_is(tmp_path: Path) -> None:
    config = {"KUBECONFIG": kubeconfig(tmp_path)}
    assert identify(config | {"POD_NAME": "a", "POD_NAMESPACE": "b"}) == PodIdentity("b", "a")
    assert identify(config | {"POD_NAME": "a"}) == PodIdentity("of-config", "a")
    assert namespace_of({"POD_NAMESPACE": "b"}) == "b"
    for environment in (
        config | {"HOSTNAME": "laptop"},
        {"POD_NAME": "a", "POD_NAMESPACE": "b", "HOME": "/nonexistent"},
    ):
        with pytest.raises(UsageError):
            identify(environment)


def test_a_pod_is_selected_by_a_field_because_no_role_can_know_its_name() -> None:
    assert WHO.watch().selectors() == (("fieldSelector", "metadata.name=shop-1"),)
    assert "resourceNames" not in WHO.watch().rule()


def test_what_an_object_says_about_a_pod() -> None:
    told = {"app.kubernetes.io/name": "shop", "long": "x" * 2000, "topology.kubernetes.io/zone": "eu-1"}
    made: Pod = decode_pod(
        json.dumps(
            {
                "metadata": {"name": "shop-1", "namespace": "team", "uid": "7", "labels": told, "resourceVersion": "3"},
                "spec": {
                    "nodeName": "n1",
                    "containers": [{"name": "app", "image": "shop:2"}, {"name": "b.c", "image": "w"}],
                },
                "status": {"phase": "Running"},
            }
        ).encode()
    )
    assert described(made, zone_of(made)) == {
        "name": "shop-1",
        "namespace": "team",
        "uid": "7",
        "node": "n1",
        "zone": "eu-1",
        "image": "shop:2",
        "labels": {"app_kubernetes_io/name": "shop", "topology_kubernetes_io/zone": "eu-1"},
        "annotations": {},
        "images": {"app": "shop:2", "b_c": "w"},
    }


# the flags that annotations lead to


def self_source(folder: str) -> Source:
    return Source("core.openfeature.dev/", SELF, settings=SourceSettings(address=folder))


def test_the_pods_annotations_lead_to_its_flags_and_a_change_of_them_to_others(tmp_path: Path) -> None:
    environment = {"KUBECONFIG": kubeconfig(tmp_path), "POD_NAME": "shop-1", "POD_NAMESPACE": "team"}

    async def main() -> None:
        hub = FakeHub()
        async with seen(hub, located(self_source(str(tmp_path / "none")), hub, environment)) as found:
            await hub.watcher.push(WHO.watch(), Unavailable("we may not watch pods"))
            assert await found.take() == [Unavailable("we may not watch pods")]
            await hub.pod()
            (none,) = await found.take()
            assert "this pod has no annotation openfeature.dev/featureflag" in none.reason
            await hub.watcher.push(WHO.watch(), UNCHANGED)
            assert await found.take() == [none]
            await hub.pod({ANNOTATION: "shop"})
            await hub.pod({ANNOTATION: "shop"})
            await hub.flag("team/shop", {}, A)
            yet, document = await found.take()
            assert "there is no FeatureFlag team/shop yet" in yet.reason
            assert document == Document(A, "json")
            await hub.watcher.push(WHO.watch(), Unavailable("no connection"), UNCHANGED)
            assert await found.take() == [Unavailable("no connection; in force: team/shop")]
            await hub.flag("team/shop", UNCHANGED)
            assert await found.take() == [UNCHANGED], "only what follows the flags confirms them"
            await hub.pod()
            (missing,) = await found.take()
            assert missing.reason == f"{none.reason}; in force: team/shop"
            await hub.flag("team/shop", UNCHANGED, B)
            assert await found.take() == [missing, Document(B, "json"), missing]
            await hub.pod({ANNOTATION: "other/shop"})
            await hub.flag("other/shop", B)
            assert await found.take() == [Document(B, "json")]
            assert KubeWatch(FEATURE_FLAG, "team", "shop") not in hub.watcher.running()

    run(main)


def test_a_malformed_reference_neither_stops_the_others_nor_forgets_what_was_named_before(tmp_path: Path) -> None:
    environment = {"KUBECONFIG": kubeconfig(tmp_path), "POD_NAME": "shop-1", "POD_NAMESPACE": "team"}
    said = f"the annotation {ANNOTATION} of this pod has 'team-a/shop2/x'; write NAME or NAMESPACE/NAME"

    async def main() -> None:
        hub = FakeHub()
        async with seen(hub, located(self_source(""), hub, environment)) as found:
            await hub.pod({ANNOTATION: "one, team-a/shop2/x"})
            await hub.flag("team/one", A)
            assert await found.take() == [Document(A, "json"), Unavailable(f"{said}; in force: team/one")]
            await hub.pod({ANNOTATION: "one, two"})
            await hub.flag("team/one", A)
            await hub.flag("team/two", B)
            (whole,) = await found.take()
            assert list(json.loads(whole.content)["flags"]) == ["a", "b"]
            await hub.pod({ANNOTATION: "one, team-a/shop2/x"})
            await hub.flag("team/one", A)
            await hub.flag("team/two", B)
            *_, trouble = await found.take()
            assert trouble == Unavailable(f"{said}; in force: team/two, team/one"), "two may be what it was"
            assert {KubeWatch(FEATURE_FLAG, "team", name) for name in ("one", "two")} <= set(hub.watcher.running())
            await hub.pod({ANNOTATION: "team-a/shop2/x"})
            assert await found.take() == [trouble]
            await hub.pod({ANNOTATION: "one"})
            await hub.flag("team/one", A)
            assert await found.take() == [Document(A, "json")]
            assert KubeWatch(FEATURE_FLAG, "team", "two") not in hub.watcher.running()

    run(main)


def test_several_flags_are_one_document_as_soon_as_each_has_said_something(tmp_path: Path) -> None:
    environment = {"KUBECONFIG": kubeconfig(tmp_path), "POD_NAME": "shop-1", "POD_NAMESPACE": "team"}

    def keys(document: Document) -> list[str]:
        return list(json.loads(document.content)["flags"])

    async def main() -> None:
        hub = FakeHub()
        async with seen(hub, located(self_source(""), hub, environment)) as found:
            await hub.pod({ANNOTATION: "one,two"})
            await hub.pod({ANNOTATION: "one,two"})
            await hub.flag("team/two", B)
            assert await found.take() == [], "the other may still come"
            await hub.flag("team/one", {})
            document, missing = await found.take()
            assert keys(document) == ["b"]
            assert "there is no FeatureFlag team/one yet" in missing.reason
            await hub.flag("team/two", UNCHANGED)
            assert await found.take() == [missing]
            await hub.flag("team/one", A)
            (document,) = await found.take()
            assert keys(document) == ["a", "b"]
            await hub.flag("team/two", b'{"flags": 1}')
            document, trouble = await found.take()
            assert keys(document) == ["a", "b"]
            assert "team/two" in trouble.reason
            await hub.flag("team/one", UNCHANGED)
            assert await found.take() == [trouble]

    run(main)


def test_annotations_in_a_mounted_file_need_no_rights(tmp_path: Path) -> None:
    (tmp_path / "podinfo").mkdir()
    folder = mounted(tmp_path / "podinfo", annotations=f'{ANNOTATION}="shop"\n', namespace="team")

    async def main() -> None:
        hub = FakeHub()
        async with closing(located(self_source(folder), hub, {})) as stream, asyncio.TaskGroup() as group:
            task = group.create_task(hub.run())
            await hub.flag("team/shop", A)
            assert await anext(aiter(stream)) == Document(A, "json")
            await stream.aclose()  # type: ignore[attr-defined]
            task.cancel()
            assert hub.watcher.started == [KubeWatch(FEATURE_FLAG, "team", "shop")]

    run(main)


def test_who_does_not_know_its_pod_is_told_so(tmp_path: Path) -> None:
    async def main() -> None:
        hub = FakeHub()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(hub.run())
            async with closing(located(self_source(""), hub, {"KUBECONFIG": kubeconfig(tmp_path)})) as stream:
                with pytest.raises(UsageError, match="cannot determine the name of this pod; set POD_NAME"):
                    await anext(aiter(stream))
            task.cancel()

    run(main)


def test_an_agent_tells_such_a_source_where_files_are_mounted() -> None:
    options = AgentOptions(uri=("core.openfeature.dev/", "file:a"), pod_info="/somewhere")
    assert [each.settings.address for each in agent_sources(options)] == ["/somewhere", ""]


# facts from the API


def test_facts_come_from_the_server_with_the_zone_of_the_node_as_soon_as_it_may_be_asked(tmp_path: Path) -> None:
    environment = {
        "KUBECONFIG": kubeconfig(tmp_path), "POD_NAME": "shop-1", "POD_NAMESPACE": "team", "POD_IMAGE": "env",
    }  # fmt: skip
    source = Source("pod", POD, settings=SourceSettings(address=str(tmp_path / "none")))

    async def main() -> None:
        hub = FakeHub()
        async with seen(hub, watch_facts(source, environment, hub)) as found:
            await hub.watcher.push(WHO.watch(), Unavailable("we may not watch pods"))
            known, trouble = await found.take()
            assert known == Facts({"pod": {"name": "shop-1", "namespace": "team", "image": "env"}})
            assert trouble == Unavailable("we may not watch pods")
            await hub.pod(labels={"a.b": "c"})
            (facts,) = await found.take()
            assert facts.attributes["pod"]["labels"] == {"a_b": "c"}
            assert facts.attributes["pod"]["image"] == "shop:2"
            assert "zone" not in facts.attributes["pod"]
            hub.zones["n1"] = "eu-1"
            await hub.watcher.push(WHO.watch(), UNCHANGED)
            (facts,) = await found.take()
            assert facts.attributes["pod"]["zone"] == "eu-1"
            await hub.watcher.push(WHO.watch(), UNCHANGED, {}, UNCHANGED)
            same, missing, again = await found.take()
            assert same is UNCHANGED
            assert missing == again
            assert "there is no pod team/shop-1" in missing.reason
            assert hub.asked == 2, "a zone that is known is not asked for again"

    run(main)
