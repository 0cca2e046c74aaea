"""Who uses flags: workloads and pods, and the uses of all of them counted together.

    workloads ─▶ workload_uses ─┐
                                ├─▶ FlagUses: how many say so ─▶ a use that begins or ends ─▶ queues of controllers
    pods ─────▶ pod_uses ───────┘

Only what counts of an object is kept. What a workload uses depends on its sources, so it is asked again when one of
them changes; what a pod uses was fixed when it was created.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from wigwag.kube.control.informer import Index, Informer, own_key
from wigwag.kube.kinds import POD
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.names import ObjectName
from wigwag.operator.propagation.pods import ConsumingPod, consuming_pod
from wigwag.operator.reconcile.usage import FlagUse, workload_uses
from wigwag.operator.reconcile.workloads import KINDS, Workload, read_workload
from wigwag.operator.resources.featureflagsource import FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from msgspec import Raw

    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.decode import Decode, Key
    from wigwag.kube.watch.objects import Objects
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.controllers.namespaces import Namespaces

T = TypeVar("T")
Consumer: TypeAlias = "tuple[Kind, Key]"
Read: TypeAlias = "tuple[Workload, ...]"
"""The workload, or nothing if it does not use flags."""


class FlagUses:
    """The uses of all consumers.

    >>> flag, uses = ObjectName("team-a", "flags"), FlagUses()
    >>> use = FlagUse(ObjectName("team-a", "default"), "file", flag)
    >>> [len(uses.replace(pod, frozenset({use}))) for pod in (1, 2)], uses.of_flag(flag) == {use}
    ([1, 0], True)
    """

    def __init__(self) -> None:
        self._of: dict[object, frozenset[FlagUse]] = {}
        self._counts: Counter[FlagUse] = Counter()
        self._by: dict[ObjectName, set[FlagUse]] = {}
        self._to: dict[ObjectName, set[FlagUse]] = {}

    def replace(self, consumer: object, uses: frozenset[FlagUse]) -> set[FlagUse]:
        """Note what a consumer uses now; return the uses that nobody had before, or nobody has any more."""
        before = self._of.pop(consumer, frozenset())
        if uses:
            self._of[consumer] = uses
        changed = set()
        for use in uses - before:
            self._counts[use] += 1
            if self._counts[use] == 1:
                changed.add(use)
                self._by.setdefault(use.account, set()).add(use)
                self._to.setdefault(use.flag, set()).add(use)
        for use in before - uses:
            self._counts[use] -= 1
            if not self._counts[use]:
                changed.add(use)
                del self._counts[use]
                _discard(self._by, use.account, use)
                _discard(self._to, use.flag, use)
        return changed

    def __iter__(self) -> Iterator[FlagUse]:
        return iter(list(self._counts))

    def of(self, consumer: object) -> frozenset[FlagUse]:
        """Return what a consumer uses."""
        return self._of.get(consumer, frozenset())

    def of_account(self, account: ObjectName) -> set[FlagUse]:
        """Return what pods of a service account use."""
        return set(self._by.get(account, ()))

    def of_flag(self, flag: ObjectName) -> set[FlagUse]:
        """Return who uses a FeatureFlag."""
        return set(self._to.get(flag, ()))


def _discard(entries: dict[ObjectName, set[T]], key: ObjectName, member: T) -> None:
    entries[key].discard(member)
    if not entries[key]:
        del entries[key]


class Consumers:
    """The workloads and pods of the cluster that use flags. Run it, and wait until it is synced."""

    def __init__(self, context: ControlContext, changes: KnownChanges) -> None:
        self._context, self.uses = context, FlagUses()
        self._listeners: list[Callable[[FlagUse], object]] = []
        self.pods: Informer[ConsumingPod] = Informer()
        self.pods.on_change(self._pods_changed)
        self._mounting: Index[ConsumingPod, ObjectName] = Index(self.pods, _mounted)
        self._workloads: dict[Kind, Informer[Read]] = {kind: Informer() for kind in KINDS}
        self._naming = {kind: Index(informer, _named) for kind, informer in self._workloads.items()}
        for kind, informer in self._workloads.items():
            informer.on_change(partial(self._workloads_changed, kind))
        changes.sources.feed(self._source_changed, own_key)
        changes.namespace_labels.feed(self._source_changed, changes.sources_by_label)
        self._followers: dict[ObjectName, set[Consumer]] = {}

    def on_use(self, listen: Callable[[FlagUse], object]) -> None:
        """Have a function called with each use that begins or ends."""
        self._listeners.append(listen)

    def feed_moved(self, listen: Callable[[FlagUse], object], namespaces: Namespaces) -> None:
        """Have a function called with each use in a namespace that may have moved to or from another operator."""

        def moved(namespace: str) -> None:
            for use in self.uses:
                if use.account.namespace == namespace:
                    listen(use)

        namespaces.on_change(moved)

    def feed_named(self, add: Callable[[Key], object]) -> None:
        """Have `add` called with the key of each object that a changed workload names, or has named."""
        for informer in self._workloads.values():
            informer.feed(add, _named)

    def feed_workloads(self, add: Callable[[Consumer], object]) -> None:
        """Have `add` called with each workload that has changed."""
        for kind, informer in self._workloads.items():
            informer.feed(add, partial(_consumer, kind))

    def workload(self, consumer: Consumer) -> Workload | None:
        """Return a workload that uses flags, or carries some."""
        kind, key = consumer
        return next(iter(self._workloads[kind].get(key) or ()), None)

    def is_present(self, consumer: Consumer) -> bool:
        """Tell whether there is such a workload, whatever it uses."""
        kind, key = consumer
        return self._workloads[kind].get(key) is not None

    def following(self, flag: ObjectName) -> set[Consumer]:
        """Return the workloads whose agents use a FeatureFlag."""
        return set(self._followers.get(flag, ()))

    def naming(self, name: Key) -> list[Workload]:
        """Return the workloads that name an object."""
        return [
            workload
            for kind, index in self._naming.items()
            for key in index[name]
            for workload in self._workloads[kind].get(key) or ()
        ]

    def mounting(self, flag: ObjectName) -> frozenset[Key]:
        """Return the pods that mount a FeatureFlag."""
        return self._mounting[flag]

    def namespaces(self, name: Key) -> set[str]:
        """Return the namespaces of workloads that name an object."""
        return {key[0] for index in self._naming.values() for key in index[name]}

    async def run(self) -> None:
        """Watch, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods.follow(self._context.watch(KubeWatch(POD), consuming_pod)))
            for kind, informer in self._workloads.items():
                group.create_task(informer.follow(self._context.watch(KubeWatch(kind), _DECODERS[kind])))

    async def synced(self) -> None:
        """Wait until all of them are known."""
        await self.pods.synced()
        for informer in self._workloads.values():
            await informer.synced()

    def _pods_changed(self, before: Objects[ConsumingPod] | None, after: Objects[ConsumingPod]) -> None:
        for key in after.changed_since(before):
            pod: ConsumingPod | None = after.get(key)
            self._replace((POD, key), frozenset() if pod is None else pod.uses)

    def _workloads_changed(self, kind: Kind, before: Objects[Read] | None, after: Objects[Read]) -> None:
        for key in after.changed_since(before):
            self._ask(kind, key)

    def _source_changed(self, name: Key) -> None:
        for kind, index in self._naming.items():
            for key in index[name]:
                self._ask(kind, key)

    def _ask(self, kind: Kind, key: Key) -> None:
        """Find out what a workload uses now."""
        known, settings = self._context.known.value, self._context.settings
        uses = (workload_uses(each, known, settings) for each in self._workloads[kind].get(key) or ())
        used, consumer = frozenset[FlagUse]().union(*uses), (kind, key)
        for use in self.uses.of(consumer) - used:
            _discard(self._followers, use.flag, consumer)
        for use in used:
            self._followers.setdefault(use.flag, set()).add(consumer)
        self._replace(consumer, used)

    def _replace(self, consumer: Consumer, uses: frozenset[FlagUse]) -> None:
        for use in self.uses.replace(consumer, uses):
            for listen in self._listeners:
                listen(use)


def _consumer(kind: Kind, key: Key, read: Read) -> Iterable[Consumer]:
    return [(kind, key)] if read else []


def _mounted(_: Key, pod: ConsumingPod) -> Iterable[ObjectName]:
    return [use.flag for use in pod.uses if use.provider == FILE]


def _named(_: Key, read: Read) -> Iterable[Key]:
    return [name for workload in read for name in workload.named]


def _decoder(kind: Kind) -> Decode[Read]:
    def decode(raw: Raw) -> Read:
        workload = read_workload(kind, raw)
        return () if workload is None else (workload,)

    return decode


_DECODERS = {kind: _decoder(kind) for kind in KINDS}
"""One for each kind, so that its watch is shared."""
