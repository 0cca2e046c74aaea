"""Our client machine and an HTTP/2 server, mouth to mouth: the server is the `h2` library, so the two share no code."""

from __future__ import annotations

from typing import Any, TypeVar

import h2.config
import h2.connection
import h2.events

from wigwag.wire.h2.client import CLIENT_LIMITS, Broken, ClientStream, Http2Client
from wigwag.wire.http import Headers
from wigwag.wire.limits import WireLimits

E = TypeVar("E")
ASK: Headers = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/a"),
    (b":authority", b"h"),
    (b"te", b"trailers"),
)


class Got:
    """A receiver that writes down what it is told."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.status, self.headers, self.trailers = 0, (), None  # type: tuple[int, Headers, Headers | None]
        self.body, self.pieces = bytearray(), 0
        self.broken: Broken | None = None
        self.beats, self.told = 0, 0
        self.wanted, self.reads = wanted, True

    def on_head(self, status: int, headers: Headers) -> bool:
        self.status, self.headers = status, headers
        return self.wanted

    def on_data(self, data: bytes) -> bool:
        self.body += data
        self.pieces += 1
        return self.wanted

    def on_end(self, trailers: Headers) -> None:
        self.trailers = trailers
        self.told += 1

    def on_broken(self, broken: Broken) -> None:
        self.broken = broken
        self.told += 1

    def on_alive(self) -> None:
        self.beats += 1

    def wants_more(self) -> bool:
        return self.reads


def client(limits: WireLimits = CLIENT_LIMITS) -> Http2Client:
    return Http2Client(limits, 0.0)


def taken(machine: Http2Client) -> bytes:
    """What the machine has to send."""
    data = b"".join(machine.out)
    machine.out.clear()
    return data


class Session:
    """Moves bytes between our machine and a server."""

    def __init__(self, limits: WireLimits = CLIENT_LIMITS) -> None:
        self.machine = client(limits)
        config = h2.config.H2Configuration(client_side=False, header_encoding=None)
        self.server = h2.connection.H2Connection(config)
        self.server.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.exchange()

    def exchange(self) -> None:
        """Let both ends talk until neither has anything to say."""
        moved = True
        while moved:
            asked, answered = taken(self.machine), self.server.data_to_send()
            if asked:
                self.events += self.server.receive_data(asked)
            if answered:
                self.machine.receive(answered, 0.0)
            moved = bool(asked or answered)

    def ask(self, body: bytes = b"", got: Got | None = None) -> tuple[ClientStream, Got]:
        got = got or Got()
        stream = self.machine.request(ASK, body, got)
        self.exchange()
        return stream, got

    def answer(self, stream: int, body: bytes = b"", *, end: bool = True, trailers: bool = False) -> None:
        self.server.send_headers(stream, [(":status", "200"), ("x", "y")], end_stream=end and not body and not trailers)
        if body:
            self.server.send_data(stream, body, end_stream=end and not trailers)
        if trailers:
            self.server.send_headers(stream, [("grpc-status", "0")], end_stream=True)
        self.exchange()

    def seen(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def pour(self, stream: int, size: int) -> int:
        """Have the server send as much of `size` bytes as it is allowed to; return how much that was."""
        sent = 0
        while sent < size and (room := self.server.local_flow_control_window(stream)):
            step: Any = min(room, size - sent, self.server.max_outbound_frame_size)
            self.server.send_data(stream, b"x" * step)
            sent += step
            self.exchange()
        return sent
