"""Flags as JSON, with the original's fields first and ours after them; and which flags are listed."""

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
    from wigwag.dflag.origin import Held
    from wigwag.dflag.page.state import FlagState, PageState
    from wigwag.dflag.updating.health import UpdaterHealth

MOST_PROBLEMS = 100
"""How many problems are listed; the rest is counted."""
_MOST_FIELDS = 32
_TRUE, _FALSE = ("1", "true"), ("", "0", "false")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which flags are wanted, and in which form."""

    only_changed: bool = False
    dynamic: bool | None = None
    json: bool = False

    def wants(self, entry: FlagState) -> bool:
        """Tell whether a flag is wanted."""
        return self.dynamic in (None, entry.dynamic) and (entry.changed or not self.only_changed)


def fields(query: str) -> dict[str, str]:
    """Read a query, or a form; refuse what is no query, and a field that comes twice.

    >>> fields("name=rate&value=a%20b")
    {'name': 'rate', 'value': 'a b'}
    """
    try:
        found = parse_qs(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise HttpError(400, f"not up to {_MOST_FIELDS} fields of the form name=value&name=value in UTF-8") from None
    twice = [name for name, values in found.items() if len(values) > 1]
    if twice:
        raise HttpError(400, f"{twice[0][:100]!r} is given more than once")
    return {name: values[0] for name, values in found.items()}


def read_filter(query: str) -> Filter:
    """Read which flags are wanted. As in the original, any text but none means `only_changed`.

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
    """Read a switch; what is neither on nor off is refused, for it may have been meant to keep a change from happening.

    >>> truth("validate_only", "1"), truth("validate_only", "")
    (True, False)
    """
    if text not in _TRUE + _FALSE:
        raise HttpError(400, f"{name} is 1 or 0, not {text[:100]!r}")
    return text in _TRUE


def described(entry: FlagState, now: float, restart: Collection[str] = ()) -> dict[str, Any]:
    """Return what there is to say about a flag; `now` is on the clock of the flags."""
    flag, held = entry.flag, entry.held
    return {
        "name": entry.name,
        "description": flag.usage,
        "current_value": pretty(entry.kind, entry.text),
        "default_value": pretty(entry.kind, entry.default_text),
        "is_changed": entry.changed,
        "is_dynamic": entry.dynamic,
        "is_json": entry.kind.is_json,
        "type": entry.kind.name,
        "aliases": list(entry.names[1:]),
        "constraints": [f"must be {wish}" for wish in shown_wishes(flag)],
        "is_secret": entry.secret,
        "is_overridden": entry.overridden,
        "restart_required": entry.name in restart,
        "origin": held.origin.value,
        "place": held.place,
        "generation": held.generation,
        "set_at": moment(held.at),
        "expires_in": remaining(held, now),
        "etag": entry.tag,
    }


def listed(state: PageState, wanted: Filter, now: float, set_url: str, updater: UpdaterHealth | None) -> dict[str, Any]:
    """Return the whole list; the checksums are of all flags, whichever are listed."""
    restart = updater.restart_required if updater is not None else ()
    return {
        "checksum_static": state.checksum_static,
        "checksum_dynamic": state.checksum_dynamic,
        "set_url": set_url,
        "flags": [described(entry, now, restart) for entry in state.entries if wanted.wants(entry)],
        "checksum": state.checksum,
        "etag": state.tag,
        "generation": state.generation,
        "updater": reported(updater) if updater is not None else None,
    }


def reported(updater: UpdaterHealth) -> dict[str, Any]:
    """Return how an updater is doing."""
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


def moment(at: float) -> str | None:
    """Return when something was set, if it was.

    >>> moment(0.0), moment(1767225600.0)
    (None, '2026-01-01T00:00:00+00:00')
    """
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") if at else None


def remaining(held: Held[Any], now: float) -> float | None:
    """Return for how many more seconds a value holds, if it runs out."""
    return None if held.until is None else round(max(0.0, held.until - now), 3)
