"""A writer of state is killed at any moment: what is found afterwards is what was saved last, whole."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import wigwag
from tests.agent.state.writer import generation
from wigwag.agent.state.directory import StateDir

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
KILLS = 200
SEED = 5


class Writers:
    """The process that makes writers, seen from here."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout.fileno()
        self._text = b""

    def start(self, folder: Path, first: int, fatal: int = 0) -> int:
        """Start a writer, and return the number of its process."""
        self._input.write(json.dumps([str(folder), first, fatal]).encode() + b"\n")
        self._input.flush()
        while b"pid " not in self._text or not self._text.endswith(b"\n"):
            self._read()
        return int(self._text.partition(b"pid ")[2].split()[0])

    def listen(self, seconds: float) -> None:
        """Hear what the writer says, for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._output], [], [], left)[0]:
                self._read()

    def end(self) -> tuple[int, bool]:
        """Wait for the end; return the last generation that was said to be saved, and whether it was killed."""
        while b"dead " not in self._text or not self._text.endswith(b"\n"):
            self._read()
        words = [line.split() for line in self._text.splitlines()]
        self._text = b""
        said = {word: int(number) for word, number in words}
        return said.get(b"saved", -1), said[b"dead"] == signal.SIGKILL

    def _read(self) -> None:
        text = os.read(self._output, 1 << 16)
        assert text, "the process that makes writers is gone"
        self._text += text


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    command = [sys.executable, "-m", "tests.agent.state.writer"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Writers(process)


def found(folder: Path) -> int | None:
    """Return the generation that an agent would start with, having looked at every flag of it."""
    store = StateDir(folder)
    loaded = store.load()
    store.close()
    assert loaded.problems == ()
    if not loaded.entries:
        return None
    numbers = {wigwag.load(entry.document).resolve("n").value for entry in loaded.entries}
    (number,) = numbers
    assert loaded.entries == generation(number)
    return int(number)


def test_killed_at_a_random_moment_200_times_it_leaves_what_was_saved_last(writers: Writers, tmp_path: Path) -> None:
    moments, last = random.Random(SEED), -1
    for _ in range(KILLS):
        pid = writers.start(tmp_path, last + 1)
        writers.listen(moments.uniform(0, 0.04))
        os.kill(pid, signal.SIGKILL)
        said, killed = writers.end()
        number = found(tmp_path)
        assert killed
        assert number is not None or said == last == -1
        last = max(said, last)
        assert number in (last, last + 1) or number is None
        last = last if number is None else number
    assert last > KILLS / 2, "the writers hardly got to write"


def test_killed_before_each_of_its_system_calls_it_leaves_the_old_or_the_new(writers: Writers, tmp_path: Path) -> None:
    left: list[int] = []
    for call in range(1, 100):
        folder = tmp_path / str(call)
        writers.start(folder, 7, call)
        said, killed = writers.end()
        left.append(found(folder) or 0)
        if not killed:
            break
        assert said == 7
    assert left == sorted(left)
    assert set(left) == {7, 8}
    assert not killed
    assert said == 8
