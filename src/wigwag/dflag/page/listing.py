"""Flags as JSON: the fields of the original first, then ours; and the filter of a list."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from wigwag.dflag.page.messages import HttpError
from wigwag.dflag.page.state import pretty
from wigwag.dflag.usage import shown_wishes

if TYPE_CHECKING:
    from wigwag.dflag.page.state import FlagState, PageState
    from wigwag.dflag.updating.health import UpdaterHealth

MOST_PROBLEMS = 100
"""Problems that are listed; the rest are only counted."""
_MOST_FIELDS = 32
_TRUE, _FALSE = ("1", "true"), ("", "0", "false")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which flags to list, and whether as JSON."""

    only_changed: bool = False
    dynamic: bool | None = None
    json: bool = False

    def matches(self, entry: FlagState) -> bool:
        """Return whether to list a flag."""
        return self.dynamic in (None, entry.flag.dynamic) and (entry.changed or not self.only_changed)


def fields(query: str) -> dict[str, str]:
    """Parse a query or a form; 400 if it is malformed or has a field twice.

    >>> fields("name=rate&value=a%20b")
    {'name': 'rate', 'value': 'a b'}
    """
    try:
        parsed = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise HttpError(
            400, f"send at most {_MOST_FIELDS} fields of the form name=value&name=value, in UTF-8"
        ) from None
    repeated = next((name for name, values in parsed.items() if len(values) > 1), None)
    if repeated is not None:
        raise HttpError(400, f"{repeated[:100]!r} is given more than once")
    return {name: values[0] for name, values in parsed.items()}


def read_filter(query: str) -> Filter:
    """Read a filter from a query. As in the original, any text but an empty one turns `only_changed` on.

    >>> read_filter("only_changed=yes&type=dynamic")
    Filter(only_changed=True, dynamic=True, json=False)
    """
    given = fields(query)
    types = {"": None, "dynamic": True, "static": False}
    chosen, form = given.get("type", ""), given.get("format", "")
    if chosen not in types:
        raise HttpError(400, f"type is dynamic or static, not {chosen[:100]!r}")
    if form not in ("", "json"):
        raise HttpError(400, f"format can only be json, not {form[:100]!r}")
    return Filter(bool(given.get("only_changed")), types[chosen], form == "json")


def truth(name: str, text: str) -> bool:
    """Parse a switch. Other texts are refused, because they may have been meant to prevent a change.

    >>> truth("validate_only", "1"), truth("validate_only", "")
    (True, False)
    """
    if text not in _TRUE + _FALSE:
        raise HttpError(400, f"{name} is 1 or 0, not {text[:100]!r}")
    return text in _TRUE


def describe(entry: FlagState, now: float, restart: Collection[str] = ()) -> dict[str, Any]:
    """Return a flag as JSON; `now` is on the clock of the flags, `restart` the flags that need a restart."""
    flag, held = entry.flag, entry.held
    return {
        "name": flag.name,
        "description": flag.usage,
        "current_value": pretty(flag.kind, entry.text),
        "default_value": pretty(flag.kind, entry.default_text),
        "is_changed": entry.changed,
        "is_dynamic": flag.dynamic,
        "is_json": flag.kind.is_json,
        "type": flag.kind.name,
        "aliases": list(flag.names[1:]),
        "constraints": [f"must be {wish}" for wish in shown_wishes(flag)],
        "is_secret": flag.secret,
        "is_overridden": entry.overridden,
        "restart_required": flag.name in restart,
        "origin": held.origin.value,
        "place": held.place,
        "generation": held.generation,
        "set_at": _timestamp(held.at),
        "expires_in": None if held.until is None else round(max(0.0, held.until - now), 3),
        "etag": entry.tag,
    }


def list_flags(
    state: PageState, filter: Filter, now: float, set_url: str, updater: UpdaterHealth | None
) -> dict[str, Any]:
    """Return the list as JSON; the checksums are of all flags, whichever are listed."""
    restart = updater.restart_required if updater is not None else ()
    return {
        "checksum_static": state.checksum_static,
        "checksum_dynamic": state.checksum_dynamic,
        "set_url": set_url,
        "flags": [describe(entry, now, restart) for entry in state.entries if filter.matches(entry)],
        "checksum": state.checksum,
        "etag": state.tag,
        "generation": state.snapshot.generation,
        "updater": _updater_status(updater) if updater is not None else None,
    }


def _updater_status(updater: UpdaterHealth) -> dict[str, Any]:
    problems = updater.problems
    return {
        "running": updater.running,
        "generation": updater.generation,
        "warnings": updater.warnings,
        "errors": updater.errors,
        "restart_required": list(updater.restart_required),
        "problem_count": len(problems),
        "problems": [
            {"level": each.level, "place": each.place, "key": each.key, "reason": each.reason}
            for each in problems[:MOST_PROBLEMS]
        ],
    }


def _timestamp(at: float) -> str | None:
    """Return a time in RFC 3339; None for a value that was never set.

    >>> _timestamp(0.0), _timestamp(1767225600.0)
    (None, '2026-01-01T00:00:00+00:00')
    """
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") if at else None
