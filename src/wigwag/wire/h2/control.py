"""The frames of HTTP/2 that are about the connection or end a stream: everything but HEADERS, DATA and CONTINUATION."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wigwag.wire.h2.frames import (
    ACK,
    CONTINUATION,
    GOAWAY,
    MAX_FRAME,
    MAX_WINDOW,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTING,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    LinkError,
    SettingId,
    StreamError,
    depends_on,
    frame,
)

if TYPE_CHECKING:
    from wigwag.wire.h2.flow import Outlet

TINY = 64
"""Bytes of window that are not worth a frame."""
TABLE_SIZE = 4096
MOST_SETTINGS = 64
"""Entries of one SETTINGS frame. There are ten that mean something anywhere."""
LARGEST_FRAME = 2**24 - 1


def need(condition: bool, code: ErrorCode, reason: str) -> None:
    """Raise unless the connection can go on."""
    if not condition:
        raise LinkError(code, reason)


def on_priority(machine: Outlet, _flags: int, stream: int, payload: bytes) -> None:
    """PRIORITY: deprecated, checked and ignored."""
    need(stream != 0, ErrorCode.PROTOCOL_ERROR, "PRIORITY of no stream")
    machine.floods.count(machine.now)
    if len(payload) != 5:
        raise StreamError(stream, ErrorCode.FRAME_SIZE_ERROR)
    if depends_on(payload) == stream:
        raise StreamError(stream, ErrorCode.PROTOCOL_ERROR)


def on_reset(machine: Outlet, _flags: int, stream: int, payload: bytes) -> None:
    """RST_STREAM: the client gives a request up. Counted if that wastes work (CVE-2023-44487) or comes too often."""
    need(len(payload) == 4, ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM is not four bytes long")
    need(0 < stream <= machine.last or machine.draining, ErrorCode.PROTOCOL_ERROR, "RST_STREAM of an idle stream")
    if found := machine.streams.get(stream):
        machine.cancel(found)
        machine.floods.count(machine.now)
    else:
        machine.floods.follow_up(machine.now, machine.last)


def on_settings(machine: Outlet, flags: int, stream: int, payload: bytes) -> None:
    """SETTINGS: what the client can take."""
    need(stream == 0, ErrorCode.PROTOCOL_ERROR, "SETTINGS of a stream")
    need(
        len(payload) % 6 == 0 and not (flags & ACK and payload), ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong size"
    )
    need(len(payload) <= MOST_SETTINGS * SETTING.size, ErrorCode.ENHANCE_YOUR_CALM, "SETTINGS with too many entries")
    machine.floods.count(machine.now)
    if not flags & ACK:
        for key, value in dict(SETTING.iter_unpack(payload)).items():  # the last value of each counts
            apply(machine, key, value)
        machine.out.append(frame(SETTINGS, ACK, 0))
        machine.pump()


def apply(machine: Outlet, key: int, value: int) -> None:
    """Apply one setting."""
    if key == SettingId.HEADER_TABLE_SIZE:
        machine.shrink |= value < TABLE_SIZE
    elif key == SettingId.ENABLE_PUSH:
        need(value <= 1, ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
    elif key == SettingId.MAX_FRAME_SIZE:
        need(MAX_FRAME <= value <= LARGEST_FRAME, ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of bounds")
        machine.max_frame = min(value, 4 * MAX_FRAME)
    elif key == SettingId.INITIAL_WINDOW_SIZE:
        need(value <= MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large")
        shift(machine, value)


def shift(machine: Outlet, initial: int) -> None:
    """Change the window of every stream by what the initial window changes, below zero if need be."""
    difference, machine.initial = initial - machine.initial, initial
    for stream in machine.streams.values():
        stream.window += difference
        need(stream.window <= MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large")
    for stream in [each for each in machine.starved.values() if each.window > 0]:
        machine.blocked[stream.id] = machine.starved.pop(stream.id)


def on_push(_machine: Outlet, _flags: int, _stream: int, _payload: bytes) -> None:
    """PUSH_PROMISE: clients have nothing to push."""
    raise LinkError(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")


def on_ping(machine: Outlet, flags: int, stream: int, payload: bytes) -> None:
    """PING: answered, unless there are too many."""
    need(stream == 0, ErrorCode.PROTOCOL_ERROR, "PING of a stream")
    need(len(payload) == 8, ErrorCode.FRAME_SIZE_ERROR, "PING is not eight bytes long")
    if flags & ACK:
        machine.floods.count(machine.now)
        return
    machine.floods.ping(machine.now, streams=bool(machine.streams))
    machine.out.append(frame(PING, ACK, 0, payload))


def on_goaway(machine: Outlet, _flags: int, stream: int, payload: bytes) -> None:
    """GOAWAY: the client leaves once it has its answers."""
    need(stream == 0, ErrorCode.PROTOCOL_ERROR, "GOAWAY of a stream")
    need(len(payload) >= 8, ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is cut off")
    machine.drain()


def on_window_update(machine: Outlet, _flags: int, stream: int, payload: bytes) -> None:
    """WINDOW_UPDATE: the client takes more. Windows opened byte by byte are counted (CVE-2019-9511)."""
    need(len(payload) == 4, ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE is not four bytes long")
    size = int.from_bytes(payload, "big") & MAX_WINDOW
    if size < TINY and (machine.blocked or machine.starved):
        machine.floods.count(machine.now)
    else:
        machine.floods.follow_up(machine.now, machine.last)
    if stream == 0:
        need(size > 0, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing")
        machine.widen(size)
    else:
        widen(machine, stream, size)


def widen(machine: Outlet, id: int, size: int) -> None:
    """Let one stream send more."""
    stream = machine.streams.get(id)
    if stream is None:
        need(id <= machine.last or machine.draining, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of an idle stream")
        return
    stream.window += size
    if not size or stream.window > MAX_WINDOW:
        raise StreamError(id, ErrorCode.FLOW_CONTROL_ERROR if size else ErrorCode.PROTOCOL_ERROR)
    machine.widened = True
    if stream.window > 0 and id in machine.starved:
        del machine.starved[id]
        while stream.step():
            pass


def on_stray(_machine: Outlet, _flags: int, _stream: int, _payload: bytes) -> None:
    """CONTINUATION outside of a header block."""
    raise LinkError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")


def unknown(machine: Outlet, _flags: int, _stream: int, _payload: bytes) -> None:
    """Ignore a frame of a kind that we do not know, as everybody must."""
    machine.floods.count(machine.now)


CONTROLS: dict[int, Callable[[Outlet, int, int, bytes], None]] = {
    PRIORITY: on_priority,
    RST_STREAM: on_reset,
    SETTINGS: on_settings,
    PUSH_PROMISE: on_push,
    PING: on_ping,
    GOAWAY: on_goaway,
    WINDOW_UPDATE: on_window_update,
    CONTINUATION: on_stray,
}
