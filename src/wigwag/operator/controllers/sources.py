"""The controller of FeatureFlagSources: workloads rolled when one changes, refused pods retried, and its status.

    source, what it refers to, workloads that name it ─▶ queue ─▶ plan ─▶ patch the workloads that are due ─▶ status

Rollouts are paced. One turn patches those that are due within a second, then the plan is made again from what there is:
so a turn is short, an edit of the source in between counts at once, and another leader goes on where this one ended. A
turn lasts until the next rollout is due, since its own patches are changes that begin another turn.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from wigwag.errors import WigwagError
from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import FEATURE_FLAG_SOURCE
from wigwag.operator.controllers.retries import retry_pods
from wigwag.operator.names import ObjectName
from wigwag.operator.reconcile.rollout import RolloutPlanner
from wigwag.operator.reconcile.sources import SourceStatuses
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.pipeline.clock import sleep_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.reconcile.rollout import Rollout

TURN = 1.0
"""Seconds of rollouts in one turn."""
AT_ONCE = 10
"""How many patches are sent at a time: enough for the rate if the server takes 100 ms for each."""
log = logging.getLogger(__name__)


class SourceController:
    """Rolls workloads, and keeps the status of FeatureFlagSources."""

    def __init__(self, context: ControlContext, changes: KnownChanges, consumers: Consumers) -> None:
        self._context, self._consumers = context, consumers
        self._queue: WorkQueue[Key] = context.queue()
        self._controller = Controller("sources", self._reconcile, self._queue, context.metrics)
        changes.feed_sources(self._queue.add, consumers.namespaces)
        consumers.feed_named(self._queue.add)

    async def run(self) -> None:
        """Work until cancelled. A status says that no workload is behind, so all of them have to be known first."""
        await self._consumers.synced()
        await self._controller.run()

    async def _reconcile(self, key: Key) -> Again | None:
        context, name = self._context, ObjectName(*key)
        known, settings, now = context.known.value, context.settings, context.now()
        if unreadable := known.unreadable_source(name):
            await context.report_unreadable(FEATURE_FLAG_SOURCE, unreadable)
            return None
        source = known.feature_flag_source(name)
        if source is None:
            return None
        workloads = self._consumers.naming(name)
        rate = float(settings.options.rollout_rate)
        planner = RolloutPlanner(known=known, settings=settings, now=now, rate=rate)
        plan = planner.plan(name, workloads)
        for workload in planner.retries(name, workloads):
            await retry_pods(context, workload)
        started, turn = self._queue.clock.now(), [each for each in plan.due if each.after < TURN]
        errors = await self._roll(name, turn)
        status = SourceStatuses(known=known, settings=settings, now=now).of_source(name, source, workloads, plan)
        await context.report(FEATURE_FLAG_SOURCE, source.metadata, source.status, status)
        if len(turn) < len(plan.due):
            await sleep_until(self._queue.clock, started + plan.due[len(turn)].after)
        if errors:
            raise errors[0]
        return Again(TURN) if plan.due else None

    async def _roll(self, source: ObjectName, rollouts: Sequence[Rollout]) -> list[WigwagError]:
        """Patch workloads, each at its time; return what went wrong."""
        clock, slots = self._queue.clock, asyncio.Semaphore(AT_ONCE)
        started, errors = clock.now(), list[WigwagError]()

        async def roll(rollout: Rollout) -> None:
            await sleep_until(clock, started + rollout.after)
            async with slots:
                try:
                    await self._patch(source, rollout)
                except WigwagError as error:
                    errors.append(error)

        async with asyncio.TaskGroup() as group:
            for rollout in rollouts:
                group.create_task(roll(rollout))
        return errors

    async def _patch(self, source: ObjectName, rollout: Rollout) -> None:
        workload = rollout.workload
        namespace, name = workload.name
        try:
            await self._context.hub.kube.patch(workload.kind, name, rollout.patch, namespace, how="json")
        except ApiError as error:
            if error.not_found or error.invalid:  # it is gone, or has been rolled: the next plan is made from that
                return
            raise
        log.info("%s is rolled out: FeatureFlagSource %s has changed", workload, source)
        about = ObjectMeta(namespace=namespace, name=name, uid=workload.uid)
        message = f"new pods are made, because FeatureFlagSource {source} has changed"
        self._context.record(workload.kind, about, "Normal", "FlagSourceChanged", message)
