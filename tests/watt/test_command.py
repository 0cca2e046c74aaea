"""Commands that hang, crash, fork, flood or do not listen; and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.watt.processes import marked, marker, run_on, until
from wigwag.watt.hooks.command import LONGEST_LINE, CommandLimits, CommandResult, LineLog, follow_exit, run_command

pytestmark = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
USUAL = CommandLimits()
QUICK = CommandLimits(timeout=0.3, grace=0.3, drain=0.1)
HANGS = CommandLimits(timeout=2.0, grace=30.0, drain=0.1)
"""For a command that has to get somewhere before it hangs, and that listens to SIGTERM."""
STUBBORN = CommandLimits(timeout=2.0, grace=0.3, drain=0.1)
"""For one that does not."""


class Lines:
    """A log of which only so many lines are written."""

    def __init__(self, most: int = 1000) -> None:
        self.lines: list[str] = []
        self.count, self._most = 0, most

    def __call__(self, line: str, lines: int) -> bool:
        self.count += lines
        if len(self.lines) >= self._most:
            return False
        self.lines.append(line)
        return True


def ran(
    loop: str, command: str, stdin: bytes = b"", limits: CommandLimits = USUAL, *, capture: bool = True
) -> tuple[CommandResult, Lines]:
    """Run a command to its end; see that nothing is left of it."""
    log = Lines()
    with marker("command") as environment:
        result = run_on(loop, lambda: run_command(command, stdin, environment, log, limits, capture=capture))
    return result, log


def test_standard_output_is_the_result_and_standard_error_is_logged(loop: str) -> None:
    result, log = ran(loop, "cat; echo problem >&2; printf more >&2", b"in")
    assert result == CommandResult(0, b"in", last_line="more")
    assert log.lines == ["problem", "more"]


def test_if_the_output_is_not_the_result_it_is_logged_too(loop: str) -> None:
    result, log = ran(loop, "echo out; echo err >&2; exit 3", capture=False)
    assert (result.status, result.output, sorted(log.lines)) == (3, b"", ["err", "out"])


def test_its_input_and_output_can_be_opened_by_name(loop: str) -> None:
    result, log = ran(loop, "cat /dev/stdin > /dev/stdout; echo said > /dev/stderr", b"in")
    assert (result, log.lines) == (CommandResult(0, b"in", last_line="said"), ["said"])


def test_large_input_reaches_a_slow_reader_whole(loop: str) -> None:
    result, _ = ran(loop, "sleep 0.1; wc -c", b"x" * 35_000_000)
    assert result.output.strip() == b"35000000"


@pytest.mark.parametrize("command", ["exec <&-; echo done", "head -c 10 >/dev/null; echo done", "echo done"])
def test_a_command_that_does_not_read_its_input_is_fine(loop: str, command: str) -> None:
    assert ran(loop, command, b"x" * 5_000_000)[0] == CommandResult(0, b"done\n")


def test_a_command_that_has_exited_before_its_input_is_written_is_fine(loop: str) -> None:
    async def main() -> None:
        for _ in range(30):
            assert (await run_command("exec true", b"x" * 100_000, os.environ, Lines())).status == 0

    run_on(loop, main)


def test_a_crash_names_its_signal(loop: str) -> None:
    result, _ = ran(loop, "kill -KILL $$")
    assert (result.status, result.signal, result.timed_out) == (-9, "SIGKILL", False)
    assert CommandResult(-64).signal in ("SIGRTMAX", "signal 64")
    assert CommandResult(1).signal == ""


def test_a_command_that_hangs_is_ended_by_sigterm(loop: str) -> None:
    result, log = ran(loop, "trap 'echo bye >&2; exit 7' TERM; echo part; sleep 60 & wait", limits=HANGS)
    assert result == CommandResult(7, b"part\n", timed_out=True, last_line="bye")
    assert log.lines == ["bye"]


def test_a_command_that_ignores_sigterm_is_killed_with_its_children(loop: str) -> None:
    result, _ = ran(loop, "trap '' TERM; sh -c 'sleep 60; sleep 60' & sleep 60; sleep 60", limits=STUBBORN)
    assert (result.timed_out, result.signal) == (True, "SIGKILL")


def test_forked_children_die_with_a_command_that_ends_by_sigterm(loop: str) -> None:
    result, _ = ran(loop, "(trap '' TERM; sleep 60; sleep 60) >/dev/null 2>&1 & sleep 60", limits=HANGS)
    assert (result.timed_out, result.signal) == (True, "SIGTERM")


@pytest.mark.parametrize("redirect", ["", ">/dev/null 2>&1 </dev/null"])
def test_a_background_child_neither_holds_up_the_result_nor_survives(loop: str, redirect: str) -> None:
    result, _ = ran(loop, f"sleep 60 {redirect} & echo done", limits=CommandLimits(timeout=30.0, drain=0.1))
    assert result == CommandResult(0, b"done\n")


def test_what_a_background_child_prints_in_time_belongs_to_the_result(loop: str) -> None:
    result, _ = ran(loop, "(sleep 0.1; echo late) & echo early", limits=CommandLimits(drain=20.0))
    assert result.output == b"early\nlate\n"


def test_one_that_leaves_by_setsid_holds_up_nothing_and_lives_on(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    start = f"exec 3<&0; setsid sh -c 'echo $$ > {path}; exec sleep 60' <&3 &"  # it holds all three pipes
    command = f"{start} while ! [ -s {path} ]; do :; done; echo done"
    log, limits = Lines(), CommandLimits(drain=0.1)
    result = run_on(loop, lambda: run_command(command, b"x" * 1_000_000, os.environ, log, limits))
    assert result == CommandResult(0, b"done\n")
    os.kill(int(path.read_text()), signal.SIGKILL)  # which fails if it is gone


def test_too_much_output_ends_it_at_once(loop: str) -> None:
    result, _ = ran(loop, "trap '' TERM; head -c 100000000 /dev/zero; sleep 60", limits=CommandLimits(output=1 << 20))
    assert (result.oversize, result.timed_out, result.signal) == (True, False, "SIGKILL")
    assert len(result.output) <= 1 << 20


def test_a_flood_of_lines_is_counted_and_mostly_not_logged(loop: str) -> None:
    log = Lines(most=50)
    with marker("command") as environment:
        result = run_on(loop, lambda: run_command("yes x >&2", b"", environment, log, STUBBORN))
    assert result.timed_out
    assert log.lines == ["x"] * 50
    assert log.count > 10_000
    assert result.last_line == "x"


def test_others_have_their_turn_during_a_flood(loop: str) -> None:
    async def main() -> int:
        turns = 0
        with marker("command") as environment:
            async with asyncio.TaskGroup() as group:
                command = run_command("yes x >&2", b"", environment, Lines(50), STUBBORN)
                task = group.create_task(command)
                while not task.done():
                    turns += 1
                    await asyncio.sleep(0.001)
        return turns

    assert run_on(loop, main) > 10


def test_no_shell_is_an_error_and_leaves_nothing(loop: str) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="sh"):
            await run_command("true", b"", {"PATH": "/nonexistent"}, Lines())

    run_on(loop, main)


def test_without_pidfds_a_thread_waits_for_the_exit(loop: str) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    async def main() -> None:
        for pidfd_open in (None, refuse, os.pidfd_open):
            exited = asyncio.Event()
            with subprocess.Popen(["sh", "-c", "exit 3"]) as popen:  # noqa: ASYNC220
                follow_exit(popen, exited.set, pidfd_open)
                await exited.wait()
                assert popen.wait() == 3

    run_on(loop, main)


def test_no_files_left_to_open_is_an_error_and_leaves_nothing(loop: str) -> None:
    async def main() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        for spare in range(12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + spare, hard))
            try:
                with suppress(OSError):
                    await run_command("true", b"x", os.environ, Lines())
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    run_on(loop, main)


def test_cancelled_at_any_moment_it_leaves_no_process(loop: str) -> None:
    async def main() -> None:
        random = Random(5)
        for number in range(40):
            command = ["sleep 60", "trap '' TERM; sleep 60 & sleep 60", "true", "sleep 60 & true"][number % 4]
            task = asyncio.ensure_future(run_command(command, b"x" * 200_000, environment, Lines(), QUICK))
            for _ in range(random.choice([0, 1, 2, 3, 5, 8])):
                await asyncio.sleep(random.choice([0, 0, 0.001, 0.004]))
            task.cancel()
            if number % 3 == 0:
                await asyncio.sleep(0)
                task.cancel()
            assert (await asyncio.gather(task, return_exceptions=True))[0] is not None
            await until(lambda: not marked(environment["MARKER"]))

    with marker("cancelled") as environment:
        run_on(loop, main)


def test_a_second_cancellation_cuts_the_grace_short(loop: str) -> None:
    async def main() -> None:
        log = Lines()
        command = "trap '' TERM; echo ready >&2; while :; do sleep 60; done"
        task = asyncio.ensure_future(run_command(command, b"", environment, log, CommandLimits(grace=3600.0)))
        await until(lambda: log.lines)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with marker("cut") as environment:
        run_on(loop, main)


def test_long_lines_are_cut_and_control_characters_replaced(loop: str) -> None:
    log = Lines()
    lines = LineLog(log)
    lines.feed(b"a" * 5000)
    lines.feed(b"b" * 5000 + b"\n\x1b[2Jred\xff\r\n\n")
    lines.end()
    assert log.lines == ["a" * LONGEST_LINE, "\N{REPLACEMENT CHARACTER}[2Jred\N{REPLACEMENT CHARACTER}"]
    assert log.count == 2


def test_every_line_of_a_flood_is_counted_once(loop: str) -> None:
    log = Lines(most=10)
    lines = LineLog(log)
    for _ in range(3):
        lines.feed(b"".join(b"%d\n" % number for number in range(1000)))
    assert (log.count, log.lines, lines.last) == (3000, [str(number) for number in range(10)], "999")
