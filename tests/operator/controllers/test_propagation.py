"""The controller of propagation in a cluster in memory: whom it asks, when, and what it writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.operator.controllers.world import World
from tests.pipeline.fakes import run
from wigwag.kube.kinds import FEATURE_FLAG, POD
from wigwag.operator.names import ALLOW_FROM, PROXY
from wigwag.operator.propagation.ask import UNSUPPORTED, AgentAnswer, NoAnswer, SourceAnswer, TargetAnswer
from wigwag.operator.propagation.progress import CHECK

WRITE = "status FeatureFlag"


def pod(
    world: World,
    name: str,
    *flags: str,
    namespace: str = "team-a",
    ready: bool = True,
    restarts: int = 0,
    port: int = 8014,
) -> str:
    """Put a pod whose agent runs and uses these flags; return its address."""
    address = f"10.0.0.{len(world.server.objects[POD]) + 1}"
    before = world.server.objects[POD].get((namespace, name))
    if before is not None:
        address = before["status"]["podIP"]
    sources = [{"uri": each, "provider": "kubernetes"} for each in flags or ("shop",)]
    container = {"name": "flagd", "args": ["start", "--management-port", str(port), "--sources", json.dumps(sources)]}
    running = {"name": "flagd", "restartCount": restarts, "ready": ready, "state": {"running": {}}}
    world.server.put(
        POD,
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"initContainers": [container], "containers": []},
            "status": {"podIP": address, "initContainerStatuses": [running]},
        },
    )
    return address


def proxy(world: World, address: str, namespace: str = "open-feature-operator-system") -> None:
    """Put a pod with a container that is called as the proxy's is."""
    running = {"name": PROXY, "ready": True, "state": {"running": {}}}
    world.server.put(
        POD,
        {
            "metadata": {"name": PROXY, "namespace": namespace},
            "spec": {"containers": [{"name": PROXY, "args": ["proxy", "start"]}]},
            "status": {"podIP": address, "containerStatuses": [running]},
        },
    )


def has(world: World, address: str, *digests: str) -> None:
    """Have an agent say that it has these digests."""
    sources = tuple(SourceAnswer(place, digest) for place, digest in enumerate(digests))
    world.agents.answers[address] = AgentAnswer(sources)


def digest(world: World, name: str = "shop") -> str:
    return str(world.get(FEATURE_FLAG, name)["status"]["digest"])


def agents(world: World, name: str = "shop") -> dict[str, Any]:
    return dict(world.get(FEATURE_FLAG, name)["status"].get("agents", {}))


def asked(world: World) -> list[str]:
    asked, world.agents.asked = world.agents.asked, []
    return sorted(asked)


def test_all_agents_of_a_flag_are_asked_and_counted_once() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        addresses = [pod(world, f"web-{number}", port=9000) for number in range(3)]
        async with world.running():
            await world.clock.advance(0.1)
            assert asked(world) == [f"{each}:9000" for each in addresses]
            for each in addresses:
                has(world, each, digest(world))
            await world.clock.advance(10.0)
            assert agents(world)["summary"] == "3/3"
            assert world.condition(FEATURE_FLAG, "shop", "Propagated") == ("True", "AllAgents")
            assert world.condition(FEATURE_FLAG, "shop", "Accepted")[0] == "True", "the others stay"

    run(main)


def test_nothing_is_asked_or_written_while_nothing_changes_but_a_question_in_minutes() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        address = pod(world, "web")
        async with world.running():
            has(world, address, digest(world))
            await world.clock.advance(10.0)
            assert agents(world)["summary"] == "1/1"
            await world.since()
            asked(world)
            await world.clock.advance(CHECK / 2 - 20)
            assert (await world.since(), asked(world)) == ([], [])
            await world.clock.advance(CHECK)
            assert (await world.since(), len(asked(world))) == ([], 1)

    run(main)


def test_a_change_asks_again_with_a_back_off_and_is_written_in_few_writes() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        address = pod(world, "web")
        async with world.running():
            old = digest(world)
            has(world, address, old)
            await world.clock.advance(10.0)
            await world.since()
            asked(world)
            world.flag(default="off")
            await world.clock.advance(60.0)
            assert agents(world)["lagging"] == [{"pod": "team-a/web", "reason": f"on {old[:8]}"}]
            assert world.condition(FEATURE_FLAG, "shop", "Propagated") == ("False", "Progressing")
            assert 8 <= len(asked(world)) <= 14
            has(world, address, digest(world))
            await world.clock.advance(20.0)
            assert agents(world)["summary"] == "1/1"
            assert len(await world.since(WRITE)) == 3, "the flags; who is behind; that all have it"

    run(main)


