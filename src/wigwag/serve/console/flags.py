"""What the console shows about flags: the table, one flag, its history, and what a context gets.

Everything is computed from snapshots when somebody asks, and only what a caller may see: each function takes the
selector of the caller, and a definition that the selector does not match appears nowhere, not even as shadowed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import to_builtins

from wigwag.errors import DocumentError, UsageError
from wigwag.flags.checks.findings import layer_problems
from wigwag.flags.checks.operands import variable_name
from wigwag.flags.diff.compare import differing
from wigwag.flags.model import child
from wigwag.flags.rules.refs import reachable
from wigwag.flags.selector import Selector
from wigwag.flags.words import describe_rule, summarize_rule

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from wigwag.flags.flag import Flag
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Finding, Json, Resolution
    from wigwag.serve.management.history import HistoryEntry, SnapshotHistory
    from wigwag.serve.snapshot import Snapshot

MOST_CONTEXTS = 10_000
MOST_LISTED = 1_000
_LARGEST_VALUE = 10_000
"""Characters of a value that are sent; a longer one is cut."""
Name = tuple[str, str]
"""Of a flag: its flag set and key."""


def flag_rows(
    snapshot: Snapshot, selector: str, changes: Mapping[Name, float], stale: frozenset[Hashable]
) -> list[dict[str, Json]]:
    """Return all flags as rows of a table, and those that could not be loaded. `stale`: where flags are too old."""
    flags = snapshot.select(selector)
    rows = [_row(flag, changes, stale=bool(stale) and snapshot.origin(flag) in stale) for flag in flags.flags()]
    counts = _finding_counts(flags)
    for row in rows:
        row["findings"] = counts.pop((str(row["source"]), str(row["path"])), _no_findings())
    return rows + [_quarantined(*name, count) for name, count in counts.items() if count["error"]]


def _row(flag: Flag, changes: Mapping[Name, float], *, stale: bool) -> dict[str, Json]:
    return {
        "key": flag.key,
        "flagSetId": flag.set_id,
        "type": flag_type(flag),
        "state": "DISABLED" if flag.disabled else "ENABLED",
        "defaultVariant": flag.default_variant,
        "variants": list(flag.variants),
        "rule": _summary(flag),
        "source": flag.source,
        "path": flag.path,
        "lastChange": changes.get((flag.set_id, flag.key)),
        "metadata": flag.metadata,
        "stale": stale,
        "quarantined": False,
    }


def flag_type(flag: Flag) -> str:
    """Return the type of the values of a flag: that of all of them, or `mixed`."""
    types = {_type(value) for value in flag.variants.values()}
    if types == {"integer", "float"}:
        return "float"
    return types.pop() if len(types) == 1 else "mixed" if types else "none"


def _type(value: Json) -> str:
    names = {bool: "boolean", str: "string", int: "integer", float: "float", dict: "object"}
    return names.get(value.__class__, "object")


def _summary(flag: Flag) -> str:
    if not flag.targeted:
        return ""
    try:
        return summarize_rule(flag.rule, flag.setting.evaluators)
    except DocumentError as error:
        return str(error)


def _finding_counts(flags: FlagSet) -> dict[tuple[str, str], dict[str, int]]:
    """Count the findings of each flag, by source and path."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for layer in flags.layers:
        for each in layer_problems(layer):
            name = layer.setting.source, flag_path(each.path)
            if name[1]:
                entry = counts.setdefault(name, _no_findings())
                entry[each.severity] = entry.get(each.severity, 0) + 1
    return counts


def _no_findings() -> dict[str, int]:
    return {"error": 0, "warning": 0}


