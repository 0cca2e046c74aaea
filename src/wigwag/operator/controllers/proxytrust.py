"""The controller of the proxy's certificate: its Secret, and its CAs in a ConfigMap for agents of each namespace.

    Secret ─▶ advance ─▶ CAs ─▶ a ConfigMap in each namespace with agents that connect ─▶ all written ─▶ advance again

The rotation is that of the webhooks' CA: a new CA signs nothing before all namespaces have it for `settle`, in which
the kubelets replace it in pods that run; the old one stays until nothing that it has signed is valid.

The hard case is a namespace whose ConfigMap cannot be written, because its owner has made it immutable, has another one
of that name, or has a quota. It does not hold up the rotation for all others: that namespace alone goes without.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from wigwag.kube.control.apply import Applier
from wigwag.kube.control.controller import Again, Controller
from wigwag.kube.control.informer import Informer
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import CONFIG_MAP, SECRET
from wigwag.kube.watch.decode import plain
from wigwag.kube.watch.spec import KubeWatch, label_selector
from wigwag.operator.certificates.secret import bundle, service_names
from wigwag.operator.certificates.store import CertificateSecret, decode_version
from wigwag.operator.controllers.context import APPLIED, MANAGER, UNSEEN
from wigwag.operator.injection.proxytrust import AUTHORITY, AUTHORITY_LABELS, CA_FILE, CERTIFICATE, is_authenticated
from wigwag.operator.names import PROXY_SERVICE, ObjectName
from wigwag.operator.resources.featureflagsource import FLAGD_PROXY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Raw

    from wigwag.kube.client import Object
    from wigwag.kube.control.queue import WorkQueue
    from wigwag.kube.watch.decode import Key
    from wigwag.operator.controllers.consumers import Consumers
    from wigwag.operator.controllers.context import ControlContext
    from wigwag.operator.controllers.namespaces import Namespaces
    from wigwag.operator.reconcile.usage import FlagUse

PERIOD = 60.0
"""Seconds until the certificate is looked at again, though nothing has changed."""
REFUSED = 60.0
"""Seconds until a ConfigMap that could not be written is tried again."""
NO_CA = f"the Secret has a certificate of somebody else's and no {CA_FILE} to trust it by; add that"
log = logging.getLogger(__name__)


class ProxyTrustController:
    """Keeps the certificate of the proxy, and what agents need to trust it."""

    def __init__(self, context: ControlContext, consumers: Consumers, namespaces: Namespaces) -> None:
        settings, self._namespaces = context.settings, namespaces
        self._context, self._consumers, self._is_on = context, consumers, is_authenticated(settings)
        self._secret = ObjectName(settings.pod.namespace, CERTIFICATE)
        names = service_names(PROXY_SERVICE, settings.pod.namespace, settings.flagd.cluster_domain)
        about = "certificates of the proxy"
        self._store = CertificateSecret(context.hub.kube, *self._secret, names, about, context.now)
        self._applier = Applier(context.hub.kube, MANAGER, AUTHORITY_LABELS, APPLIED)
        self._queue: WorkQueue[ObjectName] = context.queue()
        self._controller = Controller("proxy-trust", self._reconcile, self._queue, context.metrics)
        self._seen: Informer[str] = Informer()
        self._seen.feed(self._queue.add, lambda *_: (self._secret,))
        self._held: Informer[Object] = Informer()
        self._held.feed(self._queue.add, _config_map)
        self._uses: dict[ObjectName, set[FlagUse]] = {}
        self._authorities, self._pending = "", set[ObjectName]()
        self._refusals: dict[ObjectName, str] = {}
        consumers.on_use(self._use_changed)

    async def run(self) -> None:
        """Work until cancelled. Without authentication, only what is left of it is removed."""
        async with asyncio.TaskGroup() as group:
            held = KubeWatch(CONFIG_MAP, labels=label_selector(AUTHORITY_LABELS))
            group.create_task(self._held.follow(self._context.watch(held, _decode)))
            await self._held.synced()
            await self._consumers.synced()
            if self._is_on:
                secret = KubeWatch(SECRET, *self._secret, metadata_only=True)
                group.create_task(self._seen.follow(self._context.watch(secret, decode_version)))
                self._queue.add(self._secret)
            group.create_task(self._controller.run())

    def _use_changed(self, use: FlagUse) -> None:
        if use.provider != FLAGD_PROXY or not self._is_on:
            return
        name = ObjectName(use.account.namespace, AUTHORITY)
        uses = self._uses.setdefault(name, set())
        if use in self._consumers.uses.of_flag(use.flag):
            uses.add(use)
        else:
            uses.discard(use)
        if not uses:
            del self._uses[name]
        self._queue.add(name)

    async def _reconcile(self, name: ObjectName) -> Again | None:
        if name == self._secret:
            return await self._advance()
        return await self._publish(name)

    async def _advance(self) -> Again | None:
        """Take the steps that are due, once all namespaces have what the last one has brought."""
        data = await (self._store.read() if self._authorities else self._store.advanced(self._published))
        self._distribute(bundle(data))
        if not self._pending:
            data = await self._store.advanced(self._published)
            self._distribute(bundle(data))
        self._say(self._secret, "" if bundle(data) else NO_CA)
        return Again(PERIOD)

    async def _published(self) -> str:
        return self._authorities

    def _distribute(self, authorities: str) -> None:
        if authorities and authorities != self._authorities:
            self._authorities, self._pending = authorities, set(self._uses)
            for name in self._uses:
                self._queue.add(name)

    async def _publish(self, name: ObjectName) -> Again | None:
        """Make the ConfigMap of a namespace as it should be."""
        live = self._held.get(name)
        if not self._namespaces.owns(name.namespace):
            refusal = ""  # another operator's agents are there, and connect to its proxy
        elif name not in self._uses:
            await self._applier.prune(CONFIG_MAP, (), live=[live] if live else [])
            refusal = ""
        elif not self._authorities:
            return None
        else:
            refusal = await self._apply(name, live)
        self._say(name, refusal)
        if name in self._pending:
            self._pending.discard(name)
            if not self._pending:
                self._queue.add(self._secret)
        if refusal:
            return Again(REFUSED)
        return Again(UNSEEN) if name in self._uses and self._held.get(name) is None else None

    async def _apply(self, name: ObjectName, live: Object | None) -> str:
        """Write a ConfigMap; return why it was refused."""
        metadata = {"name": name.name, "namespace": name.namespace}
        body = {"metadata": metadata, "data": {CA_FILE: self._authorities}}
        try:
            result = await self._applier.apply(CONFIG_MAP, body, live)
        except ApiError as error:
            if error.not_found or error.forbidden or error.invalid:  # its namespace goes, or its owner does not let us
                return str(error)
            raise
        return result.reason

    def _say(self, name: ObjectName, refusal: str) -> None:
        if refusal and refusal != self._refusals.get(name):
            log.warning("%s: %s; agents go on with the CAs that they have", name, refusal)
        self._refusals.pop(name, None)
        if refusal:
            self._refusals[name] = refusal


def _decode(raw: Raw) -> Object:
    """Decode a ConfigMap of ours. Of others with our labels only what tells them apart is kept: they may be large."""
    config_map: Object = plain(raw)
    about = config_map["metadata"]
    if about["name"] == AUTHORITY:
        return config_map
    kept = ("namespace", "name", "uid", "labels", "deletionTimestamp")
    return {"metadata": {name: about[name] for name in kept if name in about}}


def _config_map(key: Key, _: Any) -> Iterable[ObjectName]:
    return (ObjectName(*key),)
