"""An HTTP/1.1 server connection without I/O, on llhttp's parser: bytes in, requests and bytes out (RFC 9112).

Responses leave one at a time and in order: requests that a client pipelines wait in `_waiting` until the one before is
done, and while any wait, `crowded` asks the connection not to read more. So at most one read's worth is held.

The last few heads are remembered, so that they need not be parsed again: between two messages the parser has no memory,
so the same bytes mean the same head. A head is learned only from a read that held exactly one message and nothing else,
whose body was as long as what followed the head: however the parser may have read the bytes, there is only one way.
Chunked bodies and expectations are always parsed.

The hard cases: a refused request ends the connection, because where the next one begins is no longer known; and a
client that offers an upgrade (to h2c, as Java's does) expects a response to its request, with the body, all the same.
"""

from __future__ import annotations

from collections import deque

from httptools import HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade, HttpRequestParser
from msgspec.structs import replace

from wigwag.wire.h1.response import CONTINUE, Http1Exchange, OutputBuffer
from wigwag.wire.http import Request, error_reply
from wigwag.wire.limits import WireLimits
from wigwag.wire.peer import Peer
from wigwag.wire.server.retained import Retained

IDLE, IN_HEAD, IN_BODY, BROKEN = range(4)
VERSIONS = ("1.1", "1.0")
END = b"\r\n\r\n"
REMEMBERED = 16
LARGEST = 1024
PARSED_ALWAYS = frozenset({b"expect", b"transfer-encoding"})


