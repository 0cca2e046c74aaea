"""Shared sources of the cluster: the same rollouts, rights, ConfigMaps and status as those of a namespace."""

from __future__ import annotations

from typing import Any

from tests.operator.controllers.world import Object, World
from tests.operator.known import SERVER_DEFAULTS
from tests.pipeline.fakes import run
from wigwag.kube.kinds import (
    CLUSTER_FEATURE_FLAG_SOURCE,
    CONFIG_MAP,
    DEPLOYMENT,
    FEATURE_FLAG,
    FLAGD,
    NAMESPACE,
    ROLE,
)
from wigwag.operator.names import CLUSTER_FEATURE_FLAG_SOURCE as NAMES_SHARED
from wigwag.operator.names import ENABLED, OPERATOR_DEPLOYMENT, RESTARTED_AT, SOURCE_DIGESTS

KIND = CLUSTER_FEATURE_FLAG_SOURCE
HTTP = {"source": "http://flags.test", "provider": "http"}


def shared(world: World, *sources: Object, **spec: Any) -> None:
    entries = list(sources) or [{"source": "shop", "provider": "kubernetes"}]
    world.put(KIND, "shared", {**SERVER_DEFAULTS, "sources": entries, **spec}, namespace="")


def workload(world: World, namespace: str = "team-a", **more: Any) -> None:
    annotations = {ENABLED: "true", NAMES_SHARED: "shared"}
    template = {"metadata": {"annotations": annotations}, "spec": {}}
    world.put(DEPLOYMENT, "web", {"template": template}, namespace=namespace, **more)


def label(world: World, namespace: str, **labels: str) -> None:
    world.put(NAMESPACE, namespace, namespace="", labels=labels)


def condition(world: World, type: str) -> tuple[str, str]:
    return world.condition(KIND, "shared", type, "")


def namespaces(world: World, kind: Any = ROLE) -> list[str]:
    return [each.partition("/")[0] for each in world.names(kind)]


def test_a_bare_name_means_a_flag_of_each_pods_own_namespace() -> None:
    async def main() -> None:
        world = World()
        for namespace in ("team-a", "team-b"):
            world.flag(namespace=namespace)
            workload(world, namespace)
        shared(world)
        async with world.running():
            assert namespaces(world) == ["team-a", "team-b"]
            status = world.get(KIND, "shared", "")["status"]
            assert (status["workloads"], status["sources"]) == (2, 1)
            assert condition(world, "Resolved") == ("True", "Resolved")
            world.server.remove(FEATURE_FLAG, ("team-b", "shop"))
            await world.settle()
            assert condition(world, "Resolved") == ("False", "FlagMissing")

    run(main)


def test_files_are_mounted_as_with_a_source_of_the_namespace() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        workload(world)
        shared(world, {"source": "shop", "provider": "file"})
        async with world.running():
            assert world.names(CONFIG_MAP) == ["team-a/shop"]
            world.server.remove(DEPLOYMENT, ("team-a", "web"))
            await world.settle()
            assert world.names(CONFIG_MAP) == []

    run(main)


def test_a_change_is_rolled_out_and_who_may_use_it_is_no_change() -> None:
    async def main() -> None:
        world = World()
        workload(world)
        shared(world, HTTP, rolloutOnChange=True)
        async with world.running():
            digest = world.get(KIND, "shared", "")["status"]["digest"]
            shared(world, HTTP, rolloutOnChange=True, allowedNamespaces={"names": ["team-a"]})
            await world.clock.advance(1.0)
            assert await world.since("patch") == []
            assert world.get(KIND, "shared", "")["status"]["digest"] == digest
            shared(world, HTTP, rolloutOnChange=True, port=9000)
            await world.clock.advance(1.0)
            assert await world.since("patch") == ["patch Deployment team-a/web"]
            annotations = world.get(DEPLOYMENT, "web")["spec"]["template"]["metadata"]["annotations"]
            assert RESTARTED_AT in annotations
            assert annotations[SOURCE_DIGESTS].startswith("shared=")
            said = "new pods are made, because ClusterFeatureFlagSource shared has changed"
            assert ("Deployment", "team-a/web", "Normal", "FlagSourceChanged", said) in world.recorder.events

    run(main)


def test_rights_end_when_a_namespace_is_no_longer_allowed() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        workload(world)
        shared(world, allowedNamespaces={"names": ["team-a"]})
        async with world.running():
            assert namespaces(world) == ["team-a"]
            assert condition(world, "Granted") == ("True", "Granted")
            shared(world, allowedNamespaces={"names": []})
            await world.settle()
            assert namespaces(world) == []
            assert condition(world, "Granted") == ("False", "GrantMissing")
            [message] = [each[4] for each in world.recorder.events if each[3] == "GrantMissing"]
            assert message == "Deployment team-a/web; if they may, add to spec.allowedNamespaces.names: team-a"

    run(main)


def test_labels_of_a_namespace_count_as_they_are_now() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        workload(world)
        label(world, "team-a", tier="b")
        shared(world, allowedNamespaces={"selector": {"matchLabels": {"tier": "a"}}})
        async with world.running():
            assert namespaces(world) == []
            label(world, "team-a", tier="a")
            await world.settle()
            assert namespaces(world) == ["team-a"]
            assert condition(world, "Granted") == ("True", "Granted")

    run(main)


def test_the_proxy_is_deployed_for_a_shared_source() -> None:
    async def main() -> None:
        world = World()
        world.put(DEPLOYMENT, OPERATOR_DEPLOYMENT, {}, namespace=world.settings.pod.namespace)
        shared(world, {"source": "shop", "provider": "flagd-proxy"})
        async with world.running():
            assert f"{world.settings.pod.namespace}/flagd-proxy" in world.names(DEPLOYMENT)

    run(main)


def test_a_flagd_uses_a_shared_source_and_its_own_wins() -> None:
    async def main() -> None:
        world = World()
        shared(world, HTTP, logFormat="console", contextValues={"region": "eu", "team": "none"})
        world.source({"source": "shop", "provider": "kubernetes"}, contextValues={"team": "a"})
        world.flag()
        world.put(FLAGD, "served", {"clusterFeatureFlagSource": "shared", "featureFlagSource": "flags", "replicas": 1})
        async with world.running():
            [container] = world.get(DEPLOYMENT, "served")["spec"]["template"]["spec"]["containers"]
            arguments = " ".join(container["args"])
            assert arguments.index("http://flags.test") < arguments.index("team-a/shop"), "later sources win"
            assert "region=eu" in arguments
            assert "team=a" in arguments
            shared(world, HTTP, allowedNamespaces={"names": ["team-b"]})
            await world.settle()
            assert world.condition(FLAGD, "served", "Resolved") == ("False", "SourceUnusable")
            assert world.get(DEPLOYMENT, "served"), "what exists stays as it is"
            world.server.remove(KIND, ("", "shared"))
            await world.settle()
            assert world.condition(FLAGD, "served", "Resolved") == ("False", "SourceUnusable"), "in the same words"

    run(main)


def test_a_flagd_follows_flags_of_its_namespace_that_a_shared_source_names() -> None:
    async def main() -> None:
        world = World()
        shared(world)
        world.put(FLAGD, "served", {"clusterFeatureFlagSource": "shared", "replicas": 1})
        async with world.running():
            assert world.condition(FLAGD, "served", "Resolved") == ("False", "SourceUnusable")
            world.flag()
            await world.settle()
            assert world.condition(FLAGD, "served", "Resolved") == ("True", "Resolved")

    run(main)
