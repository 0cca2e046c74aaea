"""What is wrong with the options, as far as that can be seen without serving.

Options that contradict each other raise `UsageError`, as they do at the start. All other problems are returned
together. The checks call the functions that the start calls, so both report the same problem with the same message.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from wigwag.agent.ports import listeners
from wigwag.agent.telemetry import settings_of
from wigwag.agent.tenancy import check_rules, policy_of
from wigwag.errors import DocumentError, StartError
from wigwag.pipeline.spec import describe
from wigwag.serve.access.cors import listed_by
from wigwag.serve.face.ports import Port, read_tls, why
from wigwag.telemetry.start import problems
from wigwag.wire.http import Reply
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.listen import bind, unix_socket
from wigwag.wire.tls import context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from wigwag.agent.options import AgentOptions
    from wigwag.sources.source import Source
    from wigwag.wire.server.listen import Listener

    Remark = Callable[[str], object]

_PORTS = {"evaluation": "port", "management": "management_port", "sync": "sync_port", "OFREP": "ofrep_port"}
_SOCKETS = {"evaluation": "socket_path", "sync": "sync_socket_path"}


async def faults(options: AgentOptions, sources: Sequence[Source], remark: Remark) -> list[str]:
    """Return what would keep the agent from starting, or clients from connecting; remark on what may."""
    policy_of(options)
    listed_by(options.cors_origin)
    faults = [*_clashes(options), *dict.fromkeys(problems(settings_of(options), remark))]
    faults += [fault for look in (_tls, _state, _access) if (fault := look(options))]
    for name, listener in listeners(options, sources, None).items():
        if fault := await _place(name, listener, remark):
            faults.append(fault)
    return faults


def _clashes(options: AgentOptions) -> Iterator[str]:
    """Two services at the same place; port 0 is any place that is free."""
    places: dict[str, list[str]] = {}
    for name, port in _PORTS.items():
        socket = _SOCKETS.get(name, "")
        path = getattr(options, socket, "")
        place = path or (f"port {getattr(options, port)}" if getattr(options, port) else "")
        if place:
            places.setdefault(place, []).append(_option(socket if path else port))
    for place, names in places.items():
        if len(names) > 1:
            yield f"{' and '.join(names)} are both {place}; choose another for one of them"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _tls(options: AgentOptions) -> str:
    try:
        tls = read_tls(options)
        if tls is not None:
            context(tls)
    except StartError as error:
        return f"{error}; check --server-cert-path, --server-key-path and --client-ca-path"
    except OSError as error:
        return f"the TLS files cannot be read: {describe(error)}"
    return ""


def _state(options: AgentOptions) -> str:
    """The agent makes the directory if need be, so what matters is the first one that is there."""
    if not options.state_dir:
        return ""
    path = Path(options.state_dir).absolute()
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        return f"--state-dir: {there} is no directory; choose another"
    try:
        with TemporaryFile(dir=there):
            return ""
    except OSError as error:
        return f"--state-dir: {there} cannot be written to ({error.strerror}); allow it, or choose another"


def _access(options: AgentOptions) -> str:
    try:
        if options.auth_tokens:
            check_rules(options.auth_tokens)
    except DocumentError as error:
        return f"--auth-tokens: {error}"
    return ""


async def _place(name: str, listener: Listener, remark: Remark) -> str:
    """Check one port. A port in use is only remarked on: the agent whose options these are may use it."""
    socket = _SOCKETS.get(name, "")
    option, socket_option = _option(_PORTS[name]), _option(socket)
    port = Port(name, option, lambda _: Reply(503), listener, WireLimits(), socket_option=socket_option)
    try:
        await _bind_once(listener)
    except (OSError, UnicodeError) as error:
        if not _in_use(listener, error):
            return why(port, error)
        remark(why(port, error))
    return ""


async def _bind_once(listener: Listener) -> None:
    """Bind a port or socket and release it. It does not listen, so no client connects meanwhile."""
    if listener.kind == "unix":
        unix_socket(listener).close()
        os.unlink(listener.path)  # noqa: PTH108 - once, and local
    else:
        for bound in await bind(listener):
            bound.close()


def _in_use(listener: Listener, error: Exception) -> bool:
    """Return whether the error means that a server uses the address, and not that the address is wrong."""
    used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
    return used and (listener.kind == "tcp" or Path(listener.path).is_socket())


def repeated(sources: Sequence[Source]) -> Iterator[str]:
    """Return what is said twice: the same source with the same settings, which cannot make a difference."""
    counts = Counter((source.name, source.provider, source.settings) for source in sources)
    for (name, _, _), count in counts.items():
        if count > 1:
            yield f"source {name}: is listed {count} times with the same settings; once is enough"
