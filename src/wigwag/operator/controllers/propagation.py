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
others; and only this part of the status is patched, because the controller of FeatureFlags writes the rest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Index
from wigwag.kube.control.queue import KeyQueue, WorkQueue
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import FEATURE_FLAG
from wigwag.operator.injection.known import refusal
from wigwag.operator.names import ObjectName
from wigwag.operator.propagation.pods import AgentPod, used_flags
from wigwag.operator.propagation.progress import (
    GATHER,
    LAGGING,
    AgentProgress,
    AgentState,
    WritePace,
    next_question,
    progress,
    proxied_flag,
    standing,
    status_patch,
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
    from wigwag.operator.propagation.pods import ConsumingPod, ProxyPod
    from wigwag.operator.reconcile.flags import FlagSummary

ASKING = 64
"""Agents that are asked at the same time."""
ASKS = (100, 0.002)
"""A burst of questions, and the seconds between two when it is used up."""
STATUSES = (50, 0.02)
"""The same for writes of a status."""
UNASKED = 1.0
"""Seconds until a flag is looked at again some of whose agents were not asked yet."""


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
        self._proxies: set[Key] = set()
        self._using = Index(consumers.pods, used_flags)
        consumers.pods.on_change(self._pods_changed)
        changes.flags.on_change(self._flags_changed)
        context.shown["agents"] = self.described

    def described(self) -> Iterator[dict[str, Any]]:
        """Yield what is known of each agent, as plain JSON."""
        for key, state in sorted(self._states.items()):
            flags = sorted({flag for flag in state.flags if flag})
            reasons = {flag: standing(state, flag, digest) for flag in flags if (digest := self._digest(flag))}
            behind = [f"{flag}: {each.reason}" for flag, each in reasons.items() if each.reason]
            unknown = any(not each.known for each in reasons.values())
            yield {
                "namespace": key[0],
                "pod": key[1],
                "state": "unknown" if unknown else "lagging" if behind else "current",
                "flags": [*map(str, flags)],
                "problem": "; ".join(behind),
            }

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
            was, present = earlier and earlier.agent, now and now.agent
            if was is not None and present is not None and was.process == present.process:
                self._became_ready(key, was, present)
                continue
            gone = self._states.pop(key, None)
            for flag in self._concerned(key, earlier, now, gone):
                self._flags.add_after(flag, GATHER)
            self._proxies.discard(key)
            if now is None or now.agent is None:
                continue
            if isinstance(now.agent, AgentPod):
                self._pods.add(key)
            elif key[0] == self._context.settings.pod.namespace:  # others may call a container as they like
                self._proxies.add(key)
                self._pods.add(key)

    def _became_ready(self, key: Key, was: AgentPod | ProxyPod, now: AgentPod | ProxyPod) -> None:
        """Ask an agent that has become ready again: it may have been frozen, or out of reach."""
        if now.ready and not was.ready and key in self._states:
            self._states[key] = self._states[key]._replace(attempts=0)
            self._pods.add(key)

    def _concerned(
        self, key: Key, earlier: ConsumingPod | None, now: ConsumingPod | None, gone: AgentState | None
    ) -> set[ObjectName]:
        """Return the flags of an agent that comes or goes, or those that a proxy had."""
        used = {flag for pod in (earlier, now) if pod for flag in used_flags(key, pod)}
        targets = gone.answer.targets if gone and gone.answer else ()
        return used | {flag for each in targets if (flag := proxied_flag(each))}

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
        """Ask the agents of a flag, and the proxies, soon; those that have never answered wait for their turn."""
        for key in (*self._using[ObjectName(*flag)], *self._proxies):
            state = self._states.get(key)
            if state is not None and state.answer is not None:
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
        process = pod.agent.process
        asked = await self._context.agents.ask(process.address, process.port)
        self._context.propagation.count(asked)
        pod = self._consumers.pods.get(key)
        if pod is None or pod.agent is None or pod.agent.process != process:  # the new one is in the queue
            return
        before = self._states.get(key)
        state = (before or AgentState(pod.agent)).after(asked)
        behind = self._has_news_of_agent(before, state) if state.flags else self._has_news_of_proxy(before, state)
        self._pods.add_after(key, next_question(state, behind, self._random))
        self._states[key] = state._replace(attempts=state.attempts + 1 if behind or state.problem else 0)

    def _has_news_of_agent(self, before: AgentState | None, state: AgentState) -> bool:
        """Have the flags reported of which an agent has news; return whether it does not have all that it should."""
        behind = False
        for flag in filter(None, set(state.flags)):
            if digest := self._digest(flag):
                now = standing(state, flag, digest)
                behind |= bool(now.reason)
                if before is None or standing(before, flag, digest) != now:
                    self._flags.add_after(flag, GATHER)
        return behind

    def _has_news_of_proxy(self, before: AgentState | None, state: AgentState) -> bool:
        """The same for a proxy, and its subscribers."""
        known = set(before.answer.targets) if before and before.answer else set()
        said = set(state.answer.targets) if state.answer else set()
        for target in said ^ known:
            if flag := proxied_flag(target):
                self._flags.add_after(flag, GATHER)
        return any(
            target.sent < target.subscribers or target.digest != digest
            for target in said
            if (flag := proxied_flag(target)) and (digest := self._digest(flag))
        )

    def _digest(self, flag: Key) -> str:
        summary = self._changes.flags.get(flag)
        return wanted_digest(summary) if summary else ""

    async def _report(self, key: Key) -> Again | None:
        name, summary, digest = ObjectName(*key), self._changes.flags.get(key), self._digest(key)
        if summary is None or not digest:
            return None
        states = dict(self._counted(name, summary))
        proxies = [self._states.get(each) for each in self._proxies]
        if None in states.values() or None in proxies:
            return Again(UNASKED)
        known = [(pod, state) for pod, state in states.items() if state]
        answers = [state.answer for state in proxies if state and state.answer]
        reached = progress(name, digest, summary.about.generation, known, answers)
        if not self._is_news(summary, reached):
            return None
        now = self._clock.now()
        pace = self._paces.get(key, WritePace()).of(digest, now)
        if wait := pace.wait(now, done=reached.done):
            return Again(wait)
        await self._write(summary, reached)
        self._paces[key] = pace = pace.after(now, done=reached.done)
        return Again(pace.wait(now, done=reached.done))  # by then the watch has shown it, or it is written again

    def _counted(self, flag: ObjectName, summary: FlagSummary) -> Iterator[tuple[ObjectName, AgentState | None]]:
        """Yield the pods that use a flag, and may, with what is known of their agents."""
        policy = self._context.settings.options.cross_namespace
        for key in self._using[flag]:
            if not refusal("FeatureFlag", flag, summary.about, key[0], policy):
                yield ObjectName(*key), self._states.get(key)

    def _is_news(self, summary: FlagSummary, reached: AgentProgress) -> bool:
        said = next((each for each in summary.status.conditions if each.type == PROPAGATED), None)
        state = reached.condition()
        same = said is not None and (said.status, said.reason, said.message) == state
        return not same or summary.status.agents != reached.status()

    async def _write(self, summary: FlagSummary, reached: AgentProgress) -> None:
        about, before = summary.about, summary.status.conditions
        after = conditions(before, {PROPAGATED: reached.condition()}, about.generation, self._context.now())
        patch = status_patch(about.uid, before, after[0], reached.status())
        try:
            await self._context.hub.kube.patch(
                FEATURE_FLAG, about.name, patch, about.namespace, how="json", subresource="status"
            )
        except ApiError as error:
            if error.not_found or error.invalid:  # it is gone, another one, or has changed: the watch will show it
                return
            raise
        self._context.propagation.writes.add()
        for event in events([each for each in before if each.type == PROPAGATED], after):
            self._context.record(FEATURE_FLAG, about, event.type, event.reason, event.message)
