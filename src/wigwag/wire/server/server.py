"""A server: listeners, the connections they bring, and how both come to an end.

    async with serve(handler, [Listener(port=8013)]) as server: …

Every task belongs to the group that `serve` opens, so nothing outlives the `async with`. One task checks all
connections once a second and ends what has taken too long; no request has a timer of its own.

Draining is four steps. Accept nothing more, and ask clients to leave: each response says `connection: close`, and
HTTP/2 gets a GOAWAY that still allows every stream. After `NOTICE`, close what is idle, with the GOAWAY that names the
last stream. Wait for what is under way. Then cancel and cut whatever the grace period did not suffice for.

The hard case is a request that is on its way when we decide to stop. If idle connections were closed at once, it would
meet a closed one, and no client may send a POST again by itself. A client in use has asked again within the notice, and
knows; one that has been silent for that long is hardly sending just now.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from wigwag.wire.http import Early, Handler
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.accept import Acceptor
from wigwag.wire.server.connection import Connection, Host
from wigwag.wire.server.listen import Listener, bind
from wigwag.wire.server.shared import SharedResources
from wigwag.wire.tls import front

__all__ = ["Listener", "Server", "serve"]
DEFAULTS = WireLimits()
NOTICE = 0.5
"""Seconds in which clients that are asked to leave may still send requests."""
CUT = 1.0
"""How long what is cancelled may take to say so."""
EXPIRED_AT_ONCE = 500
"""Connections that are checked in one turn of the loop."""


class Server:
    """What `serve` gives: where it listens, and how to end it gently."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._acceptors: list[Acceptor] = []

    @property
    def addresses(self) -> list[str]:
        """Where it can be reached, in the order of its listeners: `host:port`, or the path of a unix socket."""
        return [address for each in self._acceptors for address in each.addresses()]

    @property
    def connections(self) -> int:
        """How many clients are connected, those that are still shaking hands among them."""
        return self._host.admission.open

    @property
    def limits(self) -> WireLimits:
        """What clients may ask of it."""
        return self._host.limits

    @property
    def refused(self) -> Mapping[str, int]:
        """How many connections were turned away, by reason."""
        return self._host.admission.refused

    def connected(self) -> list[int]:
        """Return the descriptors of all connections. A forked child has copies of them, and must let go of these."""
        sockets = (each.writer.transport.get_extra_info("socket") for each in list(self._host.connections))
        return [each.fileno() for each in sockets if each.fileno() >= 0]

    async def open(self, listeners: Sequence[Listener]) -> None:
        """Begin to listen, at all places or at none."""
        host = self._host
        for listener in listeners:
            tls = (front(listener.tls), host.limits.header_seconds) if listener.tls else None
            sockets = await bind(listener)
            self._acceptors.append(
                Acceptor(listener, sockets, host.admission, partial(Connection, host), host.tasks, tls)
            )

    async def drain(self, grace: float = 5.0, notice: float = NOTICE) -> None:
        """Stop accepting, ask clients to leave, let what is under way finish for `grace` seconds, then cut it off."""
        end = self._host.loop.time() + grace
        self._host.leaving = True
        for acceptor in self._acceptors:
            if grace:
                acceptor.accept_waiting()
            acceptor.close()
        for connection in list(self._host.connections):
            connection.announce()
        await self._emptied(min(notice, grace / 2))
        for acceptor in self._acceptors:
            acceptor.give_up()
        for connection in list(self._host.connections):
            connection.drain()
        await self._emptied(max(end - self._host.loop.time(), 0.0))
        for connection in list(self._host.connections):
            connection.stop()
        await self._emptied(CUT)
        for connection in list(self._host.connections):
            connection.writer.transport.abort()
        await self._host.empty.wait()
        with suppress(TimeoutError):  # a client that is still shaking hands is not worth waiting for
            async with asyncio.timeout(CUT):
                for acceptor in self._acceptors:
                    await acceptor.closed()
        self._acceptors.clear()

    async def _emptied(self, seconds: float) -> None:
        """Wait for the last connection to close, but not for ever; one that shakes hands is about to be one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for acceptor in self._acceptors:
                    await acceptor.closed()
                await self._host.empty.wait()

    async def expire(self) -> None:
        """Look at every connection for ever, often enough for the shortest limit."""
        limits, host = self._host.limits, self._host
        shortest = min(limits.header_seconds, limits.body_seconds, limits.idle_seconds, limits.write_seconds)
        while True:
            await asyncio.sleep(min(1.0, shortest / 2))
            for at, connection in enumerate(list(host.connections), 1):
                connection.expire(host.loop.time())
                if not at % EXPIRED_AT_ONCE:
                    await asyncio.sleep(0)
            host.shared.log.summarise(host.loop.time())


@asynccontextmanager
async def serve(
    handler: Handler,
    listeners: Sequence[Listener],
    limits: WireLimits = DEFAULTS,
    early: Early | None = None,
    shared: SharedResources | None = None,
) -> AsyncIterator[Server]:
    """Serve until the block ends; what is then still under way is cut off, unless it was drained before.

    `early` decides which requests are handed over before their bodies are there. Servers of one process should have the
    same `shared`: their clients compete for the same time and memory.
    """
    async with asyncio.TaskGroup() as tasks:
        server = Server(Host(handler, limits, tasks, early, shared))
        expiring = tasks.create_task(server.expire())
        try:
            await server.open(listeners)
            yield server
        finally:
            await server.drain(grace=0.0)
            expiring.cancel()
