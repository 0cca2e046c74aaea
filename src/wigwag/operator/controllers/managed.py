"""Objects that controllers make: watched, applied, removed; those that the original has made are taken over.

An object that cannot be made, because it is somebody else's or the server refuses it, is a reason for the status of its
owner, and holds up no other. The hard case is that nobody tells us when that ends: objects without our label are not
watched, and kinds of the Gateway API need not exist. So a controller with a refused object tries again after `RETRY`
seconds.

They are kept as JSON text, which takes a quarter of the memory of Python objects, and decoded when somebody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from wigwag.errors import WigwagError
from wigwag.kube.control.apply import Applier
from wigwag.kube.control.informer import Informer
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import DEPLOYMENT, GRPC_ROUTE, HTTP_ROUTE, INGRESS, POD_DISRUPTION_BUDGET, SERVICE
from wigwag.kube.watch.decode import plain
from wigwag.kube.watch.spec import KubeWatch, label_selector
from wigwag.operator.controllers.context import APPLIED, MANAGER
from wigwag.operator.names import MANAGED_BY, OPERATOR
from wigwag.operator.reconcile.takeover import takeover_patch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from msgspec import Raw

    from wigwag.kube.client import Object
    from wigwag.kube.control.informer import Concerns
    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.reconcile.objects import DesiredObject

K = TypeVar("K", bound=Hashable)
OURS = {MANAGED_BY: OPERATOR}
OPTIONAL = (HTTP_ROUTE, GRPC_ROUTE)
RETRY = 60.0
"""Seconds until objects that were refused are tried again."""
_decode = msgspec.json.Decoder(dict).decode


def _text(raw: Raw) -> bytes:
    return msgspec.json.encode(plain(raw))


class ManagedObjects:
    """The objects with the operator's label."""

    def __init__(self, context: ControlContext) -> None:
        self._context, self._kube = context, context.hub.kube
        self._applier = Applier(self._kube, MANAGER, OURS, APPLIED)
        selector = label_selector(OURS)
        kinds = (DEPLOYMENT, SERVICE, INGRESS, *OPTIONAL)
        self._watches = {kind: KubeWatch(kind, labels=selector) for kind in kinds}
        namespace = context.settings.pod.namespace  # of the proxy, which alone has one
        self._watches[POD_DISRUPTION_BUDGET] = KubeWatch(POD_DISRUPTION_BUDGET, namespace, labels=selector)
        self._informers: dict[Kind, Informer[bytes]] = {kind: Informer() for kind in self._watches}

    def feed(self, add: Callable[[K], object], mapping: Concerns[Object, K]) -> None:
        """Have `add` called with the keys that a change of an object concerns."""
        for informer in self._informers.values():
            informer.feed(add, lambda key, text: mapping(key, _decode(text)))

    async def run(self) -> None:
        """Watch, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._informers.items():
                group.create_task(informer.follow(self._context.watch(self._watches[kind], _text)))

    async def synced(self) -> None:
        """Wait until all objects are known, but those of kinds that need not exist."""
        for kind, informer in self._informers.items():
            if kind not in OPTIONAL:
                await informer.synced()

    def get(self, kind: Kind, key: Key) -> Object | None:
        """Return an object of ours."""
        text = self._informers[kind].get(key)
        return None if text is None else _decode(text)

    async def apply(self, desired: Sequence[DesiredObject]) -> list[str]:
        """Make objects as they should be, all at once; return why some were refused.

        The first error is raised when all are done, so an object that fails does not keep the others from existing.
        """
        refusals, errors = [""] * len(desired), list[WigwagError]()

        async def apply(at: int) -> None:
            try:
                refusals[at] = await self._apply(desired[at])
            except WigwagError as error:
                errors.append(error)

        async with asyncio.TaskGroup() as group:
            for at in range(len(desired)):
                group.create_task(apply(at))
        if errors:
            raise errors[0]
        return list(filter(None, refusals))

    async def _apply(self, desired: DesiredObject) -> str:
        live = self.get(desired.kind, desired.name)
        if live is not None and APPLIED not in (live["metadata"].get("annotations") or {}):
            await self._take_over(desired)
        try:
            result = await self._applier.apply(desired.kind, desired.body, live)
        except ApiError as error:
            if error.not_found or error.forbidden or error.invalid:
                return f"{desired.kind.kind} {desired.name}: {error}"
            raise
        return result.reason if result.outcome == "refused" else ""

    async def _take_over(self, desired: DesiredObject) -> None:
        namespace, name = desired.name
        live = await self._kube.find(desired.kind, name, namespace)
        patch = None if live is None else takeover_patch(live, MANAGER)
        if patch is not None:
            await self._kube.patch(desired.kind, name, patch, namespace)

    def unseen(self, desired: Sequence[DesiredObject]) -> bool:
        """Tell whether the watches have not shown some objects yet."""
        return any(self._informers[each.kind].get(each.name) is None for each in desired)

    async def remove(self, kind: Kind, key: Key) -> None:
        """Remove an object, if there is one and it is ours."""
        live = self.get(kind, key)
        if live is not None:
            await self._applier.prune(kind, (), key[0], [live])
