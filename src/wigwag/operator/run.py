"""The one wiring function of the operator: what it watches, its webhooks and their certificates, from start to end.

The webhooks answer on every replica. Until there is a certificate, handshakes fail; until all objects are read, pods
are refused with a reason. In both cases the pods' controllers try again. Probes are served from the start, so that
nobody restarts an operator which waits for the API server. Controllers run on one replica: with
`--leader-elect` on the one that holds the Lease, and without it on each that is started.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from wigwag.errors import UsageError
from wigwag.kube.control.controller import ControllerMetrics
from wigwag.kube.control.events import EventRecorder
from wigwag.kube.control.informer import only_objects
from wigwag.kube.control.lease import LeaderElector, LeaseTiming, lease_holder
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import LEASE as LEASE_KIND
from wigwag.kube.watch.spec import KubeWatch
from wigwag.observe import Gauge, Registry
from wigwag.operator.admission.registration import MUTATING, VALIDATING, WebhookEndpoint, configuration_names
from wigwag.operator.admission.server import AdmissionService
from wigwag.operator.admission.webhooks import reviews
from wigwag.operator.certificates.keeper import CertificateKeeper
from wigwag.operator.certificates.secret import service_names
from wigwag.operator.controllers.context import ControlContext
from wigwag.operator.controllers.run import run_controllers
from wigwag.operator.injection.proxytrust import check_images
from wigwag.operator.names import LEASE, OPERATOR, ObjectName
from wigwag.operator.observed import Observed, assemble, watch, watches
from wigwag.operator.ports import metrics_handler, operator_ports, probes_handler, webhook_files
from wigwag.operator.scope import WATCHES_PER_NAMESPACE, NamespaceScope
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.pipeline.statuslog import log_statuses
from wigwag.serve.face.capacity import divide, needed, open_files
from wigwag.serve.face.lifecycle import Lifecycle
from wigwag.serve.face.process import run_process
from wigwag.serve.management.manage import with_console
from wigwag.serve.management.process_metrics import vitals
from wigwag.wire.tls import MemoryCertificate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.kube.kinds import Kind
    from wigwag.operator.settings import OperatorOptions, OperatorSettings
    from wigwag.serve.face.ports import Port
    from wigwag.wire.http import Handler

PORTS, CONNECTIONS, RESERVED_FILES = 3, 1000, 500
log = logging.getLogger("wigwag.operator")


def run_operator(settings: OperatorSettings) -> int:
    """Run the operator until a signal stops it; return the exit code."""
    options = settings.options
    files = needed(PORTS, CONNECTIONS, reserved_files(options))
    return run_process(lambda stop: Operator(settings).run(stop), options.log_format, files, debug=options.verbose)


class Operator:
    """The operator, assembled from its settings."""

    def __init__(self, settings: OperatorSettings, hub: Hub | None = None) -> None:
        check_images(settings)
        scope = NamespaceScope(settings)
        self._settings, self._hub = settings, hub or Hub(open_watch=scope.open)
        namespace, options = settings.pod.namespace, settings.options
        wanted = [Wanted(spec) for spec in watches(settings)]
        self.pipeline: Pipeline[KubeWatch, Mapping[tuple[str, str], object], Observed] = Pipeline(
            wanted, partial(watch, self._hub, settings), assemble
        )
        path_secret = self._path_secret if options.private_webhooks else None
        answers = reviews(self._known, settings, time.time, options.serves)
        self._service = AdmissionService(answers, secret=path_secret)
        self.registry = Registry(vitals())
        self.registry.add(*self._service.instruments)
        service = WebhookEndpoint("").service
        names = (*service_names(service, namespace, settings.flagd.cluster_domain), "localhost")
        self._certificate = MemoryCertificate(http2=options.enable_http2)
        secret, configurations = ObjectName(namespace, options.webhook_secret), webhook_configurations(settings)
        self._keeper = CertificateKeeper(
            self._hub, secret, names, self._certificate, configurations, private=options.private_webhooks
        )
        self._files = webhook_files(options)
        if self._files is not None and options.private_webhooks:
            raise UsageError("--private-webhooks: the operator has to make the certificate itself; mount no other one")
        identity = f"{socket.gethostname()}_{uuid4()}"
        elector = LeaderElector(self._hub.kube, namespace, LEASE, identity, lease_timing(options))
        self._elector = elector if options.leader_elect else None
        metrics, self._recorder = ControllerMetrics(), EventRecorder(self._hub.kube, OPERATOR, socket.gethostname())
        leads = Gauge("leader_election_master_status", "Whether this replica leads.", self._leads, ("name",))
        self.registry.add(*metrics.instruments, self._recorder.dropped, leads)
        known = self.pipeline.published
        self._context = ControlContext(self._hub, known, settings, self._recorder, metrics, scope=scope)
        self.registry.add(*self._context.propagation.instruments, *self._context.sidecars.instruments)
        capacity = divide(open_files(), PORTS, CONNECTIONS, reserved_files(options))
        self.lifecycle = Lifecycle("wigwag operator", log, capacity, self.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain. The hub ends last: the release of the Lease needs it."""
        background = [self.pipeline.run(), log_statuses(self.pipeline, self._log), self._control()]
        if self._files is None:
            background.append(self._keeper.run())
        if self._elector is not None:
            background.append(self._watch_lease(self._elector))
        async with asyncio.TaskGroup() as group:
            hub = group.create_task(self._hub.run())
            try:
                await self.lifecycle.run(self._ports, background, stop, self._service.close)
            finally:
                for each in background:
                    each.close()
                hub.cancel()

    async def _control(self) -> None:
        """Run the controllers while this replica leads."""
        if self._elector is None:
            await self._controllers()
        else:
            await self._elector.run(self._controllers)

    async def _watch_lease(self, elector: LeaderElector) -> None:
        """Let a replica that waits take a lease which was released at once, and not after its pause."""
        spec = KubeWatch(LEASE_KIND, self._settings.pod.namespace, LEASE)
        async for leases in only_objects(self._context.watch(spec, lease_holder)):
            if "" in leases.values():
                elector.wake()

    async def _controllers(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._recorder.run())
                group.create_task(run_controllers(self._context))
        finally:
            self._context.shown.clear()

    def _console(self) -> Handler:
        from wigwag.operator.console import operator_console
        from wigwag.serve.console.site import console, local_only

        return console(operator_console(self.pipeline.published, self._shown_agents).api(), local_only)

    def _shown_agents(self) -> Iterable[Mapping[str, Any]]:
        agents = self._context.shown.get("agents")
        return () if agents is None else agents()

    def _leads(self) -> list[tuple[tuple[str], float]]:
        return [] if self._elector is None else [((LEASE,), self._elector.holds())]

    @property
    def ready(self) -> bool:
        """Whether all objects are read, and the webhooks are served."""
        return not self.missing()

    def missing(self) -> list[str]:
        """Return what it waits for before it is ready."""
        present = {
            "not all ports are open": self.lifecycle.serving(),
            "not all objects are read": self.pipeline.report().complete,
            "the webhooks have no certificate": self._files is not None or self._keeper.ready,
        }
        return [text for text, there in present.items() if not there]

    def _path_secret(self) -> str:
        return self._keeper.path_secret

    def _known(self) -> Observed | None:
        return self.pipeline.published.value if self.pipeline.published.serial else None

    def _ports(self) -> list[Port]:
        pages = metrics_handler(self.registry), with_console(probes_handler(self.missing), self._console)
        tls = self._files or self._certificate
        return operator_ports(self._settings.options, self._service, tls, pages, self.lifecycle.capacity)

    def _log(self, level: int, spec: KubeWatch, text: str) -> None:
        log.log(level, "watch %s: %s", spec, text)


def webhook_configurations(settings: OperatorSettings) -> list[tuple[Kind, str]]:
    """Return the webhook configurations whose CA the operator writes; none if somebody else does."""
    options = settings.options
    names = configuration_names(options.namespaces, settings.pod.namespace, options.revision)
    return list(zip((MUTATING, VALIDATING), names, strict=True)) if options.patches_webhooks else []


def reserved_files(options: OperatorOptions) -> int:
    """Return how many files beside those of the ports are open: a watch of each kind, in each namespace."""
    return RESERVED_FILES + len(options.namespaces) * WATCHES_PER_NAMESPACE


def lease_timing(options: OperatorOptions) -> LeaseTiming:
    """Return the seconds of leader election."""
    duration, deadline = options.leader_elect_lease_duration, options.leader_elect_renew_deadline
    return LeaseTiming(int(duration), deadline, options.leader_elect_retry_period)
