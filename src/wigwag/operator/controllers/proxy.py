"""The controller of the proxy: deployed when a source or a workload needs it, and kept as `reconcile.proxy` plans it.

There is one proxy, so there is one key. What it needs to know is the sources that need it, who owns it, and its own
objects; a change of any of these is a reason to look. The proxy is never removed while the operator lives, because
agents may be connected.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Informer
from wigwag.kube.kinds import DEPLOYMENT
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.controllers.context import UNSEEN
from wigwag.operator.controllers.managed import RETRY
from wigwag.operator.names import OPERATOR_DEPLOYMENT, PROXY, PROXY_BUDGET, PROXY_SERVICE
from wigwag.operator.observed import metadata
from wigwag.operator.reconcile.proxy import plan_proxy
from wigwag.operator.resources.featureflagsource import FLAGD_PROXY

if TYPE_CHECKING:
    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.controllers.managed import ManagedObjects
    from wigwag.operator.reconcile.usage import FlagUse
    from wigwag.operator.resources.kubernetes import ObjectMeta

log = logging.getLogger(__name__)


class ProxyController:
    """Keeps the proxy."""

    def __init__(
        self, context: ControlContext, changes: KnownChanges, managed: ManagedObjects, consumers: Consumers
    ) -> None:
        self._context, self._changes, self._managed, self._uses = context, changes, managed, consumers.uses
        self._queue: WorkQueue[str] = context.queue()
        self._controller = Controller(PROXY, self._reconcile, self._queue, context.metrics, workers=1)
        self._namespace, self._problem = context.settings.pod.namespace, ""
        self._owner: Informer[ObjectMeta] = Informer()
        self._owner.feed(self._queue.add, lambda *_: (PROXY,))
        changes.sources.feed(self._queue.add, changes.proxy_key)
        managed.feed(self._queue.add, self._own_objects)
        consumers.on_use(self._use_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        owner = KubeWatch(DEPLOYMENT, self._namespace, OPERATOR_DEPLOYMENT, metadata_only=True)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._owner.follow(self._context.watch(owner, metadata)))
            await self._owner.synced()
            await self._managed.synced()
            group.create_task(self._controller.run())

    def _use_changed(self, use: FlagUse) -> None:
        if use.provider == FLAGD_PROXY:
            self._queue.add(PROXY)

    def _own_objects(self, key: Key, _: Any) -> list[str]:
        is_ours = key[0] == self._namespace and key[1] in (PROXY, PROXY_SERVICE, PROXY_BUDGET)
        return [PROXY] if is_ours else []

    async def _reconcile(self, _: str) -> Again | None:
        owner = self._owner.get((self._namespace, OPERATOR_DEPLOYMENT))
        specs = [each.spec for each in self._changes.sources_through_proxy()]
        used = any(use.provider == FLAGD_PROXY for use in self._uses)
        plan = plan_proxy(specs, owner, self._context.settings, used=used)
        problems = [plan.problem] if plan.problem else []
        refusals = await self._managed.apply(plan.apply)
        self._say("; ".join([*problems, *refusals]), owner)
        if refusals:
            return Again(RETRY)
        return Again(UNSEEN) if self._managed.unseen(plan.apply) else None

    def _say(self, problem: str, owner: ObjectMeta | None) -> None:
        """Log a problem, and record an Event about it, when it is another one than last time."""
        if problem and problem != self._problem:
            log.warning("%s", problem)
            if owner is not None:
                self._context.record(DEPLOYMENT, owner, "Warning", "ProxyNotDeployed", problem)
        self._problem = problem
