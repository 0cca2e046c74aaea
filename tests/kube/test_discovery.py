"""The kinds of a server, fetched once for all, again when that is due, and never lost because a part fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kube.api import kube, refusal, status
from tests.kube.discovered import CORE, OTHERS, DiscoverableApi, discoverable, resource
from tests.pipeline.fakes import FakeClock, run
from tests.sources.faulty import whole
from wigwag.errors import WigwagError
from wigwag.kube.discovery import Discovery
from wigwag.kube.errors import ApiError, UnknownKindError, read_status
from wigwag.kube.kinds import SERVICE, Kind

ROOTS = ["/api", "/apis"]
LATE = {"late.example.com": {"v1": [resource("lates", "Late")]}}
LATES = Kind("late.example.com", "v1", "lates")
INGRESS = Kind("networking.k8s.io", "v1", "ingresses")


@asynccontextmanager
async def discovering(**given: Any) -> AsyncIterator[tuple[DiscoverableApi, Discovery, FakeClock]]:
    clock = FakeClock()
    async with discoverable(**given) as api:
        client = kube(api.url, clock=clock)
        yield api, Discovery(client), clock
        client.close()


def test_all_names_cost_two_requests() -> None:
    async def main() -> None:
        async with discovering() as (api, discovery, _):
            found = await asyncio.gather(*(discovery.resolve(name) for name in ("svc", "Mapping", "ing", "services")))
            assert [each.plural for each in found] == ["services", "mappings", "ingresses", "services"]
            assert await discovery.resolve("nodes") == Kind("", "v1", "nodes", namespaced=False)
            assert [path for path, _ in api.asked] == ROOTS

    run(main)


def test_who_leaves_while_others_wait_does_not_end_their_request() -> None:
    async def main() -> None:
        async with discovering() as (_, discovery, _), asyncio.TaskGroup() as group:
            first = group.create_task(discovery.resolve("svc"))
            second = group.create_task(discovery.resolve("svc"))
            await asyncio.sleep(0)
            first.cancel()
            assert await second == SERVICE

    run(main)


def test_a_table_that_has_not_changed_is_not_sent_again() -> None:
    async def main() -> None:
        async with discovering() as (api, discovery, clock):
            await discovery.refresh()
            await clock.advance(60.0)
            await discovery.refresh()
            assert [code for _, code in api.asked] == [200, 200, 304, 304]
            api.groups = CORE | LATE
            await clock.advance(60.0)
            assert await discovery.resolve("late") == LATES
            assert [code for _, code in api.asked[4:]] == [304, 200]
            with pytest.raises(UnknownKindError):
                await discovery.resolve("ingresses")

    run(main)


def test_an_unknown_name_is_looked_up_again_but_not_more_often_than_the_back_off_allows() -> None:
    async def main() -> None:
        async with discovering() as (api, discovery, clock):
            with pytest.raises(UnknownKindError):
                await discovery.resolve("lates")
            api.groups = CORE | LATE
            with pytest.raises(UnknownKindError):
                await discovery.resolve("lates")
            assert len(api.asked) == 2, "too soon"
            await clock.advance(discovery.due - clock.now())
            assert await discovery.resolve("lates") == LATES

    run(main)


def test_the_pause_doubles_up_to_15_s_while_nothing_changes_and_can_be_cut_short() -> None:
    async def main() -> None:
        async with discovering() as (api, discovery, clock):
            pauses = []
            for _ in range(7):
                await discovery.refresh()
                pauses.append(discovery.due - clock.now())
                await clock.advance(pauses[-1])
            assert pauses == [0.75, 1.5, 3.0, 6.0, 11.25, 11.25, 11.25]
            await discovery.refresh()
            for _ in range(100):
                discovery.refresh_soon()
            assert discovery.due - clock.now() == 0.75
            assert len(api.asked) == 16

    run(main)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_group_that_does_not_answer_keeps_its_kinds_and_hides_no_others(legacy: bool) -> None:
    async def main() -> None:
        async with discovering(legacy=legacy) as (api, discovery, clock):
            assert await discovery.resolve("ing") == INGRESS
            api.stale, api.groups = ("networking.k8s.io",), CORE | OTHERS | LATE
            api.faults["/apis/networking.k8s.io/v1"] = refusal(503, "ServiceUnavailable")
            await clock.advance(60.0)
            assert await discovery.resolve("lates") == LATES
            assert await discovery.resolve("ing") == INGRESS
            with pytest.raises(UnknownKindError, match=r"not all kinds are known: .*networking.k8s.io/v1"):
                await discovery.resolve("networkpolicies")
            api.groups, api.stale = CORE | LATE, ()
            await clock.advance(60.0)
            await discovery.refresh()
            with pytest.raises(UnknownKindError):
                await discovery.resolve("ing")

    run(main)


def test_a_server_without_aggregated_discovery_is_asked_for_each_version() -> None:
    async def main() -> None:
        async with discovering(legacy=True, groups=CORE | LATE) as (api, discovery, clock):
            assert await discovery.resolve("late") == LATES
            assert [path for path, _ in api.asked] == ["/api", "/api/v1", "/apis", "/apis/late.example.com/v1"]
            api.groups = CORE | {"late.example.com": {"v1": [resource("laters", "Later")]}}
            await clock.advance(60.0)
            assert (await discovery.resolve("laters")).plural == "laters", "though the groups are the same"

    run(main)


@pytest.mark.parametrize("fault", [refusal(500), whole(b"<html>"), whole(b'{"kind": 1}'), whole(b"[" * 100_000)])
def test_half_of_the_answer_is_enough_for_its_kinds(fault: bytes) -> None:
    async def main() -> None:
        async with discovering() as (api, discovery, clock):
            api.faults["/apis"] = fault
            assert await discovery.resolve("svc") == SERVICE
            with pytest.raises(UnknownKindError, match="not all kinds are known"):
                await discovery.resolve("ing")
            api.faults.clear()
            await clock.advance(60.0)
            assert await discovery.resolve("ing") == INGRESS
            api.faults |= dict.fromkeys(ROOTS, fault)
            await clock.advance(60.0)
            await discovery.refresh()
            assert await discovery.resolve("ing") == INGRESS, "what is known stays"

    run(main)


def test_a_server_that_cannot_be_asked_is_told_and_asked_again() -> None:
    async def main() -> None:
        async with discovering() as (api, discovery, clock):
            api.faults |= dict.fromkeys(ROOTS, refusal(403, "Forbidden", "no"))
            for _ in range(3):
                with pytest.raises(WigwagError, match="GET /api: the API server answered 403 Forbidden"):
                    await discovery.resolve("svc")
            assert len(api.asked) == 2
            api.faults.clear()
            await clock.advance(60.0)
            assert await discovery.resolve("svc") == SERVICE

    run(main)


def test_a_server_without_a_core_group_has_the_others() -> None:
    async def main() -> None:
        async with discovering() as (api, discovery, _):
            api.faults["/api"] = refusal(404, "NotFound")
            assert await discovery.resolve("ing") == INGRESS
            with pytest.raises(UnknownKindError, match=r"'svcs' \(did you mean 'svc'") as caught:
                await discovery.resolve("svcs")
            assert "not all" not in str(caught.value)

    run(main)


def test_not_found_is_the_status_404() -> None:
    def error(code: int) -> ApiError:
        return ApiError("GET /x", read_status(repr(status(code)).replace("'", '"').encode()))

    assert error(404).not_found
    assert not error(403).not_found
