"""A shell command, from start to end: bytes in, bytes out, and nothing of it is left behind.

    spawn in a session of its own ─▶ exit ─▶ its pipes close ─────────────────────────▶ SIGKILL to the group, reaped
             └─ timeout, too much output, cancelled ─▶ SIGTERM to the group ─▶ grace ─▶┘

The command and all that it forks are one process group, and the group ends with the command: what is meant to outlive
it has to leave by `setsid`. The pipes show whether a child is still there, so after the exit they get a moment to
close.

The hard case is a background child that keeps a pipe open after the command has exited: asyncio's `Process.wait` may
wait for it for ever (python/cpython#119710). Here `on_exit` tells the exit, and nobody waits for a pipe without a
limit. The other one is a cancellation at any moment: the process is spawned under a shield, and it is ended
and reaped before the cancellation goes on. A second one cuts the grace short.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, cast

from wigwag.pipeline.clock import LoopClock, wait_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.pipeline.clock import Clock

LONGEST_LINE = 1000
"""The most bytes of a line that are logged."""
_LINES_PER_READ = 100
_STDIN, _STDOUT, _STDERR = range(3)
WriteLine = Callable[[str, int], bool]
"""Logs a line that stands for so many lines; false if the line was only counted."""


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What a command may cost."""

    timeout: float = 30.0
    """Seconds until it must have exited."""
    grace: float = 5.0
    """Seconds from SIGTERM to SIGKILL."""
    drain: float = 0.5
    """Seconds for the pipes to close after the exit."""
    output: int = 16 << 20
    """The most bytes of its standard output, if that is the result."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended."""

    status: int
    """The exit status; negative: the signal that killed it."""
    output: bytes = b""
    timed_out: bool = False
    oversize: bool = False
    """It printed more than the limit, and was killed."""
    last_line: str = ""
    """The last line that it logged."""

    @property
    def signal(self) -> str:
        """The name of the signal that killed it, or nothing."""
        if self.status >= 0:
            return ""
        with suppress(ValueError):
            return signal.Signals(-self.status).name
        return f"signal {-self.status}"


class LineLog:
    """Splits output into lines and logs them, within limits: long lines are cut, and most of a flood is only counted.

    >>> log = LineLog(lambda line, lines: not print(line, lines))
    >>> log.feed(b"one\\ntw"); log.feed(b"o\\n\\nthree"); log.end()
    one 1
    two 1
    three 1
    """

    def __init__(self, write: WriteLine) -> None:
        self._write, self._rest = write, b""
        self.last = ""

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        first, *others = data.split(b"\n", _LINES_PER_READ)
        *lines, rest = (self._rest + first[:LONGEST_LINE], *others)
        skipped = rest.count(b"\n")
        if skipped:
            flood, _, rest = rest.rpartition(b"\n")
            lines.append(flood.rpartition(b"\n")[2])
        self._rest = rest[:LONGEST_LINE]
        self._log([text for line in lines if (text := _printable(line))], max(0, skipped - 1))

    def end(self) -> None:
        """Log what came after the last line break."""
        self.feed(b"\n")

    def _log(self, lines: list[str], skipped: int) -> None:
        for number, line in enumerate(lines, 1):
            self.last = line
            if not self._write(line, 1):
                skipped += len(lines) - number
                break
        if skipped:
            self.last = lines[-1] if lines else self.last
            self._write(self.last, skipped)


def _printable(line: bytes) -> str:
    """Return a line as text that changes nothing in a terminal."""
    text = line[:LONGEST_LINE].decode(errors="replace").rstrip()
    return "".join(letter if letter.isprintable() or letter == "\t" else "\N{REPLACEMENT CHARACTER}" for letter in text)


