"""Would it start, and would it have flags? Options are looked at and every source is reached once; nothing is served.

A source is followed exactly as the agent does it, up to its first word. All are asked at the same time, so that the
slowest decides how long it takes, and one that fails does not keep the others from being looked at.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

import wigwag
from wigwag.agent.locate import documents
from wigwag.agent.tenancy import LARGEST_RULES, policy_of
from wigwag.errors import DocumentError, StartError, UsageError
from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.pipeline.spec import Trouble, Unchanged, describe
from wigwag.pipeline.watch import closing
from wigwag.serve.opening import read_tls
from wigwag.serve.tokens import read_rules
from wigwag.sources.document import Document
from wigwag.sources.kinds import prepare
from wigwag.sources.kubernetes.hub import Hub
from wigwag.sources.read import read
from wigwag.wire.tls import context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from wigwag.agent.options import AgentOptions
    from wigwag.flags.model import Finding
    from wigwag.sources.source import Source

_PORTS = ("port", "management_port", "sync_port", "ofrep_port")
_SOCKETS = {"port": "socket_path", "sync_port": "sync_socket_path"}


class Reached(Struct, frozen=True):
    """What became of asking a source."""

    source: Source
    state: Literal["ok", "failing", "skipped"]
    """Skipped: it cannot even be asked, in this installation or environment."""
    flags: int = 0
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
    remark: Callable[[str], object],
    clock: Clock = LoopClock(),  # noqa: B008 - it has no state
) -> list[Reached]:
    """Ask every source once, all at the same time."""

    async def asked(source: Source) -> Reached:
        began = clock.now()
        try:
            prepare([source], remark)
        except UsageError as error:
            return Reached(source, "skipped", error=str(error).removeprefix(f"source {source.name}: "))
        found = await _first(source, hub, patience)
        seconds = clock.now() - began
        if isinstance(found, Document):
            return _judged(source, found, options, seconds)
        return Reached(source, "failing", seconds=seconds, error=found)

    hub = Hub(clock)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(hub.run())
        tasks = [group.create_task(asked(source)) for source in sources]
        await asyncio.wait(tasks)
        running.cancel()
    return [task.result() for task in tasks]


async def _first(source: Source, hub: Hub, patience: float) -> Document | str:
    """Return the first document of a source, or why there is none."""
    try:
        async with asyncio.timeout(patience), closing(documents(source, hub)) as stream:
            async for item in stream:
                if not isinstance(item, Unchanged):
                    return item.reason if isinstance(item, Trouble) else item
    except TimeoutError:
        return f"no answer within {patience:g} s; look at the network, or give it more time with --timeout"
    except Exception as error:  # noqa: BLE001 - a watcher may fail in any way: that is the answer
        return describe(error)
    return "it ended without an answer"


def _judged(source: Source, document: Document, options: AgentOptions, seconds: float) -> Reached:
    try:
        flags = wigwag.load(
            document.content, options.fractional, options.strict, source=source.name, format=document.format
        )
    except DocumentError as error:
        return Reached(source, "failing", problems=error.findings, seconds=seconds, error=str(error))
    return Reached(source, "ok", len(flags), tuple(flags.problems), seconds)


def faults(options: AgentOptions) -> Iterator[str]:
    """Return what is wrong with the options as far as this machine can tell without serving."""
    yield from _clashes(options)
    for check in (_tls_fault, _state_fault, _access_fault):
        fault = check(options)
        if fault:
            yield fault


def _clashes(options: AgentOptions) -> Iterator[str]:
    """Two services at the same place; port 0 is any place that is free."""
    places: dict[str, list[str]] = {}
    for port in _PORTS:
        socket = _SOCKETS.get(port, "")
        path = getattr(options, socket, "")
        place = path or (f"port {getattr(options, port)}" if getattr(options, port) else "")
        if place:
            places.setdefault(place, []).append(f"--{(socket if path else port).replace('_', '-')}")
    for place, names in places.items():
        if len(names) > 1:
            yield f"{' and '.join(names)} are both {place}; choose another for one of them"


def _tls_fault(options: AgentOptions) -> str:
    try:
        tls = read_tls(options)
        if tls is not None:
            context(tls)
    except StartError as error:
        return str(error)
    except ssl.SSLError as error:
        reason = error.reason.replace("_", " ").lower() if error.reason else "they are not in PEM"
        return f"the TLS files cannot be used: {reason}; check --server-cert-path, --server-key-path, --client-ca-path"
    except OSError as error:
        return f"the TLS files cannot be read: {describe(error)}"
    return ""


def _state_fault(options: AgentOptions) -> str:
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


def _access_fault(options: AgentOptions) -> str:
    policy_of(options)
    if not options.auth_tokens:
        return ""
    try:
        read_rules(read(options.auth_tokens, LARGEST_RULES))
    except (DocumentError, OSError) as error:
        return f"--auth-tokens: {describe(error).partition(': ')[2]}"
    return ""


def repeated(sources: Sequence[Source]) -> Iterator[str]:
    """Return what is said twice: the same source with the same settings, which cannot make a difference."""
    counts = Counter((source.name, source.provider, source.settings) for source in sources)
    for (name, _, _), count in counts.items():
        if count > 1:
            yield f"source {name}: is listed {count} times with the same settings; once is enough"
