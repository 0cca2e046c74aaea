"""OFREP: evaluation over plain HTTP and JSON, one flag or all of them, and server-sent events when they change.

POST /ofrep/v1/evaluate/flags/{key}     one flag; the key may contain slashes
POST /ofrep/v1/evaluate/flags           all flags, with an ETag over the whole answer, so content *and* context
GET  /ofrep/v1/sse?channels={set}       tells a client to fetch again
"""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Struct

from wigwag.errors import SelectorError
from wigwag.flags.document import without_surrogates
from wigwag.jsontext import decode_request
from wigwag.serve.context import Enrichment, selector_of
from wigwag.serve.streams import NOT_YET
from wigwag.wire.http import Reply, Stream, etag_matches, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Resolution
    from wigwag.serve.events import ChangeStreams
    from wigwag.serve.resolve import Resolver
    from wigwag.serve.snapshot import Snapshot
    from wigwag.wire.http import Handler, Headers, Request, Response

BULK = b"/ofrep/v1/evaluate/flags"
SSE = b"/ofrep/v1/sse"
_JSON: Headers = ((b"content-type", b"application/json"),)
_EVENTS: Headers = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_TEXT: Headers = ((b"content-type", b"text/plain; charset=utf-8"),)
_DETAILS = {
    "FLAG_NOT_FOUND": (404, "FLAG_NOT_FOUND", "flag `{key}` does not exist"),
    "PARSE_ERROR": (400, "PARSE_ERROR", "error parsing the flag `{key}`"),
}
OVER_BUDGET = (
    "the flags of this request take too many steps together for its context: "
    "send a smaller context, select fewer flags, or ask for this flag alone"
)
_OTHER = (400, "GENERAL", "error processing the flag for evaluation")
_encode = msgspec.json.encode
MENDED_BYTES = 64 * 1024
"""The largest body in which what is no Unicode is replaced: that takes many times as long as to decode it."""


class EventStreams(Struct, frozen=True):
    """How clients learn about changes."""

    enabled: bool = True
    inactivity_delay: int = 120
    public_url: str = ""

    def advertised(self, flag_set: str) -> list[dict[str, Any]]:
        """Return what a bulk answer says about the event stream."""
        if not self.enabled:
            return []
        endpoint = {"origin": self.public_url} if self.public_url else {}
        endpoint["requestUri"] = SSE.decode() + (f"?channels={quote(flag_set, safe='')}" if flag_set else "")
        return [{"type": "sse", "endpoint": endpoint, "inactivityDelaySec": self.inactivity_delay}]


