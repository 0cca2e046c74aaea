"""The one wiring function of the proxy: targets, services and ports, from start to graceful end."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from wigwag.kube.hub import Hub
from wigwag.observe import Registry
from wigwag.pipeline.watch import WatchPolicy
from wigwag.proxy.authorize import authorizer
from wigwag.proxy.permissions import Permissions
from wigwag.proxy.propagation import TargetPropagation
from wigwag.proxy.relay import Relay
from wigwag.proxy.report import ProxyReport
from wigwag.proxy.selectors import Selectors
from wigwag.proxy.shares import NamespaceShares
from wigwag.proxy.targets import Targets
from wigwag.serve.face.capacity import divide, needed, open_files
from wigwag.serve.face.lifecycle import Lifecycle
from wigwag.serve.face.ports import Port, management_port, management_tls, read_tls
from wigwag.serve.face.process import run_process
from wigwag.serve.management.manage import HealthService, Management, with_console
from wigwag.serve.management.process_metrics import vitals
from wigwag.serve.reflection import reflecting
from wigwag.sources.disk.notify import Notifier
from wigwag.sources.kinds import documents
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpcs.dispatch import early, rpc_handler
from wigwag.wire.server.listen import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.proxy.options import ProxyOptions
    from wigwag.proxy.permissions import Reviewer
    from wigwag.sources.kind import Documents
    from wigwag.sources.source import Source
    from wigwag.wire.http import Handler

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
    """Run the proxy until a signal stops it; return the exit code."""
    files = needed(1, most_connections(options), reserved_files(options))
    return run_process(lambda stop: Proxy(options).run(stop), options.log_format, files, debug=options.debug)


def most_connections(options: ProxyOptions) -> int:
    """Return how many connections the document port wants: each subscriber may have one of its own."""
    return options.max_subscribers + SPARE_FILES


def reserved_files(options: ProxyOptions) -> int:
    """Return how many open files connections never take: each target may need one."""
    return options.max_targets + SPARE_FILES


class Proxy:
    """The proxy, assembled from its options."""

    def __init__(self, options: ProxyOptions, deps: ProxyDeps | None = None) -> None:
        deps = deps or ProxyDeps()
        self._options, self._hub = options, Hub()
        self.targets = Targets(
            options, deps.documents or partial(documents, hub=self._hub, notifier=Notifier()), deps.policy
        )
        self.report = ProxyReport(
            self.targets, deps.policy.clock.now, everybody=options.debug_endpoints, named=options.auth == "none"
        )
        self.registry = Registry(vitals())
        self.report.register(self.registry)
        review = deps.authorize(options, self._hub)
        self._permissions = None if review is None else self._reviewed(review, deps.policy)
        self._relay = Relay(
            lru_cache(options.max_targets)(Selectors.of(options).read),  # a thousand pods name the same few
            self.targets.join,
            self._permissions,
            lambda reason: self.targets.refusals.add((reason,)),
        )
        capacity = divide(
            deps.open_files(),
            1,
            most_connections(options),
            reserved_files(options),
            options.max_connections_per_address,
        )
        self.lifecycle = Lifecycle("wigwag proxy", log, capacity, self.registry)

    def _reviewed(self, review: Reviewer, policy: WatchPolicy) -> Permissions:
        revoked = partial(self.targets.refusals.add, ("revoked",))
        options = self._options
        shares = (
            None if options.auth_policy == "rbac" else NamespaceShares(options.max_subscribers, options.max_targets)
        )
        return Permissions(review, options.auth_review, revoked, policy.clock, policy.random, shares)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain."""
        background = [self._hub.run(), self.targets.run(), self.report.log_targets()]
        if self._permissions is not None:
            background.append(self._permissions.run())
        await self.lifecycle.run(self._ports, background, stop, self.targets.close)

    def _console(self) -> Handler:
        from wigwag.proxy.console import proxy_console
        from wigwag.serve.console.site import console, everybody, local_only

        entrance = everybody if self._options.debug_endpoints else local_only
        return console(proxy_console(self.report, self.targets).api(), entrance)

    def _ports(self) -> list[Port]:
        options, host = self._options, self._options.bind or None
        limits = WireLimits(
            body_bytes=BODY_BYTES,
            ping_seconds=options.keep_alive_min_time,
            ping_without_stream=options.keep_alive_permit_without_stream,
        )
        tls = read_tls(options)
        lifecycle, capacity = self.lifecycle, self.lifecycle.capacity
        auth = "Kubernetes tokens" if options.auth == "kubernetes" else ""
        pages = Management(lifecycle.serving, self.registry, self.report, TargetPropagation(self.targets)).handler()
        management = with_console(pages, self._console)
        health = reflecting(HealthService(lifecycle.stopped.wait).methods())
        methods = reflecting(self._relay.methods())
        return [
            Port(
                "sync",
                "--port",
                rpc_handler(methods, limits),
                Listener(host=host, port=options.port, tls=tls),
                capacity.limits(limits),
                early(methods),
                auth=auth,
            ),
            management_port(
                health,
                management,
                Listener(host=host, port=options.management, tls=management_tls(options, tls)),
                limits,
                capacity.limits(limits, management=True),
            ),
        ]
