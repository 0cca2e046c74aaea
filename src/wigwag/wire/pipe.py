"""The bytes of one connection: out in one write, in only while the client takes what we send, and a readable end.

A transport says when its buffer is full; from then on nothing is pulled and nothing is read until it has drained. The
hard case is closing: if anything from the client is unread when we close, our kernel resets the connection and the
answer that says why may be lost. So we end our half only, and drop what still comes until the client ends its own.
"""

from __future__ import annotations

import asyncio
from typing import cast

from wigwag.wire.exchange import Exchange, Machine

LINGER = 1.0
MOST_GATHERED = 256
"""Chunks of streams that wait to be written together."""
"""How long a client may go on sending after we have ended."""


class Pipe(asyncio.Protocol):
    """A transport, and the machine whose bytes it moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.began = loop, loop.time()
        self.transport: asyncio.Transport
        self.machine: Machine | None = None
        self.lingers = 0.0
        """Until when what arrives is dropped; 0 while the connection is in use."""
        self.ended = False
        """Whether the client has ended its half."""
        self._full = self._held = False
        """Whether the transport is full; whether the machine has enough to do."""
        self._room: list[asyncio.Future[None]] = []
        self._written, self._seen, self._stalled = 0, -1, 0.0
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
        self._read_on()
        self.wake()

    def has_room(self, exchange: Exchange) -> bool:
        """Whether what the exchange sends next could leave."""
        return not self._full and exchange.writable()

    async def writable(self, exchange: Exchange) -> None:
        """Wait until what the exchange sends next could leave."""
        while not self.has_room(exchange):
            room = self.loop.create_future()
            self._room.append(room)
            await room

    def wake(self) -> None:
        """Let whoever waits for room look again."""
        waiting, self._room = self._room, []
        for room in waiting:
            if not room.done():
                room.set_result(None)

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
        if machine.closing:
            self._close()
        elif machine.crowded():
            self._held = True
            self.transport.pause_reading()
        elif self._held:
            self._held = False
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
        if not self._held and not self._full and not self.transport.is_closing():
            self.transport.resume_reading()

    def stuck(self, now: float) -> float:
        """Return for how long the client has taken nothing of what waits for it."""
        waiting = self.transport.get_write_buffer_size()
        taken = self._written - waiting
        if not waiting or taken != self._seen:
            self._seen, self._stalled = taken, now
        return now - self._stalled
