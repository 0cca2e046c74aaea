"""Hundreds of random swaps: no reader ever sees a mixture, and every change is told once, in order."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Self

import pytest

from tests.dflag.kubelet import ORDERS, Heard, Order, Volume, becomes, until
from tests.pipeline.fakes import run, settle
from wigwag import dflag
from wigwag.dflag import Policy
from wigwag.dflag.snapshot import Snapshot

SWAPS = 300
NAMES = [f"key{number}" for number in range(8)]
ABSENT = -1


def contents(random: Random) -> list[dict[str, str]]:
    """Every key of one generation has its number, and one more key tells which there are."""
    found: list[dict[str, str]] = []
    for number in range(SWAPS + 1):
        keys = sorted(random.sample(NAMES, random.randint(0, len(NAMES))))
        same = [key for key in keys if found and random.random() < 0.2 and key in found[-1]]
        values = {key: found[-1][key] if key in same else str(number) for key in keys}
        told = ",".join(f"{key}={value}" for key, value in values.items())
        found.append({**values, "number": str(number), "told": told})
    return found


class Program:
    """Flags with readers in threads, each of which pins a generation and looks whether it is one."""

    def __init__(self) -> None:
        self.flags = dflag.FlagSet("test")
        self.keys = {name: self.flags.int(name, ABSENT) for name in NAMES}
        self.number = self.flags.int("number", 0)
        self.told = self.flags.mapping("told", {}, item=int)
        self.heard = {name: Heard() for name in NAMES}
        for name, flag in self.keys.items():
            flag.on_change(self.heard[name])
        self.wrong: list[Any] = []
        self.looks = 0
        self._stop = threading.Event()
        self._readers = [threading.Thread(target=self._read, args=(look,)) for look in (self.pinned, self.snapshot)]

    def __enter__(self) -> Self:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for reader in self._readers:
            reader.join()

    def _read(self, look: Any) -> None:
        last = 0
        while not self._stop.wait(0.0005):  # at random moments, and not all the time: the kubelet has to run, too
            number, told, values = look()
            present = {name: value for name, value in values.items() if value != ABSENT}
            if present != told or number < last:
                self.wrong.append((last, number, told, present))
            last = number
            self.looks += 1

    def pinned(self) -> tuple[int, Any, dict[str, int]]:
        with self.flags.pinned():
            return self.number(), self.told(), {name: flag() for name, flag in self.keys.items()}

    def snapshot(self) -> tuple[int, Any, dict[str, int]]:
        snapshot: Snapshot = self.flags.snapshot()
        return snapshot[self.number], snapshot[self.told], {name: snapshot[flag] for name, flag in self.keys.items()}


POLICIES = [Policy(poll=3600.0), Policy(inotify=False, poll=0.001)]


@pytest.mark.parametrize("policy", POLICIES, ids=["inotify", "poll"])
@pytest.mark.parametrize("order", ORDERS)
def test_as_fast_as_the_kubelet_can_write(tmp_path: Path, order: Order, policy: Policy) -> None:
    generations = contents(Random(7))
    volume = Volume(tmp_path / "conf", generations[0], order)
    with Program() as program, dflag.setup(program.flags, volume.path, policy=policy) as updater:
        for content in generations[1:]:
            volume.write(content)
        becomes(program.number, SWAPS)
        assert program.flags.flush(20.0)
    assert program.wrong == []
    assert program.looks > 20
    assert (updater.errors, updater.warnings) == (0, 0)
    assert 10 < updater.generation <= SWAPS + 1
    for name, flag in program.keys.items():
        assert flag.get() == int(generations[-1].get(name, ABSENT))
        check_chain(program.heard[name].steps, flag.get())


def check_chain(steps: list[tuple[int, int]], last: int) -> None:
    """See that each step begins where the one before ended, goes somewhere, and goes on in time."""
    assert [old for old, _ in steps] == [ABSENT, *(new for _, new in steps[:-1])]
    assert steps[-1][1] == last
    assert all(old != new for old, new in steps)
    numbers = [new for _, new in steps if new != ABSENT]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("policy", POLICIES, ids=["inotify", "poll"])
@pytest.mark.parametrize("order", ORDERS)
def test_with_time_to_see_each_every_one_is_a_generation_and_every_change_is_told_once(
    tmp_path: Path, order: Order, policy: Policy
) -> None:
    generations = contents(Random(11))
    volume = Volume(tmp_path / "conf", generations[0], order)
    with Program() as program, dflag.setup(program.flags, volume.path, policy=policy) as updater:
        for number, content in enumerate(generations[1:], 1):
            volume.write(content)
            becomes(program.number, number)
        assert program.flags.flush(20.0)
    assert program.wrong == []
    assert updater.generation == SWAPS + 1
    for name, heard in program.heard.items():
        values = [ABSENT, *(int(content.get(name, ABSENT)) for content in generations)]
        assert heard.steps == [(old, new) for old, new in pairwise(values) if old != new]


@pytest.mark.parametrize("order", ORDERS)
def test_in_a_loop_it_is_the_same_for_who_is_told_by_threads_by_the_loop_and_at_once(
    tmp_path: Path, order: Order
) -> None:
    generations = contents(Random(13))[:201]
    volume = Volume(tmp_path / "conf", generations[0], order)
    program = Program()
    name, flag = next(iter(program.keys.items()))
    at_once, in_loop, whole = Heard(), Heard(), Heard()

    async def hear(old: int, new: int) -> None:
        in_loop(old, new)

    async def main() -> None:
        flag.on_change(at_once, "sync")
        flag.on_change(hear)
        async with dflag.watching(program.flags, volume.path) as updater:
            program.flags.on_change(whole, "sync")
            for number, content in enumerate(generations[1:], 1):
                volume.write(content)
                await program.number.wait_for(number.__eq__)
            assert updater.generation == len(generations)
        await settle()

    with program:
        run(main, timeout=150.0)
        assert program.flags.flush(20.0)
    assert program.wrong == []
    values = [ABSENT, *(int(content.get(name, ABSENT)) for content in generations)]
    expected = [(old, new) for old, new in pairwise(values) if old != new]
    assert at_once.steps == in_loop.steps == program.heard[name].steps == expected
    assert [new[program.number] for _, new in whole.steps] == list(range(1, len(generations)))
    assert all(after[0] is before[1] for before, after in pairwise(whole.steps))


@pytest.mark.parametrize("order", ORDERS)
def test_between_any_two_steps_of_the_kubelet_there_is_one_generation(tmp_path: Path, order: Order) -> None:
    """New keys whose links are not there yet, links that lead nowhere yet, and keys that are gone but still listed."""
    flags = dflag.FlagSet("test")
    old, new, both = flags.int("old", 0), flags.int("new", 0), flags.int("both", 0)
    volume = Volume(tmp_path / "conf", {"old": "1", "both": "1"}, order)
    with dflag.setup(flags, volume.path) as updater:
        states = set()
        for step in volume.steps({"new": "2", "both": "2"}):
            if step in ("swap", "unlink"):
                until(lambda: updater.generation == 2)
            states.add((old.get(), new.get(), both.get()))
        assert states == {(1, 0, 1), (0, 2, 2)}
        assert (updater.generation, updater.errors, updater.warnings) == (2, 0, 0)
