"""Remote procedure calls, whatever protocol they came by: a table of methods, the call, the error and its codes.

    methods = {b"/pkg.Service/Get": Method(unary=get), b"/pkg.Service/Watch": Method(stream=watch)}

A handler gets one `Call` and returns an encoded message, in JSON if `call.json` says so and in protobuf otherwise.
A unary handler may be a plain function (then nothing is awaited) or return an awaitable. A stream handler returns an
async iterator, or an awaitable of one if it has to wait before it knows whether there is a stream at all; what it puts
into `call.response_headers` before that goes out at once, with the headers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

from wigwag.errors import UsageError, WigwagError
from wigwag.wire.http import Headers, Request
from wigwag.wire.peer import Peer


class Code(IntEnum):
    """How a call ended: the codes of gRPC.

    >>> Code.NOT_FOUND, Code.NOT_FOUND.connect_name, Code.NOT_FOUND.http_status
    (<Code.NOT_FOUND: 5>, 'not_found', 404)
    """

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @property
    def connect_name(self) -> str:
        """What Connect calls it in JSON."""
        return "canceled" if self is Code.CANCELLED else self.name.lower()

    @property
    def http_status(self) -> int:
        """The HTTP status that Connect responds with."""
        return _HTTP_STATUS[self]


_HTTP_STATUS = (200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401)


Detail: TypeAlias = tuple[str, bytes]
"""The full name of a protobuf message, and the encoded message."""


class RpcError(WigwagError):
    """What a handler raises to end a call with something other than OK. The client sees all of it."""

    code: Code  # type: ignore[assignment, misc]  # of one error, not of a class of errors
    message: str
    details: tuple[Detail, ...]
    metadata: Headers
    """Sent as trailers where the protocol has them, and as headers where it has not."""

    def __init__(self, code: Code, message: str = "", details: tuple[Detail, ...] = (), metadata: Headers = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.details, self.metadata = code, message, details, metadata


class Call(Struct, eq=False):
    """One call: its message, decompressed, and what came and goes beside it."""

    body: bytes
    json: bool
    """The message is JSON, and so must the response be; otherwise protobuf."""
    request: Request
    fields: Mapping[bytes, bytes]
    """The first value of each header."""
    deadline: float | None = None
    """Seconds from the arrival of the call in which the client wants its response."""
    response_headers: list[tuple[bytes, bytes]] = []
    response_trailers: list[tuple[bytes, bytes]] = []
    """Both for the handler to append to, names in lower case."""
    error: RpcError | None = None
    """How a stream ended."""

    @property
    def headers(self) -> Headers:
        """All headers of the request, in order."""
        return self.request.headers

    @property
    def peer(self) -> Peer | None:
        """Who calls."""
        return self.request.peer

    def header(self, name: bytes) -> bytes | None:
        """Return the first header of that name, which must be in lower case."""
        return self.fields.get(name)


Unary: TypeAlias = Callable[[Call], bytes | Awaitable[bytes]]
ServerStream: TypeAlias = Callable[[Call], AsyncIterator[bytes] | Awaitable[AsyncIterator[bytes]]]
BidiStream: TypeAlias = Callable[[Call, AsyncIterator[bytes]], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class Method:
    """The handler of one path: for one message, for a stream of messages, or for streams both ways."""

    unary: Unary | None = None
    stream: ServerStream | None = None
    bidi: BidiStream | None = None
    """For gRPC over HTTP/2 only. The body of its call is empty; the messages are the second argument."""
    safe: bool = False
    """Without side effects: a Connect client may ask by GET."""

    def __post_init__(self) -> None:
        if sum(handler is not None for handler in (self.unary, self.stream, self.bidi)) != 1:
            raise UsageError("a method is either unary, a stream, or a stream both ways")
        if self.safe and self.unary is None:
            raise UsageError("only a unary method can be safe: a stream cannot be asked for by GET")


Methods: TypeAlias = Mapping[bytes, Method]
"""By path: `b"/package.Service/Method"`."""
