"""The transport of one connection: bytes out in one write, in only while the client takes what we send, and its end.

A transport says when its buffer is full; from then on nothing is pulled and nothing is read until it has drained. Large
responses leave in pieces as there is room, so that a transport holds no more than about twice its limit. The hard case
is closing: if anything from the client is unread when we close, our kernel resets the connection and the response that
says why may be lost. So we end our half only, and drop what still comes until the client ends its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from wigwag.wire.limits import WireLimits
from wigwag.wire.server.exchange import Machine
from wigwag.wire.server.retained import Progress

LINGER = 1.0
"""Seconds that a client may go on sending after we have ended."""
MOST_GATHERED = 256
"""Chunks of streams that are written together."""


class ConnectionWriter:
    """Moves the bytes of a machine to a transport, and says when to read."""

    __slots__ = (
        "_backlogged", "_drained", "_gathered", "_held", "_limits", "_loop", "_written", "ended", "full",
        "lingers", "machine", "progress", "transport",
    )  # fmt: skip

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        limits: WireLimits,
        drained: Callable[[], object],
    ) -> None:
        """`drained` is called when there is room again for large responses."""
        self.transport, self._loop, self._limits, self._drained = transport, loop, limits, drained
        self.machine: Machine | None = None
        self.lingers = 0.0
        """Until when what arrives is dropped; 0 while the connection is in use."""
        self.ended = False
        """Whether the client has ended its half."""
        self.full = self._held = self._backlogged = False
        """Whether the transport is full; whether the machine has enough to do; whether what was read waits."""
        self._written, self._gathered, self.progress = 0, 0, Progress()
        transport.set_write_buffer_limits(high=limits.write_buffer)

    def pause(self) -> None:
        """Stop reading: the client does not take what is there."""
        self.full = True
        self.transport.pause_reading()

    def resume(self) -> None:
        """Go on."""
        self.full = False
        if self.machine is not None:
            self.machine.output.room = self._limits.write_buffer
        self._read_on()

    def flush_soon(self) -> None:
        """Send with the next turn of the loop: what many streams send at one moment leaves in one write."""
        self._gathered += 1
        if self._gathered == 1:
            self._loop.call_soon(self._flush_gathered)
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
        out, output = machine.out, machine.output
        if self.lingers:
            out.clear()
            return
        if out:
            data = b"".join(out)
            out.clear()
            self._written += len(data)
            self.transport.write(data)
        if output.room < self._limits.write_buffer and not self.full:
            dry, output.room = output.room <= 0, self._limits.write_buffer
            if dry:
                self._drained()
        if machine.closing:
            self._close()
        elif machine.crowded():
            self._held = True
            self.transport.pause_reading()
        elif self._held:
            self._held = False
            self._read_on()

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
        self.lingers = self._loop.time() + LINGER
        if self.ended or not self.transport.can_write_eof():
            self.transport.close()
        else:
            try:
                self.transport.write_eof()
                self.transport.resume_reading()
            except OSError:  # the client is gone already
                self.transport.abort()

    def _read_on(self) -> None:
        if not (self._held or self.full or self._backlogged) and not self.transport.is_closing():
            self.transport.resume_reading()

    def lost(self) -> None:
        """Note that the connection is gone: send nothing, and refer to it no longer."""
        self.lingers = self.lingers or self._loop.time()
        self._drained = bool

    def stuck(self, now: float) -> float:
        """Return for how long the client has taken too little of what waits for it."""
        waiting = self.transport.get_write_buffer_size()
        if not waiting:
            self.progress = Progress()
        return self.progress.stalled(self._written - waiting, now, self._limits.write_bytes)
