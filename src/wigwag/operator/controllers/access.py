"""The controller of rights: each service account may read exactly the FeatureFlags that its agents use.

    a use begins or ends, a flag comes or goes, a Role is edited ─▶ account ─▶ Roles and RoleBindings: apply, prune

With `--cluster-role-binding` there are no Roles, and the accounts are subjects of the original's ClusterRoleBinding.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from wigwag.errors import WigwagError
from wigwag.kube.control.apply import MOST_PRUNED, Applier
from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Index, Informer, own_key
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from wigwag.kube.watch.decode import plain
from wigwag.kube.watch.spec import KubeWatch, label_selector
from wigwag.operator.controllers.context import APPLIED, MANAGER, UNREADABLE, UNSEEN
from wigwag.operator.names import SERVICE_ACCOUNT, SYNC_BINDING, ObjectName, parse_name
from wigwag.operator.reconcile.access import LABELS, access_objects, reconcile_binding
from wigwag.operator.resources.featureflagsource import KUBERNETES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.kube.client import Object
    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.changes import KnownChanges
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.reconcile.access import AccessObjects
    from wigwag.operator.reconcile.usage import FlagUse

BINDING = ObjectName("", SYNC_BINDING)
"""The key of the ClusterRoleBinding, beside those of accounts."""
NO_NAMESPACE = 60.0
"""Seconds until rights in a namespace that does not exist are tried again."""
log = logging.getLogger(__name__)


class AccessError(WigwagError):
    """Rights cannot be given, because a Role or RoleBinding of that name is somebody else's."""


class AccessController:
    """Keeps the rights of agents."""

    def __init__(self, context: ControlContext, changes: KnownChanges, consumers: Consumers) -> None:
        self._context, self._consumers, self._problem = context, consumers, ""
        self._namespaces = changes.namespaces
        self._is_shared = context.settings.options.cluster_role_binding
        self._applier = Applier(context.hub.kube, MANAGER, LABELS, APPLIED)
        self._queue: WorkQueue[ObjectName] = context.queue()
        self._controller = Controller("access", self._reconcile, self._queue, context.metrics)
        self._live: dict[Kind, Informer[Object]] = {ROLE: Informer(), ROLE_BINDING: Informer()}
        self._of_account = {kind: Index(informer, _account) for kind, informer in self._live.items()}
        for informer in self._live.values():
            informer.feed(self._queue.add, _account)
        self._binding: Informer[Object] = Informer()
        self._binding.feed(self._queue.add, lambda *_: (BINDING,))
        consumers.on_use(self._use_changed)
        changes.flags.feed(self._flag_changed, own_key)
        consumers.feed_moved(self._use_changed, changes.namespaces)

    async def run(self) -> None:
        """Work until cancelled."""
        selector = label_selector(LABELS)
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._live.items():
                group.create_task(informer.follow(self._context.watch(KubeWatch(kind, labels=selector), plain)))
                await informer.synced()
            if self._is_shared:
                binding = KubeWatch(CLUSTER_ROLE_BINDING, name=SYNC_BINDING)
                group.create_task(self._binding.follow(self._context.watch(binding, plain)))
                await self._binding.synced()
            await self._consumers.synced()
            group.create_task(self._controller.run())

    def _use_changed(self, use: FlagUse) -> None:
        if use.provider == KUBERNETES:
            self._queue.add(BINDING if self._is_shared else use.account)

    def _flag_changed(self, flag: Key) -> None:
        """Look at who uses a flag: it may be new, and own the Role, or grant its use."""
        for use in self._consumers.uses.of_flag(ObjectName(*flag)):
            self._use_changed(use)

    async def _reconcile(self, account: ObjectName) -> Again | None:
        if account == BINDING:
            await self._bind()
            return None
        if not self._namespaces.owns(account.namespace):
            return None
        if account.namespace in self._context.scope.unreadable:  # it may use more than is known
            return Again(UNREADABLE)
        uses, known = self._consumers.uses.of_account(account), self._context.known.value
        wanted = access_objects(uses, known, self._context.settings)
        errors = [error for name, objects in wanted.items() if (error := await self._grant(name, objects))]
        is_left = False
        for kind in (ROLE_BINDING, ROLE):
            live = [each for key in self._of_account[kind][account] if (each := self._live[kind].get(key))]
            is_left |= len(await self._applier.prune(kind, wanted.keys(), live=live)) == MOST_PRUNED
        for error in errors:
            if not (isinstance(error, ApiError) and error.not_found):
                raise error
        if errors:
            return Again(NO_NAMESPACE)
        if is_left:
            return Again(0.0)
        unseen = any(informer.get(name) is None for informer in self._live.values() for name in wanted)
        return Again(UNSEEN) if unseen else None

    async def _grant(self, name: ObjectName, objects: AccessObjects) -> WigwagError | None:
        """Make the rights in one namespace as they should be; return what went wrong, so that others get theirs."""
        try:
            await self._apply(ROLE, name, objects.role)
            await self._apply(ROLE_BINDING, name, objects.binding)
        except WigwagError as error:
            return error
        return None

    async def _apply(self, kind: Kind, name: ObjectName, body: Object) -> None:
        live = self._live[kind].get(name)
        if live is not None and live.get("roleRef") != body.get("roleRef"):  # which cannot be changed
            await self._applier.prune(kind, (), live=[live])
            live = None
        result = await self._applier.apply(kind, body, live)
        if result.outcome == "refused":
            raise AccessError(f"namespace {name.namespace}: {result.reason}; until then FeatureFlags cannot be read")

    async def _bind(self) -> None:
        """Make the subjects of the ClusterRoleBinding as they should be; a conflict is tried again."""
        live = self._binding.get(BINDING)
        change = reconcile_binding(live, self._consumers.uses, self._context.settings)
        if change.problem and change.problem != self._problem:
            log.warning("%s", change.problem)
        self._problem = change.problem
        if change.body is not None:
            await self._context.hub.kube.replace(CLUSTER_ROLE_BINDING, change.body)


def _account(key: Key, value: Any) -> Iterable[ObjectName]:
    """Return the account that a Role or RoleBinding is for."""
    name = (value["metadata"].get("annotations") or {}).get(SERVICE_ACCOUNT)
    return [parse_name(name, key[0])] if name else []
