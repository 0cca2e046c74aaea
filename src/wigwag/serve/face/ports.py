"""Ports: what is served where, with TLS or without, and why a port cannot be opened."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from wigwag.errors import StartError, UsageError
from wigwag.options import long_name
from wigwag.pipeline.spec import cause
from wigwag.wire.rpcs.dispatch import early, rpc_handler
from wigwag.wire.server.listen import Listener
from wigwag.wire.tls import Tls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from wigwag.wire.http import Early, Handler
    from wigwag.wire.limits import WireLimits
    from wigwag.wire.rpc import Methods
    from wigwag.wire.server.server import Server

    Serve = Callable[[Handler, Sequence[Listener], WireLimits, Early | None], AbstractAsyncContextManager[Server]]


class TlsOptions(Protocol):
    """The options about TLS, which are the same everywhere."""

    @property
    def server_cert_path(self) -> str: ...
    @property
    def server_key_path(self) -> str: ...
    @property
    def client_ca_path(self) -> str: ...
    @property
    def management_tls(self) -> bool: ...


class Port(Struct, frozen=True):
    """One place to serve at."""

    name: str
    option: str
    """The option that chooses another port."""
    handler: Handler
    listener: Listener
    limits: WireLimits
    early: Early | None = None
    """Which requests the handler wants before their bodies are there."""
    socket_option: str = ""
    auth: str = ""
    """What the service itself asks clients for, such as tokens."""


def management_port(
    health: Methods, pages: Handler, listener: Listener, limits: WireLimits, enforced: WireLimits
) -> Port:
    """Return the port of probes, metrics and debug pages. It asks for no token: probes have none."""
    handler = rpc_handler(health, limits, pages)
    return Port("management", "--management-port", handler, listener, enforced, early(health))


def why(port: Port, failed: BaseException) -> str:
    """Return why a port cannot be opened, and what to do about it."""
    error, listener = cause(failed), port.listener
    place, option = listener.path or f"port {listener.port}", port.socket_option if listener.path else port.option
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{place} ({port.name}) is in use; stop what uses it, or choose another with {option}"
    where = f"{place} of {listener.host}" if listener.host else place
    return f"cannot serve {port.name} at {where}: {error}"


def protection(port: Port) -> dict[str, str]:
    """Return for the log how an open port is protected: whether TLS is on, and what clients have to show."""
    tls = port.listener.tls
    certificates = "client certificates" if tls is not None and tls.clients == "required" else ""
    return {"tls": "on" if tls else "off", "auth": " and ".join(filter(None, (certificates, port.auth))) or "off"}


def read_tls(options: TlsOptions) -> Tls | None:
    """Return what the options say about TLS; None: it is not wanted."""
    if bool(options.server_cert_path) != bool(options.server_key_path):
        raise UsageError("TLS needs both --server-cert-path and --server-key-path")
    if not options.server_cert_path:
        for name in ("client_ca_path", "management_tls", "ofrep_tls"):
            if getattr(options, name, None):
                raise UsageError(f"{_option(name)} needs TLS: give --server-cert-path and --server-key-path, too")
        return None
    for name in ("server_cert_path", "server_key_path", "client_ca_path"):
        path = getattr(options, name)
        if path and not Path(path).is_file():
            raise StartError(f"{_option(name)}: there is no file {path}")
    authority = options.client_ca_path or None
    clients: Literal["none", "required"] = "required" if authority else "none"
    return Tls(certificate=options.server_cert_path, key=options.server_key_path, authority=authority, clients=clients)


def management_tls(options: TlsOptions, tls: Tls | None) -> Tls | None:
    """Return TLS for the management port, if asked; without client certificates, as the kubelet has none to show."""
    return replace(tls, authority=None, clients="none") if tls is not None and options.management_tls else None


def _option(name: str) -> str:
    return f"--{long_name(name)}"
