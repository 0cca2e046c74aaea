"""The one wiring function of the agent: sources, pipeline, services and ports, from start to graceful end."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass, field, replace
from functools import partial
from time import time
from typing import TYPE_CHECKING

from wigwag import library
from wigwag.agent.annotations import agent_sources, documents
from wigwag.agent.assemble import Loader, assembler, content
from wigwag.agent.facts import fact_sources, watch_facts, watching
from wigwag.agent.freshness import Freshness, too_strict
from wigwag.agent.ports import DATA_PORTS, ports
from wigwag.agent.propagation import Propagation
from wigwag.agent.report import AgentReport
from wigwag.agent.state.lastgood import LastGood
from wigwag.agent.tenancy import Tenancy
from wigwag.kube.hub import Hub
from wigwag.pipeline.broadcast import Broadcast
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.pipeline.statuslog import log_statuses
from wigwag.pipeline.watch import WatchPolicy
from wigwag.serve.console.evaluations import EvaluationHistory
from wigwag.serve.face.capacity import divide, needed, open_files
from wigwag.serve.face.lifecycle import Lifecycle
from wigwag.serve.face.process import run_process, settle
from wigwag.serve.management.history import SnapshotHistory
from wigwag.serve.management.metrics import Metrics
from wigwag.serve.management.process_metrics import vitals
from wigwag.serve.snapshot import Snapshot
from wigwag.serve.streams import stopping
from wigwag.sources.critical import PAUSE, CriticalChanges
from wigwag.sources.disk.notify import Notifier
from wigwag.sources.kinds import prepare
from wigwag.sources.source import DEMO
from wigwag.telemetry.settings import TelemetryOptions, decide
from wigwag.telemetry.start import start

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.agent.facts import Stream, Value
    from wigwag.agent.options import AgentOptions
    from wigwag.agent.state.directory import StateDir
    from wigwag.serve.face.ports import Serve
    from wigwag.sources.kind import Documents
    from wigwag.sources.source import Source
    from wigwag.telemetry.settings import TelemetrySettings

LEAST_GRACE_SECONDS = 1.0
"""How long the last telemetry may take to be delivered, however long draining took."""
SOURCE_GRACE_SECONDS = 5.0
"""How long the flags of other sources wait for one that does not answer."""
RESERVED_FILES = 512
"""Open files that connections never take: sources, files, telemetry."""
log = logging.getLogger("wigwag.agent")
DEMO_HINTS = """
  The demo flags are served. See them at http://localhost:{management_port}/console/, or ask:

    curl -s localhost:{port}/flagd.evaluation.v1.Service/ResolveBoolean -H 'content-type: application/json' \\
         -d '{{"flagKey": "new-welcome-banner", "context": {{"email": "fay@example.com"}}}}'
    curl -s localhost:{ofrep_port}/ofrep/v1/evaluate/flags -d '{{"context": {{"targetingKey": "user-1"}}}}'
    curl -s 'localhost:{management_port}/debug/explain?key=background-colour&format=text' \\
         -d '{{"targetingKey": "user-1"}}'

  Your own flags: wigwag start --uri file:flags.yaml        Ctrl-C ends it.
