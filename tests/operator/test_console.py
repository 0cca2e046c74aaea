"""What the console of the operator shows, without an operator."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw

from wigwag.operator.console import operator_console
from wigwag.operator.observed import Observed
from wigwag.operator.reconcile.flags import decode_flag
from wigwag.operator.resources.unreadable import decode_source
from wigwag.pipeline.broadcast import Broadcast
from wigwag.serve.console.site import API, console, everybody
from wigwag.wire.http import Reply, Request


def raw(kind: str, name: str, **more: Any) -> Raw:
    about = {"name": name, "namespace": "shop", "uid": name, "generation": 1}
    return Raw(json.dumps({"kind": kind, "metadata": about, **more}).encode())


def condition(type: str, status: str, message: str) -> dict[str, Any]:
    return {"type": type, "status": status, "reason": "x", "message": message, "lastTransitionTime": ""}


AGENTS = {"summary": "1/2", "total": 2, "current": 1, "lagging": [{"pod": "shop/web-1", "reason": "on 3f9c"}]}
LATE = raw(
    "FeatureFlag",
    "late",
    spec={"flagSpec": {"flags": {}}},
    status={
        "flags": 3,
        "digest": "0123456789abcdef",
        "agents": AGENTS,
        "conditions": [condition("Propagated", "False", "1/2 agents")],
    },
)
WRONG = raw(
    "FeatureFlagSource",
    "wrong",
    spec={"sources": [{"source": "late", "provider": "kubernetes"}]},
    status={"workloads": 2, "conditions": [condition("Resolved", "False", "late does not exist")]},
)
BROKEN = raw("FeatureFlagSource", "broken", spec={"sources": 7})


def shown(view: str, observed: Observed | None, agents: tuple[dict[str, Any], ...] = ()) -> Any:
    known = Broadcast[Observed]()
    if observed is not None:
        known.publish(observed)
    handler = console(operator_console(known, lambda: agents).api(), everybody)
    reply = handler(Request(b"GET", API + view.encode()))
    assert isinstance(reply, Reply)
    return json.loads(reply.body)


def test_nothing_is_shown_before_something_is_known() -> None:
    assert shown("", None)["views"] == ["flags", "sources", "agents"]
    assert [shown(f"/{view}", None)["rows"] for view in ("flags", "sources", "agents")] == [[], [], []]


def test_flags_say_who_is_behind() -> None:
    observed = Observed(flags={("shop", "late"): decode_flag(LATE)})
    (row,) = shown("/flags", observed)["rows"]
    assert (row["agents"], row["propagated"], row["digest"]) == ("1/2", "False", "0123456789ab")
    assert row["behind"] == ["shop/web-1: on 3f9c"]


def test_sources_say_what_is_wrong() -> None:
    sources = {("shop", name): decode_source(each) for name, each in (("wrong", WRONG), ("broken", BROKEN))}
    broken, wrong = shown("/sources", Observed(sources=sources))["rows"]
    assert (wrong["sources"], wrong["workloads"], wrong["problem"]) == (
        ["kubernetes: late"],
        2,
        "late does not exist",
    )
    assert broken["accepted"] == "False"
    assert broken["problem"]


def test_agents_are_those_of_the_replica_that_leads() -> None:
    row = {"namespace": "shop", "pod": "web-1", "state": "lagging", "flags": ["shop/late"], "problem": "on 3f9c"}
    assert shown("/agents", None, (row,))["rows"] == [row]
