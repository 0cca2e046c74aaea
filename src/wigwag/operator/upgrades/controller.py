"""The controller of upgrades: agents get the operator's image, in their pods or by restarts, and a report says how far.

    pods, namespaces ─▶ plan, not more often than every `PAUSE` ─▶ patch what is due ─▶ report: log, Events, ConfigMap

There is one plan for everything, because the budget is one. In the mode `off` nothing is written; only the images are
looked at, for the metric and one line of the log.
"""

from __future__ import annotations

import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Informer
from wigwag.kube.control.queue import KeyQueue, WorkQueue
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import CONFIG_MAP, POD
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.controllers.context import MANAGER
from wigwag.operator.controllers.rolling import PacedWrite, roll_out, write_paced
from wigwag.operator.reconcile.rollout import RolloutPlanner
from wigwag.operator.reconcile.status import MOST_ITEMS
from wigwag.operator.reconcile.workloads import KINDS
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.operator.upgrades.plan import UpgradePlan, failure, plan_in_place
from wigwag.operator.upgrades.pods import read_agent_image
from wigwag.operator.upgrades.policy import UpgradePolicy
from wigwag.operator.upgrades.report import headline, report_data, report_object
from wigwag.operator.upgrades.restarts import plan_restarts
from wigwag.pipeline.limit import Interval

if TYPE_CHECKING:
    from wigwag.kube.watch.objects import Objects
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.reconcile.rollout import Rollout
    from wigwag.operator.reconcile.workloads import Workload
    from wigwag.operator.upgrades.plan import PodUpgrade
    from wigwag.operator.upgrades.pods import SidecarPod, WorkloadName
    from wigwag.operator.upgrades.watching import ObservedPods

PAUSE = 0.25
"""Seconds between two plans, at least: many pods change at once."""
AGAIN = 2.0
"""Seconds until the next plan while an upgrade is on its way: agents have a time limit."""
UNSEEN = 30.0
"""Seconds after which a patch that the watch has not shown is no longer believed."""
KEY = "sidecars"
_KINDS = {kind.kind: kind for kind in KINDS}
log = logging.getLogger("wigwag.operator.upgrades")


