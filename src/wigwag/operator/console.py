"""What the console of the operator shows: FeatureFlags and how far they have come, sources, and agents.

FeatureFlags and sources are those that admission knows, so every replica shows them. Which agent has which flags is
known to the replica that leads; another one shows no agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wigwag.operator.names import ObjectName
from wigwag.operator.reconcile.status import ACCEPTED, PROPAGATED, RESOLVED
from wigwag.operator.resources.unreadable import UnreadableSource
from wigwag.serve.console.tables import Column, TableConsole, TableView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from wigwag.operator.observed import Observed
    from wigwag.operator.reconcile.flags import FlagSummary
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource
    from wigwag.operator.resources.kubernetes import Condition
    from wigwag.pipeline.broadcast import Broadcast

_FLAGS = (
    Column("namespace", "Namespace"),
    Column("name", "FeatureFlag"),
    Column("flags", "Flags", "number"),
    Column("agents", "Agents"),
    Column("digest", "Version"),
    Column("propagated", "Propagated", "state"),
    Column("behind", "Behind", "list"),
    Column("problem", "Problem", "error"),
)
_SOURCES = (
    Column("namespace", "Namespace"),
    Column("name", "FeatureFlagSource"),
    Column("sources", "Sources", "list"),
    Column("workloads", "Workloads", "number"),
    Column("accepted", "Accepted", "state"),
    Column("problem", "Problem", "error"),
)
_AGENTS = (
    Column("namespace", "Namespace"),
    Column("pod", "Pod"),
    Column("state", "State", "state"),
    Column("flags", "FeatureFlags", "list"),
    Column("problem", "Problem", "error"),
)


def operator_console(known: Broadcast[Observed], agents: Callable[[], Iterable[Mapping[str, Any]]]) -> TableConsole:
    """Return the console of an operator; `agents` has those that this replica asks."""
    views = (
        TableView("flags", "FeatureFlags", _FLAGS, lambda: _flags(known.value), "There are no FeatureFlags."),
        TableView("sources", "Sources", _SOURCES, lambda: _sources(known.value), "There are no FeatureFlagSources."),
        TableView("agents", "Agents", _AGENTS, agents, "No agent runs, or another replica leads."),
    )
    return TableConsole("operator", views, {"snapshot": known})


def _flags(observed: Observed | None) -> Iterator[dict[str, Any]]:
    for key, flag in sorted((observed.flags if observed else {}).items()):
        yield _flag(ObjectName(*key), flag)


def _flag(name: ObjectName, flag: FlagSummary) -> dict[str, Any]:
    status, conditions = flag.status, _by_type(flag.status.conditions)
    propagated, agents = conditions.get(PROPAGATED), flag.status.agents
    behind = [f"{each.pod}: {each.reason}" for each in (*agents.lagging, *agents.silent)] if agents else []
    return {
        "namespace": name.namespace,
        "name": name.name,
        "flags": status.flags,
        "agents": agents.summary if agents else "",
        "digest": status.digest[:12],
        "propagated": propagated.status if propagated else "",
        "behind": behind,
        "problem": _problem(conditions),
    }


def _sources(observed: Observed | None) -> Iterator[dict[str, Any]]:
    for key, source in sorted((observed.sources if observed else {}).items()):
        yield _source(ObjectName(*key), source)


def _source(name: ObjectName, source: FeatureFlagSource | UnreadableSource) -> dict[str, Any]:
    about = {"namespace": name.namespace or "(the cluster)", "name": name.name}
    if isinstance(source, UnreadableSource):
        return about | {"accepted": "False", "problem": source.problem}
    conditions, default = _by_type(source.status.conditions), source.spec.default_sync_provider
    entries = [f"{each.provider or default or 'default'}: {each.source}" for each in source.spec.sources]
    accepted = conditions.get(ACCEPTED)
    return about | {
        "sources": entries,
        "workloads": source.status.workloads,
        "accepted": accepted.status if accepted else "",
        "problem": _problem(conditions),
    }


def _by_type(conditions: Iterable[Condition]) -> dict[str, Condition]:
    return {each.type: each for each in conditions}


def _problem(conditions: Mapping[str, Condition]) -> str:
    """Return why an object is not in force, or not in all of it."""
    wrong = (conditions.get(kind) for kind in (ACCEPTED, RESOLVED))
    return "; ".join(each.message for each in wrong if each is not None and each.status == "False")
