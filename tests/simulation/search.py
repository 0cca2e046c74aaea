"""Looks for schedules that show a fault, and leaves out of them what is not needed to show it."""

from __future__ import annotations

import gc
import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.run import simulate
from tests.simulation.schedule import STEPS, steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PATIENCE = 150
"""How many shorter schedules are tried."""


@dataclass(frozen=True)
class Failure:
    """A schedule that showed a fault."""

    seed: int
    taken: tuple[int, ...]
    """The steps of it that are needed."""
    length: int
    error: BaseException

    def __str__(self) -> str:
        listed = steps(self.seed, self.length)
        lines = [f"  {number:3}  {listed[number]}" for number in self.taken if number < len(listed)]
        chosen = ",".join(map(str, self.taken))
        command = f"python -m tests.simulation --seed {self.seed} --length {self.length} --steps {chosen or 'none'}"
        return "\n".join([f"{type(self.error).__name__}: {self.error}", *lines, f"replay: {command}"])


@contextmanager
def quiet() -> Iterator[None]:
    """Thousands of agents need not log. What was there before is no garbage, so nobody need look through it."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        logging.disable(before)


def attempt(seed: int, taken: Sequence[int], length: int) -> BaseException | None:
    """Run some steps of a schedule; return what it finds."""
    listed = steps(seed, length)
    try:
        simulate(seed, [listed[number] for number in taken])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        return error.with_traceback(None)  # which would keep that world alive
    return None


def shorten(seed: int, error: BaseException, length: int = STEPS, patience: int = PATIENCE) -> Failure:
    """Leave out of a failing schedule what is not needed to fail."""
    taken, found = list(range(length)), error
    size = length // 2
    while size and patience > 0:
        at = 0
        while at < len(taken) and patience > 0:
            fewer = taken[:at] + taken[at + size :]
            patience -= 1
            other = attempt(seed, fewer, length)
            if other is None:
                at += size
            else:
                taken, found = fewer, other
        size //= 2
    return Failure(seed, tuple(taken), length, found)


def search(seeds: Sequence[int], length: int = STEPS, most: int = 3, patience: int = PATIENCE) -> Iterator[Failure]:
    """Run the schedules of seeds; yield those that show a fault, shortened, until there are enough to look at."""
    with quiet():
        for seed in seeds:
            error = attempt(seed, range(length), length)
            if error is not None:
                yield shorten(seed, error, length, patience)
                most -= 1
            if not most:
                return
