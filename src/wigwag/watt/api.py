"""The HTTP API: snapshots by number, the latest one at once or when it comes, and how the watches are doing.

/snapshots/                      the numbers that are kept: HTML, or JSON if you accept that
/snapshots/N, /snapshots/latest  a snapshot; `format=watt1|v2`, projections (`kind=`, `namespace=`, `section=`, …)
/snapshots/latest?wait=30s&index=N          long poll: as soon as the latest is not N, at the latest after 30 s
/snapshots/latest, text/event-stream        an event for each snapshot, with what has changed
/debug/watches, POST /resync     how each watch and hook is doing; call all hooks again
/healthz, /readyz, /metrics      as on every management port

Errors are plain text, as the original's. `X-Snapshot-Id` says which snapshot an answer is about. ETags are weak: they
stand for the content of the projection, and a v2 document also has ages. Equal tag, nothing to do.

A document is written while its reader takes it. A slow reader holds one chunk, and the snapshot that it reads.

The hard case is a restart, after which numbers begin at 1 again. A long poll with a number from before returns at once,
because it waits for another number, not for a higher one. The id of an event has part of the digest, so that a
client that reconnects is not taken for up to date.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from wigwag.errors import UsageError
from wigwag.golang import seconds
from wigwag.serve.access.tokens import read_tokens
from wigwag.serve.management.manage import Management
from wigwag.sources.disk.read import read
from wigwag.suggest import suggest
from wigwag.watt.snapshots.formats import FORMATS, Sources, document, rfc3339, shown_deltas
from wigwag.watt.snapshots.projection import PARAMETERS, Projection, projected_digest
from wigwag.watt.snapshots.snapshot import deltas
from wigwag.wire.http import MOST_PARAMETERS, Reply, Stream, etag_matches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from wigwag.observe import Registry
    from wigwag.watt.snapshots.formats import Format
    from wigwag.watt.snapshots.history import WattHistory
    from wigwag.watt.snapshots.snapshot import WattSnapshot
    from wigwag.wire.http import Handler, Headers, Request, Response

SNAPSHOTS = b"/snapshots/"
LONGEST_WAIT = 600.0
MOST_EVENT_DELTAS = 100
_LARGEST_TOKEN_FILE = 64 << 10
_READS = (b"GET", b"HEAD")
_NUMBER = re.compile(rb"[+-]?[0-9]{1,18}")
_JSON: Headers = ((b"content-type", b"application/json"),)
_HTML: Headers = ((b"content-type", b"text/html; charset=utf-8"),)
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)
_EVENTS: Headers = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_SNAPSHOT_PARAMETERS = (*PARAMETERS, "deltas", "format")
_LATEST_PARAMETERS = (*_SNAPSHOT_PARAMETERS, "wait", "index")
_NOT_YET = "there is no snapshot yet: not every watch has answered; see /debug/watches, or wait for it with ?wait=30s"
_GONE = "there is no such snapshot: it has expired, or is still to come; see /snapshots/"
_encode = msgspec.json.encode

Watches: TypeAlias = Callable[[], Mapping[str, Any]]
Resync: TypeAlias = Callable[[], object]


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Settings of the API."""

    format: Format = "watt1"
    """The format of requests that do not say which."""
    most_waiting: int = 100
    """Long polls and event streams at a time."""
    heartbeat: float = 30.0
    """Seconds without an event before a comment is sent."""


@dataclass(frozen=True, slots=True)
class ApiQuery:
    """What a request for a snapshot asks for."""

    format: Format
    projection: Projection
    wait: float | None = None
    index: int = 0

    @classmethod
    def parse(cls, query: bytes, known: tuple[str, ...], default: Format) -> ApiQuery:
        """Read a query; `UsageError` if a parameter is unknown or malformed."""
        try:
            pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
        except ValueError:
            raise UsageError(f"the query is no ASCII text with at most {MOST_PARAMETERS} parameters") from None
        for name, _ in pairs:
            if name not in known:
                hint = suggest(name, known) or f"one of {', '.join(known)}"
                raise UsageError(f"unknown parameter {name[:60]!r}; {hint}")
        values = dict(pairs)
        chosen = {name: value for name, value in values.items() if name in ("wait", "index", "format")}
        projection = Projection.from_query([pair for pair in pairs if pair[0] not in chosen])
        form = _format(chosen.get("format", "v2" if projection.deltas_only else default))
        if projection.deltas_only and form != "v2":
            raise UsageError("deltas: only a v2 document has them; leave out the format")
        wait = _duration(chosen["wait"]) if "wait" in chosen else None
        return cls(form, projection, wait, _index(chosen.get("index", "0")))

    def etag(self, snapshot: WattSnapshot) -> bytes:
        """Return the tag of the answer, without its `W/`."""
        parts = [self.format, projected_digest(snapshot, self.projection)]
        if self.format == "v2":
            parts += ["\0".join(snapshot.unresolved), str(snapshot.id) if self.projection.deltas_only else ""]
        return b'"%b"' % blake2b(repr(parts).encode(), digest_size=16).hexdigest().encode()


