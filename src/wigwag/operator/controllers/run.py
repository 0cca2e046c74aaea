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
from wigwag.operator.controllers.proxy import ProxyController
from wigwag.operator.controllers.proxytrust import ProxyTrustController
from wigwag.operator.controllers.sources import SourceController

if TYPE_CHECKING:
    from wigwag.operator.controllers.context import ControlContext


async def run_controllers(context: ControlContext) -> None:
    """Run all controllers until cancelled; not before the objects that admission asks about are known."""
    await context.known.changed(0)
    changes = KnownChanges(context.known, context.settings)
    consumers, managed = Consumers(context, changes), ManagedObjects(context)
    parts = (
        FlagdController(context, changes, managed),
        ProxyController(context, changes, managed),
        ProxyTrustController(context, consumers),
        FlagController(context, changes, consumers),
        SourceController(context, changes, consumers),
        InProcessController(context, changes, consumers),
        AccessController(context, changes, consumers),
        managed,
        consumers,
        changes,  # last: all listeners are registered
    )
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part.run())
