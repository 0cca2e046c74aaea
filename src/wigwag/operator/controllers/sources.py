"""The controller of sources, shared ones too: workloads rolled when one changes, refused pods retried, its status.

    source, what it refers to, workloads that name it ─▶ queue ─▶ plan ─▶ patch the workloads that are due ─▶ status

Rollouts are paced. One turn patches those that are due within a second, then the plan is made again from what there is:
so a turn is short, an edit of the source in between counts at once, and another leader goes on where this one ended. A
turn lasts until the next rollout is due, since its own patches are changes that begin another turn.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from wigwag.kube.control.controller import Again, Controller
from wigwag.operator.controllers.context import UNREADABLE
from wigwag.operator.controllers.rolling import PacedWrite, retry_pods, roll_out, write_paced
from wigwag.operator.injection.permission import may_use, source_kind
from wigwag.operator.names import ObjectName
from wigwag.operator.reconcile.rollout import RolloutPlanner
from wigwag.operator.reconcile.sources import SourceStatuses
from wigwag.pipeline.clock import sleep_until

if TYPE_CHECKING:
    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext

TURN = 1.0
"""Seconds of rollouts in one turn."""
log = logging.getLogger(__name__)


class SourceController:
    """Rolls workloads, and keeps the status of FeatureFlagSources."""

    def __init__(self, context: ControlContext, changes: KnownChanges, consumers: Consumers) -> None:
        self._context, self._consumers, self._namespaces = context, consumers, changes.namespaces
        self._queue: WorkQueue[Key] = context.queue()
        self._controller = Controller("sources", self._reconcile, self._queue, context.metrics)
        changes.feed_sources(self._queue.add, consumers.namespaces)
        consumers.feed_named(self._queue.add)
        changes.feed_moved(self._queue.add, changes.sources)

    async def run(self) -> None:
        """Work until cancelled. A status says that no workload is behind, so all of them have to be known first."""
        await self._consumers.synced()
        await self._controller.run()

    async def _reconcile(self, key: Key) -> Again | None:
        context, name = self._context, ObjectName(*key)
        if not self._namespaces.owns(name.namespace):
            return None
        known, settings, now = context.known.value, context.settings, context.now()
        if unreadable := known.unreadable_source(name):
            await context.report_unreadable(source_kind(name), unreadable)
            return None
        source = known.feature_flag_source(name)
        if source is None:
            return None
        if any(may_use(name, source, each, known, settings) for each in context.scope.unreadable):
            return Again(UNREADABLE)  # a workload there may be behind
        workloads = self._consumers.naming(name)
        rate = float(settings.options.rollout_rate)
        planner = RolloutPlanner(known=known, settings=settings, now=now, rate=rate)
        plan = planner.plan(name, workloads)
        for workload in planner.retries(name, workloads):
            await retry_pods(context, workload)
        started, turn = self._queue.clock.now(), [each for each in plan.due if each.after < TURN]
        why = f"{source_kind(name).kind} {name} has changed"
        errors = await write_paced(
            self._queue.clock,
            [PacedWrite(each.after, partial(roll_out, context, each, "FlagSourceChanged", why)) for each in turn],
        )
        status = SourceStatuses(known=known, settings=settings, now=now).of_source(name, source, workloads, plan)
        await context.report(source_kind(name), source.metadata, source.status, status)
        if len(turn) < len(plan.due):
            await sleep_until(self._queue.clock, started + plan.due[len(turn)].after)
        if errors:
            raise errors[0]
        return Again(TURN) if plan.due else None
