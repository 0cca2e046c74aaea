"""Reading a dynamic flag beside reading a setting elsewhere, and how long a ConfigMap takes to reach a notifier.

    scripts/bench dflag            the whole table
    scripts/bench dflag --quick    a tenth of the rounds

Reads are CPU time per read, best of several rounds, beside a plain attribute, pydantic-settings, dynaconf and absl.
Latency is wall time from before the rename of `..data` until a notifier is called with the new value; the writer, in
the kubelet's order, is a thread of the same process, and tidies up after the notifier was called. None of the peers
follows a directory; the nearest is pydantic-settings, made anew from the same files, which lists the directory once for
each field: among fewer files it is closer. Nothing here fails for being slow.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import tempfile
import threading
import time
import timeit
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.dflag.kubelet import Volume
from wigwag import dflag

FLAGS = 1_000
PATIENCE = 30.0


def peer(module: str) -> Any:
    """Import a library to be compared with; none of them is needed for anything else."""
    try:
        return importlib.import_module(module)
    except ImportError:
        sys.exit(f"there is no {module} to compare with: run scripts/bench dflag, which installs the group `bench`")


class Plain:
    """What a setting costs at least."""

    def __init__(self) -> None:
        self.rate = 10


class Slotted:
    """A value behind a method: what `get()` costs at least."""

    __slots__ = ("_rate",)

    def __init__(self) -> None:
        self._rate = 10

    def get(self) -> int:
        return self._rate


def settings_class(names: Iterable[str]) -> Any:
    """Make a class of pydantic-settings with these whole numbers."""
    base = peer("pydantic_settings").BaseSettings
    fields = dict.fromkeys(names, 10)
    exact = {"case_sensitive": True}  # the quicker way
    return type("Settings", (base,), {"__annotations__": dict.fromkeys(fields, int), "model_config": exact, **fields})


def absl_flags() -> tuple[Any, Any]:
    flags = peer("absl.flags")
    values = flags.FlagValues()
    holder = flags.DEFINE_integer("rate", 10, "requests per second", flag_values=values)
    values(["bench"])
    return values, holder


def reads() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what is read, as an expression and what it is about."""
    flags = dflag.FlagSet("bench")
    for number in range(FLAGS):
        flags.int(f"flag-{number}", number)
    rate, snapshot = flags.int("rate", 10, validators=[dflag.in_range(0, 100)]), flags.snapshot()
    values, holder = absl_flags()
    settings = peer("dynaconf").Dynaconf(RATE=10, settings_files=[])
    return {
        "plain attribute": ("it.rate", {"it": Plain()}),
        "method of a plain object": ("it.get()", {"it": Slotted()}),
        "wigwag flag.get()": ("it.get()", {"it": rate}),
        "wigwag flag.value": ("it.value", {"it": rate}),
        "wigwag flag(), none pinned": ("it()", {"it": rate}),
        "wigwag snapshot[flag]": ("snapshot[it]", {"it": rate, "snapshot": snapshot}),
        "pydantic-settings": ("it.rate", {"it": settings_class(["rate"])()}),
        "absl holder.value": ("it.value", {"it": holder}),
        "absl FLAGS.rate": ("it.rate", {"it": values}),
        "dynaconf settings['RATE']": ("it['RATE']", {"it": settings}),
        "dynaconf settings.RATE": ("it.RATE", {"it": settings}),
    }


def nanoseconds(expression: str, names: Mapping[str, Any], calls: int, rounds: int = 7) -> float:
    """Return the CPU time of one read, without that of the loop."""
    spent = [
        min(timeit.Timer(each, globals=dict(names), timer=time.process_time).repeat(rounds, calls)) / calls * 1e9
        for each in (expression, "pass")
    ]
    return spent[0] - spent[1]


def compare_reads(calls: int) -> None:
    print(f"{'read':32}{'ns':>8}{'ratio':>10}   ns of CPU; how many plain attributes it is worth")
    measured = {name: nanoseconds(*read, calls) for name, read in reads().items()}
    flags = dflag.FlagSet("bench")
    rate = flags.int("rate", 10)
    with flags.pinned():
        pinned = {"wigwag flag(), pinned": nanoseconds("it()", {"it": rate}, calls)}
    for name, spent in (measured | pinned).items():
        print(f"{name:32}{spent:>8.1f}{spent / measured['plain attribute']:>9.1f}×")


