"""Spans wait in a bounded queue, and a thread of the SDK exports them in batches. Spans that do not fit are dropped.

The SDK reads the resource and the sampler from the environment. It only logs a warning about a wrong value; here that
is a `UsageError`.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from wigwag.background import BackgroundWorker
from wigwag.telemetry.deliver import SdkLogCapture
from wigwag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.telemetry.deliver import Delivery
    from wigwag.telemetry.settings import Batching

SERVICE_NAME = "flagd"
_SAMPLER, _RATIO = "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"


class DeliveryExporter(SpanExporter):
    """A delivery as an exporter of the SDK."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch."""
        return SpanExportResult.SUCCESS if self._delivery.deliver(spans) else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Abort whatever is under way."""
        self._delivery.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Do nothing: nothing is buffered here."""
        return True


class Batches:
    """A provider of tracers whose spans are delivered."""

    def __init__(self, provider: TracerProvider, batching: Batching, delivery: Delivery) -> None:
        self.provider, self._delivery = provider, delivery
        exporter, delay = DeliveryExporter(delivery), batching.seconds * 1000
        provider.add_span_processor(BatchSpanProcessor(exporter, batching.queue, delay, batching.batch))

    async def finish(self, seconds: float) -> None:
        """Deliver what is queued, then abort after so many seconds."""
        worker = BackgroundWorker("wigwag-spans")
        try:
            with suppress(TimeoutError, RuntimeError):  # it takes too long, or the process cannot have more threads
                async with asyncio.timeout(seconds):
                    await worker.send(self.provider.shutdown)
        finally:
            worker.dismiss()
            self._delivery.close()


def tracer_provider(resource: Resource) -> TracerProvider:
    """Return a provider with the sampler of the environment; without one every request is sampled, as in flagd."""
    from_environment = bool(os.environ.get(_SAMPLER, "").strip())
    with SdkLogCapture() as capture:
        provider = TracerProvider(None if from_environment else ALWAYS_ON, resource, shutdown_on_exit=False)
    if os.environ.get(_RATIO, "").strip() or "SAMPLER_ARG" not in capture.message:  # it also warns if there is no ratio
        capture.check(f"{_SAMPLER}, {_RATIO}")
    return provider


def read_resource() -> Resource:
    """Return the resource of all telemetry of this process; the environment wins over flagd's attributes."""
    own = {
        "service.name": SERVICE_NAME,
        "service.version": __version__,
        "host.name": socket.gethostname(),
        "os.type": platform.system().lower(),
        "process.runtime.name": platform.python_implementation().lower(),
        "process.runtime.version": platform.python_version(),
    }
    with SdkLogCapture() as capture:
        given = OTELResourceDetector().detect()
    capture.check("OTEL_RESOURCE_ATTRIBUTES")
    return Resource.create({**own, **given.attributes})
