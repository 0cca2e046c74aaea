"""The frames of HTTP/2 that a client reads otherwise than a server does; the others are shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.wire.h2.client_streams import Broken
from wigwag.wire.h2.control import CONTROLS, need
from wigwag.wire.h2.frames import (
    ACK,
    MAX_WINDOW,
    PAIR,
    PING,
    SETTING,
    SETTINGS,
    ErrorCode,
    LinkError,
    SettingId,
    frame,
)

if TYPE_CHECKING:
    from wigwag.wire.h2.client import Http2Client

MOST_SAID = 200
"""Characters of what a stranger says that are repeated in an error."""


def name_of(code: int) -> str:
    """Return the name of an HTTP/2 error code.

    >>> name_of(8), name_of(13)
    ('CANCEL', 'error 13')
    """
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"


def readable(text: str, most: int = MOST_SAID) -> str:
    r"""Return what somebody else said, fit to stand in one line of a log.

    >>> readable("a\nb" + "c" * 1000, 4)
    'a bc…'
    """
    cut = text[: most + 1]
    line = "".join(each if each.isprintable() else " " for each in cut[:most])
    return line + "…" if len(cut) > most else line


def on_settings(machine: Http2Client, flags: int, stream: int, payload: bytes) -> None:
    """SETTINGS: what the server can take, and how many requests at a time."""
    CONTROLS[SETTINGS](machine, flags, stream, payload)
    for key, value in SETTING.iter_unpack(payload):
        if key == SettingId.MAX_CONCURRENT_STREAMS:
            machine.most = value


def on_reset(machine: Http2Client, _flags: int, id: int, payload: bytes) -> None:
    """RST_STREAM: the server gives an answer up."""
    need(len(payload) == 4, ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM is not four bytes long")
    code = int.from_bytes(payload, "big")
    if stream := machine.opened(id):
        machine.break_stream(stream, Broken(f"the server reset the stream: {name_of(code)}", code))


def on_push(_machine: Http2Client, _flags: int, _stream: int, _payload: bytes) -> None:
    """PUSH_PROMISE: we said that we want none."""
    raise LinkError(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE, which we switched off")


def on_ping(machine: Http2Client, flags: int, stream: int, payload: bytes) -> None:
    """PING: theirs is answered; the answer to ours shows that they are there."""
    need(stream == 0, ErrorCode.PROTOCOL_ERROR, "PING of a stream")
    need(len(payload) == 8, ErrorCode.FRAME_SIZE_ERROR, "PING is not eight bytes long")
    machine.floods.count(machine.now)
    if flags & ACK:
        machine.pong(payload)
    else:
        machine.out.append(frame(PING, ACK, 0, payload))


def on_goaway(machine: Http2Client, _flags: int, stream: int, payload: bytes) -> None:
    """GOAWAY: the server takes nothing new; what it has not begun it never will."""
    need(stream == 0, ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
    need(len(payload) >= 8, ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is cut off")
    machine.floods.count(machine.now)
    last, code = PAIR.unpack_from(payload)
    machine.farewell(last & MAX_WINDOW, code, readable(payload[8:].decode("utf-8", "replace")))
