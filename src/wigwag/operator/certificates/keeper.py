"""Keeps the webhook certificates right: the Secret, the `caBundle` of both webhook configurations, and what is served.

    Secret, configurations ─▶ advance ─▶ write the Secret ─▶ patch caBundle ─▶ serve

Every replica does all of it, at each change and every `PERIOD`; `store` sees to it that they do not take a step twice.
A replica that cannot reach the API server goes on serving what it has.

The hard case is the start: there may be no Secret, or no API server to ask. The port is open all the same, with a
`MemoryCertificate` that is empty, and handshakes fail until the first certificate is here.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from wigwag.errors import UsageError, WigwagError
from wigwag.kube.client import Object
from wigwag.kube.control.informer import only_objects, reopened
from wigwag.kube.kinds import SECRET, Kind
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.admission.registration import (
    bundle_patch,
    published,
)
from wigwag.operator.certificates.secret import PATH_SECRET, bundle, is_foreign, served
from wigwag.operator.certificates.store import CertificateSecret, decode_version
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import sleep_until, wait_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.kube.client import Kube
    from wigwag.kube.hub import Hub
    from wigwag.operator.certificates.secret import KeyPair, SecretData
    from wigwag.operator.names import ObjectName
    from wigwag.wire.tls import MemoryCertificate

PERIOD = 60.0
"""Seconds between two looks without a change."""
_REMEDY = "delete it, so that the operator makes its own, or leave the option out"
log = logging.getLogger("wigwag.operator")


class CertificateKeeper:
    """The certificates of one operator."""

    def __init__(
        self,
        hub: Hub,
        secret: ObjectName,
        names: Sequence[str],
        certificate: MemoryCertificate,
        configurations: Sequence[tuple[Kind, str]],
        *,
        private: bool = False,
    ) -> None:
        """`names` are what the certificate is for, and `certificate` is that of the listener.

        `configurations` are the webhook configurations whose `caBundle` is kept; none if somebody else does that. With
        `private`, the paths of the webhooks get a last part that nobody can guess.
        """
        self._is_private, self.path_secret = private, ""
        self._hub, self._targets = hub, tuple(configurations)
        self._namespace, self._secret = secret
        self._store = CertificateSecret(hub.kube, *secret, tuple(names))
        self._changed = asyncio.Event()
        self._served: KeyPair | None = None
        self._error, self._certificate, self._bundle = "", certificate, ""

    @property
    def ready(self) -> bool:
        """Whether there is a certificate to serve."""
        return self._served is not None

    async def run(self) -> None:
        """Keep everything right, until cancelled."""
        clock, retry = self._hub.kube.deps.clock, Retry(Backoff(first=1.0), self._hub.kube.deps.random)
        async with asyncio.TaskGroup() as group:
            for spec in self._watched():
                group.create_task(self._follow(spec))
            while True:
                self._changed.clear()
                try:
                    await self._look()
                except UsageError:  # a package is missing; to try again does not install it
                    raise
                except WigwagError as error:
                    self._report(str(error))
                    await sleep_until(clock, retry.next(clock.now()))
                    continue
                retry.succeeded()
                self._report("")
                await wait_event(clock, self._changed, clock.now() + PERIOD)

    def _watched(self) -> list[KubeWatch]:
        secret = KubeWatch(SECRET, self._namespace, self._secret, metadata_only=True)
        return [secret, *(KubeWatch(kind, name=name, metadata_only=True) for kind, name in self._targets)]

    async def _follow(self, spec: KubeWatch) -> None:
        """Look when an object changes. A watch that fails costs nothing but the time until the next look."""
        deps = self._hub.kube.deps
        async for _ in only_objects(reopened(partial(self._hub.watch, spec, decode_version), deps.clock, deps.random)):
            self._changed.set()

    def _report(self, error: str) -> None:
        if error and error != self._error:
            now = "the last certificate is served" if self.ready else "no webhook is served yet"
            log.warning("certificates: %s; %s, and it is tried again", error, now)
        self._error = error

    async def _look(self) -> None:
        data = await self._store.advanced(self._published)
        if self._is_private and is_foreign(data):
            raise UsageError(f"--private-webhooks: Secret {self._secret} is somebody else's; {_REMEDY}")
        if self._is_private:
            self.path_secret = await self._store.ensured(PATH_SECRET, token_hex)
        for kind, observed in await self._configurations():
            patch = bundle_patch(observed, bundle(data), self.path_secret) if bundle(data) else []
            if patch:
                name = observed["metadata"]["name"]
                await self._hub.kube.patch(kind, name, patch, how="json")
                log.info("certificates: %s %s trusts the current CA, and has the current paths", kind.kind, name)
        if not self._targets:
            self._say(bundle(data))
        self._serve(data)

    def _say(self, trusted: str) -> None:
        """Say what the webhook configurations have to trust, once for each CA."""
        if trusted and trusted != self._bundle:
            command = f"kubectl -n {self._namespace} get secret {self._secret} -o jsonpath='{{.data.ca\\.crt}}'"
            reason = "the operator does not write the caBundle of the webhook configurations (--webhook-ca)"
            log.warning("certificates: %s; somebody has to, with the output of: %s", reason, command)
        self._bundle = trusted

    async def _published(self) -> str:
        return published([configuration for _, configuration in await self._configurations()])

    def _serve(self, data: SecretData) -> None:
        pair = served(data)
        if pair is None or pair == self._served:
            return
        self._certificate.replace(*pair)
        self._served = pair

    @property
    def _kube(self) -> Kube:
        return self._hub.kube

    async def _configurations(self) -> list[tuple[Kind, Object]]:
        """Return the webhook configurations that there are."""
        present = [(kind, await self._kube.find(kind, name)) for kind, name in self._targets]
        return [(kind, configuration) for kind, configuration in present if configuration is not None]
