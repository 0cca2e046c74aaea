"""What an operator wants to see of a running agent, served to this machine only unless asked otherwise.

/debug/sources                   each source: state, age, last error, restarts, problems of its document
/debug/flags                     the flags in force, as sync clients get them
/debug/explain?key=K             how an evaluation comes about; the context is the JSON body of a POST
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.errors import WigwagError
from wigwag.wire.http import Reply, parsed

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.serve.context import Enrichment
    from wigwag.serve.snapshot import Snapshot
    from wigwag.wire.http import Headers, Request

    Page = Callable[[Request], Reply]

_JSON: Headers = ((b"content-type", b"application/json"),)
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)


class Debug:
    """The debugging pages. `sources` tells the state of each source as plain JSON."""

    def __init__(
        self,
        current: Callable[[], Snapshot],
        sources: Callable[[], list[dict[str, Any]]],
        enrichment: Enrichment,
        *,
        everybody: bool,
    ) -> None:
        self._current, self._sources, self._enrichment = current, sources, enrichment
        self._everybody = everybody

    def pages(self) -> dict[bytes, Page]:
        """Return the pages by their path."""
        pages: dict[bytes, Page] = {
            b"/debug/sources": lambda request: _json(200, self._sources()),
            b"/debug/flags": self._flags,
            b"/debug/explain": self._explain,
        }
        return {path: page if self._everybody else _for_this_machine(page) for path, page in pages.items()}

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
        except (WigwagError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            return _json(400, {"error": str(error)})
        explanation = flags.explain(key, dict(self._enrichment.apply(context, request)))
        if _parameter(request, "format") == "text":
            return Reply(200, _TEXT, f"{explanation}\n".encode())
        return _json(200, explanation.to_dict())


def _for_this_machine(page: Page) -> Page:
    def guarded(request: Request) -> Reply:
        if not _is_local(request):
            return _json(
                403, {"error": "served to this machine only; start the agent with --debug-endpoints to change that"}
            )
        return page(request)

    return guarded


def _is_local(request: Request) -> bool:
    address = request.peer.address if request.peer else "unix"
    if address == "unix":
        return True
    host = ipaddress.ip_address(address.rpartition(":")[0].strip("[]").partition("%")[0])
    mapped = getattr(host, "ipv4_mapped", None)
    return (mapped or host).is_loopback


def _json(status: int, value: Any) -> Reply:
    return Reply(status, _JSON, msgspec.json.encode(value) + b"\n")


def _parameter(request: Request, name: str) -> str:
    return parsed(request.query).get(name.encode(), b"").decode("utf-8", "replace")
