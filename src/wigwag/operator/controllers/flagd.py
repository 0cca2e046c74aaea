"""The controller of Flagds: Deployment, Service, Ingress and routes as `reconcile.flagd` plans them.

    Flagd, its objects, what the operator knows ─▶ queue ─▶ plan ─▶ apply, remove ─▶ status, Events

It is level-triggered: whatever changes, the whole plan is made again, and nothing is written if all is as planned. A
child that is deleted or edited by hand changes its owner's key, so it is repaired at once. Children of a deleted Flagd
go by garbage collection.

The hard case is a plan of the Gateway API in a cluster without it: what cannot exist there need not be removed.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from wigwag.kube.control.apply import Applier
from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Informer, own_key, owner_key, reopened
from wigwag.kube.control.queue import WorkQueue
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import DEPLOYMENT, FLAGD, INGRESS, SERVICE
from wigwag.kube.watch.decode import plain
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.names import MANAGED_BY, OPERATOR
from wigwag.operator.reconcile.flagd import flagd_status, plan_flagd
from wigwag.operator.reconcile.status import events
from wigwag.operator.reconcile.takeover import takeover_patch
from wigwag.operator.resources.flagd import Flagd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.kube.client import Object
    from wigwag.kube.control.controller import ControllerMetrics
    from wigwag.kube.control.events import EventRecorder
    from wigwag.kube.hub import Hub
    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.decode import Decode, Key
    from wigwag.kube.watch.reflector import Item
    from wigwag.operator.observed import Observed
    from wigwag.operator.reconcile.flagd import FlagdPlan
    from wigwag.operator.reconcile.objects import DesiredObject
    from wigwag.operator.settings import OperatorSettings
    from wigwag.pipeline.broadcast import Broadcast

T = TypeVar("T")
MANAGER, APPLIED = "wigwag-operator", "openfeature.dev/applied"
OURS = {MANAGED_BY: OPERATOR}
WATCHED = (DEPLOYMENT, SERVICE, INGRESS)
"""Kinds of children that every cluster has."""
STARTING = 0.5
"""Seconds until a key is looked at again while objects are still being read."""
_decode = msgspec.json.Decoder(Flagd).decode


class FlagdController:
    """Keeps what Flagds ask for."""

    def __init__(
        self,
        hub: Hub,
        known: Broadcast[Observed],
        settings: OperatorSettings,
        recorder: EventRecorder,
        metrics: ControllerMetrics,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`now` is Unix seconds."""
        self._hub, self._known, self._settings, self._recorder, self._now = hub, known, settings, recorder, now
        self._applier = Applier(hub.kube, MANAGER, OURS, APPLIED)
        self._queue: WorkQueue[Key] = WorkQueue()
        self.controller = Controller("flagd", self._reconcile, self._queue, metrics)
        self._flagds: Informer[Flagd] = Informer()
        self._flagds.feed(self._queue.add, own_key)
        self._children: dict[Kind, Informer[Object]] = {kind: Informer() for kind in WATCHED}
        for children in self._children.values():
            children.feed(self._queue.add, owner_key(FLAGD))

    async def run(self) -> None:
        """Work until cancelled."""
        selector = ",".join(f"{name}={value}" for name, value in OURS.items())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flagds.follow(self._watch(KubeWatch(FLAGD), _decode)))
            for kind, children in self._children.items():
                group.create_task(children.follow(self._watch(KubeWatch(kind, labels=selector), plain)))
            group.create_task(self._follow_known())
            group.create_task(self.controller.run())

    def _watch(self, spec: KubeWatch, decode: Decode[T]) -> AsyncIterator[Item[T]]:
        deps = self._hub.kube.deps
        return reopened(partial(self._hub.watch, spec, decode), deps.clock, deps.random)

    async def _follow_known(self) -> None:
        """Look at all Flagds when something changes that a plan may ask about."""
        async for _ in self._known:
            for key in self._flagds.objects or ():
                self._queue.add(key)

    @property
    def _is_starting(self) -> bool:
        is_unread = self._flagds.objects is None or any(each.objects is None for each in self._children.values())
        return is_unread or not self._known.serial

    async def _reconcile(self, key: Key) -> Again | None:
        if self._is_starting:
            return Again(STARTING)
        flagd = self._flagds.get(key)
        if flagd is None:
            return None
        plan = plan_flagd(flagd, self._known.value, self._settings, self._now())
        refusals = [reason for desired in plan.apply if (reason := await self._apply(desired))]
        for kind in plan.remove:
            await self._remove(kind, key)
        await self._report(key, flagd, plan, refusals)
        return None

    async def _apply(self, desired: DesiredObject) -> str:
        """Make an object as it should be; return why that was refused."""
        children = self._children.get(desired.kind)
        live = None if children is None else children.get(desired.name)
        if live is not None and APPLIED not in (live["metadata"].get("annotations") or {}):
            await self._take_over(desired)
        result = await self._applier.apply(desired.kind, desired.body, live)
        return result.reason if result.outcome == "refused" else ""

    async def _take_over(self, desired: DesiredObject) -> None:
        namespace, name = desired.name
        live = await self._hub.kube.get(desired.kind, name, namespace)
        patch = takeover_patch(live, MANAGER)
        if patch is not None:
            await self._hub.kube.patch(desired.kind, name, patch, namespace)

    async def _remove(self, kind: Kind, key: Key) -> None:
        """Remove an object of this name, if it is ours."""
        namespace, name = key
        children = self._children.get(kind)
        if children is not None and children.get(key) is None:
            return
        try:
            live = await self._hub.kube.get(kind, name, namespace)
        except ApiError as error:
            if not error.not_found:  # there is none, or no such kind
                raise
            return
        await self._applier.prune(kind, (), namespace, [live])

    async def _report(self, key: Key, flagd: Flagd, plan: FlagdPlan, refusals: list[str]) -> None:
        """Write the status if it has changed, and record what has become of the object."""
        namespace, name = key
        status = flagd_status(flagd, plan, self._children[DEPLOYMENT].get(key), refusals, self._now())
        if status == flagd.status:
            return
        body: dict[str, Any] = {"status": msgspec.to_builtins(status)}
        await self._hub.kube.patch(FLAGD, name, body, namespace, subresource="status")
        about = {"metadata": {"namespace": namespace, "name": name, "uid": flagd.metadata.uid}}
        for event in events(flagd.status.conditions, status.conditions):
            self._recorder.record(FLAGD, about, event.type, event.reason, event.message)
