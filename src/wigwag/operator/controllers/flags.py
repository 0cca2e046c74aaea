"""The controller of FeatureFlags: ConfigMaps with their flags where pods mount them, and their status.

    flag, its ConfigMaps, its uses ─▶ queue ─▶ current? ─▶ read the flags ─▶ apply ConfigMaps ─▶ status, Events

The kubelet writes a changed ConfigMap into pods that run, so their agents have the new flags without a restart. If
critical flags have changed, the key goes to the head of the queue, and the kubelet is made to look (`critical`).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from wigwag.background import BackgroundWorker
from wigwag.kube.client import ApiRequest
from wigwag.kube.control.apply import MOST_PRUNED, Applier
from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Index, Informer
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import CONFIG_MAP, FEATURE_FLAG
from wigwag.kube.watch.spec import KubeWatch, label_selector
from wigwag.operator.configmaps import LABELS
from wigwag.operator.controllers.context import APPLIED, MANAGER, UNREADABLE, UNSEEN
from wigwag.operator.controllers.critical import CriticalFlags
from wigwag.operator.names import FEATURE_FLAG as HELD_FLAG
from wigwag.operator.names import ObjectName, config_map_name, parse_name
from wigwag.operator.reconcile.flags import (
    HeldFlags,
    decode_held,
    flag_config_maps,
    flag_status,
    is_current,
    kept_config_maps,
    mounting_namespaces,
    read_flag,
)
from wigwag.operator.resources.featureflagsource import FILE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.kube.client import Object
    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.watch.decode import Key
    from wigwag.kube.watch.objects import Objects
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.reconcile.flags import FlagConfigMaps, FlagSummary, ObservedFlag
    from wigwag.operator.reconcile.usage import FlagUse
    from wigwag.operator.resources.featureflag import FeatureFlagStatus
    from wigwag.operator.resources.kubernetes import ObjectMeta


LARGE = 64 * 1024
"""Bytes of a document that is checked in a thread: a second of work for each megabyte."""


class FlagController:
    """Keeps the ConfigMaps of FeatureFlags, and their status."""

    def __init__(self, context: ControlContext, changes: KnownChanges, consumers: Consumers) -> None:
        self._context, self._consumers, self._namespaces = context, consumers, changes.namespaces
        self._applier = Applier(context.hub.kube, MANAGER, LABELS, APPLIED)
        self._queue: WorkQueue[Key] = context.queue()
        self._controller = Controller("flags", self._reconcile, self._queue, context.metrics, urgent_workers=1)
        self._worker = BackgroundWorker("wigwag-flags")
        self._critical = CriticalFlags(context, consumers)
        self._held: Informer[HeldFlags] = Informer()
        self._holding = Index(self._held, _flag_held)
        self._held.feed(self._queue.add, _flag_held)
        changes.flags.on_change(self._flags_changed)
        changes.config_maps.feed(self._queue.add, self._flags_wanting)
        consumers.on_use(self._use_changed)
        consumers.feed_moved(self._use_changed, changes.namespaces)
        changes.feed_moved(self._queue.add, changes.flags)

    async def run(self) -> None:
        """Work until cancelled."""
        selector = label_selector(LABELS)
        async with asyncio.TaskGroup() as group:
            held = self._context.watch(KubeWatch(CONFIG_MAP, labels=selector), decode_held)
            group.create_task(self._held.follow(held))
            await self._held.synced()
            await self._consumers.synced()
            try:
                await self._controller.run()
            finally:
                self._worker.dismiss()

    def _flags_changed(self, before: Objects[FlagSummary] | None, after: Objects[FlagSummary]) -> None:
        for key in after.changed_since(before):
            last = None if before is None else before.get(key)
            self._queue.add(key, urgent=self._critical.changed(key, last, after.get(key)))

    def _use_changed(self, use: FlagUse) -> None:
        if use.provider == FILE:
            self._queue.add(use.flag)

    def _flags_wanting(self, key: Key, _: ObjectMeta) -> Iterable[Key]:
        """Return the flag that wants a ConfigMap of this name, in its own namespace: one may be in the way, or go."""
        return [key] if self._consumers.uses.of_flag(ObjectName(*key)) else []

    async def _reconcile(self, key: Key) -> Again | None:
        """Make the ConfigMaps of a flag; then prune, which others can make long, by ConfigMaps that name the flag."""
        name = ObjectName(*key)
        again = await self._update(name)
        kept = kept_config_maps(self._consumers.uses.of_flag(name), self._context.known.value, self._context.settings)
        return await self._prune(name, kept) or again

    async def _update(self, name: ObjectName) -> Again | None:
        known, settings = self._context.known.value, self._context.settings
        uses = self._consumers.uses.of_flag(name)
        owns = self._namespaces.owns
        namespaces = list(filter(owns, mounting_namespaces(name, uses, known, settings)))
        if not namespaces and not owns(name.namespace):
            return None
        wanted = [ObjectName(namespace, config_map_name(name, namespace)) for namespace in namespaces]
        held = {each: live for each in wanted if (live := self._held.get(each))}
        summary = known.flags.get(name)
        if summary is None or summary.about.deletion_timestamp or is_current(summary, namespaces, held):
            self._critical.settled(name)
            return None
        flag = await self._read(name)
        if flag is None:
            return None
        present = {each: about for each in wanted if (about := known.config_maps.get(each))}
        maps = flag_config_maps(flag, namespaces, present)
        for each in maps.adopt:
            await self._context.hub.kube.patch(CONFIG_MAP, each.name, {"metadata": {"labels": LABELS}}, each.namespace)
        refused = [taken for body in maps.apply if (taken := await self._apply(body))]
        maps = replace(maps, refused=(*maps.refused, *refused))
        await self._critical.refresh(name, summary.digest)
        status = await self._status(flag, maps)
        if owns(name.namespace):
            await self._context.report(FEATURE_FLAG, flag.about, flag.status, status)
        unseen = any(self._held.get(each) is None for each in wanted if each not in maps.refused)
        return Again(UNSEEN) if maps.apply and unseen else None

    async def _status(self, flag: ObservedFlag, maps: FlagConfigMaps) -> FeatureFlagStatus:
        """Check a flag; a large one in a thread, so that the webhooks answer meanwhile."""
        check = partial(flag_status, flag, maps, self._context.now())
        return check() if len(flag.document) < LARGE else await self._worker.send(check)

    async def _read(self, name: ObjectName) -> ObservedFlag | None:
        """Read a flag with its document, byte for byte; None if it is gone."""
        try:
            answer = await self._context.hub.kube.fetch(ApiRequest(FEATURE_FLAG.path(*name)))
        except ApiError as error:
            if error.not_found:
                return None
            raise
        return read_flag(answer.body)

    async def _apply(self, body: Object) -> ObjectName | None:
        """Make a ConfigMap as it should be; return its name if somebody else has made one since."""
        result = await self._applier.apply(CONFIG_MAP, body)
        metadata = body["metadata"]
        return ObjectName(metadata["namespace"], metadata["name"]) if result.outcome == "refused" else None

    async def _prune(self, flag: ObjectName, keep: frozenset[ObjectName]) -> Again | None:
        """Delete ConfigMaps that are not in use. Not in a namespace that cannot be read: pods there may mount them."""
        holding, unreadable = self._holding[flag], self._context.scope.unreadable
        ours = (key for key in holding if key[0] not in unreadable and self._namespaces.owns(key[0]))
        live = [_plain(each.about) for key in ours if (each := self._held.get(key))]
        if len(await self._applier.prune(CONFIG_MAP, keep, live=live)) >= MOST_PRUNED:
            return Again(0.0)
        return Again(UNREADABLE) if any(key[0] in unreadable for key in holding) else None


def _flag_held(key: Key, held: HeldFlags) -> Iterable[Key]:
    name = (held.about.annotations or {}).get(HELD_FLAG)
    return [parse_name(name, key[0])] if name else []


def _plain(about: ObjectMeta) -> Object:
    metadata = {"namespace": about.namespace, "name": about.name, "uid": about.uid, "labels": about.labels or {}}
    return {"metadata": metadata}
