"""From start to end of a command that serves: ports are opened, announced, and drained when it is time to stop.

    open all ports ─▶ announce ─▶ started ─▶ stop is set ─▶ stopped ─▶ streams end ─▶ drain ─▶ background tasks end

Nothing is announced before every port is open: a port that cannot be opened is a `StartError` that says why. Background
tasks (the pipeline, logs) run from before the first port is open until after the last one is closed, as children of
`run`. The hard case is a client that does not go away: draining takes `GRACE_SECONDS` at most.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from wigwag.errors import StartError
from wigwag.serve.face.capacity import connection_metrics
from wigwag.serve.face.ports import protection, why
from wigwag.version import __version__
from wigwag.wire.server.server import serve
from wigwag.wire.server.shared import SharedResources

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
    from logging import Logger

    from wigwag.observe import Registry
    from wigwag.serve.face.capacity import Capacity
    from wigwag.serve.face.ports import Port, Serve
    from wigwag.wire.server.server import Server

GRACE_SECONDS = 5.0


class Lifecycle:
    """The ports of a process. `addresses` has where each of them is once `started` is set."""

    def __init__(
        self, title: str, log: Logger, capacity: Capacity, registry: Registry, open_port: Serve | None = None
    ) -> None:
        self._title, self._log, self.capacity = title, log, capacity
        self.shared = SharedResources()
        self._open = open_port or partial(serve, shared=self.shared)
        self._servers: dict[str, Server] = {}
        self.addresses: dict[str, list[str]] = {}
        self.started, self.stopped = asyncio.Event(), asyncio.Event()
        registry.add(*connection_metrics(self._servers), *self.shared.instruments())

    def serving(self) -> bool:
        """Whether all ports are open, and none is being drained."""
        return self.started.is_set() and not self.stopped.is_set()

    async def run(
        self,
        ports: Callable[[], Sequence[Port]],
        background: Iterable[Coroutine[Any, Any, None]],
        stop: asyncio.Event,
        close: Callable[[], object],
        finish: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        """Serve until `stop` is set. Then `close` ends the streams, and `finish` gets what is left of the grace."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(coroutine) for coroutine in background]
            try:
                async with AsyncExitStack() as stack:
                    await self._start(ports(), stack)
                    await stop.wait()
                    await self._drain(close, finish)
            finally:
                for task in running:
                    task.cancel()

    async def _start(self, ports: Sequence[Port], stack: AsyncExitStack) -> None:
        for port in ports:
            server = await self._opened(port, stack)
            self._servers[port.name], self.addresses[port.name] = server, server.addresses
        fields = {name: " ".join(addresses) for name, addresses in self.addresses.items()}
        self.capacity.log(self._log)
        self._log.info("%s %s is serving", self._title, __version__, extra={"fields": fields})
        for port in ports:
            self._log.info("%s at %s", port.name, fields[port.name], extra={"fields": protection(port)})
        self.started.set()

    async def _opened(self, port: Port, stack: AsyncExitStack) -> Server:
        try:
            return await stack.enter_async_context(self._open(port.handler, [port.listener], port.limits, port.early))
        except* (OSError, UnicodeError, StartError) as group:  # a host may be no name at all
            raise StartError(why(port, group)) from None

    async def _drain(self, close: Callable[[], object], finish: Callable[[float], Awaitable[None]] | None) -> None:
        now = asyncio.get_running_loop().time
        end = now() + GRACE_SECONDS
        self._log.info("stopping")
        self.stopped.set()
        close()
        await asyncio.gather(*(server.drain(GRACE_SECONDS) for server in self._servers.values()))
        if finish is not None:
            await finish(end - now())
