"""Who we are, for the next request: a token, a certificate, or both, as they are now.

A pod's token is replaced before it ends, and so is what a plugin gives. Files are read for every request, which is
rare; what a plugin gave is kept until it ends, or until the server refuses it. Many may ask at once, and the plugin
runs once.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.kube.config.plugins import Credential, run_plugin
from wigwag.wire.h1.client import check_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from wigwag.kube.config.cluster import Cluster, Plugin
    from wigwag.kube.config.tls import ClusterTrust
    from wigwag.wire.h1.client import Fields

EARLY = 10.0
"""Seconds before its end at which a credential is no longer used."""
_LARGEST_TOKEN = 64 << 10


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """What goes with a request."""

    fields: Fields = field(repr=False)
    trust: ClusterTrust


class Credentials:
    """The credentials of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        environment: Mapping[str, str],
        wall: Callable[[], float] = time,
        run: Callable[[Plugin, Mapping[str, str]], Awaitable[Credential]] = run_plugin,
    ) -> None:
        """`wall` tells the time in seconds since the epoch."""
        self._cluster, self._environment, self._wall, self._run = cluster, environment, wall, run
        self._kept: Credential | None = None
        self._running = asyncio.Lock()

    async def current(self) -> RequestCredentials:
        """Return what proves who we are; `UsageError` or `PluginError` if it cannot be had."""
        user, trust = self._cluster.user, self._cluster.trust
        given = await self._given(user.plugin) if user.plugin else Credential()
        if given.certificate:
            trust = replace(trust, certificate_data=given.certificate, key_data=given.key)
        token = given.token or _token(user.token_file, user.token)
        header = f"Bearer {token}" if token else ""
        if user.basic and not header:
            header = "Basic " + base64.b64encode(user.basic.encode()).decode()
        fields = (*((("Authorization", header),) if header else ()), *user.pretence)
        return RequestCredentials(fields, trust)

    def refused(self, proof: RequestCredentials) -> bool:
        """Note that the server does not know us by this; tell whether it is worth asking with something else."""
        kept = self._kept
        if kept is None:
            return bool(self._cluster.user.token_file or self._cluster.trust.certificate)
        if not kept.token or ("Authorization", f"Bearer {kept.token}") in proof.fields:
            self._kept = None
        return True

    async def _given(self, plugin: Plugin) -> Credential:
        async with self._running:
            kept = self._kept
            if kept is None or (kept.until is not None and self._wall() >= kept.until - EARLY):
                self._kept = kept = await self._run(plugin, self._environment)
            return kept


def _token(path: str, otherwise: str) -> str:
    """Return what a file holds; if it cannot be read, what was given besides."""
    if not path:
        return otherwise
    try:
        with Path(path).open(encoding="ascii") as file:
            found = file.read(_LARGEST_TOKEN + 1).strip()
        check_fields((("Authorization", found),))
    except (OSError, UnicodeDecodeError, UsageError) as error:
        if otherwise:
            return otherwise
        reason = error.strerror if isinstance(error, OSError) else "it holds no token"
        raise UsageError(f"{path}: {reason}; see that the service account's token is mounted") from None
    if not found or len(found) > _LARGEST_TOKEN:
        raise UsageError(f"{path}: it holds no token; see that the service account's token is mounted")
    return found
