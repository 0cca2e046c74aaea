"""What the agent serves where: four ports, each a handler, a listener and limits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from wigwag.serve.access.cors import with_cors
from wigwag.serve.context import Enrichment
from wigwag.serve.evaluation import Evaluation
from wigwag.serve.events import ChangeStreams
from wigwag.serve.face.ports import Port, management_port, management_tls, read_tls
from wigwag.serve.management.debug import Debug
from wigwag.serve.management.manage import HealthService, Management, with_console
from wigwag.serve.management.metrics import rpc_labels
from wigwag.serve.ofrep import BULK, SSE, EventStreams, Ofrep
from wigwag.serve.reflection import reflecting
from wigwag.serve.resolve import Resolver
from wigwag.serve.selections import Selections, selection
from wigwag.sources.source import DEMO
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpcs.dispatch import early, rpc_handler
from wigwag.wire.server.listen import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from wigwag.agent.freshness import Freshness
    from wigwag.agent.options import AgentOptions
    from wigwag.agent.propagation import Propagation
    from wigwag.agent.report import AgentReport
    from wigwag.agent.tenancy import Tenancy
    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.serve.console.evaluations import EvaluationHistory
    from wigwag.serve.face.lifecycle import Lifecycle
    from wigwag.serve.management.history import SnapshotHistory
    from wigwag.serve.management.metrics import Metrics
    from wigwag.serve.snapshot import Snapshot
    from wigwag.sources.source import Source
    from wigwag.telemetry.start import Telemetry
    from wigwag.wire.http import Handler
    from wigwag.wire.tls import Tls

DATA_PORTS = 3
"""Evaluation, sync and OFREP share the descriptors that are left; management has its own."""
_UNLIMITED = 1 << 31
_SINGLE = f"{BULK.decode()}/{{key}}"


class Services(Protocol):
    """What the ports of an agent serve from: the agent itself."""

    sources: Sequence[Source]
    snapshots: Broadcast[Snapshot]
    history: SnapshotHistory
    evaluations: EvaluationHistory
    metrics: Metrics
    freshness: Freshness
    report: AgentReport
    propagation: Propagation
    tenancy: Tenancy
    telemetry: Telemetry
    lifecycle: Lifecycle
    status_changes: Broadcast[None]
    wall: Callable[[], float]


def ports(options: AgentOptions, agent: Services) -> list[Port]:
    """Return all ports of the agent."""
    metrics, report, tenancy, telemetry = agent.metrics, agent.report, agent.tenancy, agent.telemetry
    current = agent.snapshots.current
    resolver = Resolver(telemetry.recorder, agent.freshness, metadata=options.response_metadata)
    changes = ChangeStreams(agent.snapshots, options.stream_deadline)
    enrichment = Enrichment(options.context_value, options.context_from_header)
    limits, at = _limits(options), listeners(options, agent.sources, read_tls(options))
    streams = EventStreams(options.ofrep_sse_enabled, options.ofrep_sse_inactivity_delay, options.ofrep_sse_public_url)
    evaluation = Evaluation(current, enrichment, resolver, changes).methods()
    methods = reflecting(telemetry.methods(tenancy.calls(evaluation)))
    sync = Selections(
        agent.snapshots,
        metrics,
        dict(options.context_value),
        metadata=not options.disable_sync_metadata,
        deadline=options.stream_deadline,
    )
    documents = reflecting(tenancy.calls(sync.methods(), selection))
    health = reflecting(tenancy.health(HealthService(agent.lifecycle.stopped.wait).methods()))
    ofrep = tenancy.ofrep(Ofrep(current, enrichment, resolver, changes, streams, limits.body_bytes).handler())
    debug = Debug(current, report.sources, enrichment, agent.history, everybody=options.debug_endpoints)

    def ready() -> bool:
        """What /readyz answers."""
        return agent.lifecycle.serving() and report.ready() and tenancy.ready()

    console = partial(_console, options, agent, sync, enrichment)
    management = with_console(Management(ready, metrics.registry, debug, agent.propagation).handler(), console)
    # The service refuses a body that is a little too large, in its own format; one far too large is not read at all.
    enforced = replace(limits, body_bytes=2 * limits.body_bytes)
    outer = replace(enforced, ping_seconds=0.0, ping_without_stream=True)  # keep-alive is for sync, as in flagd
    capacity, auth = agent.lifecycle.capacity, "tokens" if options.auth_tokens else ""
    inner, outer, enforced = capacity.limits(outer, management=True), capacity.limits(outer), capacity.limits(enforced)
    observed = metrics.observing(rpc_handler(methods, limits), "flagd.evaluation", _routes(methods), rpc_labels)
    observed_ofrep = metrics.observing(telemetry.ofrep(ofrep), "ofrep", _ofrep_route)
    return [
        Port(
            "evaluation",
            "--port",
            with_cors(observed, options.cors_origin),
            at["evaluation"],
            outer,
            early(methods),
            "--socket-path",
            auth,
        ),
        management_port(health, management, at["management"], limits, inner),
        Port(
            "sync",
            "--sync-port",
            rpc_handler(documents, limits),
            at["sync"],
            enforced,
            early(documents),
            "--sync-socket-path",
            auth,
        ),
        Port("OFREP", "--ofrep-port", with_cors(observed_ofrep, options.cors_origin), at["OFREP"], outer, auth=auth),
    ]


def _console(options: AgentOptions, agent: Services, sync: Selections, enrichment: Enrichment) -> Handler:
    """Return the console; its code is loaded when somebody looks."""
    from wigwag.agent.console import AgentConsole, local_or_token
    from wigwag.serve.console.site import console, everybody

    allowed = everybody if options.debug_endpoints else local_or_token(agent.tenancy.tokens)
    return console(AgentConsole(agent, sync, enrichment).api(), allowed)


def listeners(options: AgentOptions, sources: Sequence[Source], tls: Tls | None) -> dict[str, Listener]:
    """Return where each port is."""
    demo = any(source.provider == DEMO for source in sources)
    # the demo is served on loopback only; everything else on all addresses, as with flagd
    host = options.bind or ("127.0.0.1" if demo else None)

    def listener(port: int, path: str) -> Listener:
        if path:
            return Listener(kind="unix", path=path, mode=options.socket_mode, tls=tls)
        return Listener(host=host, port=port, tls=tls)

    return {
        "evaluation": listener(options.port, options.socket_path),
        "management": Listener(host=host, port=options.management_port, tls=management_tls(options, tls)),
        "sync": listener(options.sync_port, options.sync_socket_path),
        "OFREP": Listener(host=host, port=options.ofrep_port, tls=tls if options.ofrep_tls else None),
    }


def _limits(options: AgentOptions) -> WireLimits:
    return WireLimits(
        body_bytes=options.max_request_body or _UNLIMITED,
        header_bytes=options.max_request_header or 1 << 20,
        ping_seconds=options.keep_alive_min_time,
        ping_without_stream=options.keep_alive_permit_without_stream,
    )


def _routes(methods: Mapping[bytes, object]) -> Callable[[bytes], str]:
    """Return the label of a path, if it is a known one: clients must not create metrics."""
    known = {path: path.decode() for path in methods}
    return lambda path: known.get(path, "unknown")


def _ofrep_route(path: bytes) -> str:
    if path.startswith(BULK + b"/"):
        return _SINGLE if len(path) > len(BULK) + 1 else BULK.decode()
    return path.decode() if path in (BULK, SSE) else "unknown"
