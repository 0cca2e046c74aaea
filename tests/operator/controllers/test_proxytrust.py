"""The certificate of the proxy: made, rotated, and its CAs where agents need them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass, replace

import pytest

from tests.operator.controllers.world import Object, World, refusal
from tests.pipeline.fakes import run
from wigwag.kube.kinds import CONFIG_MAP, DEPLOYMENT, POD, SECRET
from wigwag.operator.certificates.authority import CertificatePolicy, is_signed_by, split
from wigwag.operator.controllers.proxytrust import PERIOD, REFUSED
from wigwag.operator.injection.proxytrust import AUTHORITY, AUTHORITY_LABELS, CERTIFICATE

HOME = "open-feature-operator-system"
PROXIED = {"source": "shop", "provider": "flagd-proxy"}
POLICY = CertificatePolicy()
DAY = 24 * 3600.0


def world_with_agents(*namespaces: str) -> World:
    """Workloads in namespaces whose agents connect to the proxy."""
    world = World(proxy_auth="kubernetes")
    for namespace in namespaces or ("team-a",):
        world.flag(namespace=namespace)
        world.source(PROXIED, namespace=namespace)
        world.workload(namespace=namespace)
    return world


@dataclass
class Calendar:
    """Lets months pass without the days in between."""

    world: World
    passed: float = 0.0

    def __post_init__(self) -> None:
        now = self.world.context.now
        self.world.context = replace(self.world.context, now=lambda: now() + self.passed)

    async def skip(self, seconds: float) -> None:
        """Go on after so long, when the certificate is looked at the next time."""
        self.passed += seconds
        await self.world.clock.advance(PERIOD)
        await self.world.settle()


def secret_of(world: World) -> dict[str, str]:
    data = world.get(SECRET, CERTIFICATE, HOME)["data"]
    return {name: b64decode(value).decode() for name, value in data.items()}


def trusted_in(world: World, namespace: str = "team-a") -> tuple[str, ...]:
    return split(world.get(CONFIG_MAP, AUTHORITY, namespace)["data"]["ca.crt"])


def agent_pod(world: World, namespace: str = "team-a") -> Object:
    sources = (
        '[{"uri":"flagd-proxy-svc:8015","provider":"grpc","tls":true,"selector":"core.openfeature.dev/team-a/shop",'
        '"tokenFile":"/var/run/secrets/flagd-proxy/token"}]'
    )
    spec = {"containers": [{"name": "flagd", "args": ["start", "--sources", sources]}]}
    return world.put(POD, "flagd-1", spec, namespace=namespace)


def test_namespaces_with_agents_get_the_cas_and_lose_them_with_the_last_agent() -> None:
    async def main() -> None:
        world = world_with_agents("team-a", "team-b")
        async with world.running():
            held = secret_of(world)
            assert is_signed_by(held["tls.crt"], held["ca.crt"])
            assert trusted_in(world) == trusted_in(world, "team-b") == split(held["ca.crt"])
            assert "PRIVATE" not in str(world.server.objects[CONFIG_MAP])
            agent_pod(world)  # of a Flagd, or of a workload that is gone
            await world.settle()
            for namespace in ("team-a", "team-b"):
                world.server.remove(DEPLOYMENT, (namespace, "web"))
            await world.settle()
            assert world.names(CONFIG_MAP) == [f"team-a/{AUTHORITY}"]
            world.server.remove(POD, ("team-a", "flagd-1"))
            await world.settle()
            assert world.names(CONFIG_MAP) == []

    run(main)


def test_without_authentication_nothing_is_made_and_what_is_left_is_removed() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        world.source(PROXIED)
        world.workload()
        world.put(CONFIG_MAP, AUTHORITY, labels=AUTHORITY_LABELS)
        async with world.running():
            assert world.names(CONFIG_MAP) == world.names(SECRET) == []

    run(main)


def test_what_somebody_edits_is_repaired() -> None:
    async def main() -> None:
        world = world_with_agents()
        async with world.running():
            before = trusted_in(world)
            world.server.put(CONFIG_MAP, {**world.get(CONFIG_MAP, AUTHORITY), "data": {"ca.crt": "mine"}})
            await world.settle()
            assert trusted_in(world) == before
            world.server.remove(CONFIG_MAP, ("team-a", AUTHORITY))
            await world.settle()
            assert trusted_in(world) == before

    run(main)


def test_a_rotation_of_the_ca_publishes_before_it_signs_and_trusts_the_old_one_meanwhile() -> None:
    async def main() -> None:
        world = world_with_agents("team-a", "team-b")
        calendar = Calendar(world)
        async with world.running():
            (old,) = trusted_in(world)
            await calendar.skip(POLICY.authority.total_seconds() * 2 / 3 + DAY)
            both = trusted_in(world)
            assert len(both) == 2
            assert trusted_in(world, "team-b") == both
            assert is_signed_by(secret_of(world)["tls.crt"], old), "agents may not have the new one yet"
            await calendar.skip(POLICY.settle.total_seconds())
            held = secret_of(world)
            assert is_signed_by(held["tls.crt"], trusted_in(world)[0])
            assert trusted_in(world)[0] != old
            assert old in trusted_in(world), "proxies that have the old certificate are trusted"
            for _ in range(2):  # whatever the old CA has signed ends
                await calendar.skip(POLICY.serving.total_seconds())
            assert old not in trusted_in(world)

    run(main)


def test_a_namespace_that_refuses_does_not_hold_up_the_rotation_of_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = world_with_agents("team-a", "team-b")
        world.put(CONFIG_MAP, AUTHORITY, namespace="team-b")  # not ours
        calendar = Calendar(world)
        async with world.running():
            assert "data" not in world.get(CONFIG_MAP, AUTHORITY, "team-b")
            (old,) = trusted_in(world)
            await calendar.skip(POLICY.authority.total_seconds() * 2 / 3 + DAY)
            await calendar.skip(POLICY.settle.total_seconds())
            assert trusted_in(world)[0] != old, "the next CA signs"
            world.server.remove(CONFIG_MAP, ("team-b", AUTHORITY))
            await world.clock.advance(REFUSED)
            await world.settle()
            assert trusted_in(world, "team-b") == trusted_in(world)

    run(main)
    assert sum("is not ours" in each.getMessage() for each in caplog.records) == 1


@pytest.mark.parametrize("code", [403, 404, 422])
def test_a_namespace_that_ends_is_no_error(code: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        world = world_with_agents()
        world.server.refusals.append((f"apply ConfigMap team-a/{AUTHORITY}", refusal(code)))
        async with world.running():
            assert world.names(CONFIG_MAP) == []
            await world.clock.advance(REFUSED)
            await world.settle()
            assert world.names(CONFIG_MAP) == [f"team-a/{AUTHORITY}"]

    run(main)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_secret_that_is_deleted_starts_over_and_one_of_somebody_elses_is_used() -> None:
    async def main() -> None:
        world = world_with_agents()
        async with world.running():
            before, held = trusted_in(world), secret_of(world)
            world.server.remove(SECRET, (HOME, CERTIFICATE))
            await world.settle()
            assert trusted_in(world) == split(secret_of(world)["ca.crt"]) != before
            live = world.get(SECRET, CERTIFICATE, HOME)
            theirs = {name: live["data"][name] for name in ("tls.crt", "tls.key")}
            theirs["ca.crt"] = b64encode(held["ca.crt"].encode()).decode()
            world.server.put(SECRET, {**live, "data": theirs})
            await world.settle()
            assert trusted_in(world) == before
            assert world.get(SECRET, CERTIFICATE, HOME)["data"] == theirs

    run(main)
