"""Has pods of workloads created: all anew, as `kubectl rollout restart` does, or at once those that were refused.

Who has a reason for a rollout makes its patch; writes are paced. Pods that were refused, and would not be now, come
with the next attempt of their controller, which may be minutes away: their Deployment is touched, so that it looks.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from wigwag.errors import WigwagError
from wigwag.kube.errors import ApiError
from wigwag.operator.names import PODS_RETRIED
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.pipeline.clock import sleep_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.reconcile.rollout import Rollout
    from wigwag.operator.reconcile.workloads import Workload
    from wigwag.pipeline.clock import Clock

AT_ONCE = 10
"""How many patches are sent at a time: enough for the rate if the server takes 100 ms for each."""
log = logging.getLogger(__name__)


class PacedWrite(NamedTuple):
    """A write, and when it is due."""

    after: float
    """Seconds from now."""
    send: Callable[[], Awaitable[object]]


async def write_paced(clock: Clock, writes: Iterable[PacedWrite]) -> list[WigwagError]:
    """Send writes, each at its time; return what went wrong, so that one does not hold up the others."""
    slots, started, errors = asyncio.Semaphore(AT_ONCE), clock.now(), list[WigwagError]()

    async def send(write: PacedWrite) -> None:
        await sleep_until(clock, started + write.after)
        async with slots:
            try:
                await write.send()
            except WigwagError as error:
                errors.append(error)

    async with asyncio.TaskGroup() as group:
        for write in writes:
            group.create_task(send(write))
    return errors


async def roll_out(context: ControlContext, rollout: Rollout, reason: str, why: str) -> bool:
    """Patch a workload and record an Event; tell whether it was rolled, and not gone or rolled by somebody else."""
    workload = rollout.workload
    namespace, name = workload.name
    try:
        await context.hub.kube.patch(workload.kind, name, rollout.patch, namespace, how="json")
    except ApiError as error:
        if error.not_found or error.invalid:  # it is gone, or has been rolled: the next plan is made from that
            return False
        raise
    log.info("%s is rolled out: %s", workload, why)
    about = ObjectMeta(namespace=namespace, name=name, uid=workload.uid)
    context.record(workload.kind, about, "Normal", reason, f"new pods are made, because {why}")
    return True


async def retry_pods(context: ControlContext, workload: Workload) -> None:
    """Have the pods of a Deployment created now, and not after the back-off of its controllers."""
    namespace, name = workload.name
    metadata = {"uid": workload.uid, "annotations": {PODS_RETRIED: workload.refused_since}}
    try:
        await context.hub.kube.patch(workload.kind, name, {"metadata": metadata}, namespace)
    except ApiError as error:
        if error.not_found or error.conflict:  # it is gone, or another one
            return
        raise
    log.info("%s: its pods were refused, and are created now: what they need is there", workload)
