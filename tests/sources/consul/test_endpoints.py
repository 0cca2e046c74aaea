"""The endpoints of a service: where it listens, what is no answer, and how soon the newest state is there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.fakes import run
from tests.sources.consul.model import DENIED, DOWN, LEADERLESS, OK, following
from wigwag.errors import UsageError
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.endpoints import EndpointsWatch, ServiceEndpoint, ServiceEndpoints, watch_endpoints

SPEC = EndpointsWatch(ConsulAccess(), "web")
EMPTY = ServiceEndpoints()


def instance(id: str = "web-1", node: str = "n1", **service: Any) -> dict[str, Any]:
    place = {"ID": f"{node}-id", "Node": node, "Address": "10.0.0.1", "Datacenter": "dc1"}
    return {"Node": place, "Service": {"ID": id, "Service": "web", "Port": 80, **service}, "Checks": []}


def endpoint(id: str = "web-1", node: str = "n1", **more: Any) -> ServiceEndpoint:
    given = {"service": "web", "address": "10.0.0.1", "port": 80, "datacenter": "dc1", **more}
    return ServiceEndpoint(id=id, node=node, node_id=f"{node}-id", **given)


def test_an_endpoint_has_the_address_of_its_registration_or_that_of_its_node() -> None:
    async def main() -> None:
        async with following(watch_endpoints, SPEC) as followed:
            weights = {"Passing": 10, "Warning": 0}
            one = instance(Address="10.9.9.9", Tags=["v2", "eu"], Meta={"z": "1", "a": "2"}, Weights=weights)
            followed.consul.register("web", one, instance("web-2", Tags=None))
            told = endpoint(address="10.9.9.9", tags=("v2", "eu"), meta=(("a", "2"), ("z", "1")), weights=(10, 0))
            assert await followed.on(0) == [ServiceEndpoints((told, endpoint("web-2")))]
            assert followed.consul.asked[0][1:3] == ("/v1/health/service/web", {"passing": "true"})
            assert hash(ServiceEndpoints((told,)))

    run(main)


def test_the_order_of_instances_is_no_change() -> None:
    async def main() -> None:
        async with following(watch_endpoints, SPEC) as followed:
            instances = [instance("b"), instance("a", "n2"), instance("a")]
            followed.consul.register("web", *instances)
            assert await followed.on(0) == [ServiceEndpoints((endpoint("a"), endpoint("a", "n2"), endpoint("b")))]
            followed.consul.register("web", *reversed(instances))
            assert await followed.on(0) == [UNCHANGED]

    run(main)


def test_consul_selects_by_tag_and_filter_and_the_state_is_known_if_all_are_wanted() -> None:
    async def main() -> None:
        spec = EndpointsWatch(ConsulAccess(), "web", "v2", 'Service.Meta.x == "1"', passing=False)
        async with following(watch_endpoints, spec) as followed:
            followed.consul.register("web", {**instance(), "Checks": [{"Status": "critical"}]})
            assert await followed.on(0) == [ServiceEndpoints((endpoint(status="critical"),))]
            assert followed.consul.asked[0][2] == {"tag": "v2", "filter": 'Service.Meta.x == "1"'}

    run(main)


def test_no_instances_are_an_answer_and_an_error_keeps_what_was_there() -> None:
    async def main() -> None:
        async with following(watch_endpoints, SPEC) as followed:
            assert await followed.on(0) == [EMPTY]
            followed.consul.register("web", instance())
            assert await followed.on(0) == [ServiceEndpoints((endpoint(),))]
            for state in (LEADERLESS, DOWN, DENIED):
                followed.consul.become(state)
                told = await followed.on(30)
                assert told
                assert all(isinstance(item, Unavailable) for item in told)
                followed.consul.become(OK)
                assert set(await followed.on(31)) == {UNCHANGED}
            followed.consul.register("web")
            assert await followed.on(0) == [EMPTY]

    run(main)


@pytest.mark.parametrize("state", [DOWN, LEADERLESS])
def test_after_an_outage_the_new_state_is_there_within_two_seconds(state: str) -> None:
    async def main() -> None:
        for seed in range(20):
            async with following(watch_endpoints, SPEC, seed) as followed:
                followed.consul.register("web", instance())
                await followed.on(1)
                followed.consul.become(state)
                await followed.on(70 if seed % 2 else 20)
                followed.consul.register("web", instance(Port=81))
                followed.consul.become(OK)
                assert await followed.on(2) == [ServiceEndpoints((endpoint(port=81),))]

    run(main)


def test_a_refusal_is_retried_slowly() -> None:
    async def main() -> None:
        async with following(watch_endpoints, SPEC) as followed:
            followed.consul.become(DENIED)
            await followed.on(600)
            assert len(followed.consul.asked) < 8 + 600 / 15

    run(main)


def test_of_a_thousand_changes_in_five_seconds_the_last_one_is_half_a_second_late_at_most() -> None:
    async def main() -> None:
        async with following(watch_endpoints, SPEC) as followed:
            for port in range(1000):
                followed.consul.register("web", instance(Port=port))
                await followed.on(0.005)
            asked = len(followed.consul.asked)
            assert asked < 40
            assert (await followed.on(0.5))[-1] == ServiceEndpoints((endpoint(port=999),))

    run(main)


def test_what_changes_elsewhere_delays_a_change_by_half_a_second_at_most() -> None:
    async def main() -> None:
        async with following(watch_endpoints, SPEC) as followed:
            for _ in range(500):
                followed.consul.churn()
                await followed.on(0.02)
            assert len(followed.consul.asked) < 2 * (10 + 10 / 0.5 + 1)
            followed.consul.register("web", instance())
            assert (await followed.on(0.5))[-1] == ServiceEndpoints((endpoint(),))

    run(main)


@pytest.mark.parametrize("texts", [{"tag": "a\nb"}, {"filter": "\x00"}, {"filter": "x" * 5000}, {"service": "a/b"}])
def test_what_cannot_be_asked_for_is_refused(texts: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        EndpointsWatch(**{"access": ConsulAccess(), "service": "web", **texts})  # type: ignore[arg-type]


def test_the_name_of_a_watch_has_no_secret() -> None:
    spec = EndpointsWatch(ConsulAccess(token="hush"), "web")
    assert str(spec) == "consul://127.0.0.1:8500 endpoints of web"
    assert "hush" not in repr(spec)


def test_a_tiny_wait_is_no_way_around_the_rate_limit() -> None:
    async def main() -> None:
        async with following(watch_endpoints, EndpointsWatch(ConsulAccess(wait=0.001), "web")) as followed:
            followed.consul.register("web", instance())
            await followed.on(60)
            assert len(followed.consul.asked) < 10 + 60 / 0.5 + 2

    run(main)
