"""HTTP/2 frames: nine bytes that say how long, of what kind, with which flags and for which stream, then a payload.

Encoding returns bytes and decoding is one `unpack_from`, so both can be done anywhere without a connection at hand.
What goes wrong is an `Http2ConnectionError`, after which nothing on the connection can be trusted (GOAWAY), or a
`StreamError`, which concerns one stream only (RST_STREAM). The hard case is telling them apart: whatever could leave
the header compression or the frame boundaries of the two ends out of step is an error of the connection.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME = 16_384
MAX_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x01
END_HEADERS = 0x04
PADDED = 0x08
PRIORITISED = 0x20

HEAD = Struct(">HBBBI")
"""Length (in two parts), kind, flags, stream."""
SETTING = Struct(">HI")
PAIR = Struct(">II")


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class SettingId(IntEnum):
    """What SETTINGS can set."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Http2ConnectionError(Exception):
    """The connection must end."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class StreamError(Exception):
    """One stream must end; its neighbours go on."""

    def __init__(self, stream: int, code: ErrorCode, reason: str = "") -> None:
        super().__init__(reason or code.name)
        self.stream, self.code, self.reason = stream, code, reason


def need(condition: bool, code: ErrorCode, reason: str) -> None:
    """Raise unless the connection can go on."""
    if not condition:
        raise Http2ConnectionError(code, reason)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    size = len(payload)
    return HEAD.pack(size >> 8, size & 255, kind, flags, stream) + payload


def prefix(kind: int, flags: int, size: int) -> bytes:
    """Return what comes before the stream in a frame, so that it can be kept for many streams."""
    return HEAD.pack(size >> 8, size & 255, kind, flags, 0)[:5]


def settings(values: dict[SettingId, int]) -> bytes:
    """Return the SETTINGS frame of some values."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(key, value) for key, value in values.items()))


def reset(stream: int, code: ErrorCode) -> bytes:
    """Return the frame that ends a stream."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway(last: int, code: ErrorCode, reason: str = "") -> bytes:
    """Return the frame that ends a connection, after the streams up to `last`."""
    return frame(GOAWAY, 0, 0, PAIR.pack(last, code) + reason.encode())


def window_update(stream: int, size: int) -> bytes:
    """Return the frame that lets the other end send `size` more bytes."""
    return frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))


def header_frames(stream: int, block: bytes, flags: int, size: int) -> bytes:
    """Return a header block as one HEADERS frame and as many CONTINUATION frames as it needs."""
    parts = [block[start : start + size] for start in range(0, len(block), size)] or [b""]
    kinds = [HEADERS] + [CONTINUATION] * (len(parts) - 1)
    ends = [0] * (len(parts) - 1) + [END_HEADERS]
    return b"".join(
        frame(kind, end | (flags if kind == HEADERS else 0), stream, part)
        for kind, end, part in zip(kinds, ends, parts, strict=True)
    )


def unpad(payload: bytes) -> bytes:
    """Return the payload of a PADDED frame without its padding."""
    padding = payload[0] + 1 if payload else 1
    need(padding <= len(payload), ErrorCode.PROTOCOL_ERROR, "padding is longer than the frame")
    return payload[1 : len(payload) - padding + 1]


def depends_on(payload: bytes) -> int:
    """Return the stream that a priority depends on."""
    return int.from_bytes(payload[:4], "big") & MAX_WINDOW
