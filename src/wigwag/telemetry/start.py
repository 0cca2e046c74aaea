"""The one wiring function of telemetry: from what was asked to what is pushed. Without a wish, nothing is imported."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, TypeVar

from wigwag.errors import UsageError
from wigwag.observe import Counter

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.observe import Registry
    from wigwag.pipeline.clock import Clock
    from wigwag.serve.management.metrics import Recorder
    from wigwag.telemetry.batches import Batches
    from wigwag.telemetry.push import Push
    from wigwag.telemetry.settings import TelemetrySettings
    from wigwag.telemetry.spans import SpanSource, Tracing
    from wigwag.wire.http import Handler
    from wigwag.wire.rpc import Methods

    S = TypeVar("S", bound=SpanSource)
V = TypeVar("V")
T = TypeVar("T")
log = logging.getLogger("wigwag.telemetry")
MISSING = "pushing telemetry needs the OpenTelemetry packages: install wigwag[otel]"


class Telemetry:
    """What an agent pushes. Without tracing, what it is given to trace comes back as it is."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        """Tell this of evaluations."""
        self.tracing: Tracing | None = None
        self.batches: Batches | None = None
        self.push: Push | None = None

    def methods(self, methods: Methods) -> Methods:
        """Return the methods of the evaluation services, traced."""
        return self.tracing.methods(methods) if self.tracing is not None else methods

    def ofrep(self, handler: Handler) -> Handler:
        """Return the handler of OFREP, traced."""
        return self.tracing.ofrep(handler) if self.tracing is not None else handler

    def loading(self, load: Callable[[S, V], T]) -> Callable[[S, V], T]:
        """Return what loads a document, traced."""
        return self.tracing.loading(load) if self.tracing is not None else load

    async def run(self, clock: Clock) -> None:
        """Push metrics for as long as there are any to push."""
        if self.push is not None:
            await self.push.run(clock)

    async def finish(self, seconds: float) -> None:
        """Deliver what is left, for as long as this."""
        parts = [part.finish(seconds) for part in (self.push, self.batches) if part is not None]
        await asyncio.gather(*parts)


def start(settings: TelemetrySettings, registry: Registry, recorder: Recorder) -> Telemetry:
    """Start what the settings ask for."""
    telemetry = Telemetry(recorder)
    if equipped(settings):
        _open(telemetry, settings, registry)
    return telemetry


def equipped(settings: TelemetrySettings, remark: Callable[[str], object] = log.warning) -> bool:
    """Tell whether there is something to push, and the packages for it."""
    if settings.traces is None and settings.metrics is None:
        return False
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core writes to standard error what we log ourselves
    try:
        import wigwag.telemetry.batches
        import wigwag.telemetry.exporters  # noqa: F401
    except ImportError as error:
        if settings.by_option:
            raise UsageError(MISSING) from error
        remark(f"OTEL_* asks for telemetry, but {MISSING}")
        return False
    return True


def _open(telemetry: Telemetry, settings: TelemetrySettings, registry: Registry) -> None:
    from wigwag.background import BackgroundWorker
    from wigwag.telemetry.batches import Batches
    from wigwag.telemetry.deliver import Delivery, hush
    from wigwag.telemetry.exporters import metric_exporter, span_exporter
    from wigwag.telemetry.push import Push
    from wigwag.telemetry.resource import resource
    from wigwag.telemetry.spans import Tracing

    pushes = Counter("wigwag_telemetry_pushes", "Batches of telemetry, by what became of them.", ("signal", "outcome"))
    registry.add(pushes)
    told, now, reload = resource(settings.resource), time.monotonic, settings.reload_seconds
    if settings.metrics is not None:
        delivery = Delivery("metrics", settings.metrics, metric_exporter, pushes, now, reload)
        worker = BackgroundWorker("wigwag-metrics")
        telemetry.push = Push(registry, told, delivery, worker, settings.interval, time.time_ns)
    if settings.traces is not None:
        delivery = Delivery("traces", settings.traces, span_exporter, pushes, now, reload)
        telemetry.batches = Batches(settings, told, delivery)
        telemetry.tracing = Tracing(telemetry.batches.provider, telemetry.recorder)
        telemetry.recorder = telemetry.tracing
    hush()
    places = {target.place for target in (settings.metrics, settings.traces) if target is not None}
    log.info("telemetry is pushed to %s", " and ".join(sorted(places)))
