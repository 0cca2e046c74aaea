"""The wiring of telemetry: from settings to exporters. The SDK is imported only if a signal is to be exported."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, TypeVar

from wigwag.errors import StartError, UsageError
from wigwag.observe import Counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    """What an agent exports. Without tracing, `methods`, `ofrep` and `loading` return their argument."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        """Report evaluations to this."""
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
        """Return the function that loads a document, traced."""
        return self.tracing.loading(load) if self.tracing is not None else load

    async def run(self, clock: Clock) -> None:
        """Push metrics at their interval, for ever, if they are to be pushed."""
        if self.push is not None:
            await self.push.run(clock)

    async def finish(self, seconds: float) -> None:
        """Deliver what is left, then abort after so many seconds."""
        parts = [part.finish(seconds) for part in (self.push, self.batches) if part is not None]
        await asyncio.gather(*parts)


def start(settings: TelemetrySettings, registry: Registry, recorder: Recorder) -> Telemetry:
    """Start what the settings ask for."""
    telemetry = Telemetry(recorder)
    if is_available(settings):
        _open(telemetry, settings, registry)
    return telemetry


def problems(settings: TelemetrySettings, warn: Callable[[str], object]) -> Iterator[str]:
    """Yield what would keep telemetry from starting, but raise `UsageError` for wrong options and variables."""
    if not is_available(settings, warn):
        return
    from wigwag.telemetry.batches import read_resource, tracer_provider
    from wigwag.telemetry.exporters import read_files

    resource = read_resource()
    if settings.traces is not None:
        tracer_provider(resource)
    for target in (settings.metrics, settings.traces):
        try:
            if target is not None:
                read_files(target)
        except StartError as error:
            yield str(error)


def is_available(settings: TelemetrySettings, warn: Callable[[str], object] = log.warning) -> bool:
    """Tell whether there is a signal to export, and the packages for it; then silence their logs."""
    if settings.traces is None and settings.metrics is None:
        return False
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core writes to standard error what we log ourselves
    try:
        import wigwag.telemetry.batches  # noqa: F401
        from wigwag.telemetry.deliver import silence_sdk
    except ImportError as error:
        if settings.by_option:
            raise UsageError(MISSING) from error
        warn(f"OTEL_* asks for telemetry, but {MISSING}")
        return False
    silence_sdk()
    return True


def _open(telemetry: Telemetry, settings: TelemetrySettings, registry: Registry) -> None:
    from wigwag.background import BackgroundWorker
    from wigwag.telemetry.batches import Batches, read_resource, tracer_provider
    from wigwag.telemetry.deliver import Delivery
    from wigwag.telemetry.exporters import metric_exporter, span_exporter
    from wigwag.telemetry.push import Push
    from wigwag.telemetry.spans import Tracing

    pushes = Counter("wigwag_telemetry_pushes", "Batches of telemetry, by what became of them.", ("signal", "outcome"))
    registry.add(pushes)
    resource, now, reload = read_resource(), time.monotonic, settings.reload_seconds
    if settings.metrics is not None:
        delivery = Delivery("metrics", settings.metrics, metric_exporter, pushes, now, reload)
        worker = BackgroundWorker("wigwag-metrics")
        telemetry.push = Push(registry, resource, delivery, worker, settings.interval, time.time_ns)
    if settings.traces is not None:
        delivery = Delivery("traces", settings.traces, span_exporter, pushes, now, reload)
        telemetry.batches = Batches(tracer_provider(resource), settings.batching, delivery)
        telemetry.tracing = Tracing(telemetry.batches.provider, telemetry.recorder)
        telemetry.recorder = telemetry.tracing
    addresses = {target.address for target in (settings.metrics, settings.traces) if target is not None}
    log.info("telemetry is pushed to %s", " and ".join(sorted(addresses)))