class Awaited:
    """A notifier that notes when it was told of the value that is waited for."""

    def __init__(self) -> None:
        self.wanted: object = None
        self.at, self._came = 0.0, threading.Event()

    def __call__(self, old: object, new: object) -> None:
        if new == self.wanted:
            self.at = time.perf_counter()
            self._came.set()

    def after(self, act: Callable[[], object], wanted: object) -> float:
        """Do something, and return the milliseconds until it was told of that value."""
        self.wanted = wanted
        self._came.clear()
        start = time.perf_counter()
        act()
        if not self._came.wait(PATIENCE):
            sys.exit(f"nobody was told of {wanted!r} within {PATIENCE:.0f} s")
        return (self.at - start) * 1000


def swap(volume: Volume, content: Mapping[str, str], awaited: Awaited, wanted: object) -> float:
    """Swap in a content, and return how long it took to be told of."""
    steps = volume.steps(content)
    next(steps)
    spent = awaited.after(lambda: next(steps), wanted)
    for _ in steps:
        pass
    return spent


def latencies(folder: Path, how: Any, size: int, changed: int, swaps: int) -> list[float]:
    """Change so many of so many flags at once, again and again; the one that is waited for is the last of them."""
    flags, awaited = dflag.FlagSet("bench"), Awaited()
    names = [f"flag-{number:04}" for number in range(size)]
    defined = [flags.int(name, 0) for name in names]
    for flag in defined[:-1]:
        flag.on_change(lambda old, new: None, how)
    defined[-1].on_change(awaited, how)
    volume = Volume(folder, dict.fromkeys(names, "0"))
    with dflag.setup(flags, volume.path):
        spent = []
        for number in range(1, swaps + 1):
            content = dict.fromkeys(names, "0") | dict.fromkeys(names[size - changed :], str(number))
            spent.append(swap(volume, content, awaited, number))
    return spent


def report(name: str, spent: list[float]) -> None:
    p99 = statistics.quantiles(spent, n=100, method="inclusive")[98]
    print(f"{name:44}{statistics.median(spent):>8.2f}{p99:>8.2f}{max(spent):>8.2f}")


def compare_swaps(swaps: int) -> None:
    print(f"\n{'swap to notification':44}{'p50':>8}{'p99':>8}{'worst':>8}   ms, {swaps} swaps of one flag")
    with tempfile.TemporaryDirectory() as folder:
        for how in ("sync", "thread"):
            report(f"1 flag, {how} notifier", latencies(Path(folder, how), how, 1, 1, swaps))


def compare_many(swaps: int) -> None:
    print(f"\n{f'{FLAGS:,} flags in one directory':44}{'p50':>8}{'p99':>8}{'worst':>8}   ms, {swaps} swaps")
    with tempfile.TemporaryDirectory() as folder:
        one = latencies(Path(folder, "one"), "sync", FLAGS, 1, swaps)
        all_ = latencies(Path(folder, "all"), "sync", FLAGS, FLAGS, swaps)
        threads = latencies(Path(folder, "threads"), "thread", FLAGS, FLAGS, swaps)
        again = anew(Path(folder, "peer"), swaps)
    report("one changed, sync notifier", one)
    report("all changed, sync notifier of the last", all_)
    report("all changed, thread notifier of the last", threads)
    report("pydantic-settings, made anew: no watch", again)
    ours, theirs = statistics.median(all_), statistics.median(again)
    print(f"{'all changed, beside pydantic-settings':44}{theirs / ours:>7.1f}×")


def anew(folder: Path, rounds: int) -> list[float]:
    """Return how long pydantic-settings takes to read the same directory, without having to notice or tell."""
    names = [f"flag_{number:04}" for number in range(FLAGS)]
    Volume(folder, dict.fromkeys(names, "7"))
    settings, spent = settings_class(names), []
    for _ in range(rounds):
        start = time.perf_counter()
        made = settings(_secrets_dir=folder)
        spent.append((time.perf_counter() - start) * 1000)
    assert made.flag_0999 == 7
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    share = 10 if parser.parse_args().quick else 1
    compare_reads(2_000_000 // share)
    compare_swaps(1_000 // share)
    compare_many(50 // share)


if __name__ == "__main__":
    main()