class Http1:
    """One connection."""

    __slots__ = (
        "_begun", "_body", "_continue", "_fields", "_head_fed", "_head_size", "_idle_since", "_known", "_limits",
        "_messages", "_now", "_parser", "_peer", "_since", "_state", "_upgrade", "_url", "_version",
        "_waiting", "cancelled", "closing", "current", "out", "output", "ready",
    )  # fmt: skip

    def __init__(self, limits: WireLimits, peer: Peer, now: float, retained: Retained | None = None) -> None:
        self.output = OutputBuffer(self._next, retained)
        self.out = self.output.out
        self.closing = False
        self.current: Http1Exchange | None = None
        self._limits, self._peer, self._parser = limits, peer, HttpRequestParser(self)
        self.ready: deque[Http1Exchange] = deque()
        self.cancelled: list[Http1Exchange] = []
        self._continue = self._upgrade = False
        self._waiting: deque[Http1Exchange] = deque()
        self._state, self._now, self._since, self._idle_since = IN_HEAD, now, now, now
        self._fields: list[tuple[bytes, bytes]] = []
        self._url, self._body = bytearray(), bytearray()
        self._version, self._begun = "", False
        self._head_size = self._head_fed = self._messages = 0
        self._known: dict[bytes, tuple[Request, int]] = {}

    # bytes in

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes; afterwards see `ready`, `closing` and `output`."""
        self._now = now
        if self._state == IDLE and self.current is None and not self.output.last:
            end = data.find(END) + 4
            head, size = self._known.get(data[:end], (None, 0))
            if head is not None and len(data) - end == size:
                self._since = now
                body = data[end:]
                request = Request(head.method, head.path, head.query, head.headers, body, 1, self._peer, head.known)
                self._serve(Http1Exchange(self.output, request, True, True))
                return
            self._messages = 0
            self._feed(data)
            self._learn(data, end)
        elif self._state != BROKEN and not self.output.last:
            self._feed(data)

    def _learn(self, data: bytes, end: int) -> None:
        """Remember the head, which ends at `end`, if the data were one whole request and nothing else."""
        exchange = self.current
        if self._messages != 1 or self._state != IDLE or not exchange or not exchange.plain():
            return
        request = exchange.request
        plain = not any(name in PARSED_ALWAYS for name, _ in request.headers)
        if plain and 4 <= end <= LARGEST and len(data) - end == len(request.body):
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[data[:end]] = replace(request, body=b"", known=request.fields), len(request.body)

    def _feed(self, data: bytes) -> None:
        while True:  # once, and once more for each upgrade that is declined
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                if again := self._decline(data[upgrade.args[0] :]):
                    data = again
                    continue
            except HttpParserInvalidMethodError:
                self._invalid_method(data)
            except HttpParserError:
                self._refuse(400)
            break
        if self._state == IN_HEAD:
            self._fed(len(data))

    def _invalid_method(self, data: bytes) -> None:
        """Refuse a method that we do not know; whoever does not speak HTTP at all would not understand."""
        if b" HTTP/1." in data:
            self._refuse(501)
        else:
            self._state = BROKEN
            self.closing = self.current is None

    def _fed(self, size: int) -> None:
        """Count what was fed to a head that is not complete; the parser keeps a long line to itself."""
        self._head_fed = 0 if self._begun else self._head_fed + size
        self._begun = False
        if self._head_fed > self._limits.header_bytes:
            self._refuse(431)

    def _decline(self, rest: bytes) -> bytes:
        """Return the request without its upgrade, to be parsed again, since the parser takes what follows an upgrade
        for another protocol; nothing if it is refused.
        """
        method, self._upgrade = self._parser.get_method(), False
        if method == b"CONNECT":
            self._refuse(501)
            return b""
        kept = [(name, value) for name, value in self._fields if name not in (b"upgrade", b"http2-settings")]
        version = self._parser.get_http_version().encode()
        lines = [
            b"%b %b HTTP/%b" % (method, bytes(self._url), version),
            *(b"%b: %b" % field for field in kept),
            b"\r\n",
        ]
        self._parser = HttpRequestParser(self)
        self._messages = 2
        return b"\r\n".join(lines) + rest

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._fields, self._url, self._body, self._head_size = [], bytearray(), bytearray(), 0
        self._begun = True
        if self._state != BROKEN:
            self._state, self._since = IN_HEAD, self._now

    def on_url(self, url: bytes) -> None:
        """Take the target, or a piece of it."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped."""
        self._head_size += len(name) + len(value)
        if self._state == IN_HEAD:
            self._fields.append((name.lower(), value.rstrip(b" \t")))
            if self._head_size > self._limits.header_bytes or len(self._fields) > self._limits.header_count:
                self._refuse(431)
        elif self._head_size > self._limits.header_bytes:
            self._refuse(431)

    def on_headers_complete(self) -> None:
        """Judge the head."""
        if self._state == BROKEN:
            return
        if self._parser.should_upgrade():
            self._upgrade = True
            return
        self._state, self._since, self._version = IN_BODY, self._now, self._parser.get_http_version()
        hosts, expected = 0, b""
        for name, value in self._fields:
            if name == b"host":
                hosts += 1
            elif name == b"content-length" and int(value) > self._limits.body_bytes:
                self._refuse(413)
            elif name == b"expect":
                expected = value
        if hosts != 1 and (hosts or self._version != "1.0"):
            self._refuse(400)
        elif self._version not in VERSIONS:
            self._refuse(505)
        elif expected:
            self._expect(expected)

    def _expect(self, value: bytes) -> None:
        if value.lower() != b"100-continue":
            self._refuse(417)
        elif self._state == IN_BODY and self._version == "1.1":
            self._continue = self.current is not None
            if not self._continue:
                self.out.append(CONTINUE)

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        if self._state == BROKEN:
            return
        if len(self._body) + len(data) > self._limits.body_bytes:
            self._refuse(413)
        else:
            self._body += data

    def on_message_complete(self) -> None:
        """Hand the request on."""
        if self._state == BROKEN or self._upgrade:
            return
        self._state, self._continue = IDLE, False
        self._messages += 1
        parser, target = self._parser, bytes(self._url)
        if target[:1] != b"/":
            target = origin_form(target)
        if not target:
            self._refuse(400)
            return
        path, _, query = target.partition(b"?")
        request = Request(parser.get_method(), path, query, tuple(self._fields), bytes(self._body), 1, self._peer)
        self._line_up(Http1Exchange(self.output, request, self._version == "1.1", parser.should_keep_alive()))

    def _line_up(self, exchange: Http1Exchange) -> None:
        if self.current is None:
            self._serve(exchange)
        elif not self.output.last:
            self._waiting.append(exchange)

    def _serve(self, exchange: Http1Exchange) -> None:
        self.current = exchange
        if exchange.refusal:
            exchange.reply(exchange.refusal)
        else:
            self.ready.append(exchange)

    # what the connection asks

    def _next(self) -> None:
        """Go on with the next request."""
        self.current = None
        if self.output.last:
            self._waiting.clear()
            self.closing = True
        elif self._waiting:
            self._serve(self._waiting.popleft())
        elif self.output.draining or self._state == BROKEN:
            self.closing = True
        elif self._continue:
            self._continue = False
            self.out.append(CONTINUE)

    def crowded(self) -> bool:
        """Return whether requests wait for their turn, so that nothing more should be read."""
        return bool(self._waiting)

    def _refuse(self, status: int) -> None:
        """Answer, after what is before, without a handler; then the connection is over."""
        if self._state != BROKEN:
            self._state = BROKEN
            request = Request(b"", b"", b"", (), b"", 1, self._peer)
            self._line_up(Http1Exchange(self.output, request, True, False, error_reply(status, tuple(self._fields))))

    def cut(self, _reason: str) -> None:
        """End the connection and everything on it."""
        self.output.discard()
        self.output.last = self.closing = True

    def half_closed(self) -> None:
        """Note that the client will send nothing more; it may wait for a response, but hardly for one without end."""
        if self.current is None or self.current.began:
            self.closing = True
        else:
            self.output.draining = True

    def announce(self) -> None:
        """Answer what is there, and what comes, with `connection: close`; a connection without a request stays open."""
        self.output.draining = True

    def drain(self) -> None:
        """Answer what is there with `connection: close`, and take nothing new."""
        self.output.draining = True
        if self.current is None and self._state in (IDLE, BROKEN):
            self.closing = True

    def expire(self, now: float) -> None:
        """Give up what has taken too long."""
        limits = self._limits
        if self.current is not None:
            self._idle_since = now
        elif self._state == IDLE:
            self._idle_since = max(self._idle_since, self._since)
            self.closing |= now - self._idle_since > limits.idle_seconds
        elif now - self._since > (limits.header_seconds if self._state == IN_HEAD else limits.body_seconds):
            self._refuse(408)


def origin_form(target: bytes) -> bytes:
    """Return the path and query of a target in absolute form, as proxies send it; nothing if there is none."""
    scheme, separator, rest = target.partition(b"://")
    if target == b"*":
        return target
    if not separator or scheme.lower() not in (b"http", b"https"):
        return b""
    slash = rest.find(b"/")
    return rest[slash:] if slash >= 0 else b"/"
