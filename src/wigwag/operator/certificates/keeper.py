"""Keeps the webhook certificates right: the Secret, the `caBundle` of both webhook configurations, and what is served.

    Secret, configurations ─▶ advance ─▶ write the Secret ─▶ patch caBundle ─▶ serve

Every replica does all of it, at each change and every `PERIOD`. The Secret is written with the version that was read,
so of two replicas that take a step at once, one gets a conflict, reads again, and finds the step taken. A replica that
cannot reach the API server goes on serving what it has.

The hard case is the start: there may be no Secret, or no API server to ask. The port is open all the same, with a
`MemoryCertificate` that is empty, and handshakes fail until the first certificate is here.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from wigwag.errors import UsageError, WigwagError
from wigwag.kube.client import Object
from wigwag.kube.control.informer import only_objects, reopened
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import SECRET, Kind
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.admission.registration import (
    bundle_patch,
    published,
)
from wigwag.operator.certificates.secret import bundle, is_foreign, served
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import sleep_until, wait_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw

    from wigwag.kube.client import Kube
    from wigwag.kube.hub import Hub
    from wigwag.operator.certificates.secret import KeyPair, SecretData
    from wigwag.operator.names import ObjectName
    from wigwag.wire.tls import MemoryCertificate

PERIOD = 60.0
"""Seconds between two looks without a change."""
STEPS = 10
"""A rotation has fewer steps; more of them in a row would be a defect."""
log = logging.getLogger("wigwag.operator")


class _VersionedMeta(Struct, rename="camel"):
    resource_version: str


class _Versioned(Struct):
    metadata: _VersionedMeta


_decode = msgspec.json.Decoder(_Versioned).decode


def _version(raw: Raw) -> str:
    """Decode nothing but the version: each change is another value, and no secret stays in memory."""
    return _decode(raw).metadata.resource_version


class CertificateKeeper:
    """The certificates of one operator."""

    def __init__(
        self,
        hub: Hub,
        secret: ObjectName,
        names: Sequence[str],
        certificate: MemoryCertificate,
        configurations: Sequence[tuple[Kind, str]],
    ) -> None:
        """`names` are what the certificate is for, and `certificate` is that of the listener.

        `configurations` are the webhook configurations whose `caBundle` is kept; none if somebody else does that.
        """
        self._hub, self._names, self._targets = hub, tuple(names), tuple(configurations)
        self._namespace, self._secret = secret
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
        async for _ in only_objects(reopened(partial(self._hub.watch, spec, _version), deps.clock, deps.random)):
            self._changed.set()

    def _report(self, error: str) -> None:
        if error and error != self._error:
            now = "the last certificate is served" if self.ready else "no webhook is served yet"
            log.warning("certificates: %s; %s, and it is tried again", error, now)
        self._error = error

    async def _look(self) -> None:
        data = await self._advanced()
        for kind, observed in await self._configurations():
            patch = bundle_patch(observed, bundle(data)) if bundle(data) else []
            if patch:
                name = observed["metadata"]["name"]
                await self._hub.kube.patch(kind, name, patch, how="json")
                log.info("certificates: %s %s trusts the current CA", kind.kind, name)
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

    async def _advanced(self) -> SecretData:
        """Take the steps that are due; return the Secret after them."""
        for _ in range(STEPS):
            live = await self._read()
            data = decoded(live)
            if is_foreign(data):
                return data
            from wigwag.operator.certificates.rotation import RotationStep, advance  # brings `cryptography`

            observed = [configuration for _, configuration in await self._configurations()]
            step, after = advance(data, self._names, published(observed), datetime.now(UTC))
            if step is RotationStep.KEEP:
                return data
            try:
                await self._write(live, after)
            except ApiError as error:
                if not (error.conflict or error.already_exists):  # another replica was faster
                    raise
            else:
                log.info("certificates: %s", step.value)
        return decoded(await self._read())

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

    async def _read(self) -> Object | None:
        return await self._kube.find(SECRET, self._secret, self._namespace)

    async def _write(self, live: Object | None, data: SecretData) -> None:
        encoded = {name: b64encode(value.encode()).decode() for name, value in data.items()}
        if live is not None:
            await self._kube.replace(SECRET, {**live, "data": encoded})
            return
        metadata = {"name": self._secret, "namespace": self._namespace}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
        await self._kube.create(SECRET, {**body, "type": "kubernetes.io/tls"})


def decoded(secret: Object | None) -> SecretData:
    """Return the data of a Secret as text; what is no text is left out, and made anew."""
    texts: dict[str, str] = {}
    for name, value in ((secret or {}).get("data") or {}).items():
        try:
            texts[name] = b64decode(value).decode()
        except ValueError:
            continue
    return texts
