"""Credentials for the next request: a token, a client certificate, or both; from files, a kubeconfig or an exec plugin.

A pod's token is replaced before it expires, so files are read for every request. The credential of a plugin is kept
until it expires or the server refuses it; of many concurrent requests, one runs the plugin.

A plugin (client.authentication.k8s.io/v1 or v1beta1) gets its input from the environment, and prints an ExecCredential
to standard output. It has no standard input and a timeout, after which it is killed with all its children. Its standard
error is ours, because it knows best why it fails. What it prints is never shown.
"""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from time import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from wigwag.errors import UsageError, WigwagError
from wigwag.wire.h1.client import check_fields

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Awaitable, Callable, Mapping

    from wigwag.kube.config.cluster import Cluster, Plugin
    from wigwag.kube.config.tls import ClusterTrust
    from wigwag.wire.h1.client import Fields

EARLY = 10.0
"""A credential is renewed this many seconds before it expires."""
SECONDS = 60.0
"""The timeout of a plugin."""
_CLOSING = 1.0
LARGEST = 1 << 20
"""The most output of a plugin, in bytes."""
_LARGEST_TOKEN = 64 << 10


class PluginError(WigwagError):
    """An exec plugin returned no credentials."""

    def __init__(self, plugin: Plugin, reason: str) -> None:
        hint = f"; to install it: {plugin.hint}" if plugin.hint else ""
        super().__init__(f"the credential plugin {PurePath(plugin.command).name}: {reason}{hint}")


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential that a plugin returned."""

    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    until: float | None = None
    """When it expires, in seconds since the epoch; None: when the server refuses it."""


class ExecCredentialStatus(Struct, rename="camel"):
    """The part of an ExecCredential that holds credentials."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class ExecCredential(Struct, rename="camel"):
    """What a plugin prints."""

    api_version: str = ""
    kind: str = ""
    status: ExecCredentialStatus | None = None


async def run_plugin(plugin: Plugin, environment: Mapping[str, str], seconds: float = SECONDS) -> Credential:
    """Run a plugin and return its credential; `PluginError` if it returns none."""
    variables = {**environment, **dict(plugin.environment), "KUBERNETES_EXEC_INFO": request(plugin)}
    try:
        async with asyncio.timeout(seconds):
            code, printed = await _run([plugin.command, *plugin.arguments], variables)
    except TimeoutError:
        raise PluginError(
            plugin, f"printed nothing within {seconds:g} s; run it by hand to see what it waits for"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be run"
        raise PluginError(plugin, f"{reason}; check `command` in the kubeconfig") from None
    if code:
        raise PluginError(plugin, f"ended with status {code}; run it by hand to see why")
    return read_credential(plugin, printed)


def request(plugin: Plugin) -> str:
    """Return the ExecCredential that a plugin gets as its input."""
    spec: dict[str, object] = {"interactive": False}
    if plugin.cluster:
        spec["cluster"] = msgspec.Raw(plugin.cluster.encode())
    return msgspec.json.encode({"apiVersion": plugin.api, "kind": "ExecCredential", "spec": spec}).decode()


def read_credential(plugin: Plugin, printed: bytes) -> Credential:
    """Read what a plugin printed."""
    try:
        output = msgspec.json.decode(printed, type=ExecCredential)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise PluginError(plugin, "printed no ExecCredential; run it by hand, and update it") from None
    if output.kind != "ExecCredential" or output.api_version != plugin.api:
        raise PluginError(plugin, f"printed no ExecCredential of {plugin.api}; update it, or apiVersion")
    status = output.status or ExecCredentialStatus()
    pair = status.client_certificate_data, status.client_key_data
    if bool(pair[0]) != bool(pair[1]) or not (status.token or pair[0]):
        raise PluginError(plugin, "printed neither a token nor a certificate with its key; log in with it again")
    expires = status.expiration_timestamp
    if expires is not None and expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    return Credential(status.token.strip(), *pair, None if expires is None else expires.timestamp())


async def _run(command: list[str], environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a program; return its exit status and its output."""
    process = await _spawn(command, environment)
    assert process.stdout is not None
    try:
        printed = b""
        while len(printed) <= LARGEST and (piece := await process.stdout.read(1 << 16)):
            printed += piece
        if len(printed) > LARGEST:
            return 1, b""
        return await process.wait(), printed
    finally:
        await _end(process)


async def _spawn(command: list[str], environment: Mapping[str, str]) -> Process:
    """Start a program. If this is cancelled, it is ended first: asyncio would end it alone, not what it has started."""
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        await _end(await spawning)
        raise


async def _end(process: Process) -> None:
    """End the whole process group, and wait until its pipe is closed."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.shield(process.wait())
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSING):  # a process that has left the group may hold it
            while process.stdout is not None and await process.stdout.read(1 << 16):
                pass


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials of one request."""

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
        """`wall` returns the time in seconds since the epoch."""
        self._cluster, self._environment, self._wall, self._run = cluster, environment, wall, run
        self._kept: Credential | None = None
        self._running = asyncio.Lock()

    async def current(self) -> RequestCredentials:
        """Return the credentials to use now; `UsageError` or `PluginError` if there are none."""
        user, trust = self._cluster.user, self._cluster.trust
        issued = await self._issued(user.plugin) if user.plugin else Credential()
        if issued.certificate:
            trust = replace(trust, certificate_data=issued.certificate, key_data=issued.key)
        token = issued.token or _token(user.token_file, user.token)
        header = f"Bearer {token}" if token else ""
        if user.basic and not header:
            header = "Basic " + base64.b64encode(user.basic.encode()).decode()
        fields = (*((("Authorization", header),) if header else ()), *user.impersonation)
        return RequestCredentials(fields, trust)

    def refused(self, credentials: RequestCredentials) -> bool:
        """Note that the server refused these; return whether others may be available now."""
        kept = self._kept
        if kept is None:
            return bool(self._cluster.user.token_file or self._cluster.trust.certificate)
        if not kept.token or ("Authorization", f"Bearer {kept.token}") in credentials.fields:
            self._kept = None
        return True

    async def _issued(self, plugin: Plugin) -> Credential:
        async with self._running:
            kept = self._kept
            if kept is None or (kept.until is not None and self._wall() >= kept.until - EARLY):
                self._kept = kept = await self._run(plugin, self._environment)
            return kept


def _token(path: str, otherwise: str) -> str:
    """Return the token in a file; if that cannot be read, the other one."""
    if not path:
        return otherwise
    try:
        with Path(path).open(encoding="ascii") as file:
            token = file.read(_LARGEST_TOKEN + 1).strip()
        check_fields((("Authorization", token),))
    except (OSError, UnicodeDecodeError, UsageError) as error:
        if otherwise:
            return otherwise
        reason = error.strerror if isinstance(error, OSError) else "it holds no token"
        raise UsageError(f"{path}: {reason}; check that the service account's token is mounted") from None
    if not token or len(token) > _LARGEST_TOKEN:
        raise UsageError(f"{path}: it holds no token; check that the service account's token is mounted")
    return token
