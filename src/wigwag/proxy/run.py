"""The one wiring function of the proxy: targets, services and ports, from start to graceful end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from wigwag.kube.hub import Hub
from wigwag.observe import Registry, set_up_logging
from wigwag.pipeline.watch import WatchPolicy
from wigwag.proxy.authorize import authorizer
from wigwag.proxy.permissions import Permissions
from wigwag.proxy.relay import Relay
from wigwag.proxy.report import ProxyReport
from wigwag.proxy.selectors import Selectors
from wigwag.proxy.targets import Targets
from wigwag.serve.face.capacity import connection_metrics, divide, needed, open_files, raise_open_files
from wigwag.serve.face.ports import Port, PortOpener, management_tls, protection, read_tls
from wigwag.serve.face.process import run_until_told
from wigwag.serve.management.health import HealthService
from wigwag.serve.management.manage import Management
from wigwag.serve.management.vitals import vitals
from wigwag.serve.reflection import reflecting
from wigwag.sources.disk.notify import Notifier
from wigwag.sources.kinds import documents
from wigwag.version import __version__
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpcs.dispatch import early, rpc_handler
from wigwag.wire.server.listen import Listener
from wigwag.wire.server.server import serve
from wigwag.wire.server.shared import SharedResources

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.proxy.options import ProxyOptions
    from wigwag.proxy.permissions import Reviewer
    from wigwag.sources.kind import Documents
    from wigwag.sources.source import Source
    from wigwag.wire.server.server import Server

GRACE_SECONDS = 5.0
BODY_BYTES = 64 * 1024
"""A request is two short texts."""
SPARE_FILES = 256
"""Open files besides those of subscribers."""
log = logging.getLogger("wigwag.proxy")


@dataclass(frozen=True, slots=True)
class ProxyDeps:
    """What a proxy takes from the machine it runs on; by default, the real ones."""

    policy: WatchPolicy = field(default_factory=WatchPolicy)
    documents: Callable[[Source], Documents] | None = None
    """None: those of the sources themselves."""
    authorize: Callable[[ProxyOptions, Hub], Reviewer | None] = authorizer
    open_files: Callable[[], int] = open_files


def run_proxy(options: ProxyOptions) -> int:
    """Run the proxy until it is told to stop; return the exit code."""
    set_up_logging(options.log_format, debug=options.debug)
    logging.getLogger("wigwag.pipeline.watch").setLevel(logging.ERROR)  # `report` tells what happens to targets
    raise_open_files(needed(1, most_connections(options), reserved_files(options)))
    return run_until_told(lambda stop: Proxy(options).run(stop))


def most_connections(options: ProxyOptions) -> int:
    """Return how many connections the document port wants: each subscriber may have one of its own."""
    return options.max_subscribers + SPARE_FILES


def reserved_files(options: ProxyOptions) -> int:
    """Return how many open files connections never take: each target may need one."""
    return options.max_targets + SPARE_FILES


class Proxy:
    """The proxy, assembled from its options. `addresses` says where each port is once it is started."""

    def __init__(self, options: ProxyOptions, deps: ProxyDeps | None = None) -> None:
        deps = deps or ProxyDeps()
        self._options, self._over, self._hub = options, asyncio.Event(), Hub(deps.policy.clock)
        self.targets = Targets(
            options, deps.documents or partial(documents, hub=self._hub, notifier=Notifier()), deps.policy
        )
        self.report = ProxyReport(self.targets, deps.policy.clock.now, everybody=options.debug_endpoints)
        self.registry = Registry(vitals())
        self.report.register(self.registry)
        review = deps.authorize(options, self._hub)
        self._permissions = None if review is None else self._reviewed(review, deps.policy)
        self._relay = Relay(
            lru_cache(options.max_targets)(Selectors.of(options).read),  # a thousand pods name the same few
            self.targets,
            self._permissions,
            lambda reason: self.targets.refusals.add((reason,)),
        )
        self.capacity = divide(
            deps.open_files(),
            1,
            most_connections(options),
            reserved_files(options),
            options.max_connections_per_address,
        )
        self.servers: dict[str, Server] = {}
        self.registry.add(*connection_metrics(self.servers))
        self.shared = SharedResources()
        self.registry.add(*self.shared.instruments())
        self.addresses: dict[str, list[str]] = {}
        self.started = asyncio.Event()

    def _reviewed(self, review: Reviewer, policy: WatchPolicy) -> Permissions:
        revoked = partial(self.targets.refusals.add, ("revoked",))
        return Permissions(review, self._options.auth_review, revoked, policy.clock, policy.random)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain."""
        parts = [self._hub.run(), self.targets.run(), self.report.log_targets()]
        if self._permissions is not None:
            parts.append(self._permissions.run())
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each) for each in parts]
            try:
                await self._serve(stop)
            finally:
                for task in running:
                    task.cancel()

    async def _serve(self, stop: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            opened = self._ports()
            for port in opened:
                server = await stack.enter_async_context(PortOpener(port, partial(serve, shared=self.shared)))
                self.servers[port.name] = server
                self.addresses[port.name] = server.addresses
            fields = {name: " ".join(addresses) for name, addresses in self.addresses.items()}
            self.capacity.log(log)
            log.info("wigwag proxy %s serves", __version__, extra={"fields": fields})
            for port in opened:
                auth = "Kubernetes tokens" if self._options.auth == "kubernetes" and port.name == "sync" else ""
                log.info("%s at %s", port.name, fields[port.name], extra={"fields": protection(port, auth)})
            self.started.set()
            await stop.wait()
            log.info("stopping")
            self.report.stopping()
            self.targets.close()
            self._over.set()
            await asyncio.gather(*(server.drain(GRACE_SECONDS) for server in self.servers.values()))

    def _ports(self) -> list[Port]:
        options, host = self._options, self._options.bind or None
        limits = WireLimits(
            body_bytes=BODY_BYTES,
            ping_seconds=options.keep_alive_min_time,
            ping_without_stream=options.keep_alive_permit_without_stream,
        )
        tls = read_tls(options)
        management = Management(
            lambda: self.started.is_set() and self.report.ready(), self.registry, self.report
        ).handler()
        methods, health = reflecting(self._relay.methods()), reflecting(HealthService(self._over.wait).methods())
        return [
            Port(
                "sync",
                "--port",
                "",
                rpc_handler(methods, limits),
                Listener(host=host, port=options.port, tls=tls),
                self.capacity.limits(limits),
                early(methods),
            ),
            Port(
                "management",
                "--management-port",
                "",
                rpc_handler(health, limits, management),
                Listener(host=host, port=options.management, tls=management_tls(options, tls)),
                self.capacity.limits(limits, management=True),
                early(health),
            ),
        ]
