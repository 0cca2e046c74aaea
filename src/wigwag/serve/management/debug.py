"""The debug pages of an agent, for requests from this machine only unless `--debug-endpoints` allows others.

/debug/sources                   each source: state, age, last error, restarts, problems of its document
/debug/snapshots                 the snapshots that are kept, and what each changed
/debug/flags                     the flags in force, as sync clients get them
/debug/evaluate?key=K            the result of an evaluation; without a key, of all flags
/debug/explain?key=K             the steps that lead to it
/debug/diff?from=S&to=S          what differs between two snapshots, and for whom

The context is the JSON body of a POST; a comparison also takes a list of contexts. `snapshot=S` selects an earlier
snapshot, `selector=` some of the flags, and `format=text` is for people. Comparing many contexts takes a while, so it
is done in slices, and evaluations go on in between.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wigwag import jsontext
from wigwag.errors import UsageError, WigwagError
from wigwag.flags.document import reason
from wigwag.serve.access.local import LOCAL_ONLY, why_not_local
from wigwag.serve.management.history import SnapshotHistory
from wigwag.serve.slices import MOST_EVALUATIONS, in_slices
from wigwag.wire.http import Reply, parsed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from wigwag.flags.diff.compare import Comparing
    from wigwag.flags.flagset import FlagSet
    from wigwag.serve.context import Enrichment
    from wigwag.serve.management.history import HistoryEntry
    from wigwag.serve.snapshot import Snapshot
    from wigwag.wire.http import Headers, Request

    Page: TypeAlias = Callable[[Request], Reply | Awaitable[Reply]]

_JSON: Headers = ((b"content-type", b"application/json"),)
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
_CONTEXTS = 'the body must be a context, a list of contexts, or {"contexts": […]}'

_context = jsontext.decoder(dict[str, Any], jsontext.MOST)


class _UnknownSnapshotError(UsageError):
    """A snapshot that is not kept: 404, and not 400 as for all else that is wrong with a request."""


class Debug:
    """The debugging pages. `sources` tells the state of each source as plain JSON."""

    def __init__(
        self,
        current: Callable[[], Snapshot],
        sources: Callable[[], list[dict[str, Any]]],
        enrichment: Enrichment,
        history: SnapshotHistory | None = None,
        *,
        everybody: bool,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._current, self._sources, self._enrichment = current, sources, enrichment
        self._history = SnapshotHistory(1) if history is None else history
        self._everybody, self._now = everybody, now

    def pages(self) -> dict[bytes, Page]:
        """Return the pages by their path."""
        pages: dict[bytes, Page] = {
            b"/debug/sources": lambda request: _json(200, self._sources()),
            b"/debug/snapshots": self._snapshots,
            b"/debug/flags": self._flags,
            b"/debug/evaluate": self._evaluate,
            b"/debug/explain": self._explain,
            b"/debug/diff": self._diff,
        }
        return {path: _guarded(page, self._everybody) for path, page in pages.items()}

    def _snapshots(self, request: Request) -> Reply:
        entries, now = self._history.entries(), self._now()
        if _parameter(request, "format") == "text":
            return _text("\n".join(_line(entry, now) for entry in entries) or "no snapshot has been published yet")
        return _json(200, {"most": self._history.most, "snapshots": [_told(entry, now) for entry in entries]})

    def _flags(self, request: Request) -> Reply:
        from wigwag.flags.dump import document, dump

        snapshot, flags = self._wanted(request)
        form, origin = _parameter(request, "format"), {"snapshot": snapshot.id, "number": snapshot.number}
        if form == "document":
            return _json(200, document(flags))
        if form == "sources":
            return _json(200, {**origin, "sources": dump(flags)})
        listed = [{"key": flag.key, "flagSetId": flag.set_id, **flag.to_dict()} for flag in flags.flags()]
        problems = [problem.to_dict() for problem in snapshot.flags.problems]
        return _json(200, {**origin, "flags": listed, "problems": problems})

    def _evaluate(self, request: Request) -> Reply:
        snapshot, flags = self._wanted(request)
        context, key = self._context(request, snapshot), _parameter(request, "key")
        keys = [key] if key else flags.keys()
        outcomes = [{"key": name, **_outcome(flags, name, context)} for name in keys]
        origin = {"snapshot": snapshot.id, "number": snapshot.number}
        return _json(200, {**origin, **outcomes[0]} if key else {**origin, "flags": outcomes})

    def _explain(self, request: Request) -> Reply:
        key = _parameter(request, "key")
        if not key:
            raise UsageError("say which flag: /debug/explain?key=KEY, with the context as the body of a POST")
        snapshot, flags = self._wanted(request)
        explanation = flags.explain(key, self._context(request, snapshot))
        if _parameter(request, "format") == "text":
            return _text(str(explanation))
        return _json(200, explanation.to_dict())

    def _diff(self, request: Request) -> Awaitable[Reply]:
        selector = _parameter(request, "selector")
        before = self._snapshot(_parameter(request, "from") or "previous").select(selector)
        after = self._snapshot(_parameter(request, "to") or "current")
        contexts = [self._enrichment.apply(context, request, after.facts) for context in _contexts(request)]
        from wigwag.flags.diff.compare import Comparing

        comparing = Comparing(before, after.select(selector), contexts, now=self._now(), work=MOST_EVALUATIONS)
        return self._compared(comparing, _parameter(request, "format"))

    async def _compared(self, comparing: Comparing, form: str) -> Reply:
        try:
            await in_slices(comparing.steps())
        except WigwagError as error:
            return _json(400, {"error": str(error)})
        comparison = comparing.result()
        return _text(str(comparison)) if form == "text" else _json(200, comparison.to_dict())

    def _wanted(self, request: Request) -> tuple[Snapshot, FlagSet]:
        snapshot = self._snapshot(_parameter(request, "snapshot"))
        return snapshot, snapshot.select(_parameter(request, "selector"))

    def _snapshot(self, name: str) -> Snapshot:
        if not name:
            return self._current()
        try:
            return self._history.find(name)
        except UsageError as error:
            raise _UnknownSnapshotError(str(error)) from error

    def _context(self, request: Request, snapshot: Snapshot) -> dict[str, Any]:
        context = _context(request.body or b"{}")
        return self._enrichment.apply(context, request, snapshot.facts)


def _contexts(request: Request) -> list[dict[str, Any]]:
    """Read a context, several in a list, or several as the one member of an object."""
    body = jsontext.decode_request(request.body) if request.body.strip() else []
    if isinstance(body, dict):
        wrapped = body.get("contexts")
        body = wrapped if isinstance(wrapped, list) and len(body) == 1 else [body]
    if not isinstance(body, list) or not all(isinstance(context, dict) for context in body):
        raise UsageError(_CONTEXTS)
    return body


def _outcome(flags: FlagSet, key: str, context: Mapping[str, Any]) -> dict[str, Any]:
    result = flags.resolve(key, None, None, context)
    outcome = {
        "value": result.value,
        "variant": result.variant,
        "reason": result.reason,
        "metadata": result.metadata,
    }
    return outcome | ({"error": result.error, "message": result.message} if result.error else {})


def _told(entry: HistoryEntry, now: float) -> dict[str, Any]:
    return {
        "number": entry.number,
        "id": entry.id,
        "published": _time(entry.published),
        "ageSeconds": round(now - entry.published, 3),
        "flags": entry.size,
        "changes": entry.changes,
    } | ({"facts": entry.facts} if entry.facts else {})


def _line(entry: HistoryEntry, now: float) -> str:
    age, keys = f"{now - entry.published:.0f} s ago", ", ".join(entry.changes.keys)
    changes = f"{entry.changes}: {keys}" if keys else str(entry.changes)
    return f"{entry.number:>6}  {entry.id}  {_time(entry.published)}  {age:>12}  {entry.size} flags  {changes}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _guarded(page: Page, everybody: bool) -> Page:
    def guarded(request: Request) -> Reply | Awaitable[Reply]:
        if not everybody and (refusal := why_not_local(request)):
            return _json(403, {"error": f"{LOCAL_ONLY.format('agent')}: {refusal}"})
        try:
            return page(request)
        except WigwagError as error:
            return _json(404 if isinstance(error, _UnknownSnapshotError) else 400, {"error": str(error)})
        except _UNREADABLE as error:
            return _json(400, {"error": f"the body cannot be used as a context: {reason(error)}"})

    return guarded


def _json(status: int, value: Any) -> Reply:
    return Reply(status, _JSON, msgspec.json.encode(value) + b"\n")


def _text(text: str) -> Reply:
    return Reply(200, _TEXT, f"{text}\n".encode())


def _parameter(request: Request, name: str) -> str:
    return parsed(request.query).get(name.encode(), b"").decode("utf-8", "replace")
