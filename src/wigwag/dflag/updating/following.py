"""Following places in an event loop: each picture of them is applied, and their status is noted.

The pipeline restarts a watch that fails. What can fail here is the updater itself, in a way nobody foresaw. It is
restarted, too (`persist`), because flags that silently follow nothing are worse than any error. It works
again when it has applied a picture of at least the places with which it failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from wigwag.pipeline.backoff import Retry
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted, cause
from wigwag.pipeline.watch import WatchPolicy

if TYPE_CHECKING:
    from wigwag.dflag.updating.contents import Contents
    from wigwag.dflag.updating.places import Place
    from wigwag.dflag.updating.plan import Picture
    from wigwag.dflag.updating.policy import Policy
    from wigwag.dflag.updating.record import UpdateRecord
    from wigwag.pipeline.status import Status

    Flow: TypeAlias = Pipeline[Place, Contents, Picture]


class Follower:
    """Keeps flags at the contents of places, until cancelled."""

    def __init__(
        self,
        places: Sequence[Place],
        policy: Policy,
        record: UpdateRecord,
        ready: Callable[[], object],
        *,
        required: bool,
    ) -> None:
        """`ready` is called when all places were read, or one cannot be; with `required`, the start waits for them."""
        self._places, self._policy, self._record, self._ready = places, policy, record, ready
        self._required = required and not policy.tolerant
        self._flow: Flow | None = None
        self._tried: frozenset[Place] = frozenset()
        self._failed_with = self._tried
        self.failure = ""
        """Why the last attempt failed."""

    @property
    def statuses(self) -> tuple[Status[Place], ...]:
        """The status of each place."""
        return self._flow.statuses() if self._flow is not None else ()

    @property
    def missing(self) -> list[str]:
        """The required places that could not be read yet, with the reasons."""
        unread = (status for status in self.statuses if not (status.spec.optional or status.values))
        return [f"{status.spec.title}: {status.error}" for status in unread if status.state == "failing"]

    async def run(self) -> None:
        """Follow the places until cancelled."""
        try:
            await persist(self._attempt, self._note_failure)
        finally:
            self._ready()

    async def _attempt(self) -> None:
        required = self._required and not self.failure  # after a failure, the places have been read before
        wanted = [Wanted(place, required=required and not place.optional) for place in self._places]
        self._flow = Pipeline(wanted, lambda place: place.watch(self._policy), dict)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flow.run())
            group.create_task(self._follow_pictures(self._flow))
            group.create_task(self._follow_statuses(self._flow))

    async def _follow_pictures(self, flow: Flow) -> None:
        async for picture in flow.published:
            self._note_statuses()
            await self._record.prepare(picture)
            self._tried = frozenset(picture)
            self._record.apply(picture, static=False)
            if self._tried >= self._failed_with:
                self.failure = self._record.note_failure(None)
            self._ready()

    async def _follow_statuses(self, flow: Flow) -> None:
        async for _ in flow.status_changes:
            self._note_statuses()

    def _note_statuses(self) -> None:
        self._record.note_statuses(self.statuses)
        if self.missing:
            self._ready()

    def _note_failure(self, error: BaseException) -> None:
        self._failed_with = self._tried
        self.failure = self._record.note_failure(error)
        self._ready()


async def persist(
    attempt: Callable[[], Awaitable[None]],
    failed: Callable[[BaseException], None],
    policy: WatchPolicy = WatchPolicy(),  # noqa: B008 - a frozen value
) -> None:
    """Repeat an attempt until cancelled: when it fails, report that, wait, and try again.

    An attempt counts as a success if it lasted longer than the longest pause.
    """
    clock, retry = policy.clock, Retry(policy.backoff, policy.random)
    while True:
        began = clock.now()
        try:
            await attempt()
        except Exception as error:  # noqa: BLE001 - it may fail in any way, and is reported
            failed(cause(error))
        if clock.now() - began >= policy.backoff.most:
            retry.succeeded()
        await sleep_until(clock, retry.next(clock.now()))
