"""Who may subscribe, if Kubernetes is asked: its answers here are those of a script."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.pipeline.fakes import FakeClock, run, settle
from wigwag.kube.client import Kube
from wigwag.kube.grants import ALLOW_FROM
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import Kind
from wigwag.proxy.authorize import ALLOWED_SECONDS, AT_ONCE, REFUSED_SECONDS, Review, authorizer
from wigwag.proxy.options import ProxyOptions
from wigwag.proxy.rights import NamespaceRights, TokenUser
from wigwag.sources.kubernetes.address import read_address
from wigwag.sources.source import Source
from wigwag.wire.rpc import Code, RpcError

FLAG = Source("team-a/checkout", "kubernetes")
OTHER = Source("team-b/search", "kubernetes")
USER = {"username": "system:serviceaccount:team-a:app", "uid": "1", "groups": ["g"], "extra": {"pod": ["p"]}}


class Server:
    """An API server that knows one token, and lets its account get one FeatureFlag."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.allowed = {"team-a/checkout"}
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.under_way = self.most_under_way = 0

    async def create(self, kind: Kind, made: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((kind.plural, made["spec"]))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        if self.gate is not None:
            await self.gate.wait()
        self.under_way -= 1
        if self.error is not None:
            raise self.error
        return {**made, "status": self._status(made["spec"])}

    def _status(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        if "token" in spec:
            return {"authenticated": True, "user": USER} if spec["token"].startswith("good") else {"error": "no"}
        wanted = spec["resourceAttributes"]
        return {"allowed": f"{wanted['namespace']}/{wanted['name']}" in self.allowed}


async def refused(review: Review, token: str | None, source: Source) -> Code:
    with pytest.raises(RpcError) as caught:
        await review(token, source)
    assert token is None or token not in str(caught.value)
    return caught.value.code


def test_who_may_get_the_feature_flag_may_subscribe_to_it() -> None:
    async def main() -> None:
        server = Server()
        await Review(server, FakeClock())("good", FLAG)
        assert [kind for kind, _ in server.asked] == ["tokenreviews", "subjectaccessreviews"]
        spec = server.asked[1][1]
        assert (spec["user"], spec["groups"], spec["extra"]) == (USER["username"], ("g",), {"pod": ("p",)})
        assert spec["resourceAttributes"] == {
            "verb": "get",
            "group": "core.openfeature.dev",
            "version": "v1beta1",
            "resource": "featureflags",
            "namespace": "team-a",
            "name": "checkout",
        }

    run(main)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (Source("team-a?labels=app%3Dshop", "kubernetes"), ("list", "featureflags", "team-a", "")),
        (Source("configmap/team-a/flags/a.json", "configmap"), ("get", "configmaps", "team-a", "flags")),
    ],
)
def test_what_is_asked_for_is_what_would_be_read(source: Source, wanted: tuple[str, ...]) -> None:
    async def main() -> None:
        server = Server()
        assert await refused(Review(server, FakeClock()), "good", source) is Code.PERMISSION_DENIED
        asked = server.asked[1][1]["resourceAttributes"]
        assert tuple(asked[name] for name in ("verb", "resource", "namespace", "name")) == wanted

    run(main)


class Annotated:
    """An API server with a FeatureFlag of another namespace."""

    def __init__(self, allow_from: str | None) -> None:
        self.allow_from, self.asked = allow_from, list[str]()

    async def find_metadata(self, kind: Kind, name: str, namespace: str = "") -> dict[str, Any] | None:
        self.asked.append(f"{kind.plural}/{namespace}/{name}")
        return None if self.allow_from is None else {"annotations": {ALLOW_FROM: self.allow_from}}


@pytest.mark.parametrize(
    ("policy", "allow_from", "source", "allowed"),
    [
        ("grant", None, FLAG, True),
        ("deny", None, FLAG, True),
        ("grant", "team-x, team-a", OTHER, True),
        ("grant", "*", OTHER, True),
        ("grant", "team-ab", OTHER, False),
        ("grant", "", OTHER, False),
        ("grant", None, OTHER, False),
        ("deny", "*", OTHER, False),
        ("allow", None, OTHER, True),
        ("grant", None, Source("team-a?labels=app%3Dshop", "kubernetes"), True),
        ("grant", "*", Source("team-b?labels=app%3Dshop", "kubernetes"), False),
    ],
)
def test_by_namespace_an_account_reads_its_own_and_what_others_grant(
    policy: str, allow_from: str | None, source: Source, allowed: bool
) -> None:
    async def main() -> None:
        server, objects = Server(), Annotated(allow_from)
        review = Review(server, FakeClock(), rights=NamespaceRights(objects, policy))
        if allowed:
            await review("good", source)
        else:
            assert await refused(review, "good", source) is Code.PERMISSION_DENIED
        assert [kind for kind, _ in server.asked] == ["tokenreviews"], "no right to review access is needed"
        assert objects.asked == ["featureflags/team-b/search"] * (policy == "grant" and source is OTHER)

    run(main)


