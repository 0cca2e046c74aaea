"""The one wiring function of the proxy: targets, services and ports, from start to graceful end."""

from __future__ import annotations

import asyncio
import logging
import resource
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from wigwag.observe import Registry, set_up_logging
from wigwag.pipeline.watch import Manners
from wigwag.proxy.authorize import authorizer
from wigwag.proxy.report import Report
from wigwag.proxy.selectors import Selectors
from wigwag.proxy.targets import Targets
from wigwag.serve.health import Health
from wigwag.serve.manage import Management
from wigwag.serve.opening import Opening, Port, read_tls
from wigwag.serve.process import run_until_told
from wigwag.serve.relay import Relay
from wigwag.serve.vitals import vitals
from wigwag.sources.kinds import documents
from wigwag.sources.kubernetes.hub import Hub
from wigwag.version import __version__
from wigwag.wire.dispatch import rpc_handler
from wigwag.wire.limits import WireLimits
from wigwag.wire.listen import Listener
from wigwag.wire.server import serve
from wigwag.wire.shared import Shared

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.proxy.options import ProxyOptions
    from wigwag.serve.relay import Authorize
    from wigwag.sources.kinds import Documents
    from wigwag.sources.source import Source

GRACE_SECONDS = 5.0
BODY_BYTES = 64 * 1024
"""A request is two short texts."""
SPARE_FILES = 256
"""Open files besides those of subscribers."""
log = logging.getLogger("wigwag.proxy")


@dataclass(frozen=True, slots=True)
class Means:
    """What a proxy takes from the machine it runs on; by default, the real ones."""

    manners: Manners = field(default_factory=Manners)
    documents: Callable[[Source], Documents] | None = None
    """None: those of the sources themselves."""
    authorize: Callable[[ProxyOptions, Hub], Authorize[Source] | None] = authorizer


def run_proxy(options: ProxyOptions) -> int:
    """Run the proxy until it is told to stop; return the exit code."""
    set_up_logging(options.log_format, debug=options.debug)
    logging.getLogger("wigwag.pipeline.watch").setLevel(logging.ERROR)  # `report` tells what happens to targets
    allow_open_files(options.max_subscribers + options.max_targets + SPARE_FILES)
    return run_until_told(lambda stop: Proxy(options).run(stop))


def allow_open_files(wanted: int) -> None:
    """Raise the soft limit of open files, as far as it may be: each subscriber may come by a connection of its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Proxy:
    """The proxy, assembled from its options. `addresses` says where each port is once it is started."""

    def __init__(self, options: ProxyOptions, means: Means | None = None) -> None:
        means = means or Means()
        self._options, self._over, self._hub = options, asyncio.Event(), Hub(means.manners.clock)
        self.targets = Targets(options, means.documents or partial(documents, hub=self._hub), means.manners)
        self.report = Report(self.targets, means.manners.clock.now, everybody=options.debug_endpoints)
        self.registry = Registry(vitals())
        self.report.register(self.registry)
        self._relay = Relay(
            lru_cache(options.max_targets)(Selectors.of(options).read),  # a thousand pods name the same few
            self.targets.join,
            means.authorize(options, self._hub),
            lambda reason: self.targets.refusals.add((reason,)),
        )
        self.shared = Shared()
        self.registry.add(*self.shared.instruments())
        self.addresses: dict[str, list[str]] = {}
        self.started = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain."""
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(coroutine)
                for coroutine in (self._hub.run(), self.targets.run(), self.report.log_targets())
            ]
            try:
                await self._serve(stop)
            finally:
                for task in running:
                    task.cancel()

    async def _serve(self, stop: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            servers = []
            for port in self._ports():
                server = await stack.enter_async_context(Opening(port, partial(serve, shared=self.shared)))
                servers.append(server)
                self.addresses[port.name] = server.addresses
            fields = {name: " ".join(addresses) for name, addresses in self.addresses.items()}
            log.info("wigwag proxy %s serves", __version__, extra={"fields": fields})
            self.started.set()
            await stop.wait()
            log.info("stopping")
            self.report.stopping()
            self.targets.close()
            self._over.set()
            await asyncio.gather(*(server.drain(GRACE_SECONDS) for server in servers))

    def _ports(self) -> list[Port]:
        options, host = self._options, self._options.bind or None
        limits = WireLimits(
            body_bytes=BODY_BYTES,
            connections=options.max_subscribers + SPARE_FILES,
            ping_seconds=options.keep_alive_min_time,
            ping_without_stream=options.keep_alive_permit_without_stream,
        )
        management = Management(self.report.ready, self.registry, self.report).handler()
        return [
            Port(
                "sync",
                "--port",
                "",
                rpc_handler(self._relay.methods(), limits),
                Listener(host=host, port=options.port, tls=read_tls(options)),
                limits,
            ),
            Port(
                "management",
                "--management-port",
                "",
                rpc_handler(Health(self._over.wait).methods(), limits, management),
                Listener(host=host, port=options.management),
                limits,
            ),
        ]
