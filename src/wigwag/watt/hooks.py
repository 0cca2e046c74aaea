"""A hook: a command, a URL or a Python function that watt calls with a snapshot; and the one way to call it.

    target of a hook                gets                             its result
    a command of `sh -c`            the payload on standard input    standard output, if it exits with 0
    http://…, https://…             the payload by POST              the body of a 2xx
    python:package.module:function  the snapshot itself              what it returns, as JSON

The payload is a function, so nothing is serialised for hooks that do not ask for it. All that can go wrong is a
`HookError`; what stays in force then is decided by who calls: `derive` and `notify`.

The hard case is a Python function that is not `async` and hangs: a thread cannot be killed. It has a daemon thread of
its own, which does not keep the process from ending, and it is not called again before it has returned.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import PurePath
from random import random
from signal import Signals
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from wigwag.background import BackgroundWorker
from wigwag.errors import UsageError, WigwagError
from wigwag.loglimit import LogLimiter
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.pipeline.spec import describe
from wigwag.version import __version__
from wigwag.watt.command import CommandLimits, CommandResult, run_command
from wigwag.watt.projection import EVERYTHING, Projection
from wigwag.wire.client.client import Client
from wigwag.wire.client.errors import FetchError
from wigwag.wire.client.proxies import Proxies
from wigwag.wire.client.url import Url, parse_url
from wigwag.wire.h1.client import ClientRequest, Fields, ResponseLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

OnFailure = Literal["retry", "skip", "fatal"]
WATCH_TIMEOUT, NOTIFY_TIMEOUT = 30.0, 60.0
MOST_OUTPUT = 16 << 20
_LINES, _PERIOD = 100, 10.0
"""So many lines of a hook's output are logged in so many seconds."""
_PYTHON = "python:"
_ASSIGNMENT, _SCRIPT = re.compile(r"\w+="), re.compile(r"[\w./][\w./-]*\.\w+|/[\w./-]+")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """The text of a command. It may hold secrets, so it is not shown."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Hook:
    """What is called, and what happens if that fails."""

    target: ShellCommand | Url | Callable[[Any], Any]
    name: str
    """For logs and reports; without secrets."""
    timeout: float = WATCH_TIMEOUT
    """Seconds for one call."""
    on_failure: OnFailure = "retry"
    """`retry`: call it again after a pause. `skip`: go on without it. `fatal`: the process ends."""
    projection: Projection = EVERYTHING
    """The part of snapshots that it is for: it gets no other, and is not called for changes of others."""

    def __str__(self) -> str:
        return self.name


class HookError(WigwagError):
    """A call of a hook failed."""

    exit_code = 1

    def __init__(self, hook: Hook, reason: str) -> None:
        super().__init__(f"the hook {hook}: {reason}")
        self.hook, self.reason = hook, reason


def parse_hook(text: str, *, timeout: float = WATCH_TIMEOUT, on_failure: OnFailure = "retry", name: str = "") -> Hook:
    """Read a hook as it is written in an option or a config file; `UsageError` says what is wrong with it.

    >>> parse_hook("python3 /hooks/watch.py --token secret").name, parse_hook("TOKEN=secret /bin/reload secret").name
    ('python3 /hooks/watch.py', 'reload')
    >>> parse_hook("https://me:secret@hooks.example/watch").name, parse_hook("python:json:dumps").name
    ('https://hooks.example/watch', 'python:json:dumps')
    """
    text = text.strip()
    if not text or "\0" in text:
        raise UsageError("a hook is a command, a URL, or python:package.module:function; this one is empty or binary")
    if not timeout > 0:
        raise UsageError(f"the timeout of a hook is {timeout:g} s; give it more than 0")
    if on_failure not in get_args(OnFailure):
        raise UsageError(f"on_failure of a hook is {on_failure!r}; write {', '.join(get_args(OnFailure))}")
    target: ShellCommand | Url | Callable[[Any], Any]
    if text.startswith(("http://", "https://")):
        target = parse_url(text)
        return Hook(target, name or str(target), timeout, on_failure)
    if text.startswith(_PYTHON):
        return Hook(_function(text), name or text, timeout, on_failure)
    return Hook(ShellCommand(text), name or _command_name(text), timeout, on_failure)


def _function(text: str) -> Callable[[Any], Any]:
    module, _, names = text.removeprefix(_PYTHON).partition(":")
    try:
        found: Any = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except Exception as error:
        raise UsageError(
            f"the hook {text} cannot be imported: {describe(error)}; write python:package.module:function, "
            "and install the package beside wigwag"
        ) from error
    if not callable(found):
        raise UsageError(f"the hook {text} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _command_name(text: str) -> str:
    """Return the program, and the script that it runs; other arguments may be secret."""
    words = text.split()
    while len(words) > 1 and _ASSIGNMENT.match(words[0]):
        del words[0]
    program = PurePath(words[0]).name if not _ASSIGNMENT.match(words[0]) else "sh"
    return " ".join([program, *(word for word in words[1:2] if _SCRIPT.fullmatch(word))])


@dataclass(frozen=True, slots=True)
class HookStatus:
    """How a hook is doing."""

    name: str
    state: Literal["never run", "ok", "degraded"] = "never run"
    error: str | None = None
    """Why the last call failed; None: it did not."""
    since: float | None = None
    """When it came into this state, in seconds of the clock."""
    running_since: float | None = None
    """When the current call began; None: none is running."""
    last_ok: int | None = None
    """The id of the last snapshot that it took."""
    runs: int = 0
    failures: int = 0
    seconds: float = 0.0
    """How long the last call took."""

    def started(self, now: float) -> HookStatus:
        return replace(self, running_since=now, runs=self.runs + 1)

    def succeeded(self, now: float, snapshot: int | None = None) -> HookStatus:
        return replace(self._ended("ok", now), error=None, last_ok=snapshot)

    def failed(self, now: float, error: str) -> HookStatus:
        return replace(self._ended("degraded", now), error=error, failures=self.failures + 1)

    def interrupted(self) -> HookStatus:
        return replace(self, running_since=None)

    def _ended(self, state: Literal["ok", "degraded"], now: float) -> HookStatus:
        seconds = 0.0 if self.running_since is None else now - self.running_since
        since = self.since if self.state == state else now
        return replace(self, state=state, since=since, running_since=None, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Invocation:
    """What a hook is called with."""

    snapshot: Any
    payload: Callable[[], bytes]
    arguments: str = ""
    """Appended to a command."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of a command."""
    fields: Fields = ()
    """Added to the headers of a request."""
    capture: bool = True
    """Whether the result counts; otherwise the output of a command is logged."""