@pytest.mark.parametrize(
    "username", ["team-a", "jane", "system:serviceaccount:team-a", "system:node:team-a:x", "a:b:c:d"]
)
def test_by_namespace_only_service_accounts_have_one(username: str) -> None:
    async def main() -> None:
        rights, place = NamespaceRights(Annotated("*"), "grant"), read_address("team-a/checkout")
        assert not await rights(TokenUser(username), place)
        assert not await rights(TokenUser(username), place._replace(namespace=""))

    run(main)


def test_others_are_refused_each_with_its_reason() -> None:
    async def main() -> None:
        review = Review(Server(), FakeClock())
        assert await refused(review, None, FLAG) is Code.UNAUTHENTICATED
        assert await refused(review, "g" * 20_000, FLAG) is Code.UNAUTHENTICATED
        assert await refused(review, "bad-token", FLAG) is Code.UNAUTHENTICATED
        assert await refused(review, "good", OTHER) is Code.PERMISSION_DENIED
        assert await refused(review, "good", Source("/etc/flags.json", "file")) is Code.PERMISSION_DENIED

    run(main)


def test_an_answer_is_kept_for_a_while_and_a_refusal_for_a_shorter_one() -> None:
    async def main() -> None:
        server, clock = Server(), FakeClock()
        review = Review(server, clock)
        for _ in range(3):
            await review("good", FLAG)
            assert await refused(review, "good", OTHER) is Code.PERMISSION_DENIED
        assert len(server.asked) == 3
        server.allowed |= {"team-b/search"}
        await clock.advance(REFUSED_SECONDS)
        await review("good", OTHER)
        server.allowed.clear()
        await review("good", FLAG)
        assert len(server.asked) == 4
        await clock.advance(ALLOWED_SECONDS)
        assert await refused(review, "good", FLAG) is Code.PERMISSION_DENIED

    run(main)


def test_if_kubernetes_cannot_be_asked_nobody_gets_in_and_that_is_not_kept() -> None:
    async def main() -> None:
        server = Server()
        review = Review(server, FakeClock())
        server.error = ConnectionRefusedError("no")
        assert await refused(review, "good", FLAG) is Code.UNAVAILABLE
        server.error = None
        await review("good", FLAG)

    run(main)


def test_a_storm_of_subscribers_is_not_one_at_the_api_server() -> None:
    async def main() -> None:
        server = Server()
        server.gate = asyncio.Event()
        review = Review(server, FakeClock())
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(review(f"good-{number}", FLAG))
            for _ in range(100):
                group.create_task(review("good-0", FLAG))
            await settle()
            assert server.under_way == AT_ONCE
            server.gate.set()
        assert server.most_under_way == AT_ONCE
        assert len(server.asked) == 200, "100 tokens, of which one was sent 101 times"

    run(main)


def test_a_question_whose_asker_goes_away_is_asked_by_the_next_one() -> None:
    async def main() -> None:
        server = Server()
        server.gate = asyncio.Event()
        review = Review(server, FakeClock())
        first = asyncio.create_task(review("good", FLAG))
        await settle()
        second = asyncio.create_task(review("good", FLAG))
        await settle()
        first.cancel()
        await settle()
        server.gate.set()
        await second
        assert [kind for kind, _ in server.asked] == ["tokenreviews", "tokenreviews", "subjectaccessreviews"]

    run(main)


def test_a_review_that_must_not_be_cached_asks_again_and_replaces_what_was_cached() -> None:
    async def main() -> None:
        server = Server()
        review = Review(server, FakeClock())
        await review("good", FLAG)
        server.allowed.clear()
        await review("good", FLAG)
        with pytest.raises(RpcError, match="may not read that"):
            await review("good", FLAG, cached=False)
        assert await refused(review, "good", FLAG) is Code.PERMISSION_DENIED
        assert len(server.asked) == 4

    run(main)


@pytest.mark.parametrize("audiences", [["flags-proxy"], ["other"], None])
def test_a_token_must_be_meant_for_the_audience(audiences: list[str] | None) -> None:
    class Aware(Server):
        def _status(self, spec: Mapping[str, Any]) -> dict[str, Any]:
            return super()._status(spec) | ({} if audiences is None else {"audiences": audiences})

    async def main() -> None:
        server = Aware()
        review = Review(server, FakeClock(), audience="flags-proxy")
        if audiences == ["flags-proxy"]:
            await review("good", FLAG)
        else:
            assert await refused(review, "good", FLAG) is Code.UNAUTHENTICATED
        assert server.asked[0][1] == {"token": "good", "audiences": ["flags-proxy"]}

    run(main)


def test_the_cache_has_a_limit() -> None:
    async def main() -> None:
        server = Server()
        review = Review(server, FakeClock(), most=10)
        for number in range(30):
            await review(f"good-{number}", FLAG)
        assert review.cached <= 20, "10 tokens, and 10 rights"
        await review("good-29", FLAG)
        assert len(server.asked) == 60
        await review("good-0", FLAG)
        assert len(server.asked) == 62

    run(main)


def test_without_the_option_nobody_is_asked() -> None:
    def nowhere() -> Kube:
        raise AssertionError("nobody is to be asked")

    assert authorizer(ProxyOptions(), Hub(connect=nowhere)) is None
