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
from typing import TYPE_CHECKING, TypeAlias

from wigwag.kube.control.informer import Index, Informer, own_key
from wigwag.kube.kinds import POD
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.names import ObjectName
from wigwag.operator.reconcile.usage import FlagUse, pod_uses, workload_uses
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

    def of_account(self, account: ObjectName) -> set[FlagUse]:
        """Return what pods of a service account use."""
        return set(self._by.get(account, ()))

    def of_flag(self, flag: ObjectName) -> set[FlagUse]:
        """Return who uses a FeatureFlag."""
        return set(self._to.get(flag, ()))


def _discard(entries: dict[ObjectName, set[FlagUse]], key: ObjectName, use: FlagUse) -> None:
    entries[key].discard(use)
    if not entries[key]:
        del entries[key]


class Consumers:
    """The workloads and pods of the cluster that use flags. Run it, and wait until it is synced."""

    def __init__(self, context: ControlContext, changes: KnownChanges) -> None:
        self._context, self.uses = context, FlagUses()
        self._listeners: list[Callable[[FlagUse], object]] = []
        self._pods: Informer[frozenset[FlagUse]] = Informer()
        self._pods.on_change(self._pods_changed)
        self._mounting: Index[frozenset[FlagUse], ObjectName] = Index(self._pods, _mounted)
        self._workloads: dict[Kind, Informer[Read]] = {kind: Informer() for kind in KINDS}
        self._naming = {kind: Index(informer, _named) for kind, informer in self._workloads.items()}
        for kind, informer in self._workloads.items():
            informer.on_change(partial(self._workloads_changed, kind))
        changes.sources.feed(self._source_changed, own_key)

    def on_use(self, listen: Callable[[FlagUse], object]) -> None:
        """Have a function called with each use that begins or ends."""
        self._listeners.append(listen)

    def feed_named(self, add: Callable[[Key], object]) -> None:
        """Have `add` called with the key of each object that a changed workload names, or has named."""
        for informer in self._workloads.values():
            informer.feed(add, _named)

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
            group.create_task(self._pods.follow(self._context.watch(KubeWatch(POD), pod_uses)))
            for kind, informer in self._workloads.items():
                group.create_task(informer.follow(self._context.watch(KubeWatch(kind), _DECODERS[kind])))

    async def synced(self) -> None:
        """Wait until all of them are known."""
        await self._pods.synced()
        for informer in self._workloads.values():
            await informer.synced()

    def _pods_changed(self, before: Objects[frozenset[FlagUse]] | None, after: Objects[frozenset[FlagUse]]) -> None:
        for key in after.changed_since(before):
            self._replace((POD, key), after.get(key, frozenset()))

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
        self._replace((kind, key), frozenset().union(*uses))

    def _replace(self, consumer: Consumer, uses: frozenset[FlagUse]) -> None:
        for use in self.uses.replace(consumer, uses):
            for listen in self._listeners:
                listen(use)


def _mounted(_: Key, uses: frozenset[FlagUse]) -> Iterable[ObjectName]:
    return [use.flag for use in uses if use.provider == FILE]


def _named(_: Key, read: Read) -> Iterable[Key]:
    return [name for workload in read for name in workload.named]


def _decoder(kind: Kind) -> Decode[Read]:
    def decode(raw: Raw) -> Read:
        workload = read_workload(kind, raw)
        return () if workload is None else (workload,)

    return decode


_DECODERS = {kind: _decoder(kind) for kind in KINDS}
"""One for each kind, so that its watch is shared."""
