"""The controller of Flagds: Deployment, Service, Ingress and routes as `reconcile.flagd` plans them.

    Flagd, its objects, its source and what that refers to ─▶ queue ─▶ plan ─▶ apply, remove ─▶ status, Events

It is level-triggered: whatever changes, the whole plan is made again, and nothing is written if all is as planned. A
child that is deleted or edited by hand changes its owner's key, so it is repaired at once. Children of a deleted Flagd
go by garbage collection, and are not made again while a finalizer keeps the Flagd.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Index, Informer, own_key, owner_key
from wigwag.kube.kinds import DEPLOYMENT, FLAGD
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.controllers.context import UNSEEN
from wigwag.operator.controllers.managed import RETRY
from wigwag.operator.reconcile.flagd import flagd_sources, flagd_status, plan_flagd
from wigwag.operator.resources.unreadable import UnreadableFlagd, decode_flagd

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.controllers.managed import ManagedObjects
    from wigwag.operator.resources.flagd import Flagd


class FlagdController:
    """Keeps what Flagds ask for."""

    def __init__(self, context: ControlContext, changes: KnownChanges, managed: ManagedObjects) -> None:
        self._context, self._managed, self._namespaces = context, managed, changes.namespaces
        self._queue: WorkQueue[Key] = context.queue()
        self._controller = Controller("flagd", self._reconcile, self._queue, context.metrics)
        self._flagds: Informer[Flagd] = Informer()
        self._by_source = Index(self._flagds, _source)
        self._flagds.feed(self._queue.add, own_key)
        managed.feed(self._queue.add, owner_key(FLAGD))
        changes.feed_sources(self._source_changed, self._users)
        changes.feed_moved(self._queue.add, self._flagds)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flagds.follow(self._context.watch(KubeWatch(FLAGD), decode_flagd)))
            await self._flagds.synced()
            await self._managed.synced()
            group.create_task(self._controller.run())

    def _source_changed(self, source: Key) -> None:
        for key in self._by_source[source]:
            self._queue.add(key)

    def _users(self, source: Key) -> set[str]:
        return {namespace for namespace, _ in self._by_source[source]}

    async def _reconcile(self, key: Key) -> Again | None:
        flagd, context = self._flagds.get(key), self._context
        if flagd is None or flagd.metadata.deletion_timestamp:  # its objects go with it, or become orphans
            return None
        if not self._namespaces.owns(key[0]):
            return None
        if isinstance(flagd, UnreadableFlagd):
            await context.report_unreadable(FLAGD, flagd)
            return None
        plan = plan_flagd(flagd, context.known.value, context.settings, context.now())
        refusals = await self._managed.apply(plan.apply)
        for kind in plan.remove:
            await self._managed.remove(kind, key)
        status = flagd_status(flagd, plan, self._managed.get(DEPLOYMENT, key), refusals, context.now())
        await context.report(FLAGD, flagd.metadata, flagd.status, status)
        if refusals:
            return Again(RETRY)
        return Again(UNSEEN) if self._managed.unseen(plan.apply) else None


def _source(_: Key, flagd: Flagd) -> Iterable[Key]:
    return flagd_sources(flagd)
