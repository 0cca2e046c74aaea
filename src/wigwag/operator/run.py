"""The one wiring function of the operator: what it watches, its webhooks and their certificates, from start to end.

The webhooks answer on every replica. They are served as soon as there is a certificate; until all objects are read,
they refuse pods with a reason, and the pods' controllers try again. Controllers run on one replica: with
`--leader-elect` on the one that holds the Lease, and without it on each that is started.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from wigwag.errors import WigwagError
from wigwag.kube.control.controller import ControllerMetrics
from wigwag.kube.control.events import EventRecorder
from wigwag.kube.control.lease import LeaderElector
from wigwag.kube.hub import Hub
from wigwag.observe import Registry
from wigwag.operator.admission.registration import WebhookEndpoint
from wigwag.operator.admission.server import AdmissionService, admission_port
from wigwag.operator.admission.webhooks import reviews
from wigwag.operator.certificates.keeper import CertificateKeeper
from wigwag.operator.certificates.secret import directory_tls, service_names
from wigwag.operator.controllers.context import ControlContext
from wigwag.operator.controllers.run import run_controllers
from wigwag.operator.names import LEASE, OPERATOR
from wigwag.operator.observed import Observed, assemble, watch, watches
from wigwag.options import host_and_port
from wigwag.pipeline.clock import wait_event
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.pipeline.statuslog import log_statuses
from wigwag.serve.face.capacity import divide, needed, open_files
from wigwag.serve.face.lifecycle import Lifecycle
from wigwag.serve.face.ports import Port
from wigwag.serve.face.process import run_process
from wigwag.serve.management.manage import Management
from wigwag.serve.management.process_metrics import vitals
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.listen import Listener

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.kube.watch.spec import KubeWatch
    from wigwag.operator.settings import OperatorSettings
    from wigwag.wire.http import Handler
    from wigwag.wire.tls import MemoryCertificate, Tls

PORTS, CONNECTIONS, RESERVED_FILES = 3, 1000, 500
RETRY = 2.0
"""Seconds between two attempts to get the first certificate."""
log = logging.getLogger("wigwag.operator")


def run_operator(settings: OperatorSettings) -> int:
    """Run the operator until a signal stops it; return the exit code."""
    options, files = settings.options, needed(PORTS, CONNECTIONS, RESERVED_FILES)
    return run_process(lambda stop: Operator(settings).run(stop), options.log_format, files, debug=options.verbose)


class Operator:
    """The operator, assembled from its settings."""

    def __init__(self, settings: OperatorSettings, hub: Hub | None = None) -> None:
        self._settings, self._hub = settings, hub or Hub()
        namespace, options = settings.pod.namespace, settings.options
        wanted = [Wanted(spec) for spec in watches(namespace)]
        self.pipeline: Pipeline[KubeWatch, Mapping[tuple[str, str], object], Observed] = Pipeline(
            wanted, partial(watch, self._hub), assemble
        )
        self._service = AdmissionService(reviews(self._known, settings, time.time))
        self.registry = Registry(vitals())
        self.registry.add(*self._service.instruments)
        service = WebhookEndpoint("").service
        names = (*service_names(service, namespace, settings.flagd.cluster_domain), "localhost")
        self._keeper = CertificateKeeper(self._hub, namespace, options.webhook_secret, names)
        identity = f"{socket.gethostname()}_{uuid4()}"
        self._elector = LeaderElector(self._hub.kube, namespace, LEASE, identity) if options.leader_elect else None
        metrics, self._recorder = ControllerMetrics(), EventRecorder(self._hub.kube, OPERATOR, socket.gethostname())
        self.registry.add(*metrics.instruments, self._recorder.dropped)
        self._context = ControlContext(self._hub, self.pipeline.published, settings, self._recorder, metrics)
        capacity = divide(open_files(), PORTS, CONNECTIONS, RESERVED_FILES)
        self.lifecycle = Lifecycle("wigwag operator", log, capacity, self.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain."""
        options = self._settings.options
        background = [self._hub.run(), self.pipeline.run(), log_statuses(self.pipeline, self._log), self._control()]
        if options.webhook_cert_path:
            tls: Tls | MemoryCertificate | None = directory_tls(
                options.webhook_cert_path, options.webhook_cert_name, options.webhook_cert_key
            )
        else:
            tls = await self._first_certificate(stop)
            background.append(self._keeper.run())
        try:
            if tls is not None:
                ports = partial(self._ports, tls)
                await self.lifecycle.run(ports, background, stop, self._service.close)
        finally:
            for each in background:
                each.close()
            self._hub.kube.close()  # the release of the Lease was the last request

    async def _control(self) -> None:
        """Run the controllers while this replica leads."""
        if self._elector is None:
            await self._controllers()
        else:
            await self._elector.run(self._controllers)

    async def _controllers(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(run_controllers(self._context))

    @property
    def ready(self) -> bool:
        """Whether all objects are read, and the webhooks are served."""
        return self.lifecycle.serving() and self.pipeline.report().complete

    async def _first_certificate(self, stop: asyncio.Event) -> MemoryCertificate | None:
        """Return the certificate as soon as the API server lets us have one; None if it is time to stop before."""
        clock, error = self._hub.kube.deps.clock, ""
        while not stop.is_set():
            try:
                return await self._keeper.first()
            except WigwagError as failure:
                if str(failure) != error:
                    error = str(failure)
                    log.warning("no certificate for the webhooks yet: %s; it is tried again", error)
                await wait_event(clock, stop, clock.now() + RETRY)
        return None

    def _known(self) -> Observed | None:
        return self.pipeline.published.value if self.pipeline.published.serial else None

    def _ports(self, tls: Tls | MemoryCertificate) -> list[Port]:
        options = self._settings.options
        pages = Management(lambda: self.ready, self.registry).handler()
        host, port = bind_address(options.webhook_bind_address, "--webhook-bind-address")
        return [
            admission_port(self._service, tls, host, port),
            self._page_port("metrics", options.metrics_bind_address, pages),
            self._page_port("probes", options.health_probe_bind_address, pages),
        ]

    def _page_port(self, name: str, address: str, pages: Handler) -> Port:
        option = "--metrics-bind-address" if name == "metrics" else "--health-probe-bind-address"
        host, port = bind_address(address, option)
        limits = self.lifecycle.capacity.limits(WireLimits(), management=True)
        return Port(name, option, pages, Listener(host=host, port=port), limits)

    def _log(self, level: int, spec: KubeWatch, text: str) -> None:
        log.log(level, "watch %s: %s", spec, text)


def bind_address(text: str, option: str) -> tuple[str | None, int]:
    """Read `HOST:PORT` as Go writes it; without a host, every address.

    >>> bind_address(":9443", "--x"), bind_address("127.0.0.1:0", "--x"), bind_address("[::1]:80", "--x")
    ((None, 9443), ('127.0.0.1', 0), ('::1', 80))
    """
    host, port = host_and_port(text, option)
    return host or None, port
