"""The controllers together, on the replica that leads: made when it begins to lead, and dropped when it ends.

So a replica that waits watches nothing but what admission needs, and one that leads again starts from what there is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from wigwag.operator.controllers.access import AccessController
from wigwag.operator.controllers.changes import KnownChanges
from wigwag.operator.controllers.consumers import Consumers
from wigwag.operator.controllers.flagd import FlagdController
from wigwag.operator.controllers.flags import FlagController
from wigwag.operator.controllers.inprocess import InProcessController
from wigwag.operator.controllers.managed import ManagedObjects
from wigwag.operator.controllers.namespaces import Namespaces
from wigwag.operator.controllers.propagation import PropagationController
from wigwag.operator.controllers.proxy import ProxyController
from wigwag.operator.controllers.proxytrust import ProxyTrustController
from wigwag.operator.controllers.sources import SourceController
from wigwag.operator.directset.controller import DirectSetController
from wigwag.operator.directset.remarking import RemarkController
from wigwag.operator.upgrades.controller import UpgradeController
from wigwag.operator.upgrades.watchdog import Watchdog
from wigwag.operator.upgrades.watching import ObservedPods

if TYPE_CHECKING:
    from wigwag.operator.controllers.context import ControlContext


async def run_controllers(context: ControlContext) -> None:
    """Run all controllers until cancelled; not before the objects that admission asks about are known."""
    await context.known.changed(0)
    namespaces = Namespaces(context.settings.options)
    changes = KnownChanges(context.known, context.settings, namespaces)
    consumers, managed = Consumers(context, changes), ManagedObjects(context)
    pods = ObservedPods(context, namespaces)
    direct = DirectSetController(context, changes, consumers)
    parts = (
        FlagdController(context, changes, managed),
        ProxyController(context, changes, managed, consumers),
        ProxyTrustController(context, consumers, namespaces),
        FlagController(context, changes, consumers),
        SourceController(context, changes, consumers),
        InProcessController(context, changes, consumers),
        AccessController(context, changes, consumers),
        PropagationController(context, changes, consumers),
        UpgradeController(context, consumers, pods),
        Watchdog(context, consumers, pods),
        pods,
        direct,
        RemarkController(context, changes, consumers, direct),
        managed,
        consumers,
        changes,  # last: all listeners are registered
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(namespaces.run(context.watch))
        if context.settings.options.revision:  # whose an object is has to be known before anything is written
            await namespaces.synced()
        for part in parts:
            group.create_task(part.run())
