"""Spans wait in a bounded queue and are delivered in batches, by a thread of the SDK. What does not fit is dropped."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased

from wigwag.background import BackgroundWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.resources import Resource

    from wigwag.telemetry.deliver import Delivery
    from wigwag.telemetry.settings import TelemetrySettings


class Spans(SpanExporter):
    """A delivery, as the SDK wants it."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch."""
        return SpanExportResult.SUCCESS if self._delivery.deliver(spans) else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Give up whatever is under way."""
        self._delivery.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """There is nothing here that waits."""
        return True


class Batches:
    """A provider of tracers whose spans are delivered."""

    def __init__(self, settings: TelemetrySettings, resource: Resource, delivery: Delivery) -> None:
        self._delivery, batching = delivery, settings.batching
        self.provider = TracerProvider(sampler(settings.sampler, settings.ratio), resource, shutdown_on_exit=False)
        self.provider.add_span_processor(
            BatchSpanProcessor(Spans(delivery), batching.queue, batching.seconds * 1000, batching.batch)
        )

    async def finish(self, seconds: float) -> None:
        """Deliver what waits, for as long as this, and give up."""
        worker = BackgroundWorker("wigwag-spans")
        try:
            with suppress(TimeoutError, RuntimeError):  # it takes too long, or there can be no more threads
                async with asyncio.timeout(seconds):
                    await worker.send(self.provider.shutdown)
        finally:
            worker.dismiss()
            self._delivery.close()


def sampler(name: str, ratio: float) -> Sampler:
    """Return a sampler by its name in `OTEL_TRACES_SAMPLER`."""
    kinds = {"always_on": ALWAYS_ON, "always_off": ALWAYS_OFF, "traceidratio": TraceIdRatioBased(ratio)}
    bare = name.removeprefix("parentbased_")
    return kinds[bare] if bare == name else ParentBased(kinds[bare])
