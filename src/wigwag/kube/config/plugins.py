"""Credentials from a program: the exec plugins of kubeconfigs, client.authentication.k8s.io/v1 and v1beta1.

The program is told in its environment what is wanted, and writes an ExecCredential to its standard output. It is asked
nothing, as there is nobody to answer, and it has a limited time: one that hangs is ended with all that it started. What
it writes to its standard error goes where ours goes, for it knows best why it fails. What it prints is never shown.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from wigwag.errors import WigwagError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.kube.config.cluster import Plugin

SECONDS = 60.0
"""How long a plugin may take."""
LARGEST = 1 << 20
"""How much it may print, in bytes."""


class PluginError(WigwagError):
    """A plugin did not give credentials."""

    def __init__(self, plugin: Plugin, reason: str) -> None:
        hint = f"; to install it: {plugin.hint}" if plugin.hint else ""
        super().__init__(f"the credential plugin {PurePath(plugin.command).name}: {reason}{hint}")


@dataclass(frozen=True, slots=True)
class Credential:
    """What a plugin gave."""

    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    until: float | None = None
    """Until when it is good, in seconds since the epoch; None: until it is refused."""


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
    """Run a plugin, and return what it gives; `PluginError` says why it gives nothing."""
    surroundings = {**environment, **dict(plugin.environment), "KUBERNETES_EXEC_INFO": request(plugin)}
    try:
        async with asyncio.timeout(seconds):
            code, printed = await _run([plugin.command, *plugin.arguments], surroundings)
    except TimeoutError:
        raise PluginError(
            plugin, f"gave nothing within {seconds:g} s; run it by hand to see what it waits for"
        ) from None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be run"
        raise PluginError(plugin, f"{said}; check `command` in the kubeconfig") from None
    if code:
        raise PluginError(plugin, f"ended with status {code}; run it by hand to see why")
    return read_credential(plugin, printed)


def request(plugin: Plugin) -> str:
    """Return what a plugin is told."""
    spec: dict[str, object] = {"interactive": False}
    if plugin.cluster:
        spec["cluster"] = msgspec.Raw(plugin.cluster.encode())
    return msgspec.json.encode({"apiVersion": plugin.api, "kind": "ExecCredential", "spec": spec}).decode()


def read_credential(plugin: Plugin, printed: bytes) -> Credential:
    """Read what a plugin printed."""
    try:
        found = msgspec.json.decode(printed, type=ExecCredential)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise PluginError(plugin, "printed no ExecCredential; run it by hand, and update it") from None
    if found.kind != "ExecCredential" or found.api_version != plugin.api:
        raise PluginError(plugin, f"printed no ExecCredential of {plugin.api}; update it, or apiVersion")
    given = found.status or ExecCredentialStatus()
    pair = given.client_certificate_data, given.client_key_data
    if bool(pair[0]) != bool(pair[1]) or not (given.token or pair[0]):
        raise PluginError(plugin, "printed neither a token nor a certificate with its key; log in with it again")
    return Credential(given.token.strip(), *pair, _epoch(given.expiration_timestamp))


def _epoch(when: datetime | None) -> float | None:
    if when is None:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


async def _run(command: list[str], environment: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a program; return its exit status and what it printed, or its beginning."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        printed = b""
        while len(printed) <= LARGEST and (piece := await process.stdout.read(1 << 16)):
            printed += piece
        if len(printed) > LARGEST:
            return 1, b""
        return await process.wait(), printed
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started, if that has not ended
        await asyncio.shield(process.wait())
