"""History that goes back, and connections that die: what a watch makes of it, and what an agent says meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.agent.process import AgentProcess
from tests.real.access import Access
from tests.real.agents import Client, flags
from tests.real.cluster import Namespace
from tests.real.controlplane import ControlPlane
from tests.real.processes import until
from tests.real.tap import Tap
from tests.real.watching import Watching, kubeconfig
from wigwag.kube.kinds import CONFIG_MAP
from wigwag.kube.watch.listwatch import WatchTiming
from wigwag.kube.watch.spec import KubeWatch

NewPlane = Callable[..., ControlPlane]
Kubeconfig = Callable[[Access], Path]
NewTap = Callable[[Access], Tap]
QUICK = WatchTiming(probe=2.0, answer=1.0, verify=0.5)


class Seen(NamedTuple):
    """What an agent said at a time."""

    when: float
    value: Any
    state: str
    age: float


def watched(client: Client) -> Seen:
    source = client.source()
    return Seen(time.monotonic(), client.value(), source["state"], source["ageSeconds"])


def write(namespace: Namespace, name: str, content: str) -> None:
    namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": content}})


def contents(seen: Watching) -> dict[str, str]:
    return {name: each["data"]["n"] for (_, name), each in (seen.value or {}).items() if name in "abc"}


@pytest.mark.timeout(240)
def test_an_agent_follows_a_server_whose_etcd_was_restored_and_confirms_nothing_before_it_knows(
    private_plane: NewPlane, kubeconfig: Kubeconfig
) -> None:
    plane = private_plane()
    namespace = plane.cluster.add_namespace("team")
    namespace.feature_flag("shop", flags("on"))
    kubeconfig(plane.cluster.access)
    copy = plane.back_up()
    with AgentProcess("--uri=core.openfeature.dev/team/shop") as agent, Client(agent) as client:
        namespace.feature_flag("shop", flags("off"))
        client.sees(False)
        for number in range(30):
            write(namespace, f"other-{number}", "1")
        plane.apiserver.kill()
        gone = time.monotonic()
        plane.restore(copy)
        plane.apiserver.start()

        def follows() -> bool:
            seen = watched(client)
            assert seen.value is True or seen.age >= seen.when - gone - 3, "it was confirmed, and not so"
            return seen.value is True

        until(follows, "the state of the backup")
        namespace.feature_flag("shop", flags("off"))
        client.sees(False)


@pytest.mark.timeout(240)
def test_a_set_is_what_the_restored_server_has_though_it_has_passed_our_version(
    private_plane: NewPlane, tmp_path: Path
) -> None:
    plane = private_plane()
    namespace = plane.cluster.add_namespace("team")
    write(namespace, "a", "old")
    write(namespace, "b", "old")
    copy = plane.back_up()
    spec = KubeWatch(CONFIG_MAP, "team")
    path = kubeconfig(plane.cluster.access, tmp_path)
    with Watching(path, spec, timing=QUICK) as seen:
        write(namespace, "a", "new")
        write(namespace, "c", "new")
        namespace.cluster.delete(namespace.path("v1", "ConfigMap", "b"))
        seen.until(lambda: contents(seen) == {"a": "new", "c": "new"}, "the changes")
        before = plane.revision()
        plane.apiserver.kill()
        plane.restore(copy)
        plane.apiserver.start()
        number = 0
        while plane.revision() <= before:
            write(namespace, "other", str(number := number + 1))
        seen.until(lambda: contents(seen) == {"a": "old", "b": "old"}, "the state of the backup")
        write(namespace, "a", "newer")
        seen.until(lambda: contents(seen) == {"a": "newer", "b": "old"}, "what comes later")
        seen.until(seen.live, "all being well")


@pytest.mark.timeout(240)
def test_an_api_server_that_was_not_restarted_after_a_restore_is_told_of(
    private_plane: NewPlane, tmp_path: Path
) -> None:
    """Its lists and watches come from a cache that the restore has left behind; only a GET shows what etcd has."""
    plane = private_plane()
    namespace = plane.cluster.add_namespace("team")
    write(namespace, "a", "old")
    copy = plane.back_up()
    path = kubeconfig(plane.cluster.access, tmp_path)
    with Watching(path, KubeWatch(CONFIG_MAP, "team", "a"), timing=QUICK) as seen:
        write(namespace, "a", "new")
        seen.until(lambda: contents(seen) == {"a": "new"}, "the change")
        plane.restore(copy)
        seen.until(lambda: "contradicts itself" in "".join(seen.troubles), "the contradiction")
        assert not seen.live()
        assert "restart the API server" in seen.troubles[-1]
        plane.apiserver.restart()
        seen.until(lambda: contents(seen) == {"a": "old"} and seen.live(), "the state of the backup")


@pytest.mark.timeout(240)
def test_a_connection_that_dies_without_a_word_in_its_first_seconds_is_noticed(
    namespace: Namespace, tapped: NewTap, tmp_path: Path
) -> None:
    """Every kernel on the way still acknowledges, so that keep-alive finds nothing: it has to be asked."""
    write(namespace, "a", "1")
    tap = tapped(namespace.cluster.access)
    with Watching(kubeconfig(tap.access, tmp_path), KubeWatch(CONFIG_MAP, namespace.name, "a"), timing=QUICK) as seen:
        seen.until(lambda: contents(seen) == {"a": "1"}, "the object")
        tap.hold()
        began = time.monotonic()
        write(namespace, "a", "2")
        seen.until(lambda: seen.troubles, "somebody noticing")
        assert "does not answer in time" in seen.troubles[0]
        assert time.monotonic() - began < 30.0
        assert not seen.live()
        tap.cut()
        tap.release()
        seen.until(lambda: contents(seen) == {"a": "2"} and seen.live(), "recovery")


def test_a_quiet_watch_is_compared_and_nothing_is_listed_for_that(namespace: Namespace, tmp_path: Path) -> None:
    write(namespace, "a", "1")
    write(namespace, "b", "1")
    path, timing = kubeconfig(namespace.cluster.access, tmp_path), WatchTiming(probe=0.2, compare=1.0, page=1)
    for name in ("a", ""):
        with Watching(path, KubeWatch(CONFIG_MAP, namespace.name, name), timing=timing) as seen:
            seen.until(lambda seen=seen: len(seen.kube.compared) > 12, "comparisons")  # type: ignore[misc]
            write(namespace, "a", "2" if name else "3")
            seen.until(lambda seen=seen: contents(seen)["a"] in "23", "the change")  # type: ignore[misc]
            assert (len(seen.kube.asked), seen.troubles) == (1, [])
            paths = {request.path.rpartition("/")[2] for request in seen.kube.compared}
            assert paths == ({"configmaps", "a"} if name else {"configmaps"})
