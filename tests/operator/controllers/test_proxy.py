"""The proxy: deployed when a source needs it, repaired, taken over; problems are said once."""

from __future__ import annotations

import pytest

from tests.operator.controllers.world import Object, World
from tests.pipeline.fakes import run
from wigwag.kube.kinds import DEPLOYMENT, FEATURE_FLAG_SOURCE, POD_DISRUPTION_BUDGET, SERVICE
from wigwag.operator.controllers.managed import RETRY
from wigwag.operator.names import MANAGED_BY, OPERATOR, OPERATOR_DEPLOYMENT, PROXY, PROXY_SERVICE

HOME = "open-feature-operator-system"
APPLIED = [
    f"apply Deployment {HOME}/flagd-proxy",
    f"apply PodDisruptionBudget {HOME}/flagd-proxy-pdb",
    f"apply Service {HOME}/flagd-proxy-svc",
]


def owner(world: World) -> Object:
    return world.put(DEPLOYMENT, OPERATOR_DEPLOYMENT, {}, namespace=HOME)


def world_with_a_proxied_source() -> World:
    world = World()
    world.source({"source": "shop", "provider": "flagd-proxy"})
    return world


def test_a_missing_owner_is_said_once_and_the_proxy_deployed_when_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        world = world_with_a_proxied_source()
        async with world.running():
            world.source({"source": "shop", "provider": "flagd-proxy"}, name="another")
            assert await world.since("apply") == []
            owner(world)
            assert await world.since("apply") == APPLIED

    run(main)
    assert sum("flagd-proxy is not deployed, because" in each.getMessage() for each in caplog.records) == 1


def test_a_source_that_needs_no_proxy_deploys_none_and_a_proxy_stays() -> None:
    async def main() -> None:
        world = World()
        owner(world)
        world.source()
        async with world.running():
            assert await world.since("apply") == []
            world.source({"source": "shop"}, defaultSyncProvider="flagd-proxy")
            assert await world.since("apply") == APPLIED
            world.server.remove(FEATURE_FLAG_SOURCE, ("team-a", "flags"))
            assert await world.since("delete") == []

    run(main)


def test_each_object_is_repaired_and_not_written_if_it_is_right() -> None:
    async def main() -> None:
        world = world_with_a_proxied_source()
        owner(world)
        async with world.running():
            await world.since()
            live = world.get(DEPLOYMENT, PROXY, HOME)
            world.server.put(DEPLOYMENT, {**live, "spec": {**live["spec"], "replicas": 7}})
            assert await world.since("apply") == APPLIED[:1]
            world.server.remove(POD_DISRUPTION_BUDGET, (HOME, "flagd-proxy-pdb"))
            assert await world.since("apply") == APPLIED[1:2]
            service = world.get(SERVICE, PROXY_SERVICE, HOME)
            selector = {**service["spec"]["selector"], "tier": "theirs"}
            world.server.put(SERVICE, {**service, "spec": {**service["spec"], "selector": selector}})
            assert await world.since("apply") == APPLIED[2:]
            world.source({"source": "other", "provider": "flagd-proxy"})
            assert await world.since("apply") == []
        async with world.running():  # another leader
            assert await world.since("apply") == []

    run(main)


def test_one_of_the_original_is_taken_over_and_one_of_others_is_not() -> None:
    async def main() -> None:
        world = world_with_a_proxied_source()
        owner(world)
        entry = {"manager": "manager", "operation": "Update", "apiVersion": "apps/v1", "fieldsV1": {}}
        about = {"labels": {MANAGED_BY: OPERATOR}, "managedFields": [entry]}
        world.put(DEPLOYMENT, PROXY, {"replicas": 2}, namespace=HOME, **about)
        world.put(SERVICE, PROXY_SERVICE, {"ports": []}, namespace=HOME)
        async with world.running():
            asked = await world.since("patch", "apply")
            assert asked == [*APPLIED[:2], f"patch Deployment {HOME}/flagd-proxy"]
            [taken] = world.get(DEPLOYMENT, PROXY, HOME)["metadata"]["managedFields"]
            assert (taken["manager"], taken["operation"]) == ("wigwag-operator", "Apply")
            world.source({"source": "other", "provider": "flagd-proxy"})
            await world.settle()
            said = [each for each in world.recorder.events if each[3] == "ProxyNotDeployed"]
            assert [each[:3] for each in said] == [("Deployment", f"{HOME}/{OPERATOR_DEPLOYMENT}", "Warning")]
            assert world.get(SERVICE, PROXY_SERVICE, HOME)["spec"] == {"ports": []}
            world.server.remove(SERVICE, (HOME, PROXY_SERVICE))  # which no watch of ours shows
            await world.clock.advance(RETRY + 1)
            assert world.get(SERVICE, PROXY_SERVICE, HOME)["spec"]["ports"]

    run(main)


def test_sources_learn_when_the_proxy_is_ready() -> None:
    async def main() -> None:
        world = world_with_a_proxied_source()
        world.flag()
        owner(world)
        async with world.running():
            assert world.condition(FEATURE_FLAG_SOURCE, "flags", "Programmed") == ("False", "ProxyNotReady")
            world.server.put(DEPLOYMENT, {**world.get(DEPLOYMENT, PROXY, HOME), "status": {"readyReplicas": 1}})
            await world.settle()
            assert world.condition(FEATURE_FLAG_SOURCE, "flags", "Programmed") == ("True", "UpToDate")

    run(main)
