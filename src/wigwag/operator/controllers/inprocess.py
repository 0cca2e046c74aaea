"""The controller of InProcessConfigurations: their status, which says who uses them. They need nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import own_key
from wigwag.kube.kinds import IN_PROCESS_CONFIGURATION
from wigwag.operator.names import ObjectName
from wigwag.operator.reconcile.sources import SourceStatuses

if TYPE_CHECKING:
    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext


class InProcessController:
    """Keeps the status of InProcessConfigurations."""

    def __init__(self, context: ControlContext, changes: KnownChanges, consumers: Consumers) -> None:
        self._context, self._consumers, self._namespaces = context, consumers, changes.namespaces
        self._queue: WorkQueue[Key] = context.queue()
        self._controller = Controller("in-process", self._reconcile, self._queue, context.metrics)
        changes.configurations.feed(self._queue.add, own_key)
        consumers.feed_named(self._queue.add)
        changes.feed_moved(self._queue.add, changes.configurations)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._consumers.synced()
        await self._controller.run()

    async def _reconcile(self, key: Key) -> Again | None:
        context, name = self._context, ObjectName(*key)
        known = context.known.value
        if not self._namespaces.owns(name.namespace):
            return None
        if unreadable := known.unreadable_configuration(name):
            await context.report_unreadable(IN_PROCESS_CONFIGURATION, unreadable)
            return None
        configuration = known.in_process_configuration(name)
        if configuration is None:
            return None
        statuses = SourceStatuses(known=known, settings=context.settings, now=context.now())
        status = statuses.of_in_process(name, configuration, self._consumers.naming(name))
        await context.report(IN_PROCESS_CONFIGURATION, configuration.metadata, configuration.status, status)
        return None
