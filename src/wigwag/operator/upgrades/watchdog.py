"""The watchdog: pods that ask for an agent and were created without one are evicted, on the replica that leads.

    every interval, or once: missed pods ─▶ queue ─▶ would admission give it an agent now? ─▶ guard ─▶ Eviction API

The decision is that of admission, on the pod as it is. A pod that would be refused stays, since none would come after
it. The Eviction API respects PodDisruptionBudgets: one that forbids it answers 429, and the pod is tried again after a
back-off. A pod without a controller is never evicted, because nobody would create it again; an Event says so.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Literal

from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.queue import KeyQueue, WorkQueue
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import POD
from wigwag.operator.admission.registration import SYSTEM_NAMESPACES
from wigwag.operator.injection.decide import PodRequest, admit_pod
from wigwag.operator.injection.verdict import Allowed
from wigwag.operator.reconcile.workloads import KINDS
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.operator.upgrades.missed import EvictionFinding, EvictionGuard
from wigwag.options import duration
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.limit import Burst

if TYPE_CHECKING:
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.upgrades.pods import MissedPod
    from wigwag.operator.upgrades.watching import ObservedPods

WAIT = 1.0
"""Seconds until a pod that has to wait for another one is looked at again."""
BLOCKED = Backoff(first=5.0, most=300.0)
"""Of a pod whose eviction a PodDisruptionBudget forbids."""
TIMEOUT = 60.0
"""Seconds that a look at a pod may take, beside the wait for its turn."""
BARE = EvictionFinding("leave", "it has no controller, so nobody would create it again; delete and create it")
MOST_LEFT = 10_000
"""The most pods of which it is remembered why they were left alone."""
_KINDS = {kind.kind: kind for kind in KINDS}
log = logging.getLogger("wigwag.operator.watchdog")


class Watchdog:
    """Looks for missed pods, and evicts them."""

    def __init__(self, context: ControlContext, consumers: Consumers, pods: ObservedPods) -> None:
        self._context, self._consumers, self._pods = context, consumers, pods
        options = context.settings.options
        self._mode, self._guard = options.watchdog, EvictionGuard()
        deps, interval = context.hub.kube.deps, 60.0 / options.watchdog_rate
        self._limit = Burst(1, interval)
        self._queue: WorkQueue[Key] = WorkQueue(KeyQueue(BLOCKED, deps.random), deps.clock)
        timeout = interval + TIMEOUT
        self._controller = Controller("watchdog", self._reconcile, self._queue, context.metrics, 1, timeout)
        self._left: dict[str, str] = {}
        """Why pods were left alone, by uid: each reason is said once."""

    async def run(self) -> None:
        """Work until cancelled."""
        if self._mode == "off":
            return
        await self._pods.synced()
        await self._consumers.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look())
            group.create_task(self._controller.run())

    async def _look(self) -> None:
        """Have all missed pods looked at: once, or in an interval."""
        while True:
            missed = self._pods.missed()
            self._context.sidecars.missed = len(missed)
            for pod in missed:
                self._queue.add(pod.name)
            if self._mode == "once":
                return
            clock = self._queue.clock
            await sleep_until(clock, clock.now() + duration(self._mode))

    async def _reconcile(self, key: Key) -> Again | None:
        finding = await self._look_at(key)
        if finding.action == "evict":
            await self._turn()
            finding = await self._look_at(key)  # again: other pods may have shown something meanwhile
        if finding.action == "evict" and (pod := self._pods.missed_pod(key)):
            agents, missed = self._pods.agents(), self._pods.missed()
            if await self._evict(pod):
                self._guard = self._guard.after(pod, agents, missed)
        return Again(WAIT) if finding.action == "wait" else None

    async def _turn(self) -> None:
        """Wait until another pod may be evicted."""
        clock = self._queue.clock
        while wait := self._limit(clock.now()):
            await sleep_until(clock, clock.now() + max(wait, 0.0))

    async def _look_at(self, key: Key) -> EvictionFinding:
        """Return what becomes of a pod; if it is left alone, say why."""
        pod, missed = self._pods.missed_pod(key), self._pods.missed()
        self._context.sidecars.missed = len(missed)
        if pod is None or pod.name.namespace in (*SYSTEM_NAMESPACES, self._context.settings.pod.namespace):
            return EvictionFinding("leave")
        finding = self._guard.finding(pod, self._pods.agents(), missed) if pod.workload.kind else BARE
        if finding.action == "evict":
            finding = await self._admitted(pod)
        if finding.reason:
            self._leave(pod, finding.reason)
        return finding

    async def _admitted(self, pod: MissedPod) -> EvictionFinding:
        """Ask admission about a new pod like this one, which is evicted only if that would get an agent."""
        live = await self._context.hub.kube.find(POD, pod.name.name, pod.name.namespace)
        if live is None or live["metadata"]["uid"] != pod.uid:  # it is gone
            return EvictionFinding("leave")
        request = PodRequest(object=live, namespace=pod.name.namespace, now=self._context.now())
        verdict = admit_pod(request, self._context.known.value, self._context.settings)
        if isinstance(verdict, Allowed):
            return EvictionFinding("evict" if verdict.patch else "leave")
        return EvictionFinding("leave", f"a new pod would be refused: {verdict.message}")

    async def _evict(self, pod: MissedPod) -> bool:
        """Evict a pod; tell whether it was, and not gone before."""
        namespace, name = pod.name
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        evictions = self._context.sidecars.evictions
        try:
            await self._context.hub.kube.create(POD, body, namespace, name, "eviction")
        except ApiError as error:
            if error.not_found or error.conflict:  # it is gone, or another one
                return False
            evictions.add(("blocked" if error.busy else "refused",))
            raise
        evictions.add(("evicted",))
        log.info("pod %s: it was created without an agent, and is evicted", pod.name)
        self._record(pod, "Normal", "AgentMissing", f"pod {name} was created without an agent, and is evicted")
        return True

    def _leave(self, pod: MissedPod, reason: str) -> None:
        """Say why a pod stays as it is."""
        if self._left.get(pod.uid) == reason:
            return
        if len(self._left) >= MOST_LEFT:
            self._left.clear()
        self._left[pod.uid] = reason
        log.warning("pod %s has no agent, and is not evicted: %s", pod.name, reason)
        message = f"pod {pod.name.name} has no agent, and is not evicted: {reason}"
        self._record(pod, "Warning", "AgentMissing", message)

    def _record(self, pod: MissedPod, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Record an Event about the workload of a pod; about the pod, if it is of no kind that is known."""
        kind, name, uid = POD, pod.name, pod.uid
        if owner := _KINDS.get(pod.workload.kind):
            workload = self._consumers.workload((owner, pod.workload.name))
            if workload is not None:
                kind, name, uid = owner, workload.name, workload.uid
        about = ObjectMeta(namespace=name.namespace, name=name.name, uid=uid)
        self._context.record(kind, about, type, reason, message)
