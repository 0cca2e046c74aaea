"""The controller of propagation: asks agents which flags they have, and says in FeatureFlags how far they have come.

    a flag has another digest ─▶ the pods that use it ─▶ queue ─▶ ask ─▶ AgentState ─┐
    a pod comes, restarts, goes ─────────────────────────▲─── not current: back-off  ├─▶ flags ─▶ progress ─▶ status
                                                                                     │
    an answer that changes something ────────────────────────────────────────────────┘

An agent is asked once for all its flags. While all have what they should, nothing happens but a question to each in a
few minutes. A status is written when it says something new: after a moment in which answers are gathered, and then the
less often the longer it takes.

The hard cases: a flag is not reported before each of its agents was asked once, so a restart of the operator takes
nothing back; pods of other namespaces count only if the flag allows their use, so nobody can hold up the flags of
others; and the status is applied as a field manager of its own, because the controller of FeatureFlags writes the rest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Index
from wigwag.kube.control.queue import KeyQueue, WorkQueue
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import FEATURE_FLAG
from wigwag.operator.injection.known import refusal
from wigwag.operator.names import ObjectName
from wigwag.operator.propagation.pods import used_flags
from wigwag.operator.propagation.progress import (
    GATHER,
    LAGGING,
    AgentState,
    Progress,
    WritePace,
    next_question,
    progress,
    standing,
    wanted_digest,
)
from wigwag.operator.reconcile.status import PROPAGATED, conditions, events
from wigwag.pipeline.limit import Burst

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.kube.watch.decode import Key
    from wigwag.kube.watch.objects import Objects
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.propagation.pods import ConsumingPod
    from wigwag.operator.reconcile.flags import FlagSummary

MANAGER = "wigwag-propagation"
"""The field manager of `status.agents` and the condition `Propagated`."""
ASKING = 32
"""Agents that are asked at the same time."""
ASKS = (100, 0.002)
"""A burst of questions, and the seconds between two when it is used up."""
STATUSES = (20, 0.05)
"""The same for writes of a status."""


class PropagationController:
    """Keeps what the status of FeatureFlags says about agents."""

    def __init__(self, context: ControlContext, changes: KnownChanges, consumers: Consumers) -> None:
        self._context, self._changes, self._consumers = context, changes, consumers
        deps = context.hub.kube.deps
        self._random, self._clock = deps.random, deps.clock
        self._pods: WorkQueue[Key] = WorkQueue(KeyQueue(limit=Burst(*ASKS)), deps.clock)
        self._flags: WorkQueue[Key] = WorkQueue(KeyQueue(random=deps.random, limit=Burst(*STATUSES)), deps.clock)
        self._controller = Controller("propagation", self._report, self._flags, context.metrics)
        self._states: dict[Key, AgentState] = {}
        self._paces: dict[Key, WritePace] = {}
        self._using = Index(consumers.pods, used_flags)
        consumers.pods.on_change(self._pods_changed)
        changes.flags.on_change(self._flags_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._consumers.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            for number in range(ASKING):
                group.create_task(self._ask_next(), name=f"asks agents {number}")

    def _pods_changed(self, before: Objects[ConsumingPod] | None, after: Objects[ConsumingPod]) -> None:
        for key in after.changed_since(before):
            earlier = before.get(key) if before is not None else None
            now: ConsumingPod | None = after.get(key)
            if (earlier and earlier.agent) == (now and now.agent):
                continue
            self._states.pop(key, None)
            for pod in (earlier, now):
                for flag in used_flags(key, pod) if pod else ():
                    self._flags.add_after(flag, GATHER)
            if now is not None and now.agent is not None:
                self._pods.add(key)

    def _flags_changed(self, before: Objects[FlagSummary] | None, after: Objects[FlagSummary]) -> None:
        for key in after.changed_since(before):
            earlier: FlagSummary | None = before.get(key) if before is not None else None
            now: FlagSummary | None = after.get(key)
            if now is None:
                self._paces.pop(key, None)
                continue
            digest = wanted_digest(now)
            if digest and (earlier is None or wanted_digest(earlier) != digest):
                self._ask_all(key)
            if digest:
                self._flags.add_after(key, GATHER)

    def _ask_all(self, flag: Key) -> None:
        """Ask the agents of a flag soon; those that do not answer wait for their turn."""
        for key in self._using[ObjectName(*flag)]:
            state = self._states.get(key)
            if state is not None and state.problem is None:
                self._states[key] = state._replace(attempts=0)
                self._pods.add_after(key, LAGGING.pause(0, self._random))

    async def _ask_next(self) -> None:
        while True:
            async with self._pods.next() as key:
                await self._ask(key)

    async def _ask(self, key: Key) -> None:
        pod = self._consumers.pods.get(key)
        if pod is None or pod.agent is None:
            return
        asked = await self._context.agents.ask(pod.agent.address, pod.agent.port)
        self._context.propagation.count(asked)
        if self._consumers.pods.get(key) != pod:  # it has changed meanwhile, and is in the queue again
            return
        before = self._states.get(key)
        state = (before or AgentState(pod.agent)).after(asked)
        behind = False
        for flag in used_flags(key, pod):
            summary = self._changes.flags.get(flag)
            digest = wanted_digest(summary) if summary else ""
            if digest:
                found = standing(state, flag, digest)
                behind |= bool(found.reason)
                if before is None or standing(before, flag, digest) != found:
                    self._flags.add_after(flag, GATHER)
        self._pods.add_after(key, next_question(state, behind, self._random))
        self._states[key] = state._replace(attempts=state.attempts + 1 if behind else 0)

    async def _report(self, key: Key) -> Again | None:
        name, summary = ObjectName(*key), self._changes.flags.get(key)
        digest = wanted_digest(summary) if summary else ""
        if summary is None or not digest:
            return None
        states = list(self._counted(name, summary))
        if any(state is None for _, state in states):
            return None  # it is added again when they have answered
        found = progress(name, digest, summary.about.generation, [(pod, state) for pod, state in states if state])
        if not self._is_news(summary, found):
            return None
        pace, now = self._paces.get(key, WritePace()), self._clock.now()
        if wait := pace.wait(now, done=found.done):
            return Again(wait)
        await self._write(summary, found)
        self._paces[key] = pace.after(self._clock.now(), done=found.done)
        return None

    def _counted(self, flag: ObjectName, summary: FlagSummary) -> Iterator[tuple[ObjectName, AgentState | None]]:
        """Yield the pods that use a flag, and may, with what is known of their agents."""
        policy = self._context.settings.options.cross_namespace
        for key in self._using[flag]:
            if not refusal("FeatureFlag", flag, summary.about, key[0], policy):
                yield ObjectName(*key), self._states.get(key)

    def _is_news(self, summary: FlagSummary, found: Progress) -> bool:
        said = next((each for each in summary.status.conditions if each.type == PROPAGATED), None)
        state = found.condition()
        same = said is not None and (said.status, said.reason, said.message) == state
        return not same or summary.status.agents != found.status()

    async def _write(self, summary: FlagSummary, found: Progress) -> None:
        about, before = summary.about, summary.status.conditions
        after = conditions(before, {PROPAGATED: found.condition()}, about.generation, self._context.now())
        body = {
            "apiVersion": FEATURE_FLAG.api,
            "kind": FEATURE_FLAG.kind,
            "metadata": {"namespace": about.namespace, "name": about.name, "uid": about.uid},
            "status": {"agents": msgspec.to_builtins(found.status()), "conditions": msgspec.to_builtins(after)},
        }
        try:
            await self._context.hub.kube.apply(FEATURE_FLAG, body, MANAGER, force=True, subresource="status")
        except ApiError as error:
            if error.not_found or error.conflict:  # it is gone, or another one
                return
            raise
        self._context.propagation.writes.add()
        for event in events([each for each in before if each.type == PROPAGATED], after):
            self._context.record(FEATURE_FLAG, about, event.type, event.reason, event.message)
