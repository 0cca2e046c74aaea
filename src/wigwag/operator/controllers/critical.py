"""Critical changes of FeatureFlags: they are reconciled first, and the pods that mount the flags are refreshed at once.

The kubelet looks at a mounted ConfigMap when it syncs a pod, which is about once a minute; a change of the pod makes it
do so at once. So after the ConfigMaps are written, an annotation of those pods gets the digest of the flags. It means
nothing to anybody else.

A namespace is a tenant here: each has a token bucket of critical changes, and beyond it changes are ordinary, which an
Event says. The hard case is an operator that may not patch pods: flags then arrive when the kubelet looks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import FEATURE_FLAG, POD
from wigwag.operator.names import FLAGS_CHANGED
from wigwag.pipeline.limit import Burst
from wigwag.sources.critical import PASSES, SECONDS

if TYPE_CHECKING:
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.names import ObjectName
    from wigwag.operator.reconcile.flags import FlagSummary
    from wigwag.pipeline.limit import Limiter

AT_ONCE = 16
"""Pods that are patched at the same time."""
MOST_NAMESPACES = 10_000
FORBIDDEN_SECONDS = 600.0
"""How long no pod is patched after the operator was told that it may not."""
log = logging.getLogger("wigwag.operator")


class CriticalFlags:
    """Which changes go first, and whose pods are not refreshed yet."""

    def __init__(self, context: ControlContext, consumers: Consumers) -> None:
        self._context, self._consumers = context, consumers
        self._clock = context.hub.kube.deps.clock
        self._limits: OrderedDict[str, Limiter] = OrderedDict()
        self._pending: set[Key] = set()
        self._forbidden_until = 0.0

    def changed(self, key: Key, before: FlagSummary | None, after: FlagSummary | None) -> bool:
        """Tell whether a change of a FeatureFlag is critical, and may go first. One that is new or gone is not."""
        if before is None or after is None or before.critical == after.critical:
            return False
        namespace = key[0]
        limit = self._limits.pop(namespace, None) or Burst(PASSES, SECONDS)
        self._limits[namespace] = limit
        if len(self._limits) > MOST_NAMESPACES:
            self._limits.popitem(last=False)
        if limit(self._clock.now()):
            message = f"critical flags of {namespace} change more than {60 / SECONDS:g} times a minute"
            message = f"{message}, so this change waits like any other; mark fewer flags as critical"
            self._context.record(FEATURE_FLAG, after.about, "Warning", "TooManyCriticalChanges", message)
            return False
        self._pending.add(key)
        return True

    def settled(self, flag: ObjectName) -> None:
        """Note that no ConfigMap is to be written, so that no pod need be refreshed."""
        self._pending.discard(flag)

    async def refresh(self, flag: ObjectName, digest: str) -> None:
        """Have the kubelet look at the ConfigMaps of a flag that has changed critically, in all pods that mount it."""
        if flag not in self._pending:
            return
        if self._clock.now() < self._forbidden_until:
            self._pending.discard(flag)
            return
        slots, change = asyncio.Semaphore(AT_ONCE), {"metadata": {"annotations": {FLAGS_CHANGED: digest}}}

        async def touch(pod: Key) -> None:
            async with slots:
                if self._clock.now() < self._forbidden_until:
                    return
                try:
                    await self._context.hub.kube.patch(POD, pod[1], change, pod[0])
                except ApiError as error:
                    if error.forbidden:
                        self._forbidden(error)
                    elif not error.not_found:
                        raise

        async with asyncio.TaskGroup() as group:
            for pod in self._consumers.mounting(flag):
                group.create_task(touch(pod))
        self._pending.discard(flag)

    def _forbidden(self, error: ApiError) -> None:
        if self._clock.now() >= self._forbidden_until:
            text = "pods that mount critical flags are not refreshed at once, which takes the kubelet a minute or more"
            log.warning("%s: %s; install the component kill-switch", text, error)
        self._forbidden_until = self._clock.now() + FORBIDDEN_SECONDS
