"""The bytes of one connection: out in one write, in only while the client takes what we send, and a readable end.

A transport says when its buffer is full; from then on nothing is pulled and nothing is read until it has drained. Large
answers leave in pieces as there is room, so that a transport holds no more than about twice its limit. The hard case
is closing: if anything from the client is unread when we close, our kernel resets the connection and the answer that
says why may be lost. So we end our half only, and drop what still comes until the client ends its own.
"""

from __future__ import annotations

import asyncio
from typing import cast

from wigwag.wire.limits import WireLimits
from wigwag.wire.server.exchange import Exchange, Machine
from wigwag.wire.server.progress import Progress

LINGER = 1.0
"""How long a client may go on sending after we have ended."""
MOST_GATHERED = 256
"""Chunks of streams that wait to be written together."""


class Pipe(asyncio.Protocol):
    """A transport, and the machine whose bytes it moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: WireLimits) -> None:
        self.loop, self.began, self._limits = loop, loop.time(), limits
        self._write_buffer = limits.write_buffer
        self.transport: asyncio.Transport
        self.machine: Machine | None = None
        self.lingers = 0.0
        """Until when what arrives is dropped; 0 while the connection is in use."""
        self.ended = False
        """Whether the client has ended its half."""
        self._full = self._held = self._backlogged = False
        """Whether the transport is full; whether the machine has enough to do; whether what was read waits."""
        self._room: list[tuple[Exchange, asyncio.Future[None]]] = []
        self._written, self._progress = 0, Progress()
        self._gathered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """Stop pulling and reading: the client does not take what is there."""
        self._full = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._full = False
        if self.machine is not None:
            self.machine.room = self._write_buffer
        self._read_on()
        self.wake()

    def has_room(self, exchange: Exchange) -> bool:
        """Whether what the exchange sends next could leave, and not too much waits for this client already."""
        machine = self.machine
        return (
            not self._full
            and exchange.writable()
            and machine is not None
            and machine.retained.size <= self._limits.retained_bytes
        )

    async def writable(self, exchange: Exchange) -> None:
        """Wait until what the exchange sends next could leave."""
        while not self.has_room(exchange):
            room = self.loop.create_future()
            self._room.append((exchange, room))
            await room

    def wake(self) -> None:
        """Let those go on that wait for room and have it now."""
        waiting, self._room = self._room, []
        for exchange, room in waiting:
            if room.done():
                continue
            if self.has_room(exchange):
                room.set_result(None)
            else:
                self._room.append((exchange, room))

    def flush_soon(self) -> None:
        """Send with the next turn of the loop: what many streams have to say at one moment leaves in one write."""
        self._gathered += 1
        if self._gathered == 1:
            self.loop.call_soon(self._flush_gathered)
        elif self._gathered > MOST_GATHERED:
            self._gathered = 1
            self.flush()

    def _flush_gathered(self) -> None:
        self._gathered = 0
        self.flush()

    def flush(self) -> None:
        """Send what the machine has to send."""
        machine = self.machine
        if machine is None:
            return
        if self.lingers:
            machine.out.clear()
            return
        if machine.out:
            data = b"".join(machine.out)
            machine.out.clear()
            self._written += len(data)
            self.transport.write(data)
        if machine.room < self._write_buffer and not self._full:
            dry, machine.room = machine.room <= 0, self._write_buffer
            if dry:
                self.drained()
        if machine.closing:
            self._close()
        elif machine.crowded():
            self._held = True
            self.transport.pause_reading()
        elif self._held:
            self._held = False
            self._read_on()

    def drained(self) -> None:
        """There is room again for large answers."""

    def hold(self, backlogged: bool) -> None:
        """Read no more while what was read waits for its turn."""
        if backlogged != self._backlogged:
            self._backlogged = backlogged
            if backlogged:
                self.transport.pause_reading()
            else:
                self._read_on()

    def _close(self) -> None:
        """End our half; the client has a moment to read why and to end its own."""
        self.lingers = self.loop.time() + LINGER
        if self.ended or not self.transport.can_write_eof():
            self.transport.close()
        else:
            try:
                self.transport.write_eof()
                self.transport.resume_reading()
            except OSError:  # the client is gone already
                self.transport.abort()

    def _read_on(self) -> None:
        if not (self._held or self._full or self._backlogged) and not self.transport.is_closing():
            self.transport.resume_reading()

    def stuck(self, now: float) -> float:
        """Return for how long the client has taken too little of what waits for it."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self._progress = Progress()
        return self._progress.stalled(self._written - waiting, now, self._limits.write_bytes)
