"""One connection of ours: the machine's bytes to and from a transport, and whether the other end is still there.

A connection can be dead without a word: a node that lost its power, a firewall that forgot us. So we ping from time to
time, whatever else happens; if nothing at all is heard for a while after a ping, the connection is over. The next ping
waits for the answer to the one before, so that pings never arrive closer together than we promise: servers punish
those that do.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from wigwag.wire.h2.client import CLIENT_LIMITS, Http2Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.pipeline.clock import Clock, Timer


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """When to ask whether the other end is there, in seconds."""

    every: float = 30.0
    """From the answer to one ping to the next ping; 0: never ping."""
    patience: float = 20.0
    """How long nothing may be heard after a ping."""


class Http2Link(asyncio.Protocol):
    """One connection. Whoever asks something on its machine calls `flush`."""

    def __init__(self, keep_alive: KeepAlive, clock: Clock) -> None:
        self._keep_alive, self._clock = keep_alive, clock
        self.machine = Http2Client(CLIENT_LIMITS, clock.now())
        self.transport: asyncio.Transport
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = asyncio.Event()
        self._timer: Timer | None = None
        self._pinged = self._heard = clock.now()

    # the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self.transport = cast("asyncio.Transport", transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Take what came, and send what that makes us send."""
        self._heard, pongs = self._clock.now(), self.machine.pongs
        self.machine.receive(data, self._heard)
        if self.machine.greeted and not self._greeted.done():
            self._greeted.set_result(None)
            self._wait()
        elif self.machine.pongs > pongs:
            self._wait()
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits for an answer."""
        self._set(0, None)
        self.machine.lost("the server closed the connection" if exc is None else f"the connection was lost: {exc}")
        if not self._greeted.done() and self.machine.ended is not None:
            self._greeted.set_exception(ConnectionError(self.machine.ended.reason))
        self._closed.set()

    def pause_writing(self) -> None:
        """Take nothing more from a server that does not take our answers to it."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        if not self.transport.is_closing():
            self.transport.resume_reading()

    # our calls

    async def greeted(self) -> None:
        """Wait until the other end has shown that it speaks HTTP/2; `ConnectionError` if it does not."""
        await self._greeted

    def flush(self) -> None:
        """Send what there is to send, and hang up if that was all."""
        machine = self.machine
        if machine.out:
            self.transport.write(b"".join(machine.out))
            machine.out.clear()
        if machine.closing:
            self._hang_up()

    async def close(self) -> None:
        """End the connection, and wait until it is over."""
        self._greeted.cancel()
        self.machine.leave()
        self.flush()
        await self._closed.wait()

    def _hang_up(self) -> None:
        """Close. What still waits to be sent might wait for ever, so it is dropped."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    # keep-alive

    def _wait(self) -> None:
        """Ping after a while."""
        self._set(self._keep_alive.every, self._ping)

    def _ping(self) -> None:
        self._pinged = self._clock.now()
        self.machine.ping()
        self.flush()
        self._set(self._keep_alive.patience, self._judge)

    def _judge(self) -> None:
        """Give up, unless something was heard since the ping: then its answer may be queued behind a large one."""
        if self._heard > self._pinged:
            self._pinged = self._heard
            self._set(self._keep_alive.patience, self._judge)
        else:
            self.machine.lost(f"the server has not answered a ping for {self._keep_alive.patience:g} s")
            self.transport.abort()

    def _set(self, seconds: float, callback: Callable[[], object] | None) -> None:
        """Have at most one time at which to do something."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if callback is not None and self._keep_alive.every > 0:
            self._timer = self._clock.call_at(self._clock.now() + seconds, callback)
