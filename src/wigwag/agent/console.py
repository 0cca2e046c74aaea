"""What the console of an agent shows: flags, sources, streams, snapshots and findings.

Each page takes the flags of the caller's selector only, which access control has put into the request. Pages that are
about the agent as a whole (sources, streams, snapshots) are cut to what contributes to that selection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from wigwag import jsontext
from wigwag.errors import UsageError
from wigwag.flags.checks.lint import in_order
from wigwag.flags.diff.compare import Comparing
from wigwag.serve.access.local import why_not_local
from wigwag.serve.console.flags import (
    MOST_CONTEXTS,
    answer,
    answers_over_time,
    distribution,
    flag_path,
    flag_rows,
    flag_view,
    last_changes,
)
from wigwag.serve.console.live import LiveStreams
from wigwag.serve.console.openapi import openapi
from wigwag.serve.console.site import local_only
from wigwag.serve.console.whatif import what_if
from wigwag.serve.context import selector_of
from wigwag.serve.slices import MOST_EVALUATIONS, in_slices
from wigwag.version import __version__
from wigwag.wire.http import parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wigwag.agent.freshness import Freshness
    from wigwag.agent.report import AgentReport
    from wigwag.flags.flagset import FlagSet
    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.serve.access.access import AccessControl
    from wigwag.serve.console.evaluations import EvaluationHistory
    from wigwag.serve.console.site import ApiPage
    from wigwag.serve.context import Enrichment
    from wigwag.serve.management.history import SnapshotHistory
    from wigwag.serve.selections import Selections
    from wigwag.serve.snapshot import Snapshot
    from wigwag.wire.http import Handler, Request, Stream

VIEWS = ("flags", "sources", "streams", "snapshots", "findings", "whatif")


class ConsoleServices(Protocol):
    """What the console reads: the agent itself."""

    snapshots: Broadcast[Snapshot]
    status_changes: Broadcast[None]
    history: SnapshotHistory
    evaluations: EvaluationHistory
    freshness: Freshness
    report: AgentReport
    wall: Callable[[], float]


class AgentConsole:
    """The API of the console."""

    def __init__(self, agent: ConsoleServices, streams: Selections, enrichment: Enrichment) -> None:
        self._snapshots, self._history, self._report = agent.snapshots, agent.history, agent.report
        self._freshness, self._enrichment, self._streams = agent.freshness, enrichment, streams
        self._evaluations, self._now = agent.evaluations, agent.wall
        topics: dict[str, Broadcast[Any]] = {
            "snapshot": agent.snapshots,
            "status": agent.status_changes,
            "evaluations": agent.evaluations.samples,
        }
        self._live = LiveStreams(topics, self._state)

    def api(self) -> Mapping[bytes, ApiPage]:
        """Return the pages of the API."""
        return {
            b"": self._overview,
            b"/flags": self._flags,
            b"/flag": self._flag,
            b"/evaluations": self._evaluated,
            b"/try": self._try,
            b"/distribution": self._distribution,
            b"/whatif": self._what_if,
            b"/sources": self._sources,
            b"/streams": self._open_streams,
            b"/snapshots": self._kept,
            b"/diff": self._diff,
            b"/findings": self._findings,
            b"/events": self._events,
            b"/openapi.json": lambda request: openapi(),
        }

    def _overview(self, request: Request) -> dict[str, Any]:
        selector, snapshot = selector_of(request), self._snapshots.value
        return {
            "face": "agent",
            "version": __version__,
            "views": VIEWS,
            "selector": selector,
            "now": self._now(),
            "flags": len(snapshot.select(selector)),
            "snapshot": self._state("snapshot"),
        }

    def _state(self, name: str) -> dict[str, Any]:
        """Return what an event says."""
        if name == "snapshot":
            snapshot = self._snapshots.value
            return {"number": snapshot.number, "id": snapshot.id, "published": snapshot.published}
        return {}

    def _events(self, request: Request) -> Stream:
        return self._live.response()

    def _flags(self, request: Request) -> dict[str, Any]:
        snapshot, selector = self._snapshots.value, selector_of(request)
        rows = flag_rows(snapshot, selector, last_changes(self._history.entries()), self._freshness.stale)
        return {"snapshot": self._state("snapshot"), "since": self._oldest(), "flags": rows}

    def _oldest(self) -> float | None:
        entries = self._history.entries()
        return entries[-1].published if entries else None

    def _flag(self, request: Request) -> dict[str, Any]:
        query = _query(request)
        return flag_view(
            self._snapshots.value, selector_of(request), query.get("key", ""), query.get("set"), self._history
        )

    def _evaluated(self, request: Request) -> dict[str, Any]:
        flags = self._snapshots.value.select(selector_of(request))
        whole = self._snapshots.value.flags
        # Evaluations are counted by key. One that other flag sets have, too, would tell about their callers.
        return self._evaluations.to_dict(lambda key: key in flags and (flags is whole or _only_here(whole, key)))

    def _try(self, request: Request) -> dict[str, Any]:
        body, selector, snapshot = _body(request), selector_of(request), self._snapshots.value
        key, context = _text(body, "key"), _context(body)
        enriched = self._enrichment.apply(dict(context), request, snapshot.facts)
        explanation = snapshot.select(selector).explain(key, enriched)
        return {
            "explanation": explanation.to_dict(),
            "answer": answer(explanation.resolution),
            "over_time": answers_over_time(self._history, selector, key, enriched, self._now()),
            "added": {name: value for name, value in enriched.items() if name not in context},
        }

    def _distribution(self, request: Request) -> dict[str, Any]:
        body, snapshot = _body(request), self._snapshots.value
        contexts = self._contexts(body, request, snapshot)
        return distribution(snapshot.select(selector_of(request)), _text(body, "key"), contexts, self._now())

    async def _what_if(self, request: Request) -> dict[str, Any]:
        body, snapshot = _body(request), self._snapshots.value
        contexts = self._contexts(body, request, snapshot)
        source = body.get("source", "")
        if not isinstance(source, str):
            raise UsageError("`source` must be the name of a source")
        return await what_if(snapshot, selector_of(request), _text(body, "document"), source, contexts, self._now())

    def _contexts(self, body: dict[str, Any], request: Request, snapshot: Snapshot) -> list[dict[str, Any]]:
        contexts = body.get("contexts", [])
        if not isinstance(contexts, list) or not all(isinstance(each, dict) for each in contexts):
            raise UsageError("`contexts` must be a list of objects")
        if len(contexts) > MOST_CONTEXTS:
            raise UsageError(f"there may be {MOST_CONTEXTS} contexts; send a sample of yours")
        return [self._enrichment.apply(context, request, snapshot.facts) for context in contexts]

    def _sources(self, request: Request) -> dict[str, Any]:
        snapshot, selector = self._snapshots.value, selector_of(request)
        flags = snapshot.select(selector)
        counts = {name: _contribution(flags, name) for name in {layer.setting.source for layer in flags.layers}}
        listed = self._report.sources()
        if selector:
            names = {layer.setting.source for layer in flags.layers}
            listed = [each for each in listed if each["source"] in names]
        nothing = {"flags": 0, "hidden": 0}
        return {"sources": [each | counts.get(each["source"], nothing) for each in listed]}

    def _open_streams(self, request: Request) -> dict[str, Any]:
        selector = selector_of(request)
        streams = [each for each in self._streams.describe() if not selector or each["selector"] == selector]
        return {"streams": streams, "snapshot": self._state("snapshot")}

    def _kept(self, request: Request) -> dict[str, Any]:
        selector, entries = selector_of(request), self._history.entries()
        listed = [
            {
                "number": entry.number,
                "id": entry.id,
                "published": entry.published,
                "flags": entry.size,
                "changes": entry.changes,
            }
            for entry in entries
        ]
        if selector:
            listed = [{name: each[name] for name in ("number", "published")} for each in listed]
        return {"most": self._history.most, "snapshots": listed}

    async def _diff(self, request: Request) -> dict[str, Any]:
        query, selector = _query(request), selector_of(request)
        before = self._history.find(query.get("from", "previous")).select(selector)
        after = self._history.find(query.get("to", "current")).select(selector)
        comparing = Comparing(before, after, now=self._now(), work=MOST_EVALUATIONS)
        await in_slices(comparing.steps())
        comparison = comparing.result()
        return {**comparison.to_dict(), "text": str(comparison)}

    def _findings(self, request: Request) -> dict[str, Any]:
        flags = self._snapshots.value.select(selector_of(request))
        keys = {(flag.source, flag.path): (flag.set_id, flag.key) for flag in flags.flags()}
        listed = []
        for each in in_order(flags.problems):
            name = keys.get((each.source, flag_path(each.path)))
            listed.append(each.to_dict() | ({"flagSetId": name[0], "key": name[1]} if name else {}))
        return {"findings": listed}


def local_or_token(tokens: AccessControl | None) -> Callable[[Handler], Handler]:
    """Return the entrance: this machine sees everything, others the flags that their token may ask for."""
    if tokens is None:
        return local_only

    def entrance(handler: Handler) -> Handler:
        guarded = tokens.handler(handler, selector_of, lambda request: "")
        return lambda request: guarded(request) if why_not_local(request) else handler(request)

    return entrance


def _contribution(flags: FlagSet, source: str) -> dict[str, int]:
    """Return how many flags in force come from a source, and how many of its flags others hide."""
    defined = [flag for layer in flags.layers if layer.setting.source == source for flag in layer.flags()]
    winning = sum(flags.sets[flag.set_id][flag.key] is flag for flag in defined)
    return {"flags": winning, "hidden": len(defined) - winning}


def _only_here(flags: FlagSet, key: str) -> bool:
    return sum(key in members for members in flags.sets.values()) == 1


def _query(request: Request) -> dict[str, str]:
    return {name.decode(): value.decode("utf-8", "replace") for name, value in parsed(request.query).items()}


def _body(request: Request) -> dict[str, Any]:
    body = jsontext.decode_request(request.body) if request.body.strip() else None
    if not isinstance(body, dict):
        raise UsageError("send a JSON object by POST")
    return body


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"`{name}` is missing")
    return value


def _context(body: dict[str, Any]) -> dict[str, Any]:
    context = body.get("context", {})
    if not isinstance(context, dict):
        raise UsageError("`context` must be an object of attributes")
    return context
