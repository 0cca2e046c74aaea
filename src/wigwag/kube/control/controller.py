"""A controller: workers that take keys from a queue and reconcile them, one key in one worker at a time.

    queue ──key──▶ reconcile(key) ──▶ None: done          ──▶ forget its failures
                                      Again(seconds)      ──▶ add it after so long
                                      conflict (409)      ──▶ at once, a few times
                                      any other error     ──▶ after the back-off of this key, or Retry-After

`reconcile` gets a key, looks at what there is *now*, and makes it as it should be; it must be able to run again at any
point. So an error loses nothing: it is counted, kept for the debug page until the key succeeds, and logged when its
text changes, not each time. The hard case is a reconcile that hangs: after a timeout it is cancelled and counts as
failed, so it keeps one worker for a bounded time, and never another key's turn for longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from wigwag.errors import WigwagError
from wigwag.kube.errors import ApiError
from wigwag.observe import Counter, Gauge, Histogram
from wigwag.pipeline.clock import deadline
from wigwag.pipeline.spec import cause, describe
from wigwag.pipeline.watch import stop_if_cancelled

if TYPE_CHECKING:
    from wigwag.kube.control.queue import WorkQueue
    from wigwag.observe import Instrument, Labels, Samples

K = TypeVar("K", bound=Hashable)
Outcome: TypeAlias = Literal["done", "again", "error"]
CONFLICTS = 3
"""How many times in a row a conflict is retried at once."""
LONGEST = 1000
"""The most characters of an error that are kept."""
MOST_SHOWN = 100
"""The most failing keys of a debug page."""
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Again:
    """The result of a reconcile that wants to look again, though nothing has failed."""

    seconds: float


Reconcile: TypeAlias = Callable[[K], Awaitable[Again | None]]


@dataclass(frozen=True, slots=True)
class FailingKey:
    """Why the last reconcile of a key has failed. Times are those of the clock."""

    error: str
    failures: int
    """In a row."""
    since: float
    retry_at: float


class ControllerMetrics:
    """The numbers of all controllers of a process."""

    def __init__(self) -> None:
        self.reconciles = Counter(
            "wigwag_controller_reconciles", "Reconciles, by result: done, again, error.", ("controller", "result")
        )
        self.conflicts = Counter(
            "wigwag_controller_conflicts", "Reconciles that met a conflict and were retried at once.", ("controller",)
        )
        self.duration = Histogram(
            "wigwag_controller_reconcile_duration", "Duration of reconciles.", _BOUNDS, ("controller",), "s"
        )
        self._controllers: dict[str, Controller[Any]] = {}

    def add(self, controller: Controller[Any]) -> None:
        """Show the state of a controller, instead of an earlier one of this name."""
        self._controllers[controller.name] = controller

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """What a registry shows."""

        def gauge(name: str, help: str, read: Callable[[Controller[Any]], float]) -> Gauge:
            def samples() -> Samples:
                return [((controller.name,), read(controller)) for controller in self._controllers.values()]

            return Gauge(f"wigwag_controller_{name}", help, samples, ("controller",))

        return (
            self.reconciles,
            self.conflicts,
            self.duration,
            gauge("queue_depth", "Keys that wait for a worker.", lambda each: len(each.queue.keys)),
            gauge("busy_workers", "Keys that workers have.", lambda each: each.queue.keys.in_work),
            gauge("failing_keys", "Keys whose last reconcile has failed.", lambda each: len(each.failing)),
        )


class Controller(Generic[K]):
    """Reconciles the keys of a queue."""

    def __init__(
        self,
        name: str,
        reconcile: Reconcile[K],
        queue: WorkQueue[K],
        metrics: ControllerMetrics,
        workers: int = 4,
        timeout: float = 60.0,
        urgent_workers: int = 0,
    ) -> None:
        """`timeout` is how many seconds a reconcile may take; `urgent_workers` take nothing but urgent keys."""
        self.name, self.queue = name, queue
        self._reconcile, self._metrics, self._timeout = reconcile, metrics, timeout
        self._workers, self._urgent_workers = workers, urgent_workers
        self.failing: dict[K, FailingKey] = {}
        """The keys whose last reconcile has failed."""
        metrics.add(self)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name} worker {number}")
            for number in range(self._urgent_workers):
                group.create_task(self._work(urgent_only=True), name=f"{self.name} urgent worker {number}")

    async def _work(self, *, urgent_only: bool = False) -> None:
        while True:
            async with self.queue.next(urgent_only=urgent_only) as key:
                await self._handle(key)

    async def _handle(self, key: K) -> None:
        """Reconcile a key, and put it back in the queue if it is to be looked at again."""
        started = self.queue.clock.now()
        outcome: Outcome
        try:
            async with deadline(self.queue.clock, self._timeout):
                again = await self._attempt(key)
        except (asyncio.CancelledError, Exception) as error:  # noqa: BLE001 - it may fail in any way: that is its status
            stop_if_cancelled()
            outcome = "error"
            self._failed(key, cause(error), started)
        else:
            outcome = "done" if again is None else "again"
            self._succeeded(key)
            if again is not None:
                self.queue.add_after(key, again.seconds)
        labels: Labels = (self.name,)
        self._metrics.reconciles.add((*labels, outcome))
        self._metrics.duration.observe(labels, self.queue.clock.now() - started)

    async def _attempt(self, key: K) -> Again | None:
        for _ in range(CONFLICTS):
            try:
                return await self._reconcile(key)
            except Exception as error:
                root = cause(error)
                if not (isinstance(root, ApiError) and root.conflict):
                    raise
                self._metrics.conflicts.add((self.name,))
        return await self._reconcile(key)

    def _succeeded(self, key: K) -> None:
        self.queue.forget(key)
        before = self.failing.pop(key, None)
        if before is not None:
            log.info("%s: %s: reconciled, after %d failures", self.name, _shown(key), before.failures)

    def _failed(self, key: K, error: BaseException, started: float) -> None:
        """Note a failure; log it if it is another one than last time, with its traceback if it is a defect of ours."""
        hung = isinstance(error, TimeoutError) and self.queue.clock.now() - started >= self._timeout
        text = f"not reconciled within {self._timeout:g} s" if hung else describe(error)[:LONGEST]
        retry_at = self.queue.retry(key, (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0)
        before = self.failing.get(key) or FailingKey("", 0, started, 0.0)
        self.failing[key] = FailingKey(text, before.failures + 1, before.since, retry_at)
        if text != before.error:
            defect = None if isinstance(error, WigwagError | TimeoutError) else error
            log.warning("%s: %s: %s; it is retried", self.name, _shown(key), text, exc_info=defect)

    def status(self) -> dict[str, Any]:
        """Return how it is doing as plain JSON, for a debug page."""
        now, keys = self.queue.clock.now(), self.queue.keys
        shown = sorted(self.failing.items(), key=lambda item: item[1].since)[:MOST_SHOWN]
        return {
            "queued": len(keys),
            "delayed": keys.delayed,
            "inWork": keys.in_work,
            "failing": len(self.failing),
            "failures": [
                {
                    "key": _shown(key),
                    "error": failing.error,
                    "failures": failing.failures,
                    "failingSeconds": now - failing.since,
                    "retryInSeconds": failing.retry_at - now,
                }
                for key, failing in shown
            ],
        }


def _shown(key: Hashable) -> str:
    """Return a key for people: namespace and name as `team-a/shop`."""
    return "/".join(str(part) for part in key if part) if isinstance(key, tuple) else str(key)