def test_a_change_that_all_agents_have_when_they_are_asked_is_one_write_and_one_question_each() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        addresses = [pod(world, f"web-{number}") for number in range(20)]
        async with world.running():
            for each in addresses:
                has(world, each, digest(world))
            await world.clock.advance(10.0)
            world.flag(default="off")
            await world.settle()
            for each in addresses:
                has(world, each, digest(world))
            await world.since()
            asked(world)
            await world.clock.advance(60.0)
            assert agents(world)["summary"] == "20/20"
            assert (len(await world.since(WRITE)), len(asked(world))) == (1, 20)

    run(main)


def test_proxies_say_how_many_clients_have_been_sent_the_flags() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        address = "10.1.0.1"
        proxy(world, address)
        proxy(world, "10.1.0.2", "team-b")
        async with world.running():
            target = TargetAnswer("team-a/shop", "kubernetes", digest(world), 3, 3)
            world.agents.answers[address] = AgentAnswer(targets=(target,))
            await world.clock.advance(2.0)
            assert set(asked(world)) == {f"{address}:8016"}, "what others call a proxy is none"
            assert (agents(world)["clients"], agents(world)["clientsCurrent"]) == (3, 3)
            world.flag(default="off")
            await world.clock.advance(2.0)
            assert (agents(world)["clients"], agents(world)["clientsCurrent"]) == (3, 0)
            assert world.condition(FEATURE_FLAG, "shop", "Propagated") == ("False", "Progressing")
            world.server.remove(POD, ("open-feature-operator-system", PROXY))
            await world.clock.advance(20.0)
            assert agents(world)["clients"] == 0

    run(main)


def test_a_flag_does_not_wait_for_a_proxy_that_does_not_answer() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        address = pod(world, "web")
        proxy(world, "10.1.0.1")
        async with world.running():
            has(world, address, digest(world))
            await world.clock.advance(10.0)
            assert agents(world)["summary"] == "1/1"

    run(main)


def test_writes_of_one_status_are_the_rarer_the_longer_it_takes() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        addresses = [pod(world, f"web-{number:02}") for number in range(30)]
        async with world.running():
            for each in addresses:
                has(world, each, "other")
            await world.clock.advance(5.0)
            await world.since()
            for each in addresses:  # one in a second
                has(world, each, digest(world))
                await world.clock.advance(1.0)
            await world.clock.advance(30.0)
            assert agents(world)["summary"] == "30/30"
            assert len(await world.since(WRITE)) <= 8

    run(main)


def test_pods_that_come_and_go_all_the_time_are_told_a_few_times_in_a_minute() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        address = pod(world, "web")
        async with world.running():
            has(world, address, digest(world))
            await world.clock.advance(10.0)
            await world.since()
            for number in range(60):
                has(world, pod(world, f"pod-{number}"), digest(world))
                await world.clock.advance(1.0)
                world.server.remove(POD, ("team-a", f"pod-{number}"))
                await world.clock.advance(1.0)
            assert len(await world.since(WRITE)) <= 12
            await world.clock.advance(20.0)
            assert agents(world)["summary"] == "1/1"

    run(main)


def test_a_restart_of_the_operator_takes_nothing_back_and_writes_nothing() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        address = pod(world, "web")
        async with world.running():
            has(world, address, digest(world))
            await world.clock.advance(10.0)
        await world.since()
        answer = world.agents.answers.pop(address)
        world.server.hidden = {POD}
        async with world.running():
            world.server.release()
            world.agents.answers[address] = answer
            await world.clock.advance(30.0)
            assert (await world.since(WRITE), agents(world)["summary"]) == ([], "1/1")

    run(main)


def test_agents_that_never_answer_are_unknown_and_asked_ever_more_rarely() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        pod(world, "blocked")
        world.agents.answers[pod(world, "original")] = NoAnswer(UNSUPPORTED, final=True)
        async with world.running():
            await world.clock.advance(20.0)
            assert agents(world)["unknown"] == 2
            assert world.condition(FEATURE_FLAG, "shop", "Propagated") == ("Unknown", "NoAnswer")
            silent = {each["pod"]: each["reason"] for each in agents(world)["silent"]}
            assert silent == {"team-a/blocked": "there is no connection", "team-a/original": UNSUPPORTED}
            assert len(asked(world)) < 8
            world.flag(default="off")
            await world.clock.advance(10.0)
            assert asked(world) == [], "a change is no reason to hurry"

    run(main)


