"""A service in Consul: what is counted, and what is not believed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.fakes import run
from tests.sources.consul.model import LEADERLESS, OK, ModelConsul, following
from wigwag.errors import UsageError
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.service import ServiceHealth, ServiceWatch, watch_service
from wigwag.wire.client.client import ClientResponse

SPEC = ServiceWatch(ConsulAccess(), "web")


def instance(*statuses: str, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"Service": {"ID": "x", "Tags": list(tags)}, "Checks": [{"Status": status} for status in statuses]}


def register(consul: ModelConsul, *instances: dict[str, Any], **fields: str) -> None:
    """Have the model answer with these instances."""
    consul.extra = fields
    consul.register("web", *instances)


def test_instances_are_counted_by_the_worst_of_their_checks() -> None:
    async def main() -> None:
        async with following(watch_service, SPEC) as followed:
            register(
                followed.consul,
                instance("passing", "passing", tags=("v1", "eu")),
                instance("passing", "warning", tags=("v2",)),
                instance("warning", "critical"),
                instance("passing", "maintenance"),
                instance(),
            )
            assert await followed.on(0) == [ServiceHealth(2, 1, 2, ("eu", "v1", "v2"))]
            assert followed.consul.asked[0][1] == "/v1/health/service/web"
            register(followed.consul, instance("passing"))
            assert await followed.on(0) == [ServiceHealth(1)]
            register(followed.consul, instance("passing"))
            assert await followed.on(0) == [UNCHANGED]

    run(main)


def test_no_instances_are_an_answer_and_an_error_is_none() -> None:
    async def main() -> None:
        async with following(watch_service, SPEC) as followed:
            register(followed.consul)
            assert await followed.on(0) == [ServiceHealth()]
            register(followed.consul, instance("passing"))
            assert await followed.on(0) == [ServiceHealth(1)]
            followed.consul.become(LEADERLESS)
            told = await followed.on(60)
            assert told
            assert all(isinstance(item, Unavailable) for item in told)
            followed.consul.become(OK)
            assert (await followed.on(60))[0] is UNCHANGED

    run(main)


def test_an_empty_answer_to_a_question_that_waited_is_asked_for_again() -> None:
    async def main() -> None:
        async with following(watch_service, SPEC) as followed:
            register(followed.consul, instance("passing"))
            await followed.on(0)
            register(followed.consul)
            assert await followed.on(0) == [ServiceHealth()]
            assert [query.get("index") for _, _, query, _ in followed.consul.asked] == [None, "11", None, "12"]

    run(main)


def test_a_service_that_may_not_be_seen_is_not_one_without_instances() -> None:
    async def main() -> None:
        async with following(watch_service, SPEC) as followed:
            register(followed.consul, instance("passing"))
            await followed.on(0)
            register(followed.consul, **{"x-consul-results-filtered-by-acls": "true"})
            told = await followed.on(30)
            assert told
            assert all("may not read all of it" in item.reason for item in told)

    run(main)


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b'[{"Checks": 5}]', b"\xff"])
def test_what_is_no_answer_of_consul_is_trouble(body: bytes) -> None:
    async def main() -> None:
        async with following(watch_service, SPEC) as followed:
            followed.consul._reply = lambda call, *_, **__: ClientResponse(call.url, 200, (), body)  # type: ignore[method-assign]
            assert "not one of Consul" in (await followed.on(0))[0].reason

    run(main)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\n"])
def test_what_cannot_be_a_service_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a service"):
        ServiceWatch(ConsulAccess(), name)
