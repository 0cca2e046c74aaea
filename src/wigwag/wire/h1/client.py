"""HTTP/1.1 as a client speaks it, without I/O: a request becomes bytes, bytes become a response.

`httptools` finds the parts; here is decided whether they are a whole response. A body ends where its length or its last
chunk says, and one that breaks off before is an error and never a short response; only a server that gives neither ends
a body by closing. Every part is bounded: the head, the number of its fields, the body, and how much of what comes is
framing (a chunk may carry megabytes of extensions).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import httptools

from wigwag.errors import UsageError
from wigwag.wire.client.errors import BrokenError, OversizeError
from wigwag.wire.client.url import Url

Fields = tuple[tuple[str, str], ...]
"""The fields of a head: names in lower case, in order, repeated where they were repeated."""
NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
BAD_VALUE = re.compile(r"[\0\r\n]|[^\x00-\xff]")
FRAMING = ("connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive")
"""Fields that say how a message is sent. They are ours to set."""
BODYLESS = (204, 304)
_SLACK = 1 << 16
_OVERHEAD = 16


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """What a response may cost: bytes, and seconds."""

    connect: float = 10.0
    """To find the address, connect, agree with a proxy and on TLS."""
    head: float = 30.0
    """From then on until the head of the response is there."""
    idle: float | None = 30.0
    """The longest silence within a body; None: for ever."""
    total: float | None = 120.0
    """For everything together; None: for ever."""
    head_bytes: int = 64 << 10
    head_fields: int = 256
    body_bytes: int | None = 64 << 20
    """The body, both as it comes and decompressed; None: without end, for whoever reads it piece by piece."""


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request."""

    url: Url
    method: str = "GET"
    fields: Fields = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"ClientRequest({self.method} {self.url})"


def check_fields(fields: Fields) -> None:
    """Raise `UsageError` for a field that cannot be sent; its value may be a secret and is not shown."""
    for name, value in fields:
        if not NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not the name of a header; use letters, digits and dashes")
        if name.lower() in FRAMING:
            raise UsageError(f"the header {name!r} is not yours to set; leave it out")
        if BAD_VALUE.search(value):
            raise UsageError(f"the header {name!r} has a line break or a character beyond Latin-1; remove it")


def render(request: ClientRequest, proxy: Url | None = None, *, keep: bool = True) -> bytes:
    r"""Return a request's bytes, in the form for a proxy if it goes by one; an https request goes through a tunnel.

    >>> from wigwag.wire.client.url import parse_url
    >>> render(ClientRequest(parse_url("http://flags.example/f?x=1"), fields=(("Accept", "*/*"),)))
    b'GET /f?x=1 HTTP/1.1\r\nHost: flags.example\r\nAccept: */*\r\n\r\n'
    """
    check_fields(request.fields)
    url, given = request.url, {name.lower() for name, _ in request.fields}
    seen_by = proxy if url.scheme == "http" else None
    target = f"http://{url.authority}{url.target}" if seen_by else url.target
    host = next((value for name, value in request.fields if name.lower() == "host"), url.authority)
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in request.fields if name.lower() != "host"]
    if seen_by and seen_by.basic:
        lines.append(f"Proxy-Authorization: {seen_by.basic}")
    if url.basic and "authorization" not in given:
        lines.append(f"Authorization: {url.basic}")
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(request.body)}")
    if not keep:
        lines.append("Connection: close")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + request.body


class ResponseParser:
    """One response, as it comes in. `status` is 0 until its head is there."""

    def __init__(self, host: object, limits: ResponseLimits, *, head_only: bool = False) -> None:
        """`head_only`: the response has no body, whatever it says: that to HEAD, or to CONNECT."""
        self._host, self._limits, self._head_only = host, limits, head_only
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._raw = self._size = 0
        self._until_close = False
        self.status, self.fields = 0, list[tuple[str, str]]()
        self.done = self.keep = False
        self.fault: Exception | None = None

    @property
    def untouched(self) -> bool:
        """Whether nothing has come at all."""
        return not self._raw

    def field(self, name: str) -> str:
        """Return the first field of that name, which must be in lower case, or nothing."""
        return next((value for key, value in self.fields if key == name), "")

    def feed(self, data: bytes) -> list[bytes]:
        """Take what has come, and return the pieces of the body in it; no bytes mean that the connection is closed."""
        if not data:
            self.end()
        room = len(data) if self.status else max(0, self._limits.head_bytes - self._raw)
        for part in (data[:room], data[room:]):  # what a head may fill, and what only a body may
            if part and self.fault is None:
                self._parse(part)
        if self.fault is not None:
            raise self.fault
        pieces, self._pieces = self._pieces, []
        return pieces

    def _parse(self, data: bytes) -> None:
        if not self.status and self._raw >= self._limits.head_bytes:
            self._fail(OversizeError(self._host, f"the head is larger than {self._limits.head_bytes} bytes"))
            return
        self._raw += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.done:
                self._fail(BrokenError(self._host, f"the response is not HTTP/1.1: {error}; see what listens there"))
            self.keep = False  # whatever follows a whole response is nothing that was asked for
        if self.status and self._raw > self._limits.head_bytes + _SLACK + _OVERHEAD * self._size:
            self._fail(OversizeError(self._host, "there is far more framing than body in the response"))

    def end(self) -> None:
        """Note that the connection is closed."""
        self.keep = False
        if self.done or (self.status and self._until_close):
            self.done = True
            return
        part = "body" if self.status else "head" if self._raw else "response"
        raise BrokenError(self._host, f"the connection was closed before the {part} was whole; try again")

    # what the parser calls

    def on_message_begin(self) -> None:
        if self.done:
            raise ValueError("nothing was asked for beyond the response")  # stops the parser; `feed` lets the link go

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return  # a trailer: it comes after what it would be about, and is no part of the head
        if len(self.fields) < self._limits.head_fields:
            self.fields.append((name.decode("latin-1").lower(), value.decode("latin-1")))
        else:
            self._fail(OversizeError(self._host, f"the head has more than {self._limits.head_fields} fields"))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self.fields.clear()  # informational; the response follows
            return
        self.status, self.keep = status, self._parser.should_keep_alive()
        length = self.field("content-length")
        chunked = "chunked" in self.field("transfer-encoding").lower()
        self.done = self._head_only
        self._until_close = not (length or chunked or status in BODYLESS)
        if not self._head_only and status not in BODYLESS and length.isdigit():
            self._measure(int(length))

    def on_body(self, body: bytes) -> None:
        if self._head_only:
            self.keep = False
            return
        self._size += len(body)
        self._pieces.append(body)
        self._measure(self._size)

    def on_message_complete(self) -> None:
        self.done = bool(self.status)

    # limits

    def _measure(self, size: int) -> None:
        most = self._limits.body_bytes
        if most is not None and size > most:
            self._fail(oversize(self._host, most))

    def _fail(self, fault: Exception) -> None:
        self.fault = self.fault or fault


def oversize(host: object, most: int) -> OversizeError:
    """Return the error of a body that is larger than the limit."""
    return OversizeError(host, f"the body is larger than the limit of {most} bytes; serve less, or raise the limit")