def test_an_agent_that_stops_answering_lags_after_the_next_change_only() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        address = pod(world, "web")
        async with world.running():
            has(world, address, digest(world))
            await world.clock.advance(10.0)
            world.agents.answers[address] = NoAnswer("it does not answer within 2 s")
            asked(world)
            await world.clock.advance(4 * CHECK)
            assert (agents(world)["summary"], len(asked(world)) < 15) == ("1/1", True)
            world.flag(default="off")
            await world.clock.advance(20.0)
            assert "it does not answer" in agents(world)["lagging"][0]["reason"]

    run(main)


def test_pods_that_go_are_not_counted_and_a_restarted_agent_is_asked_again() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        one, other = pod(world, "one"), pod(world, "other")
        async with world.running():
            for each in (one, other):
                has(world, each, digest(world))
            await world.clock.advance(10.0)
            world.server.remove(POD, ("team-a", "other"))
            await world.clock.advance(10.0)
            assert agents(world)["summary"] == "1/1"
            asked(world)
            has(world, one, "")
            pod(world, "one", restarts=1)
            await world.clock.advance(10.0)
            assert agents(world)["lagging"] == [{"pod": "team-a/one", "reason": "it has none of these flags yet"}]
            world.server.remove(POD, ("team-a", "one"))
            await world.clock.advance(20.0)
            assert agents(world)["summary"] == "0/0"
            assert world.condition(FEATURE_FLAG, "shop", "Propagated") == ("True", "NoAgents")

    run(main)


def test_an_agent_that_is_ready_again_is_asked_at_once_and_what_it_had_is_not_forgotten() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        address = pod(world, "web")
        async with world.running():
            old = digest(world)
            has(world, address, old)
            await world.clock.advance(10.0)
            world.agents.answers[address] = NoAnswer("it does not answer")
            pod(world, "web", ready=False)
            world.flag(default="off")
            await world.clock.advance(300.0)
            assert agents(world)["lagging"][0]["reason"] == f"on {old[:8]}; it does not answer"
            has(world, address, digest(world))
            asked(world)
            pod(world, "web", ready=True)
            await world.clock.advance(2.0)
            assert (len(asked(world)), agents(world)["summary"]) == (1, "1/1")

    run(main)


@pytest.mark.parametrize(("grant", "total"), [({}, 0), ({ALLOW_FROM: "team-b"}, 1)])
def test_pods_of_other_namespaces_count_only_if_the_flag_allows_their_use(grant: dict[str, str], total: int) -> None:
    async def main() -> None:
        world = World()
        world.flag(annotations=grant)
        address = pod(world, "thief", "team-a/shop", namespace="team-b")
        async with world.running():
            has(world, address, "other")
            await world.clock.advance(10.0)
            assert agents(world)["total"] == total

    run(main)


def test_an_agent_with_several_flags_is_asked_once_for_all() -> None:
    async def main() -> None:
        world = World()
        world.flag("shop")
        world.flag("more")
        address = pod(world, "web", "shop", "more")
        async with world.running():
            has(world, address, digest(world, "shop"), "other")
            await world.clock.advance(10.0)
            assert (agents(world, "shop")["summary"], agents(world, "more")["summary"]) == ("1/1", "0/1")

    run(main)


def test_what_another_controller_overwrites_is_written_again() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        address = pod(world, "web")
        async with world.running():
            has(world, address, digest(world))
            await world.clock.advance(10.0)
            flag = world.get(FEATURE_FLAG, "shop")
            world.server.put(FEATURE_FLAG, {**flag, "status": {**flag["status"], "agents": {"summary": "9/9"}}})
            await world.clock.advance(10.0)
            assert agents(world)["summary"] == "1/1"

    run(main)


def test_a_status_write_is_no_reason_to_reconcile_sources() -> None:
    async def main() -> None:
        world = World()
        world.flag()
        world.source()
        address = pod(world, "web")
        async with world.running():
            has(world, address, digest(world))
            counts = world.context.metrics.reconciles
            before = {key: count for key, count in counts.values.items() if key[0] == "sources"}
            await world.clock.advance(10.0)
            assert agents(world)["summary"] == "1/1"
            assert {key: count for key, count in counts.values.items() if key[0] == "sources"} == before

    run(main)
