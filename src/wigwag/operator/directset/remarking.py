"""The controller of remarks on workloads: what has become of their annotations, as flags change.

    workload, FeatureFlags that its agents use ─▶ queue ─▶ remarks ─▶ patch `metadata` if they differ ─▶ retry pods

Only annotations of the workload itself are written, so no pod restarts. What a user writes there is replaced. One
worker does all of it: a FeatureFlag that a thousand workloads follow changes their remarks one by one, at the pace of
the API server, and holds up nothing else.

The write is reviewed by the webhook for workloads like any other. So a workload from before the webhook was there, or
from a time when nobody answered, gets the marks in its pod template by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.errors import ApiError
from wigwag.operator.controllers.managed import RETRY
from wigwag.operator.controllers.rolling import retry_pods
from wigwag.operator.directset.generated import Carrier
from wigwag.operator.directset.remarks import Configured, agent_remarks, config_of_flags, in_process_remarks
from wigwag.operator.names import REMARKS, ObjectName
from wigwag.operator.reconcile.rollout import RolloutPlanner
from wigwag.operator.reconcile.usage import agent_spec, usable_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.consumers import Consumer, Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.directset.controller import DirectSetController
    from wigwag.operator.reconcile.flags import FlagSummary
    from wigwag.operator.reconcile.workloads import Workload

_UNMARKED = "its pods get no agent, because no webhook has reviewed it: look for workloads.openfeature.dev"


class RemarkController:
    """Keeps the remarks on workloads, and retries pods that were refused for want of a FeatureFlag."""

    def __init__(
        self, context: ControlContext, changes: KnownChanges, consumers: Consumers, direct: DirectSetController
    ) -> None:
        self._context, self._consumers, self._direct = context, consumers, direct
        self._namespaces = changes.namespaces
        self._queue: WorkQueue[Carrier] = context.queue()
        self._controller = Controller("remarks", self._reconcile, self._queue, context.metrics, workers=1)
        consumers.feed_workloads(self._workload_changed)
        changes.flags.feed(self._queue.add, self._followers)
        direct.on_problem(self._queue.add)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._consumers.synced()
        await self._controller.run()

    def _workload_changed(self, consumer: Consumer) -> None:
        kind, key = consumer
        self._queue.add(Carrier(kind, ObjectName(*key)))

    def _followers(self, key: Key, _: FlagSummary) -> Iterator[Carrier]:
        for kind, name in self._consumers.following(ObjectName(*key)):
            yield Carrier(kind, ObjectName(*name))

    async def _reconcile(self, carrier: Carrier) -> Again | None:
        workload = self._consumers.workload(carrier)
        if workload is None or workload.deleting or not self._namespaces.owns(carrier.name.namespace):
            return None
        planner, wanted = self._planner(), None
        if _is_remarkable(workload):
            known = self._direct.problem_of(carrier)
            problem = known or _unmarked(workload) or planner.refusal(workload)
            if (workload.carried and known is None) or (not problem and self._is_pending(workload)):
                return None  # what is missing comes, and is a change
            wanted = self._remarks(workload, problem)
        if wanted != workload.remarks:
            await self._write(workload, wanted)
        if not workload.flags.names:
            return None  # the controller of its sources has pods created again
        if planner.is_retried(workload):
            await retry_pods(self._context, workload)
        return Again(RETRY) if workload.refused_since else None

    def _planner(self) -> RolloutPlanner:
        context = self._context
        return RolloutPlanner(known=context.known.value, settings=context.settings, now=context.now(), rate=1.0)

    def _remarks(self, workload: Workload, problem: str) -> str:
        known, settings, namespace = self._context.known.value, self._context.settings, workload.name.namespace
        if workload.mode == "in-process":
            return in_process_remarks(namespace, workload.named)
        spec = agent_spec(workload, usable_sources(workload, known, settings), settings)
        about = Configured(namespace, workload.named, workload.flags, spec)

        def digest_of(name: ObjectName) -> str:
            flag: FlagSummary | None = known.flags.get(name)
            return "" if flag is None else flag.status.digest

        return agent_remarks(about, config_of_flags(about, digest_of), problem)

    def _is_pending(self, workload: Workload) -> bool:
        """Tell whether a digest of its flags is still that of what they were before, or missing."""
        flags = [self._context.known.value.flags.get(name) for name in workload.flags.names]
        return any(each is None or each.status.observed_generation != each.about.generation for each in flags)

    async def _write(self, workload: Workload, remarks: str | None) -> None:
        """Write remarks, or remove them. A refusal of a webhook is an error like any other: logged, and retried."""
        namespace, name = workload.name
        change = {"metadata": {"uid": workload.uid, "annotations": {REMARKS: remarks}}}
        try:
            await self._context.hub.kube.patch(workload.kind, name, change, namespace)
        except ApiError as error:
            if not (error.not_found or error.conflict):  # it is gone, or another one
                raise


def _is_remarkable(workload: Workload) -> bool:
    """Tell whether there is something to say: flags that it carries or follows, or what somebody else has said."""
    if workload.mode not in ("sidecar", "in-process"):
        return bool(workload.carried)
    return bool(workload.flags.names or workload.carried or workload.remarks is not None)


def _unmarked(workload: Workload) -> str:
    return _UNMARKED if workload.carried and workload.flags.direct is None else ""
