"""Checks an agent before it is started: its options, and every source of flags or facts. Nothing is served.

Options that contradict each other raise `UsageError`, as they do at the start. All other problems are returned
together. The checks call the functions that the start calls, so both report the same problem with the same message.

A source is watched exactly as the agent does it, up to its first answer. All are asked at the same time, so the slowest
decides how long it takes, and one that fails does not keep the others from being checked.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from wigwag.agent.annotations import documents
from wigwag.agent.assemble import Loader
from wigwag.agent.facts import FACTS, Facts, watch_facts
from wigwag.agent.freshness import too_strict
from wigwag.agent.ports import listeners
from wigwag.agent.run import telemetry_settings
from wigwag.agent.tenancy import check_rules, policy_of
from wigwag.errors import DocumentError, StartError, UsageError
from wigwag.flags.checks.lint import lint_documents
from wigwag.flags.model import Limits
from wigwag.kube.hub import Hub
from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.pipeline.spec import Unavailable, describe
from wigwag.pipeline.watch import first
from wigwag.serve.access.cors import listed_by
from wigwag.serve.face.ports import Port, read_tls, why
from wigwag.sources.document import Document, Merged
from wigwag.sources.kinds import prepare
from wigwag.telemetry.start import problems
from wigwag.wire.http import Reply
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.listen import bind, unix_socket
from wigwag.wire.tls import context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from wigwag.agent.options import AgentOptions
    from wigwag.flags.model import Finding
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.source import Source
    from wigwag.wire.server.listen import Listener

    Remark = Callable[[str], object]

_PORTS = {"evaluation": "port", "management": "management_port", "sync": "sync_port", "OFREP": "ofrep_port"}
_SOCKETS = {"evaluation": "socket_path", "sync": "sync_socket_path"}


class CheckResult(Struct, frozen=True):
    """The result of asking a source."""

    source: Source
    state: Literal["ok", "failing", "skipped"]
    """Skipped: it cannot even be asked, in this installation or environment."""
    flags: int | None = 0
    """None: it has facts, and no flags."""
    problems: tuple[Finding, ...] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def fine(self) -> bool:
        """Whether nothing has to be done about it before the agent is started."""
        bad = self.state != "ok" and (self.source.required or self.state == "skipped")
        return not bad and not any(problem.severity == "error" for problem in self.problems)


async def reach(
    sources: Sequence[Source],
    options: AgentOptions,
    patience: float,
    remark: Remark,
    clock: Clock = LoopClock(),  # noqa: B008 - it has no state
) -> list[CheckResult]:
    """Ask every source once, all at the same time."""

    async def asked(source: Source) -> CheckResult:
        began = clock.now()
        facts = source.provider in FACTS
        try:
            prepare([] if facts else [source], remark)
        except UsageError as error:
            return CheckResult(source, "skipped", error=str(error).removeprefix(f"source {source.name}: "))
        for warning in too_strict([] if facts else [source], options.stale_after):
            remark(warning)
        answer = await _first(source, hub, patience)
        seconds = clock.now() - began
        if isinstance(answer, Document | Merged):
            return _checked(source, answer, options, seconds)
        if isinstance(answer, Facts):
            return CheckResult(source, "ok", None, seconds=seconds)
        return CheckResult(source, "failing", None if facts else 0, seconds=seconds, error=answer)

    hub = Hub()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(hub.run())
        tasks = [group.create_task(asked(source)) for source in sources]
        await asyncio.wait(tasks)
        running.cancel()
    return [task.result() for task in tasks]


async def _first(source: Source, hub: Hub, patience: float) -> AnyDocument | Facts | str:
    """Return the first document or facts of a source, or why there are none."""
    try:
        async with asyncio.timeout(patience):
            item: AnyDocument | Facts | Unavailable | None
            if source.provider in FACTS:
                item = await first(watch_facts(source, hub=hub))
            else:
                item = await first(documents(source, hub))
    except TimeoutError:
        return f"no answer within {patience:g} s; look at the network, or give it more time with --timeout"
    except Exception as error:  # noqa: BLE001 - a watcher may fail in any way: that is the answer
        return describe(error)
    if item is None:
        return "it ended without an answer"
    return item.reason if isinstance(item, Unavailable) else item


def _checked(source: Source, document: AnyDocument, options: AgentOptions, seconds: float) -> CheckResult:
    findings = tuple(lint_documents([(source.name, document.content, document.format)], Limits()))
    try:
        flags = Loader(options.fractional, strict=options.strict).parse(source, document, strict=options.strict)
    except DocumentError as error:
        return CheckResult(source, "failing", problems=findings, seconds=seconds, error=str(error))
    return CheckResult(source, "ok", len(flags), findings, seconds)


async def faults(options: AgentOptions, sources: Sequence[Source], remark: Remark) -> list[str]:
    """Return what would keep the agent from starting, or clients from connecting; remark on what may."""
    policy_of(options)
    listed_by(options.cors_origin)
    faults = [*_clashes(options), *dict.fromkeys(problems(telemetry_settings(options), remark))]
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