"""


@dataclass(frozen=True, slots=True)
class AgentDeps:
    """What an agent takes from the machine it runs on; by default, the real ones. The options decide everything else.

    So a test that passes other dependencies (a clock that it moves, sources that fail on demand) runs the agent itself,
    and not something wired like it.
    """

    policy: WatchPolicy = field(default_factory=WatchPolicy)
    wall: Callable[[], float] = time
    """The time in Unix seconds."""
    documents: Callable[[Source], Documents] | None = None
    """What yields the documents of a source; None: the sources themselves."""
    facts: Callable[[Source], Stream] | None = None
    """Yields facts; None: the real ones."""
    state: Callable[[str], StateDir] | None = None
    """Opens the directory in which the last good flags are kept; None: a real one."""
    serve: Serve | None = None
    """Opens a port; None: a server that shares its scheduler and its bound on memory with the other ports."""
    open_files: Callable[[], int] = open_files
    """How many files the process may open, which is divided among the ports."""
    settled: Callable[[], None] = lambda: None
    """Called when the first flags are loaded and checked: most of what is in memory then stays."""


def run_agent(options: AgentOptions) -> int:
    """Run the agent until a signal stops it; return the exit code."""
    files = needed(DATA_PORTS, options.max_connections, RESERVED_FILES)
    deps = AgentDeps(settled=settle)
    return run_process(lambda stop: Agent(options, deps).run(stop), options.log_format, files, debug=options.debug)


class Agent:
    """The agent, assembled from its options."""

    def __init__(self, options: AgentOptions, deps: AgentDeps | None = None) -> None:
        self._options, self._deps = options, deps or AgentDeps()
        self.sources: Sequence[Source] = agent_sources(options)
        prepare(self.sources, log.warning)
        for remark in too_strict(self.sources, options.stale_after):
            log.warning("%s", remark)
        deps, policy = self._deps, self._deps.policy
        self._clock, self._hub, notifier = policy.clock, Hub(), Notifier()
        self._loader = loader = Loader(options.fractional, strict=options.strict)
        self.last_good = LastGood(options.state_dir, policy.clock, deps.wall, deps.state)
        restored = self.last_good.restore(self.sources, loader)
        loader.flags |= {source: kept.value for source, kept in restored.items()}
        # What is there already need not wait for a source that is new.
        grace = 0.0 if restored else SOURCE_GRACE_SECONDS
        required = frozenset(source for source in self.sources if source.required)
        self.snapshots = Broadcast(Snapshot(library.load({"flags": {}}), extent="none"))
        self.history = SnapshotHistory(options.snapshots)
        self.history.follow(self.snapshots)
        self.metrics = Metrics()
        critical = CriticalChanges(policy.clock)
        self.metrics.registry.add(*vitals(), critical.changes)
        self.evaluations = EvaluationHistory(self.metrics.impressions)
        self.wall = deps.wall
        self.telemetry = start(telemetry_settings(options), self.metrics.registry, self.metrics)
        self.pipeline: Pipeline[Source, Value, Snapshot] = Pipeline(
            [
                *(Wanted(source, source.required, grace) for source in self.sources),
                *(Wanted(source, grace=grace) for source in fact_sources(options, len(self.sources))),
            ],
            watching(
                loader.watcher(
                    deps.documents or partial(documents, hub=self._hub, notifier=notifier),
                    critical,
                    self.telemetry.loading,
                ),
                deps.facts or partial(watch_facts, hub=self._hub),
            ),
            assembler(deps.wall, required),
            key=content,
            policy=replace(policy, pause=PAUSE),
            restored=restored,
            published=self.snapshots,
        )
        self.status_changes = self.pipeline.status_changes
        self.freshness = Freshness(self.pipeline, policy.clock, options.stale_after)
        self.report = AgentReport(
            self.pipeline,
            policy.clock.now,
            self.freshness,
            required=required,
            only_fresh=options.readiness == "fresh",
            settled=deps.settled,
        )
        self.report.register(self.metrics.registry)
        self.propagation = Propagation(self.pipeline, lambda: loader.documents)
        self.last_good.register(self.metrics.registry)
        self.tenancy = Tenancy(options, self.metrics.registry, notifier)
        most, per_address = options.max_connections, options.max_connections_per_address
        capacity = divide(deps.open_files(), DATA_PORTS, most, RESERVED_FILES, per_address)
        self.lifecycle = Lifecycle("wigwag", log, capacity, self.metrics.registry, deps.serve)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain."""
        background = (
            self._hub.run(),
            self.pipeline.run(),
            log_statuses(self.pipeline, _log_source),
            self.report.log_readiness(),
            self.report.log_snapshots(),
            self.freshness.run(),
            self.last_good.run(self.pipeline, self._loader.flags),
            self.tenancy.run(),
            self.telemetry.run(self._clock),
            self.evaluations.run(self._clock),
            self._announce(),
        )
        try:
            await self.lifecycle.run(partial(ports, self._options, self), background, stop, self._close, self._finish)
        finally:
            await self.last_good.close()

    def _close(self) -> None:
        self.snapshots.end(stopping())

    async def _finish(self, seconds: float) -> None:
        await self.telemetry.finish(max(seconds, LEAST_GRACE_SECONDS))

    async def _announce(self) -> None:
        """Log what is special about this agent once it serves."""
        await self.lifecycle.started.wait()
        for path in filter(None, (self._options.socket_path, self._options.sync_socket_path)):
            log.info("socket %s has mode %04o; --socket-mode changes it", path, self._options.socket_mode)
        if self.sources[0].provider == DEMO and not self._options.socket_path:
            numbers = {name: addresses[0].rpartition(":")[2] for name, addresses in self.lifecycle.addresses.items()}
            names = {"port": "evaluation", "ofrep_port": "OFREP", "management_port": "management"}
            print(DEMO_HINTS.format(**{key: numbers[name] for key, name in names.items()}), flush=True)


def telemetry_settings(options: AgentOptions) -> TelemetrySettings:
    """Return the settings of telemetry, from the options and the environment."""
    telemetry_options = TelemetryOptions(
        metrics_exporter=options.metrics_exporter,
        collector=options.otel_collector_uri,
        certificate=options.otel_cert_path,
        key=options.otel_key_path,
        authority=options.otel_ca_path,
        reload_seconds=options.otel_reload_interval,
    )
    return decide(telemetry_options, os.environ)


def _log_source(level: int, source: Source, text: str) -> None:
    log.log(level, "source %s: %s", source.name, text)
