"""An HTTP/2 client and our machine, mouth to mouth: the client is the `h2` library, so the two share no code."""

from __future__ import annotations

from collections.abc import Callable

import h2.config
import h2.connection
import h2.events

from wigwag.wire.h2.frames import HEAD
from wigwag.wire.h2.hpack import HeaderEncoder
from wigwag.wire.h2.server import Http2
from wigwag.wire.h2.streams import Http2Stream
from wigwag.wire.http import Reply, Request, Response
from wigwag.wire.limits import WireLimits
from wigwag.wire.peer import Peer

OK = Reply(200, ((b"content-type", b"text/plain"),), b"hello")
HEADERS = [(":method", "POST"), (":scheme", "http"), (":path", "/a/b?c=d"), (":authority", "host")]
Frame = tuple[int, int, int, bytes]


def machine(limits: WireLimits | None = None) -> Http2:
    return Http2(limits or WireLimits(), HeaderEncoder(), Peer(), 0.0)


def taken(machine: Http2) -> bytes:
    """What the machine has to send."""
    data = b"".join(machine.out)
    machine.out.clear()
    return data


def frames(data: bytes) -> list[Frame]:
    """Kind, flags, stream and payload of each frame."""
    found, at = [], 0
    while at < len(data):
        high, low, kind, flags, stream = HEAD.unpack_from(data, at)
        end = at + 9 + (high << 8 | low)
        found.append((kind, flags, stream, data[at + 9 : end]))
        at = end
    return found


class Session:
    """Moves bytes between a client and the machine and answers what is ready."""

    def __init__(self, limits: WireLimits | None = None, answer: Callable[[Request], Response] | None = None) -> None:
        self.machine, self.answer = machine(limits), answer or (lambda _: OK)
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
        self.requests: list[Request] = []
        self.streams: list[Http2Stream] = []
        self.now = 0.0
        self.client.initiate_connection()

    def exchange(self) -> list[h2.events.Event]:
        """Let both ends talk until neither has anything to say; return what the client saw."""
        seen: list[h2.events.Event] = []
        moved = True
        while moved:
            asked, answered = self.client.data_to_send(), taken(self.machine)
            if asked:
                self.machine.receive(asked, self.now)
                self.serve()
            if answered:
                seen += self.client.receive_data(answered)
            moved = bool(asked or answered)
        return seen

    def serve(self) -> None:
        while self.machine.ready:
            stream = self.machine.ready.popleft()
            self.requests.append(stream.request)
            self.streams.append(stream)
            answer = self.answer(stream.request)
            if isinstance(answer, Reply):
                stream.reply(answer)

    def request(self, stream: int, body: bytes = b"", headers: list[tuple[str, str]] | None = None) -> None:
        self.client.send_headers(stream, HEADERS + (headers or []), end_stream=not body)
        if body:
            self.client.send_data(stream, body, end_stream=True)
