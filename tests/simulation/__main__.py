"""Run many schedules, or one again.

python -m tests.simulation --seeds 10000              schedules 0 to 9999; exits 1 if one shows a fault
python -m tests.simulation --seeds 10000 --from 5000  others
python -m tests.simulation --seed 17                  one schedule, step by step
python -m tests.simulation --seed 17 --steps 3,4,9    some of its steps, as a failure prints them
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.simulation.run import simulate
from tests.simulation.schedule import STEPS, setting, steps
from tests.simulation.search import quiet, search


def _one(seed: int, taken: list[int], length: int) -> int:
    listed = steps(seed, length)
    print(setting(seed))
    for number in taken:
        print(f"  {number:3}  {listed[number]}")
    try:
        with quiet():
            simulate(seed, [listed[number] for number in taken])
    except Exception:  # noqa: BLE001 - to be read
        traceback.print_exc()
        return 1
    print("all of it holds")
    return 0


def _many(first: int, count: int, length: int) -> int:
    start, failures = time.monotonic(), 0
    for begin in range(first, first + count, 100):
        for failure in search(range(begin, min(begin + 100, first + count)), length):
            failures += 1
            print(failure, flush=True)
        seconds = time.monotonic() - start
        if failures:
            return 1
        print(f"{begin + 100 - first:>8} schedules, {failures} faults, {seconds:.0f} s", file=sys.stderr, flush=True)
    return 0


def main() -> int:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--length", type=int, default=STEPS, help="steps of a schedule")
    parser.add_argument("--seed", type=int, help="one schedule only")
    parser.add_argument("--steps", help="these of its steps only")
    told = parser.parse_args()
    if told.seed is None:
        return _many(told.first, told.seeds, told.length)
    chosen = range(told.length) if not told.steps else [] if told.steps == "none" else map(int, told.steps.split(","))
    return _one(told.seed, list(chosen), told.length)


if __name__ == "__main__":
    sys.exit(main())