def token_file(path: str) -> Callable[[], tuple[bytes, ...]]:
    """Return what reads the tokens of a file, one on each line; the file is read for each request."""
    return lambda: read_tokens(read(path, _LARGEST_TOKEN_FILE))


class SnapshotApi:
    """Answers requests about the snapshots of a history."""

    def __init__(
        self,
        history: WattHistory,
        sources: Callable[[], Sources],
        watches: Watches,
        resync: Resync,
        settings: ApiSettings = ApiSettings(),  # noqa: B008 - a frozen value
    ) -> None:
        """`sources` is for v2 documents, `watches` for `/debug/watches`; `resync` starts one and does not wait."""
        self._history, self._sources, self._settings = history, sources, settings
        self._watches, self._resync = watches, resync
        self.waiting = 0
        """Long polls and event streams under way."""

    def handler(self, ready: Callable[[], bool], registry: Registry) -> Handler:
        """Return the function that answers requests, probes and metrics included."""
        management = Management(ready, registry, self).handler()

        def handle(request: Request) -> Response | Awaitable[Response]:
            root, slash, name = request.path.partition(SNAPSHOTS)
            if not root and slash:
                return self._handle(request, name)
            if request.path + b"/" == SNAPSHOTS:
                return _text(301, "see /snapshots/", ((b"location", SNAPSHOTS),))
            return management(request)

        return handle

    def pages(self) -> Mapping[bytes, Callable[[Request], Reply]]:
        """Return the other pages by their path."""
        return {b"/debug/watches": self._debug_watches, b"/resync": self._post_resync}

    def _debug_watches(self, request: Request) -> Reply:
        return Reply(200, _JSON, _encode(self._watches()) + b"\n")

    def _post_resync(self, request: Request) -> Reply:
        if request.method != b"POST":
            return _text(405, "send a POST", ((b"allow", b"POST"),))
        self._resync()
        return _text(202, "resync started")

    def _handle(self, request: Request, name: bytes) -> Response | Awaitable[Response]:
        if request.method not in _READS:
            return _text(405, "method not allowed", ((b"allow", b", ".join(_READS)),))
        known = _LATEST_PARAMETERS if name == b"latest" else _SNAPSHOT_PARAMETERS if name else ()
        try:
            query = ApiQuery.parse(request.query, known, self._settings.format)
        except UsageError as error:
            return _text(400, str(error))
        if not name:
            return self._list(request)
        if name == b"latest":
            return self._latest(request, query)
        if not _NUMBER.fullmatch(name):
            return _text(400, "ID is not an integer")
        return self._answer(request, self._history.get(int(name)), query, _GONE)

    def _list(self, request: Request) -> Reply:
        kept = [snapshot for each in self._history.ids() if (snapshot := self._history.get(each)) is not None]
        newest = _numbered(kept[-1]) if kept else ()
        if b"application/json" in (request.header(b"accept") or b""):
            return Reply(200, (*_JSON, *newest), _encode([_summary(each) for each in kept]) + b"\n")
        items = "".join(f'  <li><a href="{each.id}">{each.id}</a></li>\n' for each in kept)
        return Reply(200, (*_HTML, *newest), f"<html><body><ul>\n{items}</ul></body></html>\n".encode())

    def _latest(self, request: Request, query: ApiQuery) -> Response | Awaitable[Response]:
        if b"text/event-stream" in (request.header(b"accept") or b""):
            if self.waiting >= self._settings.most_waiting:
                return self._busy()
            last = (request.header(b"last-event-id") or b"").decode("latin-1")
            return Stream(200, _EVENTS, self._events(query.projection, last))
        if query.wait is not None:
            return self._wait(request, query, query.wait)
        return self._answer(request, self._history.latest, query, _NOT_YET)

    def _answer(self, request: Request, snapshot: WattSnapshot | None, query: ApiQuery, missing: str) -> Response:
        if snapshot is None:
            return _text(404, missing)
        etag = query.etag(snapshot)
        headers: Headers = (*_numbered(snapshot), (b"etag", b"W/" + etag), (b"cache-control", b"no-cache"))
        if etag_matches(request.header(b"if-none-match"), etag):
            return Reply(304, headers)
        if request.method == b"HEAD":
            return Stream(200, _JSON + headers, _paced(()))
        sources = self._sources() if query.format == "v2" else None
        chunks = document(snapshot, query.format, query.projection, sources)
        first, second = next(chunks), next(chunks, None)
        if second is None:
            return Reply(200, _JSON + headers, first)
        return Stream(200, _JSON + headers, _paced(chain((first, second), chunks)))

    async def _wait(self, request: Request, query: ApiQuery, wait: float) -> Response:
        """Answer as soon as the latest number is another one than the client has, or when the time is over."""
        if self.waiting >= self._settings.most_waiting:
            return self._busy()
        history, snapshots, now = self._history, self._history.snapshots, asyncio.get_running_loop().time
        until = now() + wait
        with self._counted():
            while snapshots.error is None and now() < until:
                if history.latest is not None and history.latest.id != query.index:
                    break
                await snapshots.changed(snapshots.serial, until)
        return self._answer(request, history.latest, query, _NOT_YET)

    async def _events(self, projection: Projection, seen: str) -> AsyncIterator[bytes]:
        """Yield an event for each snapshot that is not the one `seen`, and a comment while there is none."""
        history, snapshots, now = self._history, self._history.snapshots, asyncio.get_running_loop().time
        with self._counted():
            yield b": connected\n\n"
            due = now() + self._settings.heartbeat
            while snapshots.error is None:
                serial, latest = snapshots.serial, history.latest
                if latest is not None and _event_id(latest) != seen:
                    event = self._event(latest, seen, projection)
                    seen = _event_id(latest)
                    del latest  # or a quiet stream would keep it alive
                    if event:
                        yield event
                    continue
                del latest
                await snapshots.changed(serial, due)
                if now() >= due:
                    due = now() + self._settings.heartbeat
                    yield b": heartbeat\n\n"

    def _event(self, latest: WattSnapshot, seen: str, projection: Projection) -> bytes:
        """Return an event; nothing if the projection is as the client has seen it."""
        before = self._seen(seen)
        data = {"id": latest.id, "digest": latest.digest, "complete": latest.complete}
        if before is not None:
            same = projected_digest(before, projection) == projected_digest(latest, projection)
            if same and before.complete == latest.complete:
                return b""
            changes = latest.deltas if before.id == latest.id - 1 else tuple(deltas(before, latest))
            shown, truncated = shown_deltas(latest, projection, changes, MOST_EVENT_DELTAS)
            data |= {"since": before.id, "deltas": shown} | ({"deltas_truncated": True} if truncated else {})
        return b"id: %b\ndata: %b\n\n" % (_event_id(latest).encode(), _encode(data))

    def _seen(self, event: str) -> WattSnapshot | None:
        number = event.partition("-")[0].encode("latin-1")
        snapshot = self._history.get(int(number)) if _NUMBER.fullmatch(number) else None
        return snapshot if snapshot is not None and _event_id(snapshot) == event else None

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    def _busy(self) -> Reply:
        most = self._settings.most_waiting
        return _text(503, f"{most} requests wait already, which is the limit; try again", ((b"retry-after", b"5"),))


