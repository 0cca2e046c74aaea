"""What goes wrong between an agent and a real API server, counted on the line between them.

A test that history was lost, or a token refused, is worth something only if the server really said so: `Tap` hears it.
"""

from __future__ import annotations

import json
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
from tests.real.tap import Exchange, Tap

GROUP = "core.openfeature.dev"
VERBS = ["get", "list", "watch"]
NewPlane = Callable[..., ControlPlane]
Kubeconfig = Callable[[Access], Path]
NewTap = Callable[[Access], Tap]


def followed(tap: Tap) -> bool:
    """Tell whether the last thing that was asked is a watch that is answered."""
    asked = tap.since(0)
    return bool(asked) and asked[-1].watch and asked[-1].status == 200 and not asked[-1].codes


def moves_on(namespace: Namespace) -> None:
    for variant in ("off", "on", "off"):
        namespace.feature_flag("shop", flags(variant))


def is_one_list(asked: list[Exchange]) -> None:
    """Check that history was refused once, that one list came of it, and then a watch, without a storm."""
    refused = [each for each in asked if each.status == 410 or 410 in each.codes]
    assert [each.watch for each in refused] == [True], asked
    assert not refused[0].whole, "it went on from where it was"
    after = asked[asked.index(refused[0]) + 1 :]
    assert sum(each.whole for each in after) == 1, asked
    assert len(asked) <= 6, "no storm"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("cause", ["compaction", "watch cache restart"])
def test_history_that_is_gone_is_said_with_410_and_leads_to_one_list(
    private_plane: NewPlane, kubeconfig: Kubeconfig, tapped: NewTap, cause: str
) -> None:
    """Without a watch cache a compaction is felt at once. A cache that has just been made has no history at all."""
    plane = private_plane(flags=["--watch-cache=false"] if cause == "compaction" else [])
    namespace = plane.cluster.add_namespace("team")
    namespace.feature_flag("shop", flags("on"))
    tap = tapped(plane.cluster.access)
    kubeconfig(tap.access)
    with AgentProcess(f"--uri={GROUP}/team/shop") as agent, Client(agent) as client:
        assert client.value() is True
        until(lambda: followed(tap), "the watch")
        tap.refuse()  # it must not come back before its history is gone
        moves_on(namespace)
        if cause == "compaction":
            plane.compact()
        else:
            plane.apiserver.restart()
        client.is_told("no connection")
        assert client.value() is True
        before = len(tap.exchanges)
        tap.listen()
        client.sees(False)
        assert client.ready()
        assert client.told_of(1) == [{"x"}], "nothing was cleared on the way"
        until(lambda: client.source()["state"] == "live", "recovery")
        namespace.feature_flag("shop", flags("on"))
        client.sees(True)
        is_one_list(tap.since(before))


def bound(namespace: Namespace, account: str, pod: str) -> Access:
    """Return the access of an account by a token that is good for as long as a pod exists."""
    container = {"name": "app", "image": "example.com/shop:1"}
    about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod}}
    made = namespace.apply({**about, "spec": {"serviceAccountName": account, "containers": [container]}})
    reference = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": made["metadata"]["uid"]}
    return namespace.account(account, bound=reference)


def token_file(path: Path, token: Path) -> None:
    """Have a kubeconfig name a file in place of a token."""
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"tokenFile": str(token)}
    path.write_text(json.dumps(config))


def delete_now(namespace: Namespace, pod: str) -> None:
    """Delete a pod without a kubelet to wait for."""
    place = namespace.path("v1", "Pod", pod)
    namespace.cluster.rest.call("DELETE", place, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})


def statuses(asked: list[Exchange]) -> list[int]:
    return [each.status for each in asked]


class Rotating(NamedTuple):
    """The access of an account by two tokens, that of the first in the file, and who sees what is asked."""

    old: Access
    new: Access
    tap: Tap
    token: Path


@pytest.fixture
def rotating(namespace: Namespace, kubeconfig: Kubeconfig, tapped: NewTap, tmp_path: Path) -> Rotating:
    namespace.feature_flag("shop", flags("on"))
    namespace.account("app")
    namespace.allow("app", "featureflags", VERBS, names=["shop"], group=GROUP)
    old, new = (bound(namespace, "app", pod) for pod in ("old", "new"))
    tap, token = tapped(namespace.cluster.access), tmp_path / "token"
    token_file(kubeconfig(tap.access), token)
    token.write_text(old.token)
    return Rotating(old, new, tap, token)


@pytest.mark.timeout(240)
def test_a_token_that_ends_during_a_watch_is_replaced_by_what_is_in_its_file(
    namespace: Namespace, rotating: Rotating
) -> None:
    """An API server looks at a token when it is asked: a watch that is open goes on, and the next one is refused."""
    old, new, tap, token = rotating
    with AgentProcess(f"--uri={GROUP}/{namespace.name}/shop") as agent, Client(agent) as client:
        assert client.value() is True
        delete_now(namespace, "old")
        until(lambda: old.rest().ask("GET", "/version").status == 401, "the token being refused")
        namespace.feature_flag("shop", flags("off"))
        client.sees(False)
        asked = len(tap.exchanges)
        assert statuses(tap.since(0)) == [200], "it goes on by the watch that is open"

        tap.cut()
        client.is_told("401")
        assert client.value() is False
        assert client.ready()
        until(lambda: statuses(tap.since(asked)).count(401) >= 3, "it being tried again")
        refused = tap.since(asked)
        assert set(statuses(refused)) <= {0, 401}
        assert len(refused) <= 4, "no storm"
        assert not any(each.whole for each in refused), "nothing is listed because of it"

        before = len(tap.exchanges)
        token.write_text(new.token)
        namespace.feature_flag("shop", flags("on"))
        client.sees(True)
        until(lambda: client.source()["state"] == "live", "recovery")
        after = statuses(tap.since(before))
        assert after[-1] == 200
        assert after.count(200) == 1
        assert len(after) <= 4
        said = json.dumps([client.source(), agent.lines])
        assert all(each.token not in said for each in (old, new))


def test_a_token_that_was_replaced_in_time_is_taken_without_anybody_noticing(
    namespace: Namespace, rotating: Rotating
) -> None:
    """That is how it goes in a pod: the file has a new token long before the old one ends."""
    old, new, tap, token = rotating
    with AgentProcess(f"--uri={GROUP}/{namespace.name}/shop") as agent, Client(agent) as client:
        token.write_text(new.token)
        delete_now(namespace, "old")
        until(lambda: old.rest().ask("GET", "/version").status == 401, "the token being refused")
        tap.cut()
        until(lambda: statuses(tap.since(0)) == [200, 200], "the next watch")
        namespace.feature_flag("shop", flags("off"))
        client.sees(False)
        told: list[dict[str, Any]] = [line for line in agent.lines if line.get("level") in ("warning", "error")]
        assert told == []
