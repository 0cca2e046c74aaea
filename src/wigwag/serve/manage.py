"""The management port: probes, metrics, and what an operator wants to see of a running agent.

/healthz  /readyz  /metrics      as flagd has them; ready is 200, not yet is 412
/debug/sources                   each source: state, age, last error, restarts, problems of its document
/debug/flags                     the flags in force, as sync clients get them
/debug/explain?key=K             how an evaluation comes about; the context is the JSON body of a POST
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from wigwag.errors import WigwagError
from wigwag.wire.http import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.observe import Registry
    from wigwag.serve.snapshot import Snapshot
    from wigwag.wire.http import Handler, Headers, Request

_JSON: Headers = ((b"content-type", b"application/json"),)
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)
_METRICS: Headers = ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),)


class Management:
    """The management service. `sources` tells the state of each source as plain JSON."""

    def __init__(
        self,
        current: Callable[[], Snapshot],
        ready: Callable[[], bool],
        registry: Registry,
        sources: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._current, self._ready, self._registry, self._sources = current, ready, registry, sources

    def handler(self) -> Handler:
        """Return the function that answers requests."""
        pages: dict[bytes, Callable[[Request], Reply]] = {
            b"/healthz": lambda request: Reply(200, _TEXT),
            b"/readyz": lambda request: Reply(200 if self._ready() else 412, _TEXT),
            b"/metrics": lambda request: Reply(200, _METRICS, self._registry.render().encode()),
            b"/debug/sources": lambda request: _json(200, self._sources()),
            b"/debug/flags": self._flags,
            b"/debug/explain": self._explain,
        }

        def handle(request: Request) -> Reply:
            page = pages.get(request.path)
            return page(request) if page is not None else Reply(404, _TEXT, b"404 page not found\n")

        return handle

    def _flags(self, request: Request) -> Reply:
        snapshot = self._current()
        try:
            flags = snapshot.select(_parameter(request, "selector"))
        except WigwagError as error:
            return _json(400, {"error": str(error)})
        listed = [{"key": flag.key, "flagSetId": flag.set_id, **flag.to_dict()} for flag in flags.flags()]
        problems = [problem.to_dict() for problem in snapshot.flags.problems]
        return _json(200, {"snapshot": snapshot.id, "number": snapshot.number, "flags": listed, "problems": problems})

    def _explain(self, request: Request) -> Reply:
        key = _parameter(request, "key")
        if not key:
            return _json(
                400, {"error": "say which flag: /debug/explain?key=KEY, with the context as the body of a POST"}
            )
        try:
            context = msgspec.json.decode(request.body or b"{}", type=dict[str, Any])
            flags = self._current().select(_parameter(request, "selector"))
        except (WigwagError, msgspec.MsgspecError) as error:
            return _json(400, {"error": str(error)})
        explanation = flags.explain(key, context)
        if _parameter(request, "format") == "text":
            return Reply(200, _TEXT, f"{explanation}\n".encode())
        return _json(200, explanation.to_dict())


def _json(status: int, value: Any) -> Reply:
    return Reply(status, _JSON, msgspec.json.encode(value) + b"\n")


def _parameter(request: Request, name: str) -> str:
    return parse_qs(request.query.decode("latin-1")).get(name, [""])[0]
