"""A Secret with a CA and a certificate: read, and taken through the steps of its rotation.

It is written with the version that was read. So of two replicas that take a step at once, one gets a conflict, reads
again, and finds the step taken.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import SECRET
from wigwag.operator.certificates.secret import is_foreign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from msgspec import Raw

    from wigwag.kube.client import Kube, Object
    from wigwag.operator.certificates.secret import SecretData

STEPS = 10
"""A rotation has fewer steps; more of them in a row would be a defect."""
log = logging.getLogger("wigwag.operator")


class _VersionedMeta(Struct, rename="camel"):
    resource_version: str


class _Versioned(Struct):
    metadata: _VersionedMeta


_decode = msgspec.json.Decoder(_Versioned).decode


def decode_version(raw: Raw) -> str:
    """Decode nothing but the version: each change is another value, and no secret stays in memory."""
    return _decode(raw).metadata.resource_version


@dataclass(frozen=True)
class CertificateSecret:
    """The Secret of one certificate."""

    kube: Kube
    namespace: str
    name: str
    names: tuple[str, ...]
    """What the certificate is for."""
    about: str = "certificates"
    """How its lines in the log begin."""
    now: Callable[[], float] = time
    """Unix seconds."""

    async def read(self) -> SecretData:
        """Return what it holds; empty if there is none."""
        return decoded(await self._live())

    async def advanced(self, published: Callable[[], Awaitable[str]]) -> SecretData:
        """Take the steps that are due; return what it holds after them. `published`: see `rotation.advance`."""
        for _ in range(STEPS):
            live = await self._live()
            data = decoded(live)
            if is_foreign(data):
                return data
            from wigwag.operator.certificates.rotation import RotationStep, advance  # brings `cryptography`

            step, after = advance(data, self.names, await published(), datetime.fromtimestamp(self.now(), UTC))
            if step is RotationStep.KEEP:
                return data
            try:
                await self._write(live, after)
            except ApiError as error:
                if not (error.conflict or error.already_exists):  # another replica was faster
                    raise
            else:
                log.info("%s: %s", self.about, step.value)
        return await self.read()

    async def ensured(self, name: str, make: Callable[[], str]) -> str:
        """Return the value of a key that is made once, by whichever replica is first."""
        for _ in range(STEPS):
            live = await self._live()
            if value := decoded(live).get(name):
                return value
            try:
                await self._write(live, {**decoded(live), name: make()})
            except ApiError as error:
                if not (error.conflict or error.already_exists):
                    raise
        return (await self.read()).get(name, "")

    async def _live(self) -> Object | None:
        return await self.kube.find(SECRET, self.name, self.namespace)

    async def _write(self, live: Object | None, data: SecretData) -> None:
        encoded = {name: b64encode(value.encode()).decode() for name, value in data.items()}
        if live is not None:
            await self.kube.replace(SECRET, {**live, "data": encoded})
            return
        metadata = {"name": self.name, "namespace": self.namespace}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}
        await self.kube.create(SECRET, {**body, "type": "kubernetes.io/tls"})


def decoded(secret: Object | None) -> SecretData:
    """Return the data of a Secret as text; what is no text is left out, and made anew."""
    texts: dict[str, str] = {}
    for name, value in ((secret or {}).get("data") or {}).items():
        try:
            texts[name] = b64decode(value).decode()
        except ValueError:
            continue
    return texts
