"""The controller of flags that objects carry in an annotation: keeps the FeatureFlags that are generated from them.

    carrier, its FeatureFlag ─▶ queue ─▶ do they agree? ─▶ read both ─▶ write the FeatureFlag

A carrier is read as a whole only if its annotation or its FeatureFlag is not as it was when they last agreed; so a
restart reads each once, and writes nothing.

The hard cases: a FeatureFlag of that name that is somebody else's stays as it is; flags that cannot be used leave those
before them in force; and a namespace that is being deleted takes no new objects, which is no error, since the carrier
goes, too. What prevents flags is an Event of the carrier, and a remark on it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Informer
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import FEATURE_FLAG
from wigwag.kube.watch.spec import KubeWatch, label_selector
from wigwag.operator.controllers.managed import RETRY
from wigwag.operator.directset.document import check_inline, text_digest
from wigwag.operator.directset.generated import LABEL, LABELLED, Carrier, carrier_of, generated_flag
from wigwag.operator.injection.verdict import Denied
from wigwag.operator.names import INLINE_FLAGS, ObjectName
from wigwag.operator.observed import metadata
from wigwag.operator.resources.kubernetes import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from msgspec import Raw

    from wigwag.kube.client import Object
    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.consumers import Consumer, Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.reconcile.flags import FlagSummary

log = logging.getLogger(__name__)


class Carried(NamedTuple):
    """What there is to keep of a carrier."""

    uid: str
    carried: str
    """The digest of the flags; empty if there are none."""


class _Agreed(NamedTuple):
    """A carrier and its FeatureFlag, when they last agreed."""

    uid: str
    carried: str
    flag_uid: str
    generation: int


def decode_carried(raw: Raw) -> Carried | None:
    """Decode a carrier of a watch; None if it is being deleted."""
    about = metadata(raw)
    text = (about.annotations or {}).get(INLINE_FLAGS, "")
    return None if about.deletion_timestamp else Carried(about.uid, text_digest(text))


class DirectSetController:
    """Keeps the FeatureFlags that are generated from annotations."""

    def __init__(self, context: ControlContext, changes: KnownChanges, consumers: Consumers) -> None:
        self._context, self._consumers, self._kube = context, consumers, context.hub.kube
        self._namespaces = changes.namespaces
        self._queue: WorkQueue[Carrier] = context.queue()
        self._controller = Controller("direct-set", self._reconcile, self._queue, context.metrics)
        self._labelled: dict[Kind, Informer[Carried | None]] = {kind: Informer() for kind in LABELLED}
        for kind, informer in self._labelled.items():
            informer.feed(self._queue.add, partial(_carrier, kind))
        self._agreed: dict[Carrier, _Agreed] = {}
        self._problems: dict[Carrier, str] = {}
        self._listeners: list[Callable[[Carrier], object]] = []
        consumers.feed_workloads(self._workload_changed)
        changes.flags.feed(self._queue.add, self._carriers)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._labelled.items():
                watch = KubeWatch(kind, labels=label_selector(LABEL), metadata_only=True)
                group.create_task(informer.follow(self._context.watch(watch, decode_carried)))
            for informer in self._labelled.values():
                await informer.synced()
            await self._consumers.synced()
            group.create_task(self._controller.run())

    def _workload_changed(self, consumer: Consumer) -> None:
        kind, key = consumer
        self._queue.add(Carrier(kind, ObjectName(*key)))

    def _carriers(self, key: Key, flag: FlagSummary) -> Iterator[Carrier]:
        """Yield whom a change of a FeatureFlag concerns: whose flags it holds, or would hold if its name were free."""
        if carrier := carrier_of(flag.about):
            yield carrier
        for kind, name in self._consumers.following(ObjectName(*key)):
            yield Carrier(kind, ObjectName(*name))

    def on_problem(self, listen: Callable[[Carrier], object]) -> None:
        """Have a function called with each carrier that has another problem than before, or none any more."""
        self._listeners.append(listen)

    def problem_of(self, carrier: Carrier) -> str | None:
        """Return why the flags of a carrier are not in force; empty if they are, and None if that is not known yet."""
        return self._problems.get(carrier)

    async def _reconcile(self, carrier: Carrier) -> Again | None:
        if not self._namespaces.owns(carrier.name.namespace):
            return None
        carries = self._find(carrier)
        if carries is None or not carries.carried:
            self._agreed.pop(carrier, None)
            self._problems.pop(carrier, None)
            if carries is not None:
                await self._remove(carrier)
            return None
        problem = await self._keep(carrier, *carries)
        self._say(carrier, carries.uid, problem)
        return Again(RETRY) if problem else None

    def _find(self, carrier: Carrier) -> Carried | None:
        """Return what a carrier carries; None if it is gone: then Kubernetes removes what it owns."""
        if carrier.kind in self._labelled:
            return self._labelled[carrier.kind].get(carrier.name)
        workload = self._consumers.workload(carrier)
        if workload is None:
            return Carried("", "") if self._consumers.is_present(carrier) else None
        return None if workload.deleting else Carried(workload.uid, workload.carried)

    async def _keep(self, carrier: Carrier, uid: str, carried: str) -> str:
        """Make the FeatureFlag of a carrier as its annotation says; return what prevents it."""
        if self._agrees(carrier, uid, carried):
            return ""
        try:
            return await self._write(carrier, uid)
        except ApiError as error:
            if any(cause.reason == "NamespaceTerminating" for cause in error.status.causes):
                log.info("%s: no FeatureFlag is made for it, since its namespace is being deleted", carrier)
                return ""
            if error.forbidden or error.invalid:
                return f"FeatureFlag {carrier.flag}: {error.status.message}; the flags before it stay in force"
            raise

    def _agrees(self, carrier: Carrier, uid: str, carried: str) -> bool:
        """Tell whether neither the flags of a carrier nor its FeatureFlag have changed since they were the same."""
        flag: FlagSummary | None = self._context.known.value.flags.get(carrier.flag)
        if flag is None or carrier_of(flag.about) != carrier:
            return False
        return self._agreed.get(carrier) == _Agreed(uid, carried, flag.about.uid, flag.about.generation)

    async def _write(self, carrier: Carrier, uid: str) -> str:
        namespace, name = carrier.name
        owner = await self._kube.find(carrier.kind, name, namespace)
        text = ((owner or {}).get("metadata", {}).get("annotations") or {}).get(INLINE_FLAGS, "")
        if owner is None or owner["metadata"]["uid"] != uid or not text:
            return ""  # it has changed, and is looked at again for that
        checked = check_inline(text, lint=self._context.settings.flags.validation_enabled)
        if isinstance(checked, Denied):
            return f"{checked.message}; the flags before it stay in force"
        live = await self._kube.find(FEATURE_FLAG, carrier.flag.name, namespace)
        if live is not None and carrier_of(_about(live)) != carrier:
            return carrier.collision
        wanted = generated_flag(carrier, uid, text, live)
        if live is None:
            live = await self._kube.create(FEATURE_FLAG, wanted)
        elif wanted != live:
            live = await self._kube.replace(FEATURE_FLAG, wanted)
        about = _about(live)
        self._agreed[carrier] = _Agreed(uid, text_digest(text), about.uid, about.generation)
        return ""

    async def _remove(self, carrier: Carrier) -> None:
        """Delete the FeatureFlag of an object that carries no flags any more."""
        flag = self._context.known.value.flags.get(carrier.flag)
        if flag is None or carrier_of(flag.about) != carrier or flag.about.deletion_timestamp:
            return
        try:
            options = {"preconditions": {"uid": flag.about.uid}}
            await self._kube.delete(FEATURE_FLAG, carrier.flag.name, carrier.flag.namespace, options)
        except ApiError as error:
            if not (error.not_found or error.conflict):  # it is gone, or another one
                raise

    def _say(self, carrier: Carrier, uid: str, problem: str) -> None:
        """Record an Event when there is another problem than last time."""
        before = self._problems.get(carrier)
        self._problems[carrier] = problem
        if problem == before:
            return
        for listen in self._listeners:
            listen(carrier)
        if problem:
            about = ObjectMeta(namespace=carrier.name.namespace, name=carrier.name.name, uid=uid)
            self._context.record(carrier.kind, about, "Warning", "FlagsNotKept", problem)


def _carrier(kind: Kind, key: Key, _: Carried | None) -> list[Carrier]:
    return [Carrier(kind, ObjectName(*key))]


def _about(live: Object) -> ObjectMeta:
    fields = live["metadata"]
    return ObjectMeta(
        name=fields["name"],
        namespace=fields["namespace"],
        uid=fields["uid"],
        generation=fields.get("generation", 0),
        labels=fields.get("labels"),
        annotations=fields.get("annotations"),
    )
