"""The one way to call a hook, whatever its target is.

    target of a hook    gets                             its result
    a command           the payload on standard input    standard output, if it exits with 0
    a URL               the payload by POST              the body of a 2xx
    a function          the snapshot itself              what it returns, as JSON

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import random
from signal import Signals
from typing import Any

import msgspec

from wigwag.background import BackgroundWorker
from wigwag.loglimit import LogLimiter
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.clock import Clock, LoopClock, deadline
from wigwag.pipeline.spec import describe
from wigwag.version import __version__
from wigwag.watt.hooks.command import CommandLimits, CommandResult, run_command
from wigwag.watt.hooks.hook import Hook, HookError, ShellCommand
from wigwag.wire.client.client import Client
from wigwag.wire.client.errors import FetchError
from wigwag.wire.client.proxies import Proxies
from wigwag.wire.client.url import Url
from wigwag.wire.h1.client import ClientRequest, Fields, ResponseLimits

MOST_OUTPUT = 16 << 20
"""The most bytes of a result."""
_LINES, _PERIOD = 100, 10.0
"""So many lines of a hook's output are logged in so many seconds."""
log = logging.getLogger(__name__)


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