class UpgradeController:
    """Upgrades agents, and reports it."""

    def __init__(self, context: ControlContext, consumers: Consumers, pods: ObservedPods) -> None:
        self._context, self._consumers, self._pods = context, consumers, pods
        self._policy, self._since = UpgradePolicy.of(context.settings), context.now()
        deps = context.hub.kube.deps
        self._queue: WorkQueue[str] = WorkQueue(KeyQueue(random=deps.random, limit=Interval(PAUSE)), deps.clock)
        self._controller = Controller("upgrades", self._reconcile, self._queue, context.metrics, workers=1)
        self._sent: dict[str, float] = {}
        """When patches were sent that the watch has not shown yet, by the uid of the pod or workload."""
        self._said: tuple[str, str] | None = None
        """The last pause and headline that were logged."""
        self._reported: dict[str, str] = {}
        pods.on_change(partial(self._queue.add, KEY))

    async def run(self) -> None:
        """Work until cancelled."""
        if self._policy.mode == "off":
            await ImageCount(self._context, self._policy).run()
            return
        await self._pods.synced()
        await self._consumers.synced()
        self._queue.add(KEY)
        await self._controller.run()

    async def _reconcile(self, _: str) -> Again | None:
        plan = self._plan(self._pods.agents())
        writes = [PacedWrite(each.after, partial(self._upgrade, each)) for each in plan.pods]
        writes += [PacedWrite(each.after, partial(self._restart, each)) for each in plan.rollouts]
        errors = await write_paced(self._queue.clock, [each for each in writes if each.after < AGAIN])
        await self._report(plan, str(errors[0]) if errors else "")
        if errors:
            raise errors[0]
        return Again(AGAIN) if plan.is_busy else None

    def _plan(self, pods: list[SidecarPod]) -> UpgradePlan:
        now = self._context.now()
        self._sent = {uid: at for uid, at in self._sent.items() if now - at < UNSEEN}
        if self._policy.mode == "in-place":
            return plan_in_place(pods, self._policy, self._sent, now, self._since)
        known, settings = self._context.known.value, self._context.settings
        planner = RolloutPlanner(known=known, settings=settings, now=now, rate=self._policy.rate)
        return plan_restarts(pods, self._workload, self._policy, self._sent, planner)

    def _workload(self, name: WorkloadName) -> Workload | None:
        kind = _KINDS.get(name.kind)
        return None if kind is None else self._consumers.workload((kind, name.name))

    async def _upgrade(self, upgrade: PodUpgrade) -> None:
        """Give the agent of a pod another image; only its container is restarted."""
        pod, image = upgrade.pod, self._policy.image
        namespace, name = pod.name
        try:
            await self._context.hub.kube.patch(POD, name, upgrade.patch, namespace, how="json")
        except ApiError as error:
            is_outdated = error.invalid and not error.status.causes  # a test of the patch has failed
            if error.not_found or is_outdated:  # it is gone, or another one, or somebody has changed the image
                return
            raise
        self._sent[pod.uid] = self._context.now()
        self._context.sidecars.upgrades.add((self._policy.mode,))
        log.info("pod %s: the agent is upgraded in place from %s to %s", pod.name, pod.image, image)
        about = ObjectMeta(namespace=namespace, name=name, uid=pod.uid)
        message = f"the agent is upgraded in place from {pod.image} to {image}"
        self._context.record(POD, about, "Normal", "AgentUpgraded", message)

    async def _restart(self, rollout: Rollout) -> None:
        if await roll_out(self._context, rollout, "AgentUpgraded", f"agents have the image {self._policy.image}"):
            self._sent[rollout.workload.uid] = self._context.now()
            self._context.sidecars.upgrades.add((self._policy.mode,))

    async def _report(self, plan: UpgradePlan, trouble: str) -> None:
        """Say how far the upgrade is: in metrics at once; in the log, an Event and the ConfigMap if it is new."""
        metrics = self._context.sidecars
        metrics.states, metrics.paused = plan.states, bool(plan.paused)
        self._log(plan)
        data = report_data(self._policy, plan, trouble)
        if data != self._reported:
            report = report_object(self._context.settings.pod.namespace, data)
            await self._context.hub.kube.apply(CONFIG_MAP, report, MANAGER, force=True)
            self._reported = data

    def _log(self, plan: UpgradePlan) -> None:
        said, text = (plan.paused, "" if plan.is_busy else "done"), headline(self._policy, plan)
        if said == self._said:
            return
        was_paused = bool(self._said and self._said[0])
        self._said = said
        if plan.paused:
            log.warning("upgrades of agents pause, and nothing more is touched until it is ready: %s", plan.paused)
            for pod in plan.failed[:MOST_ITEMS]:
                about = ObjectMeta(namespace=pod.name.namespace, name=pod.name.name, uid=pod.uid)
                message = f"{failure(pod)}; no other agents are upgraded until it is"
                self._context.record(POD, about, "Warning", "AgentUpgradeFailed", message)
        else:
            log.info("upgrades of agents%s: %s", " go on" * was_paused, text)


class ImageCount:
    """How many agents have another image than the operator's, where nobody upgrades them."""

    def __init__(self, context: ControlContext, policy: UpgradePolicy) -> None:
        self._context, self._policy, self._is_said = context, policy, False
        self._count: Counter[str] = Counter()
        self._images: Informer[str] = Informer()
        self._images.on_change(self._changed)

    async def run(self) -> None:
        """Watch, until cancelled."""
        await self._images.follow(self._context.watch(KubeWatch(POD), read_agent_image))

    def _changed(self, before: Objects[str] | None, after: Objects[str]) -> None:
        for key in after.changed_since(before):
            self._count[after.get(key, "")] += 1
            if before is not None:
                self._count[before.get(key, "")] -= 1
        current = self._count[self._policy.image]
        behind = self._count.total() - self._count[""] - current
        self._context.sidecars.states = {"current": current, "behind": behind}
        if behind and not self._is_said:
            text = "%d agents have another image than %s, and stay as they are; see --sidecar-upgrade"
            log.info(text, behind, self._policy.image)
        self._is_said = bool(behind)
