"""A shell command, from start to end: bytes in, bytes out, and nothing of it is left behind.

    spawn in a session of its own ─▶ exit ─▶ its pipes close ─────────────────────────▶ SIGKILL to the group, reap
             └─ timeout, too much output, cancelled ─▶ SIGTERM to the group ─▶ grace ─▶┘

The command and all that it forks are one process group, and the group ends with the command: what is meant to outlive
it has to leave by `setsid`. It is reaped last, so the number of the group cannot be another's when the signals are
sent. The pipes show whether a child is still there, so after the exit they get a moment to close.

The loop's own subprocesses are not used. uvloop forks, which takes longer the more memory we have (12 ms at 150 MiB;
`Popen` uses vfork and takes 1 ms), and gives the child sockets, so that a script cannot open `/dev/stderr`. asyncio's
`wait` may wait for a background child that keeps a pipe open (python/cpython#119710). Here a pidfd tells the exit, and
nobody waits for a pipe without a limit.

The hard case is a cancellation at any moment: the group is ended and reaped before the cancellation goes on. A second
one cuts the grace short.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from subprocess import Popen
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from wigwag.pipeline.clock import LoopClock, wait_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.pipeline.clock import Clock

LONGEST_LINE = 1000
"""The most bytes of a line that are logged."""
_LINES_PER_READ = 100
_STDIN, _STDOUT, _STDERR = range(3)
_PIDFD_OPEN: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
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
    """Our end of a pipe."""

    def __init__(self, receive: Callable[[bytes], object], changed: asyncio.Event) -> None:
        self._receive, self._changed = receive, changed
        self.transport: asyncio.Transport | None = None
        self.closed = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.closed = cast("asyncio.Transport", transport), False

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._changed.set()

    def close(self, *, writing: bool) -> None:
        """Close it now, though somebody may not have read all that we wrote: `close` of the transport would wait."""
        if self.transport is None or self.closed:
            return
        if writing and self.transport.get_write_buffer_size():
            self.transport.abort()
        self.transport.close()


class _Process:
    """One process and its pipes."""

    def __init__(self, write: WriteLine, most: int | None, clock: Clock) -> None:
        """`most`: standard output is the result, up to so many bytes; None: it is logged."""
        self._clock, self._most, self._size = clock, most or 0, 0
        self._lines = LineLog(write), LineLog(write)
        self._pieces: list[bytes] = []
        self._changed = asyncio.Event()
        receivers = (bytes, self._lines[0].feed if most is None else self._take, self._lines[1].feed)
        self._pipes = [_Pipe(receive, self._changed) for receive in receivers]
        self._popen: Popen[bytes] | None = None
        self.exited = self.oversize = False

    def _take(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._most:
            self._pieces.append(data)
        elif not self.oversize:
            self.oversize = True
            self._changed.set()

    def _exit(self) -> None:
        self.exited = True
        self._changed.set()

    @property
    def gone(self) -> bool:
        """Whether the process has exited and nobody holds its output."""
        return self.exited and self._pipes[_STDOUT].closed and self._pipes[_STDERR].closed

    async def spawn(self, command: str, environment: Mapping[str, str]) -> None:
        """Start it. This must not be cancelled: a loop may have connected half a pipe then."""
        with ExitStack() as inherited:
            ends = [inherited.enter_context(await self._connect(number)) for number in range(3)]
            self._popen = _shell(command, ends, environment)
        follow_exit(self._popen, self._exit)

    async def _connect(self, number: int) -> FileIO:
        """Open a pipe and connect our end; return the other one."""
        read, write = (FileIO(end, mode) for end, mode in zip(os.pipe(), ("r", "w"), strict=True))
        ours, theirs = (write, read) if number == _STDIN else (read, write)
        loop = asyncio.get_running_loop()
        connect: Any = loop.connect_write_pipe if number == _STDIN else loop.connect_read_pipe
        try:
            await connect(lambda: self._pipes[number], ours)
        except OSError:
            ours.close()
            theirs.close()
            raise
        return theirs

    def feed(self, data: bytes) -> None:
        """Write the standard input, as fast as it is read; a process that closes it early is its own affair."""
        stdin = self._pipes[_STDIN].transport
        assert stdin is not None
        if data and not stdin.is_closing():
            stdin.write(data)
        stdin.close()

    async def until(self, condition: Callable[[], bool], end: float) -> bool:
        """Wait until something holds, or until a time; return whether it holds."""
        while not condition() and self._clock.now() < end:
            await wait_event(self._clock, self._changed, end)
        return condition()

    async def end(self, grace: float) -> None:
        """End the whole group and reap the process, however often this is cancelled."""
        try:
            if self._popen is not None and not self.exited and not self.oversize:
                self._signal(signal.SIGTERM)
                await self.until(lambda: self.gone, self._clock.now() + grace)
        finally:
            self._signal(signal.SIGKILL)
            await self._reap()
            for lines in self._lines:
                lines.end()

    async def _reap(self) -> None:
        """Wait until the process has exited and our pipes are closed; raise a cancellation only after that."""
        cancelled = await self._uncancelled(lambda: self._popen is None or self.exited)
        if self._popen is not None:
            self._popen.wait()
        for number, pipe in enumerate(self._pipes):
            pipe.close(writing=number == _STDIN)
        cancelled = await self._uncancelled(lambda: all(pipe.closed for pipe in self._pipes)) or cancelled
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
        last = self._lines[1].last or self._lines[0].last
        assert self._popen is not None
        return CommandResult(self._popen.returncode, b"".join(self._pieces), timed_out, self.oversize, last)

    def _signal(self, number: int) -> None:
        if self._popen is not None:
            with suppress(ProcessLookupError, PermissionError):  # macOS: what is left of the group are zombies
                os.killpg(self._popen.pid, number)


def _shell(command: str, ends: list[FileIO], environment: Mapping[str, str]) -> Popen[bytes]:
    """Start a shell. This blocks until the shell is loaded, which is less than a loop takes to fork."""
    shell = ("sh", "-c", command)
    stdin, stdout, stderr = ends
    return Popen(shell, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, start_new_session=True)  # noqa: S603


def follow_exit(
    popen: Popen[bytes], exited: Callable[[], None], pidfd_open: Callable[[int], int] | None = _PIDFD_OPEN
) -> None:
    """Have a function called in the loop when a process has exited: by a pidfd, or else by a thread that waits."""
    loop = asyncio.get_running_loop()
    try:
        handle = pidfd_open(popen.pid) if pidfd_open else None
    except OSError:  # an old kernel, or a sandbox
        handle = None
    if handle is None:
        Thread(target=lambda: (popen.wait(), loop.call_soon_threadsafe(exited)), daemon=True).start()
        return

    def readable() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        exited()

    loop.add_reader(handle, readable)


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
    spawning = asyncio.ensure_future(process.spawn(command, environment))
    timed_out = False
    try:
        await asyncio.shield(spawning)
        process.feed(stdin)
        await process.until(lambda: process.exited or process.oversize, clock.now() + limits.timeout)
        timed_out = not (process.exited or process.oversize)
        if process.exited:
            await process.until(lambda: process.gone, clock.now() + limits.drain)
    finally:
        while not spawning.done():  # cancelled before it was there; in a moment it is, and has to be ended
            with suppress(asyncio.CancelledError):
                await asyncio.wait([spawning])
        await process.end(limits.grace)
    return process.result(timed_out=timed_out)
