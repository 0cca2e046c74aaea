"""The pipeline: one loop that turns the latest values into one published snapshot.

    wanted ─▶ watch ─▶ aggregate ─▶ limit ─▶ assemble ─▶ publish
      ▲                                         │
      └───────────────── derive ◀───────────────┘

The loop owns the state and waits for three things only: that something has changed, the limiter's permission, and
`derive`. What happens meanwhile is collected and seen in the next turn. `assemble` is a pure function of the values; if
it, or `derive`, fails, the last snapshot stays and the report says why.

An `Urgent` value waits for no permission. A snapshot is always made of all the latest values, so one that comes early
is never older than the one before, nor half of anything.

The gate: `derive` is not asked, and nothing is published, before every required initial watch has answered once or had
its time; nothing is published before that holds for what `derive` asked for, too. Once open, the gate stays open. What
is wanted later is waited for up to `late` seconds, and then added when it answers; a snapshot can tell what is missing
(`Values.waiting`).

`derive` gets the assembled snapshot and is awaited in the loop: until it returns nothing is published, so it must have
a timeout of its own. It is not asked again while its watches are waited for, unless an initial watch changes. The hard
case is a `derive` that never settles: what it asks for changes what it sees, for ever. Without a change of an initial
watch, its watches change a limited number of times; then they stay as they are for a while (`settle`).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from wigwag.errors import WigwagError
from wigwag.pipeline.aggregate import Aggregate
from wigwag.pipeline.backoff import Retry
from wigwag.pipeline.broadcast import Broadcast
from wigwag.pipeline.clock import wait_event
from wigwag.pipeline.spec import S, Urgent, V, describe
from wigwag.pipeline.status import Report
from wigwag.pipeline.watch import Watches, WatchPolicy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from wigwag.pipeline.aggregate import Values
    from wigwag.pipeline.clock import Timer
    from wigwag.pipeline.spec import Restored, Wanted, Watcher
    from wigwag.pipeline.status import Status

LONGEST_PAUSE = 0.1
"""Seconds that a snapshot waits at most because the one before took long."""
P = TypeVar("P")
log = logging.getLogger(__name__)


class Pipeline(Generic[S, V, P]):
    """Watches what is wanted and publishes one snapshot of it.

    >>> async def watch(spec):
    ...     yield spec.upper()
    ...     await asyncio.Event().wait()
    >>> async def main():
    ...     pipeline = Pipeline([Wanted("a"), Wanted("b")], watch, dict)
    ...     async with asyncio.TaskGroup() as group:
    ...         running = group.create_task(pipeline.run())
    ...         async for snapshot in pipeline.published:
    ...             running.cancel()
    ...             return snapshot
    >>> from wigwag.pipeline.spec import Wanted
    >>> asyncio.run(main())
    {'a': 'A', 'b': 'B'}
    """

    def __init__(
        self,
        wanted: Iterable[Wanted[S]],
        watcher: Watcher[S, V | Urgent[V]],
        assemble: Callable[[Values[S, V]], P],
        derive: Callable[[P], Awaitable[Iterable[Wanted[S]]]] | None = None,
        key: Callable[[P], object] = lambda snapshot: snapshot,
        published: Broadcast[P] | None = None,
        policy: WatchPolicy | None = None,
        restored: Mapping[S, Restored[V]] | None = None,
    ) -> None:
        """`key` returns what snapshots are compared by: one with an equal key is not published again.

        `restored` values count as answers, so the first snapshot need not wait for those watches.
        """
        self._initial = tuple(wanted)
        self._derived: tuple[Wanted[S], ...] = ()
        self._watcher, self._assemble, self._derive, self._key = watcher, assemble, derive, key
        self._policy = policy or WatchPolicy()
        self._limit = self._policy.limit()
        self._restored = restored or {}
        self._aggregate = Aggregate[S, V]()
        self._watches: Watches[S, V | Urgent[V]] | None = None
        self._ended: tuple[Status[S], ...] = ()
        self._settle, self._settles_at, self._unsettled = self._policy.settle(), 0.0, ""
        self._derived_from: dict[S, V] | None = None
        """The values of the initial watches when `derive` was asked."""
        self._complete, self._retry = False, Retry(self._policy.backoff, self._policy.random)
        self._permitted_at: float | None = None
        """When the limiter allowed the next snapshot; None: it was not asked yet."""
        self._limit_lag, self._resume_at = 0.0, float("-inf")
        """By how much the limiter's time is behind; when it wants to be asked again."""
        self._urgent, self._urgent_arrived = False, asyncio.Event()
        """Whether an urgent value waits to be part of a snapshot."""
        self._error: str | None = None
        self._alarm: Timer | None = None
        self._alarm_at = 0.0
        self.published = Broadcast[P]() if published is None else published
        self.status_changes = Broadcast[None]()
        """Notifies when a watch changes its state or its error; `statuses` returns what they are now."""

    async def run(self) -> None:
        """Watch and publish until cancelled. All tasks are children of this call."""
        try:
            async with asyncio.TaskGroup() as group:
                ages = {spec: kept.age for spec, kept in self._restored.items()}
                changed = partial(self.status_changes.publish, None)
                self._watches = Watches(group, self._watcher, self._deliver, changed, self._policy, ages)
                self._adopt()
                for spec, kept in self._restored.items():
                    self._aggregate.put(spec, kept.value)
                self._aggregate.touch()
                while True:
                    await self._aggregate.changed()
                    await self._turn()
        finally:
            self._clear_alarm()
            self._ended, self._watches = self.statuses(), None

    def want(self, wanted: Iterable[Wanted[S]]) -> None:
        """Replace what is wanted initially, at any time. Watches start and stop at once; the snapshot follows."""
        self._initial = tuple(wanted)
        if self._watches is not None:
            self._adopt()
            self._aggregate.touch()

    def derive_again(self) -> None:
        """Ask `derive` again, though nothing has changed that the pipeline knows of."""
        self._derived_from = None
        self._aggregate.touch()

    def statuses(self) -> tuple[Status[S], ...]:
        """Return how each watch is doing, in the order in which they are wanted."""
        return self._watches.statuses() if self._watches is not None else self._ended

    def report(self) -> Report[S]:
        """Return how all of it is doing."""
        waiting, unsettled = self._aggregate.waiting(), self._unsettled or None
        return Report(self._complete, waiting, self._error, self.statuses(), unsettled)

    def _deliver(self, spec: S, value: V | Urgent[V]) -> None:
        if isinstance(value, Urgent):
            self._urgent = True
            self._urgent_arrived.set()
            value = value.value
        self._aggregate.put(spec, value)

    async def _turn(self) -> None:
        """Assemble a snapshot of the current values, and publish it if the gate is open and it is new."""
        self._clear_alarm()
        current, missing, initial = self._aggregate.current(), self._aggregate.waiting(), set(self._initial_specs())
        if self._held(missing, initial) or (not self._initial_changed(current) and self._held(missing)):
            return
        if self._complete and (self._permitted_at is None or self._initial_changed(current)):
            await self._permission()
        try:
            values, snapshot = await self._snapshot()
            new = not self.published.serial or self._key(snapshot) != self._key(self.published.value)
        except WigwagError as error:
            self._fail(str(error))
            return
        except Exception as error:  # noqa: BLE001 - a face's own functions; the last good snapshot stays
            self._fail(describe(error))
            return
        self._retry.succeeded()
        self._error = None
        if self._held(self._aggregate.missing(values)):
            return  # and keep the permission for the snapshot that has it all
        if not self._complete:
            self._complete = True
            await self._permission()  # at once, because it is the first time; but the first snapshot counts
        if new:
            self._publish(snapshot)
        self._permitted_at = None

    async def _permission(self) -> None:
        """Wait until the limiter allows the next snapshot, or a value is urgent; what comes meanwhile is part of it."""
        clock = self._policy.clock
        while not self._urgent:
            if clock.now() >= self._resume_at:  # a limiter that was overtaken has still named a time
                pause = self._limit(clock.now() - self._limit_lag)
                if pause <= 0:
                    break
                self._resume_at = clock.now() + pause
            await wait_event(clock, self._urgent_arrived, self._resume_at)
        self._permitted_at = clock.now()

    def _publish(self, snapshot: P) -> None:
        """Publish a snapshot. For the limiter no time has passed since its permission, so it counts from here on."""
        began = self._now() if self._permitted_at is None else self._permitted_at
        self._limit_lag += self._now() - began
        self.published.publish(snapshot)
        now = self._now()
        self._resume_at = max(self._resume_at, now + min(self._policy.pause * (now - began), LONGEST_PAUSE))

    async def _snapshot(self) -> tuple[Values[S, V], P]:
        """Return the current values and their snapshot, without those that `derive` no longer wants."""
        values = self._aggregate.take()
        self._urgent = False
        snapshot = self._assemble(values)
        if self._derive is None:
            return values, snapshot
        caused = self._initial_changed(values)
        self._derived_from = None
        derived = tuple(await self._derive(snapshot))
        self._derived_from = self._of_initial(values)
        if derived == self._derived or set(derived) == set(self._derived):  # hash tables have no order
            self._agreed()
            return values, snapshot
        if not self._may_change(caused):
            return values, snapshot
        self._derived = derived
        self._adopt()
        kept = self._aggregate.keep(values)
        return kept, self._assemble(kept)

    def _initial_changed(self, values: Mapping[S, V]) -> bool:
        """Tell whether a value of an initial watch is another one than when `derive` was asked."""
        before, now = self._derived_from, self._of_initial(values)
        return before is None or before.keys() != now.keys() or any(before[spec] is not now[spec] for spec in now)

    def _of_initial(self, values: Mapping[S, V]) -> dict[S, V]:
        return {spec: values[spec] for spec in self._initial_specs() if spec in values}

    def _may_change(self, caused: bool) -> bool:
        """Decide whether the derived watches may change; always, if an initial watch has."""
        if caused:
            self._settle = self._policy.settle()
        pause = self._settle(self._now())
        if not pause:
            self._unsettled = ""
            return True
        if pause > 0:
            self._settles_at = self._now() + pause
        if not self._unsettled:
            self._unsettled = "the derived watches keep changing though no initial watch has; they stay as they are"
            log.warning("%s for %.0f s; check the watch hook", self._unsettled, self._settles_at - self._now())
        self._wake_at(self._settles_at)
        return False

    def _agreed(self) -> None:
        """Note that what is wanted is watched. One that flips agrees every other time, so that counts only later."""
        if self._unsettled and self._now() < self._settles_at:
            self._wake_at(self._settles_at)
        else:
            self._unsettled = ""

    def _adopt(self) -> None:
        assert self._watches is not None
        self._aggregate.want((*self._initial, *self._derived), self._now())
        self._watches.want(self._aggregate.specs())

    def _initial_specs(self) -> Iterator[S]:
        return (want.spec for want in self._initial)

    def _held(self, missing: tuple[S, ...], specs: set[S] | None = None) -> bool:
        """Return whether to wait for a missing watch, of these or of all; if a time ends, look again then."""
        longest = self._policy.late if self._complete else None
        if longest == 0.0:
            return False
        held = self._aggregate.held(missing, self._now(), longest)
        ends = [end for spec, end in held.items() if specs is None or spec in specs]
        for end in ends:
            self._wake_at(end)
        return bool(ends)

    def _fail(self, error: str) -> None:
        """Keep the last snapshot, log why, and retry later if that can help: `assemble` is pure, `derive` is not."""
        if error != self._error:
            log.warning("no new snapshot: %s", error)
        self._error, self._permitted_at = error, None
        if self._derive is not None:
            self._wake_at(self._retry.next(self._now()))

    def _now(self) -> float:
        return self._policy.clock.now()

    def _wake_at(self, when: float | None) -> None:
        """Look again at this time though nothing has changed, or earlier; None: never."""
        if when is None or (self._alarm is not None and self._alarm_at <= when):
            return
        self._clear_alarm()
        self._alarm, self._alarm_at = self._policy.clock.call_at(when, self._aggregate.touch), when

    def _clear_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None
