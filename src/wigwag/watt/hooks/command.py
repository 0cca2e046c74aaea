"""A shell command, from start to end: bytes in, bytes out, and nothing of it is left behind.

    spawn in a session of its own ─▶ exit ─▶ its pipes close ─────────────────────────▶ SIGKILL to the group, reaped
             └─ timeout, too much output, cancelled ─▶ SIGTERM to the group ─▶ grace ─▶┘

The command and all that it forks are one process group, and the group ends with the command: what is meant to outlive
it has to leave by `setsid`. The pipes show whether a child is still there, so after the exit they get a moment to
close.

The hard case is a background child that keeps a pipe open after the command has exited: asyncio's `Process.wait` may
wait for it for ever (python/cpython#119710). Here the loop's own callback tells the exit, and nobody waits for a pipe
without a limit. The other one is a cancellation at any moment: the process is spawned under a shield, and it is ended
and reaped before the cancellation goes on. A second one cuts the grace short.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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


class _Process(asyncio.SubprocessProtocol):
    """What the loop tells about one process."""

    def __init__(self, write: WriteLine, most: int | None, clock: Clock) -> None:
        """`most`: standard output is the result, up to so many bytes; None: it is logged."""
        self._clock, self._most, self._size = clock, most, 0
        self._lines = {_STDERR: LineLog(write)} | ({} if most is not None else {_STDOUT: LineLog(write)})
        self._pieces: list[bytes] = []
        self._pipes = {_STDIN, _STDOUT, _STDERR}
        self._changed = asyncio.Event()
        self._transport: asyncio.SubprocessTransport
        self.exited = self.oversize = self._closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd in self._lines:
            self._lines[fd].feed(data)
            return
        self._size += len(data)
        if self._size <= (self._most or 0):
            self._pieces.append(data)
        elif not self.oversize:
            self.oversize = True
            self._changed.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._pipes.discard(fd)
        self._changed.set()

    def process_exited(self) -> None:
        self.exited = True
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._changed.set()

    @property
    def gone(self) -> bool:
        """Whether the process has exited and nobody holds its pipes."""
        return self.exited and not self._pipes - {_STDIN}

    def feed(self, data: bytes) -> None:
        """Write the standard input, as fast as it is read; a process that closes it early is its own affair."""
        pipe = self._stdin()
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
        """Wait until the process has exited and its transport is closed; raise a cancellation only after that."""
        cancelled = await self._uncancelled(lambda: self.exited)
        stdin = self._stdin()
        if _STDIN in self._pipes and stdin.get_write_buffer_size():
            stdin.abort()  # `close` would wait for somebody who does not read
        self._transport.close()
        cancelled = await self._uncancelled(lambda: self._closed) or cancelled
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
        status = self._transport.get_returncode()
        last = next((lines.last for lines in self._lines.values() if lines.last), "")
        return CommandResult(status or 0, b"".join(self._pieces), timed_out, self.oversize, last)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS: what is left of the group are zombies
            os.killpg(self._transport.get_pid(), number)

    def _stdin(self) -> asyncio.WriteTransport:
        return cast("asyncio.WriteTransport", self._transport.get_pipe_transport(_STDIN))


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
    spawning = asyncio.ensure_future(_spawn(process, command, environment))
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


async def _spawn(process: _Process, command: str, environment: Mapping[str, str]) -> None:
    pipe = asyncio.subprocess.PIPE
    await asyncio.get_running_loop().subprocess_exec(
        lambda: process, "sh", "-c", command,
        stdin=pipe, stdout=pipe, stderr=pipe, env=dict(environment), start_new_session=True,
    )  # fmt: skip
