"""What all controllers share: the API server, what the operator knows, its settings, and how to say what was found.

A status is written only if it differs from the one that was read, as a whole, and for this object only: one that was
deleted and created again meanwhile is another object. The hard case is a watch that has not shown our last write yet:
then what was written counts, so that nothing is said twice.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec

from wigwag.kube.control.informer import reopened
from wigwag.kube.control.queue import KeyQueue, WorkQueue
from wigwag.kube.errors import ApiError
from wigwag.kube.watch.listwatch import KindNotServed
from wigwag.operator.propagation.ask import AgentClient, PropagationMetrics
from wigwag.operator.reconcile.status import ACCEPTED, ConditionState, conditions, events
from wigwag.operator.scope import NamespaceScope
from wigwag.operator.upgrades.report import SidecarMetrics
from wigwag.pipeline.spec import Unavailable
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping

    from wigwag.kube.control.controller import ControllerMetrics
    from wigwag.kube.control.events import EventRecorder
    from wigwag.kube.hub import Hub
    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.decode import Decode
    from wigwag.kube.watch.reflector import Item
    from wigwag.kube.watch.spec import KubeWatch
    from wigwag.operator.observed import Observed
    from wigwag.operator.propagation.ask import AskAgent
    from wigwag.operator.resources.kubernetes import ObjectMeta, ObjectStatus
    from wigwag.operator.resources.unreadable import UnreadableObject
    from wigwag.operator.settings import OperatorSettings
    from wigwag.pipeline.broadcast import Broadcast

T = TypeVar("T")
K = TypeVar("K", bound="Hashable")
MANAGER, APPLIED = "wigwag-operator", "openfeature.dev/applied"
"""The field manager of server-side apply, and the annotation with the hash of what was applied."""
UNSEEN = 5.0
"""Seconds until an object that was made, and that no watch has shown, is looked for: it may be deleted already."""
UNREADABLE = 5.0
"""Seconds until something is looked at again that waits for the right to read a namespace."""
MOST_REPORTED = 10_000
"""The most objects whose last status is remembered, until the watch shows it."""
log = logging.getLogger("wigwag.operator")


class _Report(NamedTuple):
    """A status that was written."""

    before: ObjectStatus
    """What the watch had shown."""
    after: ObjectStatus


def _said(status: ObjectStatus) -> ObjectStatus:
    """Return a status without times, which depend on when it was made."""
    timeless = [msgspec.structs.replace(each, last_transition_time="") for each in status.conditions]
    return msgspec.structs.replace(status, conditions=timeless)


def namespace_of(key: Hashable) -> Hashable:
    """Return the namespace of a key that has one: namespaces take turns in queues."""
    return key[0] if isinstance(key, tuple) else None


@dataclass(frozen=True)
class ControlContext:
    """What controllers work with."""

    hub: Hub
    known: Broadcast[Observed]
    settings: OperatorSettings
    recorder: EventRecorder
    metrics: ControllerMetrics
    now: Callable[[], float] = time.time
    """Unix seconds."""
    agents: AskAgent = field(default_factory=AgentClient)
    """Asks agents which flags they have."""
    propagation: PropagationMetrics = field(default_factory=PropagationMetrics)
    sidecars: SidecarMetrics = field(default_factory=SidecarMetrics)
    scope: NamespaceScope = field(default_factory=NamespaceScope)
    """The namespaces that are served."""
    shown: dict[str, Callable[[], Iterable[Mapping[str, Any]]]] = field(default_factory=dict)
    """What controllers show in the console, by view, while this replica leads."""
    _reported: OrderedDict[tuple[Kind, str], _Report] = field(default_factory=OrderedDict)

    def queue(self) -> WorkQueue[K]:
        """Return a work queue, in which namespaces take turns."""
        deps = self.hub.kube.deps
        return WorkQueue(KeyQueue(random=deps.random, group=namespace_of), deps.clock)

    async def watch(self, spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
        """Watch objects for ever. What prevents it is logged, and when it is over; a kind may be missing for good."""
        deps, problem = self.hub.kube.deps, ""
        async with closing(reopened(partial(self.hub.watch, spec, decode), deps.clock, deps.random)) as items:
            async for item in items:
                before, problem = problem, item.reason if isinstance(item, Unavailable) else ""
                if problem != before:
                    level = logging.WARNING if problem and not isinstance(item, KindNotServed) else logging.INFO
                    log.log(level, "watch %s: %s", spec, problem or "live")
                yield item

    async def report(self, kind: Kind, about: ObjectMeta, before: ObjectStatus, after: ObjectStatus) -> None:
        """Write the status of an object if it has changed, and record Events about what has become of it."""
        last, seen = self._reported.pop((kind, about.uid), None), before
        if after == before:
            return
        if last is not None and last.before == before:  # the watch has not shown our last write yet
            before = last.after
            if _said(before) == _said(after):
                self._reported[kind, about.uid] = last
                return
        change = [
            {"op": "test", "path": "/metadata/uid", "value": about.uid},
            {"op": "add", "path": "/status", "value": msgspec.to_builtins(after)},
        ]
        try:
            await self.hub.kube.patch(kind, about.name, change, about.namespace, how="json", subresource="status")
        except ApiError as error:
            if error.not_found or error.invalid:  # it is gone, or another one
                return
            raise
        self._reported[kind, about.uid] = _Report(seen, after)
        if len(self._reported) > MOST_REPORTED:
            self._reported.popitem(last=False)
        for event in events(before.conditions, after.conditions):
            self.record(kind, about, event.type, event.reason, event.message)

    async def report_unreadable(self, kind: Kind, each: UnreadableObject) -> None:
        """Say in the status of an object that it cannot be read; the rest of the status stays as it is."""
        state = ConditionState("False", "Invalid", f"it does not fit its schema, so nobody can use it: {each.problem}")
        generation, before = each.metadata.generation, each.status
        after = conditions(before.conditions, {ACCEPTED: state}, generation, self.now())
        await self.report(kind, each.metadata, before, msgspec.structs.replace(before, conditions=after))

    def record(
        self, kind: Kind, about: ObjectMeta, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record an Event about an object."""
        metadata = {"namespace": about.namespace, "name": about.name, "uid": about.uid}
        self.recorder.record(kind, {"metadata": metadata}, type, reason, message)