def flag_path(path: str) -> str:
    """Return the path of the flag that a finding is about; empty if it is about none.

    >>> flag_path("$.flags.a.targeting.if[0]"), flag_path('$.flags["a.b"].state'), flag_path("$.metadata")
    ('$.flags.a', '$.flags["a.b"]', '')
    """
    start = len("$.flags")
    if not path.startswith("$.flags") or len(path) <= start:
        return ""
    if path[start] == ".":
        ends = [end for end in (path.find(".", start + 1), path.find("[", start + 1)) if end > 0]
        return path[: min(ends)] if ends else path
    end = path.find('"]' if path[start + 1 : start + 2] == '"' else "]", start + 2)
    return path[: end + (2 if path[start + 1 : start + 2] == '"' else 1)] if end > 0 else ""


def _quarantined(source: str, path: str, counts: dict[str, int]) -> dict[str, Json]:
    key = path[len("$.flags.") :] if path.startswith("$.flags.") else path[len("$.flags[") : -1].strip('"')
    return {"key": key, "flagSetId": "", "source": source, "path": path, "findings": counts, "quarantined": True}


def last_changes(entries: Iterable[HistoryEntry]) -> dict[Name, float]:
    """Return when each flag changed last, as far back as snapshots are kept; newest snapshots first."""
    changes: dict[Name, float] = {}
    for entry in entries:
        for name in entry.touched:
            changes.setdefault(name, entry.published)
    return changes


def flag_view(
    snapshot: Snapshot, selector: str, key: str, set_id: str | None, history: SnapshotHistory
) -> dict[str, Json]:
    """Return everything about one flag."""
    flags = snapshot.select(selector)
    flag = find_flag(flags, key, set_id)
    rule = flag.rule if flag.targeted else None
    path = child(flag.path, "targeting")
    evaluators = flag.setting.evaluators
    return {
        "key": flag.key,
        "flagSetId": flag.set_id,
        "type": flag_type(flag),
        "definition": definition(flag),
        "words": to_builtins(describe_rule(rule, path, evaluators)) if flag.targeted else [],
        "attributes": sorted(set(attributes(rule, evaluators))),
        "source": flag.source,
        "path": flag.path,
        "shadows": list(_shadowed(snapshot, selector, flag)),
        "findings": [each.to_dict() for each in findings_of(flags, flag)],
        "history": list(_history(history, selector, flag)),
        "snapshot": {"number": snapshot.number, "id": snapshot.id},
    }


def find_flag(flags: FlagSet, key: str, set_id: str | None) -> Flag:
    """Return a flag by its key, and its flag set if several have the key."""
    flag = flags.flag(key) if set_id is None else flags.sets.get(set_id, {}).get(key)
    if flag is None:
        raise UnknownFlagError(f"there is no flag {key[:200]!r} among those that you may see")
    return flag


class UnknownFlagError(UsageError):
    """A flag that does not exist, or that the caller may not see: 404."""


def definition(flag: Flag) -> dict[str, Json]:
    """Return the definition of a flag as it is written, long values cut."""
    whole = {
        "state": flag.definition.state or "ENABLED",
        "variants": {name: shortened(value) for name, value in flag.variants.items()},
        "defaultVariant": flag.default_variant,
    }
    if flag.targeted:
        whole["targeting"] = _rule(flag)
        reached = reachable(whole["targeting"], flag.setting.evaluators)
        whole |= {"$evaluators": reached} if reached else {}
    return whole | ({"metadata": flag.metadata} if flag.metadata else {})


def _rule(flag: Flag) -> Json:
    try:
        return flag.rule
    except DocumentError as error:
        return {"unusable": str(error)}


def shortened(value: Json) -> Json:
    """Return a value for people: a very long text is cut, and says how long it is."""
    if isinstance(value, str) and len(value) > _LARGEST_VALUE:
        return f"{value[:_LARGEST_VALUE]}… ({len(value)} characters)"
    return value


