"""Flagds: their objects, what they depend on, and what an error does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.controllers.world import World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.kinds import DEPLOYMENT, FEATURE_FLAG_SOURCE, FLAGD, HTTP_ROUTE, INGRESS, SERVICE
from wigwag.operator.controllers.managed import RETRY

DEFAULTS = {"replicas": 1, "serviceType": "ClusterIP", "featureFlagSource": "flags"}
INGRESSES = {"ingress": {"enabled": True, "hosts": ["flagd.test"]}}
ROUTES = {"gatewayApiRoutes": {"enabled": True, "parentRefs": [{"name": "eg"}], "hosts": ["flagd.test"]}}


def flagd(world: World, **spec: Any) -> None:
    world.put(FLAGD, "agent", {**DEFAULTS, **spec})


def world_with_a_flagd(**spec: Any) -> World:
    world = World()
    world.flag()
    world.source()
    flagd(world, **spec)
    return world


def applied(*kinds: str) -> list[str]:
    return [f"apply {kind} team-a/agent" for kind in kinds]


def test_a_flagd_gets_its_objects_and_a_status() -> None:
    async def main() -> None:
        world = world_with_a_flagd(**INGRESSES, **ROUTES)
        async with world.running():
            assert await world.since("apply") == applied("Deployment", "HTTPRoute", "Ingress", "Service")
            assert world.condition(FLAGD, "agent", "Programmed") == ("False", "Progressing")
            live = world.get(DEPLOYMENT, "agent")
            status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
            world.server.put(DEPLOYMENT, {**live, "status": status})
            await world.settle()
            assert world.condition(FLAGD, "agent", "Programmed") == ("True", "Ready")
            assert await world.since("apply") == []

    run(main)


def test_what_is_disabled_is_removed_and_nothing_else() -> None:
    async def main() -> None:
        world = world_with_a_flagd(**INGRESSES, **ROUTES)
        async with world.running():
            flagd(world)
            assert await world.since("delete") == ["delete HTTPRoute team-a/agent", "delete Ingress team-a/agent"]
            world.put(INGRESS, "agent", {})
            flagd(world, replicas=2)
            assert await world.since("delete") == [], "it is not ours"

    run(main)


def test_u70_a_flagd_that_is_gone_or_goes_is_left_alone() -> None:
    """Its objects go by garbage collection, or stay as orphans if it is deleted so."""

    async def main() -> None:
        world = world_with_a_flagd()
        async with world.running():
            await world.since()
            world.put(FLAGD, "agent", {**DEFAULTS, "replicas": 3}, deletionTimestamp="2027-01-01T00:00:00Z")
            service = world.get(SERVICE, "agent")
            world.server.put(SERVICE, {**service, "metadata": {**service["metadata"], "ownerReferences": []}})
            assert await world.since() == []
            world.server.remove(FLAGD, ("team-a", "agent"))
            world.server.remove(SERVICE, ("team-a", "agent"))
            assert await world.since() == []

    run(main)


KINDS = {each.kind: each for each in (DEPLOYMENT, SERVICE, HTTP_ROUTE, INGRESS)}


@pytest.mark.parametrize("kind", KINDS)
def test_u71_to_u74_an_error_of_the_server_is_retried(kind: str) -> None:
    async def main() -> None:
        world = world_with_a_flagd(**INGRESSES, **ROUTES)
        world.server.refusals += [(f"apply {kind}", refusal(500))] * 20
        async with world.running():
            assert world.names(KINDS[kind]) == []
            assert world.condition(FLAGD, "agent", "Programmed") == ("", "")
            world.server.refusals.clear()
            await world.clock.advance(10.0)
            assert [world.names(each) for each in KINDS.values()] == [["team-a/agent"]] * 4
            assert world.condition(FLAGD, "agent", "Programmed") == ("False", "Progressing")

    run(main)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [403, 404, 422])
def test_u77_an_object_that_the_server_refuses_holds_up_no_other(kind: str, code: int) -> None:
    async def main() -> None:
        world = world_with_a_flagd(**INGRESSES, **ROUTES)
        world.server.refusals += [(f"apply {kind}", refusal(code))] * 20
        async with world.running():
            assert [name for name, each in KINDS.items() if not world.names(each)] == [kind]
            [programmed] = [
                each for each in world.get(FLAGD, "agent")["status"]["conditions"] if each["reason"] == "Refused"
            ]
            assert programmed["message"] == f"{kind} team-a/agent: request: the API server answered {code}"
            world.server.refusals.clear()
            await world.clock.advance(RETRY + 1)
            assert world.names(KINDS[kind]) == ["team-a/agent"]
            assert world.condition(FLAGD, "agent", "Programmed") == ("False", "Progressing")

    run(main)


def test_u76_u78_one_of_ours_is_updated_and_one_of_others_is_not() -> None:
    async def main() -> None:
        world = world_with_a_flagd()
        world.put(SERVICE, "agent", {"ports": []})
        async with world.running():
            assert world.condition(FLAGD, "agent", "Programmed") == ("False", "Refused")
            flagd(world, replicas=2)
            await world.settle()
            assert world.get(DEPLOYMENT, "agent")["spec"]["replicas"] == 2
            assert [each[3] for each in world.recorder.events if each[0] == "Flagd"] == ["Refused"]
            assert world.get(SERVICE, "agent")["spec"] == {"ports": []}
            world.server.remove(SERVICE, ("team-a", "agent"))  # which no watch of ours shows
            await world.clock.advance(RETRY + 1)
            assert world.get(SERVICE, "agent")["spec"]["ports"]

    run(main)


def test_u82_a_source_that_comes_changes_or_goes_is_a_reason_to_look() -> None:
    async def main() -> None:
        world = World()
        flagd(world)
        async with world.running():
            assert world.condition(FLAGD, "agent", "Resolved") == ("False", "SourceNotFound")
            world.source({"source": "http://flags.test", "provider": "http"})
            assert await world.since("apply") == applied("Deployment", "Service")
            world.source({"source": "http://flags.test", "provider": "http"}, debugLogging=True)
            assert await world.since("apply") == applied("Deployment")
            world.server.remove(FEATURE_FLAG_SOURCE, ("team-a", "flags"))
            assert await world.since("apply", "delete") == [], "agents keep serving"
            assert world.condition(FLAGD, "agent", "Resolved") == ("False", "SourceNotFound")

    run(main)


def test_a_flag_that_its_source_waits_for_is_a_reason_to_look() -> None:
    async def main() -> None:
        world = World()
        world.source({"source": "shop", "provider": "file"})
        flagd(world)
        async with world.running():
            assert world.condition(FLAGD, "agent", "Resolved") == ("False", "SourceUnusable")
            world.flag()
            assert applied("Deployment")[0] in await world.since()

    run(main)