class _Pipe(asyncio.Protocol):
    """Our end of a pipe to or from a process."""

    def __init__(self, process: _Process, fd: int) -> None:
        self._process, self._fd = process, fd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process.opened(self._fd, transport)

    def data_received(self, data: bytes) -> None:
        self._process.received(self._fd, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._process.closed(self._fd)


class _Process:
    """One process, its pipes and what has come from them."""

    def __init__(self, write: WriteLine, most: int | None, clock: Clock) -> None:
        """`most`: standard output is the result, up to so many bytes; None: it is logged."""
        self._clock, self._most, self._size = clock, most, 0
        self._lines = {_STDERR: LineLog(write)} | ({} if most is not None else {_STDOUT: LineLog(write)})
        self._pieces: list[bytes] = []
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._changed = asyncio.Event()
        self._child: subprocess.Popen[bytes]
        self.exited = self.oversize = False

    async def start(self, command: str, environment: Mapping[str, str]) -> None:
        """Start the process; if it cannot be connected to, it is ended."""
        loop = asyncio.get_running_loop()
        self._child = child = spawn(command, environment)
        try:
            await loop.connect_write_pipe(partial(_Pipe, self, _STDIN), child.stdin)
            await loop.connect_read_pipe(partial(_Pipe, self, _STDOUT), child.stdout)
            await loop.connect_read_pipe(partial(_Pipe, self, _STDERR), child.stderr)
            on_exit(child, self._exited)
        except BaseException:
            self._signal(signal.SIGKILL)
            with child:  # closes the pipes and reaps it
                raise

    def opened(self, fd: int, pipe: asyncio.BaseTransport) -> None:
        """A pipe is connected."""
        self._pipes[fd] = pipe

    def received(self, fd: int, data: bytes) -> None:
        """Take output."""
        if fd in self._lines:
            self._lines[fd].feed(data)
            return
        self._size += len(data)
        if self._size <= (self._most or 0):
            self._pieces.append(data)
        elif not self.oversize:
            self.oversize = True
            self._changed.set()

    def closed(self, fd: int) -> None:
        """A pipe is closed."""
        self._pipes.pop(fd, None)
        self._changed.set()

    def _exited(self) -> None:
        self._child.wait()  # it has exited, so this only reaps it
        self.exited = True
        self._changed.set()

    @property
    def gone(self) -> bool:
        """Whether the process has exited and nobody holds its pipes."""
        return self.exited and not self._pipes.keys() - {_STDIN}

    def feed(self, data: bytes) -> None:
        """Write the standard input, as fast as it is read; a process that closes it early is its own affair."""
        pipe = self._stdin()
        if pipe is not None:
            if data and not pipe.is_closing():
                pipe.write(data)
            pipe.close()

    async def until(self, condition: Callable[[], bool], end: float) -> bool:
        """Wait until something holds, or until a time; return whether it holds."""
        while not condition() and self._clock.now() < end:
            await wait_event(self._clock, self._changed, end)
        return condition()

    async def end(self, grace: float) -> None:
        """End the whole group and reap the process, however often this is cancelled."""
        try:
            if not self.exited and not self.oversize:
                self._signal(signal.SIGTERM)
                await self.until(lambda: self.gone, self._clock.now() + grace)
        finally:
            self._signal(signal.SIGKILL)
            await self._reap()
            for lines in self._lines.values():
                lines.end()

    async def _reap(self) -> None:
        """Wait until the process has exited and its pipes are closed; raise a cancellation only after that."""
        cancelled = await self._uncancelled(lambda: self.exited)
        stdin = self._stdin()
        if stdin is not None and stdin.get_write_buffer_size():
            stdin.abort()  # `close` would wait for somebody who does not read
        for pipe in list(self._pipes.values()):
            pipe.close()
        cancelled = await self._uncancelled(lambda: not self._pipes) or cancelled
        if cancelled is not None:
            raise cancelled

    async def _uncancelled(self, condition: Callable[[], bool]) -> asyncio.CancelledError | None:
        cancelled = None
        while not condition():
            self._changed.clear()
            try:
                await self._changed.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        return cancelled

    def result(self, *, timed_out: bool) -> CommandResult:
        """Return how it ended."""
        last = next((lines.last for lines in self._lines.values() if lines.last), "")
        return CommandResult(self._child.returncode, b"".join(self._pieces), timed_out, self.oversize, last)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS: what is left of the group are zombies
            os.killpg(self._child.pid, number)

    def _stdin(self) -> asyncio.WriteTransport | None:
        return cast("asyncio.WriteTransport | None", self._pipes.get(_STDIN))


def spawn(command: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a shell by vfork. A loop may fork (uvloop does), which costs more, the more memory we have."""
    pipe, arguments = subprocess.PIPE, ("sh", "-c", command)
    return subprocess.Popen(  # noqa: S603 - that is what a hook is
        arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
    )


def on_exit(child: subprocess.Popen[bytes], notify: Callable[[], None]) -> None:
    """Have a function called in the loop when a child has exited."""
    if not hasattr(os, "pidfd_open"):
        on_exit_by_thread(child, notify)
        return
    loop, descriptor = asyncio.get_running_loop(), os.pidfd_open(child.pid)

    def exited() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        notify()

    loop.add_reader(descriptor, exited)


def on_exit_by_thread(child: subprocess.Popen[bytes], notify: Callable[[], None]) -> None:
    """Do the same where there is no pidfd, as on macOS: a thread waits for the child."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        child.wait()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(notify)

    Thread(target=wait, name=f"waits for process {child.pid}", daemon=True).start()


async def run_command(
    command: str,
    stdin: bytes,
    environment: Mapping[str, str],
    log_line: WriteLine,
    limits: CommandLimits = CommandLimits(),  # noqa: B008 - a frozen value
    *,
    capture: bool = True,
    clock: Clock | None = None,
) -> CommandResult:
    """Run a command by `sh -c`, and return how it ended; `OSError` if it cannot be started.

    `capture`: whether standard output is the result; otherwise it is logged, as standard error is.
    """
    clock = clock or LoopClock()
    process = _Process(log_line, limits.output if capture else None, clock)
    spawning = asyncio.ensure_future(process.start(command, environment))
    timed_out = False
    try:
        await asyncio.shield(spawning)
        process.feed(stdin)
        end = clock.now() + limits.timeout
        await process.until(lambda: process.exited or process.oversize, end)
        timed_out = not (process.exited or process.oversize)
        if process.exited:
            await process.until(lambda: process.gone, clock.now() + limits.drain)
    finally:
        while not spawning.done():  # cancelled while it was being spawned: it is there in a moment, and has to be ended
            with suppress(asyncio.CancelledError):
                await asyncio.wait([spawning])
        if spawning.exception() is None:
            await process.end(limits.grace)
    return process.result(timed_out=timed_out)