def attributes(rule: Json, evaluators: Mapping[str, Json]) -> Iterator[str]:
    """Yield the attributes of the context that a rule looks at, with those of the shared rules it uses."""
    pending = [rule, *reachable(rule, evaluators).values()]
    while pending:
        node = pending.pop()
        if name := variable_name(node):
            yield name
        if isinstance(node, dict):
            if "fractional" in node:
                yield "targetingKey"
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def _shadowed(snapshot: Snapshot, selector: str, flag: Flag) -> Iterator[dict[str, Json]]:
    """Yield the definitions of lower priority that this one hides, the highest first."""
    wanted = Selector.parse(selector)
    for layer in reversed(snapshot.flags.layers):
        other = layer.flag(flag.set_id, flag.key)
        if other is None or other.source == flag.source or not wanted.matches(other):
            continue
        members = differing(other, flag, sources=False)
        yield {
            "source": other.source,
            "definition": definition(other),
            "differs": [to_builtins(member) for member in members],
        }


def findings_of(flags: FlagSet, flag: Flag) -> list[Finding]:
    """Return what is wrong with one flag."""
    return [
        each
        for layer in flags.layers
        if layer.setting.source == flag.source
        for each in layer_problems(layer)
        if flag_path(each.path) == flag.path
    ]


def _history(history: SnapshotHistory, selector: str, flag: Flag) -> Iterator[dict[str, Json]]:
    """Yield each kept snapshot in which the flag changed, the newest first, with what changed."""
    name, wanted = (flag.set_id, flag.key), Selector.parse(selector)
    entries = history.entries()
    for entry, older in zip(entries, (*entries[1:], None), strict=True):
        oldest = older is None
        if not oldest and name not in entry.touched:
            continue
        after = _visible(history, entry, name, wanted)
        before = None if older is None else _visible(history, older, name, wanted)
        if before is None and after is None:
            continue
        yield {
            "number": entry.number,
            "id": entry.id,
            "published": entry.published,
            "change": _change(before, after, oldest=oldest),
            "definition": None if after is None else definition(after),
            "before": None if before is None else definition(before),
        }


def _visible(history: SnapshotHistory, entry: HistoryEntry, name: Name, wanted: Selector) -> Flag | None:
    flag = history.find(str(entry.number)).flags.sets.get(name[0], {}).get(name[1])
    return flag if flag is not None and wanted.matches(flag) else None


def _change(before: Flag | None, after: Flag | None, *, oldest: bool) -> str:
    if oldest:
        return "the oldest snapshot that is kept"
    if before is None or after is None:
        return "added" if before is None else "removed"
    return ", ".join(map(str, differing(before, after))) or "no difference"


def answer(result: Resolution) -> dict[str, Json]:
    """Return a resolution as JSON."""
    fields = {"value": shortened(result.value), "variant": result.variant, "reason": result.reason}
    return fields | ({"error": result.error, "message": result.message} if result.error else {})


def answers_over_time(
    history: SnapshotHistory, selector: str, key: str, context: Mapping[str, Json], now: float
) -> list[dict[str, Json]]:
    """Return what a context gets in every kept snapshot; equal answers in a row are one, the newest first."""
    spans: list[dict[str, Json]] = []
    for entry in reversed(history.entries()):
        flags = history.find(str(entry.number)).select(selector)
        given = answer(flags.resolve(key, None, None, context, now))
        if not spans or spans[-1]["answer"] != given:
            spans.append({"answer": given, "since": entry.published, "number": entry.number, "id": entry.id})
    return spans[::-1]


def distribution(flags: FlagSet, key: str, contexts: list[dict[str, Json]], now: float) -> dict[str, Json]:
    """Return how contexts are distributed over the variants of a flag, and the first of them one by one."""
    results = [flags.resolve(key, None, None, context, now) for context in contexts]
    counts = Counter(_label(result) for result in results)
    listed = [
        {"targetingKey": context.get("targetingKey"), "variant": result.variant, "reason": result.reason}
        for context, result in zip(contexts[:MOST_LISTED], results, strict=False)
    ]
    return {"contexts": len(contexts), "variants": dict(counts.most_common()), "listed": listed}


def _label(result: Resolution) -> str:
    if result.error is not None:
        return f"({result.error})"
    return "(caller's default)" if result.variant is None else result.variant
