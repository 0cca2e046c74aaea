"""Metrics on a timer: read in the loop, where they are counted, and delivered by a background thread.

One delivery is under way at a time. While it lasts nothing is read, so a slow collector gets fewer readings and no
queue grows. No reading is missed: each is the whole sum since the start.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from wigwag.pipeline.clock import sleep_until
from wigwag.telemetry.convert import converted

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.resources import Resource

    from wigwag.background import BackgroundWorker
    from wigwag.observe import Registry
    from wigwag.pipeline.clock import Clock
    from wigwag.telemetry.deliver import Delivery

log = logging.getLogger("wigwag.telemetry")


class Push:
    """Pushes the metrics of a registry."""

    def __init__(
        self,
        registry: Registry,
        resource: Resource,
        delivery: Delivery,
        worker: BackgroundWorker,
        interval: float,
        time_ns: Callable[[], int],
    ) -> None:
        self._registry, self._resource, self._delivery, self._worker = registry, resource, delivery, worker
        self._interval, self._time_ns, self._start = interval, time_ns, time_ns()

    async def run(self, clock: Clock) -> None:
        """Push at every interval, for ever."""
        due = clock.now()
        while True:
            due = max(due + self._interval, clock.now())
            await sleep_until(clock, due)
            await self.once()

    async def once(self) -> bool:
        """Push the current values; tell whether they arrived."""
        readings, now = self._registry.read(), self._time_ns()
        try:
            return await self._worker.send(
                lambda: self._delivery.deliver(converted(readings, self._resource, self._start, now))
            )
        except RuntimeError as error:  # the process cannot have more threads
            log.warning("metrics cannot be pushed: %s", error)
            return False

    async def finish(self, seconds: float) -> None:
        """Push a last time, then abort after so many seconds."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.once()
        finally:
            self._worker.dismiss()
            self._delivery.close()