async def _paced(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks, and let others run in between."""
    for chunk in chunks:
        yield chunk
        await asyncio.sleep(0)


def _event_id(snapshot: WattSnapshot) -> str:
    return f"{snapshot.id}-{snapshot.digest[:8]}"


def _numbered(snapshot: WattSnapshot) -> Headers:
    return ((b"x-snapshot-id", b"%d" % snapshot.id),)


def _summary(snapshot: WattSnapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "created": rfc3339(snapshot.created),
        "digest": snapshot.digest,
        "complete": snapshot.complete,
        "bytes": snapshot.size,
    }


def _text(status: int, text: str, headers: Headers = ()) -> Reply:
    return Reply(status, (*_TEXT, *headers), f"{text}\n".encode())


def _format(text: str) -> Format:
    for form in FORMATS:
        if form == text:
            return form
    hint = suggest(text, FORMATS) or f"one of {', '.join(FORMATS)}"
    raise UsageError(f"unknown format {text[:60]!r}; {hint}")


def _duration(text: str) -> float:
    try:
        wait = seconds(text)
    except ValueError as error:
        raise UsageError(f"wait: {error}") from None
    if wait < 0:
        raise UsageError("wait: a duration of 0 or more, such as 30s")
    return min(wait, LONGEST_WAIT)


def _index(text: str) -> int:
    if not _NUMBER.fullmatch(text.encode(errors="replace")):
        raise UsageError("index: the number of a snapshot, as in the header X-Snapshot-Id")
    return int(text)
