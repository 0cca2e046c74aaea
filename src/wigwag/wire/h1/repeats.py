"""Heads that a client repeats, so that they need not be parsed again.

Between two messages the parser has no memory, so the same bytes mean the same head. A head is learned only from a read
that held exactly one message and nothing else, whose body was as long as what followed the head: however the parser
may have read the bytes, there is only one way. Chunked bodies and expectations go through the parser always.
"""

from __future__ import annotations

from collections.abc import Mapping

from wigwag.wire.http import Headers, Peer, Request

END = b"\r\n\r\n"
REMEMBERED = 16
LARGEST = 1024
PARSED_ALWAYS = frozenset({b"expect", b"transfer-encoding"})


class Repeats:
    """The last few heads of one connection."""

    __slots__ = ("_known", "_peer")

    def __init__(self, peer: Peer) -> None:
        self._known: dict[bytes, tuple[bytes, bytes, bytes, Headers, int, Mapping[bytes, bytes]]] = {}
        self._peer = peer

    def find(self, data: bytes) -> Request | None:
        """Return the request, if the data are exactly one whose head is known."""
        end = data.find(END) + 4
        known = self._known.get(data[:end])
        if known is None or len(data) - end != known[4]:
            return None
        return Request(known[0], known[1], known[2], known[3], data[end:], 1, self._peer, known[5])

    def learn(self, data: bytes, request: Request) -> None:
        """Remember the head of a request that was all of the data."""
        end, size = data.find(END) + 4, len(request.body)
        plain = not any(name in PARSED_ALWAYS for name, _ in request.headers)
        if plain and 4 <= end <= LARGEST and len(data) - end == size:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[data[:end]] = (
                request.method,
                request.path,
                request.query,
                request.headers,
                size,
                request.fields,
            )
