"""An operator of some namespaces: the others are not its business, and a missing right in one holds up no other."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.operator.controllers.world import World
from tests.pipeline.fakes import run
from wigwag.errors import UsageError
from wigwag.kube.kinds import CONFIG_MAP, DEPLOYMENT, FEATURE_FLAG_SOURCE, POD, ROLE
from wigwag.operator.settings import MOST_NAMESPACES, OperatorOptions

MOUNTED = {"source": "shop", "provider": "file"}


def test_every_watch_of_an_operator_of_some_namespaces_is_in_one_of_them() -> None:
    async def main() -> None:
        world = World(namespaces=("team-a",))
        async with world.running():
            own, watched = world.settings.pod.namespace, world.server.watched
            assert {each.namespace for each in watched} == {"team-a", own}
            assert {each.kind.plural for each in watched if each.namespace == own} == {
                "deployments", "services", "poddisruptionbudgets"
            }  # fmt: skip

    run(main)


def test_an_excluded_namespace_is_left_out_by_the_server() -> None:
    async def main() -> None:
        world = World(exclude_namespaces=("team-a", "team-b"))
        async with world.running():
            everywhere = [each for each in world.server.watched if each.kind.namespaced and not each.namespace]
            assert len(everywhere) > 10
            excluded = "metadata.namespace!=team-a,metadata.namespace!=team-b"
            assert {each.fields for each in everywhere} == {excluded}

    run(main)


def test_objects_of_other_namespaces_are_not_touched() -> None:
    async def main() -> None:
        world = World(namespaces=("team-a",))
        for namespace in ("team-a", "team-b"):
            world.flag(namespace=namespace)
            world.source(namespace=namespace)
            world.workload(namespace=namespace)
        async with world.running():
            assert [each.partition("/")[0] for each in world.names(ROLE)] == ["team-a"]
            assert [each for each in await world.since() if "team-b" in each] == []
            assert world.condition(FEATURE_FLAG_SOURCE, "flags", "Accepted") == ("True", "Valid")

    run(main)


def test_a_namespace_without_rights_holds_up_no_other_and_keeps_what_it_has(caplog: pytest.LogCaptureFixture) -> None:
    """Its pods cannot be seen, so nobody knows whether they need their ConfigMap: it stays."""

    async def main() -> None:
        world = World(namespaces=("team-a", "team-b"))
        for namespace in ("team-a", "team-b"):
            world.flag(namespace=namespace)
            world.source(MOUNTED, namespace=namespace)
            world.workload(namespace=namespace)
        async with world.running():
            assert world.names(CONFIG_MAP) == ["team-a/shop", "team-b/shop"]
        world.server.remove(DEPLOYMENT, ("team-a", "web"))
        world.server.remove(DEPLOYMENT, ("team-b", "web"))
        world.server.forbidden.add((DEPLOYMENT, "team-b"))
        with caplog.at_level(logging.WARNING):
            async with world.running():
                assert world.names(CONFIG_MAP) == ["team-b/shop"]
        assert [each for each in caplog.messages if each.startswith("namespace team-b goes without the operator")]
        assert caplog.messages[0].endswith("we may not list deployments.apps in the namespace team-b")
        assert len(caplog.messages) == len(set(caplog.messages)), "each is said once"

    run(main)


def test_what_was_kept_is_removed_when_the_namespace_can_be_read_by_another_leader() -> None:
    async def main() -> None:
        world = World(namespaces=("team-a", "team-b"))
        world.flag(namespace="team-b")
        world.source(MOUNTED, namespace="team-b")
        world.workload(namespace="team-b")
        async with world.running():
            assert world.names(CONFIG_MAP) == ["team-b/shop"]
        world.server.remove(DEPLOYMENT, ("team-b", "web"))
        world.server.forbidden.add((POD, "team-b"))
        async with world.running():
            assert world.names(CONFIG_MAP) == ["team-b/shop"]
        world.server.forbidden.clear()
        async with world.running():
            await world.clock.advance(6.0)
            await world.settle()
            assert world.names(CONFIG_MAP) == []

    run(main)


def test_rights_stay_while_the_pods_of_a_namespace_cannot_be_seen() -> None:
    async def main() -> None:
        world = World(namespaces=("team-a", "team-b"))
        world.flag(namespace="team-b")
        world.source(namespace="team-b")
        world.workload(namespace="team-b")
        async with world.running():
            before = world.names(ROLE)
            assert len(before) == 1
        world.server.forbidden |= {(POD, "team-b"), (DEPLOYMENT, "team-b")}
        async with world.running():
            assert world.names(ROLE) == before
            world.server.remove(DEPLOYMENT, ("team-b", "web"))
            world.server.forbidden.clear()
            world.flag(namespace="team-b", default="off")  # any change makes the watches answer
            await world.clock.advance(61.0)
            await world.settle()
            assert world.names(ROLE) == []

    run(main)


def test_a_source_takes_no_digest_while_workloads_that_may_use_it_cannot_be_seen() -> None:
    async def main() -> None:
        world = World(namespaces=("team-a", "team-b"))
        world.source(namespace="team-b")
        world.source(namespace="team-a", name="own")
        world.server.forbidden.add((DEPLOYMENT, "team-b"))
        async with world.running():
            assert world.get(FEATURE_FLAG_SOURCE, "own")["status"]["digest"]
            assert not world.get(FEATURE_FLAG_SOURCE, "flags", "team-b")["status"]

    run(main)


def test_a_namespace_that_terminates_is_no_reason_for_a_storm_and_others_get_what_they_need() -> None:
    async def main() -> None:
        world = World(namespaces=("team-a", "team-b"))
        world.server.terminating.add("team-b")
        for namespace in ("team-a", "team-b"):
            world.flag(namespace=namespace)
            world.source(MOUNTED, {"source": "shop", "provider": "kubernetes"}, namespace=namespace)
            world.workload(namespace=namespace)
        async with world.running():
            assert world.names(CONFIG_MAP) == ["team-a/shop"]
            assert [each.partition("/")[0] for each in world.names(ROLE)] == ["team-a"]
            world.server.asked.clear()
            for _ in range(300):  # ten minutes
                await world.clock.advance(2.0)
            tries = [each for each in await world.since("apply") if "team-b" in each]
            assert 0 < len(tries) < 100, "two objects, each with a back-off of half a minute in the end"

    run(main)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namespaces": ("Team_A",)}, "--namespaces: 'Team_A' is not the name of a namespace"),
        ({"namespaces": tuple(f"n{each}" for each in range(MOST_NAMESPACES + 1))}, "too many watches"),
        ({"namespaces": ("a",), "exclude_namespaces": ("b",)}, "leave one of them out"),
        (
            {"namespaces": ("a",), "cluster_role_binding": True},
            "it writes a ClusterRoleBinding",
        ),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OperatorOptions(**options)


def test_who_writes_the_ca_bundle_depends_on_the_namespaces() -> None:
    assert OperatorOptions().patches_webhooks
    assert not OperatorOptions(namespaces=("a",)).patches_webhooks
    assert OperatorOptions(namespaces=("a",), webhook_ca="patch").patches_webhooks
    assert not OperatorOptions(webhook_ca="manual").patches_webhooks


@pytest.mark.parametrize("options", [{"namespaces": ("team-a",)}, {"exclude_namespaces": ("team-b",)}])
def test_flags_of_a_namespace_that_is_not_served_are_not_used_nor_touched(options: dict[str, Any]) -> None:
    """Whatever the policy: a Role for them would be in a namespace of another operator."""

    async def main() -> None:
        world = World(cross_namespace="allow", **options)
        world.flag(namespace="team-b")
        world.source({"source": "team-b/shop", "provider": "kubernetes"})
        world.workload()
        async with world.running():
            assert world.condition(FEATURE_FLAG_SOURCE, "flags", "Resolved") == ("False", "FlagNotGranted")
            assert world.names(ROLE) == []

    run(main)
