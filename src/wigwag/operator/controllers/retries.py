"""Pods that were refused, and would not be now: their Deployment is touched, so that its controllers look at once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from wigwag.kube.errors import ApiError
from wigwag.operator.names import PODS_RETRIED

if TYPE_CHECKING:
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.reconcile.workloads import Workload

log = logging.getLogger(__name__)


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