class Ofrep:
    """The OFREP service."""

    def __init__(
        self,
        current: Callable[[], Snapshot],
        enrichment: Enrichment,
        resolver: Resolver,
        changes: ChangeStreams,
        streams: EventStreams = EventStreams(),  # noqa: B008 - a frozen value
        largest: int = 1 << 31,
    ) -> None:
        self._largest = largest
        self._current, self._enrichment, self._resolver = current, enrichment, resolver
        self._changes, self._streams = changes, streams

    def handler(self) -> Handler:
        """Return the function that answers requests."""
        return self._handle

    def _handle(self, request: Request) -> Response:
        path = request.path
        if path.startswith(BULK):
            if request.method != b"POST":
                return Reply(405, (*_TEXT, (b"allow", b"POST")), b"method not allowed\n")
            if len(request.body) > self._largest:
                return Reply(413, _JSON, b'{"errorDetails":"request body too large"}')
            if path[len(BULK) :] in (b"", b"/"):
                return self._bulk(request)
            if key := named(request):
                return self._single(request, key)
        if path == SSE and self._streams.enabled:
            return self._subscribe(request)
        return Reply(404, _TEXT, b"404 page not found\n")

    def _single(self, request: Request, key: str) -> Reply:
        snapshot = self._current()
        context = self._context(request, snapshot.facts)
        if context is None:
            return _error(400, key, "INVALID_CONTEXT", "Provider context is not valid", None)
        try:
            flags = snapshot.select(selector_of(request))
        except SelectorError as error:
            return _error(400, key, "GENERAL", f"invalid selector: {error}", None)
        result = self._resolver.resolve(snapshot, flags, key, None, context)
        if result.error is not None:
            status, code, details = _DETAILS.get(result.error, _OTHER)
            return _error(status, key, code, details.format(key=key), result.metadata)
        return Reply(
            200,
            _JSON,
            self._resolver.encoded(snapshot, "ofrep", result, lambda result: _success(key, result)),
        )

    def _bulk(self, request: Request) -> Reply:
        snapshot = self._current()
        context = self._context(request, snapshot.facts)
        if context is None:
            return _error(400, None, "INVALID_CONTEXT", "Provider context is not valid", None)
        selector = selector_of(request)
        try:
            flags = snapshot.select(selector)
        except SelectorError as error:
            return _error(400, None, "GENERAL", f"invalid selector: {error}", None)
        if snapshot.extent == "none":
            return _error(503, None, "PROVIDER_NOT_READY", NOT_YET, {})  # or the client would take it for no flags
        items = b'{"flags":[%b],' % self._all(snapshot, flags, selector, context)
        tail = self._tail(snapshot, flags, selector)
        etag = b'"%s"' % blake2b(items + tail, digest_size=16).hexdigest().encode()
        if etag_matches(request.header(b"if-none-match"), etag):
            return Reply(304, ((b"etag", etag),))
        return Reply(200, (*_JSON, (b"etag", etag)), items + self._dated(snapshot, flags, tail))

    def _all(self, snapshot: Snapshot, flags: FlagSet, selector: str, context: Any) -> bytes:
        keys = snapshot.keep(selector, "keys", lambda: ordered_keys(flags))
        budget, kept = flags.budget(), snapshot.forms["ofrep"].get
        results = self._resolver.resolve_all(snapshot, flags, keys, context, budget)

        def encode(key: str, result: Resolution) -> bytes:
            if key in budget.refused:
                return _error_body(key, "GENERAL", OVER_BUDGET, result.metadata)
            return snapshot.encoded("ofrep", result, partial(_item, key))

        return b",".join(
            [
                known[1] if (known := kept(id(result))) is not None else encode(keys[at], result)
                for at, result in enumerate(results)
            ]
        )

    def _tail(self, snapshot: Snapshot, flags: FlagSet, selector: str) -> bytes:
        return snapshot.keep(selector, "tail", lambda: self._rest(flags, flags.reflected))

    def _dated(self, snapshot: Snapshot, flags: FlagSet, tail: bytes) -> bytes:
        """Add the snapshot and its age, if enabled. The ETag ignores them: flags do not change as they age."""
        metadata = self._resolver.snapshot_metadata(snapshot, flags)
        return self._rest(flags, {**flags.reflected, **metadata}) if metadata else tail

    def _rest(self, flags: FlagSet, metadata: dict[str, Any]) -> bytes:
        streams = self._streams.advertised(str(flags.reflected.get("flagSetId", "")))
        return _encode({"metadata": metadata} | ({"eventStreams": streams} if streams else {}))[1:]

    def _context(self, request: Request, facts: Mapping[str, Any]) -> Any:
        """Return the evaluation context; None if the body is no JSON object. A context that is none is ignored."""
        body = _read(request.body) if request.body.strip() else {}
        if body.__class__ is not dict:
            return None
        context = body.get("context")
        return self._enrichment.apply(context if context.__class__ is dict else {}, request, facts)

    def _subscribe(self, request: Request) -> Response:
        if request.method != b"GET":
            return Reply(405, (*_TEXT, (b"allow", b"GET")), b"method not allowed\n")
        selector = wanted(request)
        try:
            self._current().select(selector)
        except SelectorError as error:
            return _error(400, None, "GENERAL", f"invalid selector: {error}", None)
        last = (request.header(b"last-event-id") or b"").decode("utf-8", "replace")
        return Stream(200, _EVENTS, self._changes.server_sent(selector, last))


def _read(body: bytes) -> Any:
    """Return what a body says, `{}` for null; None if it is not JSON."""
    try:
        value = decode_request(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _mended(body.decode("utf-8", "replace")) if len(body) <= MENDED_BYTES else None
    return {} if value is None else value


def _mended(text: str) -> Any:
    """Return what a body says with one odd character for whatever is no Unicode, as Go does; None if it is not JSON."""
    try:
        return decode_request((without_surrogates(text) if "\\u" in text else None) or text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def wanted(request: Request) -> str:
    """Return the selector of a request: the channel of an event stream, else the header."""
    channel = parsed(request.query).get(b"channels", b"").decode("utf-8", "replace") if request.path == SSE else ""
    return f"flagSetId={channel}" if channel else selector_of(request)


def named(request: Request) -> str:
    """Return the key of the flag that a request names; empty if it names none."""
    prefix, _, key = request.path.partition(BULK + b"/")
    return "" if prefix else unquote_to_bytes(key).decode("utf-8", "replace")


def ordered_keys(flags: FlagSet) -> tuple[str, ...]:
    """Return every key once, by flag set and key."""
    return tuple(dict.fromkeys(flag.key for flag in flags.flags()))


def _item(key: str, result: Resolution) -> bytes:
    if result.error is None:
        return _success(key, result)
    _, code, details = _DETAILS.get(result.error, _OTHER)
    return _error_body(key, code, details.format(key=key), result.metadata)


def _success(key: str, result: Resolution) -> bytes:
    if result.variant is None:
        return _encode({"key": key, "reason": result.reason, "metadata": result.metadata})
    answer = {"value": result.value, "key": key, "reason": result.reason, "variant": result.variant}
    return _encode(answer | {"metadata": result.metadata})


def _error(status: int, key: str | None, code: str, details: str, metadata: dict[str, Any] | None) -> Reply:
    return Reply(status, _JSON, _error_body(key, code, details, metadata))


def _error_body(key: str | None, code: str, details: str, metadata: dict[str, Any] | None) -> bytes:
    answer: dict[str, Any] = {"key": key} if key is not None else {}
    return _encode(answer | {"errorCode": code, "errorDetails": details, "metadata": metadata})