@dataclass(frozen=True, slots=True)
class HookDeps:
    """What tests replace: time, random numbers, the retry policy and the environment."""

    clock: Clock = field(default_factory=LoopClock)
    random: Callable[[], float] = random
    backoff: Backoff = Backoff()
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """That of commands. It also holds HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""
    grace: float = 5.0
    """Seconds that a hook has to end: a command after SIGTERM, and any notify hook at shutdown."""


class HookCaller:
    """Calls hooks: the connections, threads and log limits of all of them."""

    def __init__(self, deps: HookDeps = HookDeps()) -> None:  # noqa: B008 - a frozen value
        self.deps = deps
        self._client = Client(proxies=Proxies.of(deps.environment), keep=False)
        self._limiter = LogLimiter(log, _LINES, _PERIOD)
        self._threads: dict[Hook, tuple[BackgroundWorker, asyncio.Future[Any]]] = {}

    async def call(self, hook: Hook, invocation: Invocation) -> bytes:
        """Call a hook and return its result; `HookError` if it fails."""
        if isinstance(hook.target, ShellCommand):
            return await self._command(hook, hook.target, invocation)
        try:
            async with deadline(self.deps.clock, hook.timeout):
                if isinstance(hook.target, Url):
                    return await self._post(hook, hook.target, invocation)
                return await self._function(hook, hook.target, invocation)
        except TimeoutError:
            raise HookError(hook, f"timed out after {hook.timeout:g} s") from None

    def close(self) -> None:
        """End the threads that have nothing to do; one that hangs ends with the process."""
        for worker, call in self._threads.values():
            worker.dismiss()
            call.cancel()
        self._threads.clear()

    async def _command(self, hook: Hook, command: ShellCommand, invocation: Invocation) -> bytes:
        limits = CommandLimits(hook.timeout, self.deps.grace, output=MOST_OUTPUT)
        environment = {**self.deps.environment, **invocation.environment}
        text = f"{command.text} {invocation.arguments}" if invocation.arguments else command.text
        payload = invocation.payload()
        kind = f"hook {hook}: ".replace("%", "%%") + "%s"  # each hook has its own limit

        def log_line(line: str, lines: int) -> bool:
            return self._limiter.log(logging.INFO, self.deps.clock.now(), kind, line, lines=lines)

        try:
            result = await run_command(
                text, payload, environment, log_line, limits,
                capture=invocation.capture, clock=self.deps.clock,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise HookError(hook, f"it cannot be run: {describe(error)}; see that there is a shell") from error
        finally:
            self._limiter.summarise(self.deps.clock.now())
        if problem := command_problem(result, hook.timeout):
            raise HookError(hook, problem)
        return result.output

    async def _post(self, hook: Hook, url: Url, invocation: Invocation) -> bytes:
        fields: Fields = (
            ("Content-Type", "application/json"), ("User-Agent", f"wigwag/{__version__}"),
            *((("Authorization", url.basic),) if url.basic else ()), *invocation.fields,
        )  # fmt: skip
        seconds = hook.timeout
        limits = ResponseLimits(min(10.0, seconds), seconds, seconds, seconds, body_bytes=MOST_OUTPUT)
        request = ClientRequest(url, "POST", fields, invocation.payload())
        try:
            response = await self._client.fetch(request, limits=limits)
        except FetchError as error:
            raise HookError(hook, str(error)) from error
        if not 200 <= response.status < 300:
            raise HookError(hook, f"HTTP {response.status} instead of a 2xx; look at the log of its server")
        return response.body

    async def _function(self, hook: Hook, function: Callable[[Any], Any], invocation: Invocation) -> bytes:
        try:
            result = await self._called(hook, function, invocation.snapshot)
            return msgspec.json.encode(result) if invocation.capture else b""
        except HookError:
            raise
        except Exception as error:
            log.debug("hook %s", hook, exc_info=True)
            raise HookError(hook, f"it raised {describe(error)}") from error

    async def _called(self, hook: Hook, function: Callable[[Any], Any], snapshot: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(snapshot)
        worker, last = self._threads.get(hook, (None, None))
        if last is not None and not last.done():
            raise HookError(hook, "an earlier call has not returned; make it `async`, or return in time")
        worker = worker or BackgroundWorker(f"hook {hook}")
        future = asyncio.wrap_future(worker.submit(function, snapshot))
        self._threads[hook] = worker, future
        result = await asyncio.shield(future)
        return await result if inspect.isawaitable(result) else result


def command_problem(result: CommandResult, timeout: float) -> str:
    """Return why the result of a command is none; empty if it is one.

    >>> command_problem(CommandResult(1, last_line="KeyError: 'spec'"), 30.0)
    "exit status 1; it last said: KeyError: 'spec'"
    >>> command_problem(CommandResult(137), 30.0), command_problem(CommandResult(0), 30.0)
    ('killed by SIGKILL; out of memory? Look at the log of the kernel', '')
    """
    if not (result.status or result.timed_out or result.oversize):
        return ""
    said = f"; it last said: {result.last_line}" if result.last_line else ""
    if result.timed_out:
        return f"timed out after {timeout:g} s, and was killed{said}"
    if result.oversize:
        return f"printed more than {MOST_OUTPUT >> 20} MiB, and was killed{said}"
    name = result.signal or _signal_of_child(result.status)
    if name == "SIGKILL":
        return f"killed by SIGKILL; out of memory? Look at the log of the kernel{said}"
    return f"killed by {name}{said}" if name else f"exit status {result.status}{said}"


def _signal_of_child(status: int) -> str:
    """Return the signal that killed what the shell waited for, if the shell's exit status tells of one."""
    return Signals(status - 128).name if status - 128 in Signals._value2member_map_ else ""


@asynccontextmanager
async def deadline(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Raise `TimeoutError` after so many seconds of the clock."""
    async with asyncio.timeout(None) as timeout:
        timer = clock.call_at(clock.now() + seconds, lambda: timeout.reschedule(-1.0))
        try:
            yield
        finally:
            timer.cancel()
