"""The rows of a benchmark beside a peer: our figure, that of the original, and the target."""

from __future__ import annotations

import re
from pathlib import Path


class ComparisonTable:
    """Rows, each printed when it is known; `met` is false as soon as one of them misses its target."""

    def __init__(self, peer: str) -> None:
        self.met = True
        print(f"{'':62}{'ours':>12}{peer:>12}{'target':>12}")

    def head(self, text: str) -> None:
        """Print what the next rows are about, and how busy the machine is: times are longer on a busy one."""
        busy = re.search(r"some avg10=([\d.]+)", Path("/proc/pressure/cpu").read_text())
        print(f"\n{text}" + (f"; somebody waits for a CPU {busy[1]} % of the time" if busy else ""), flush=True)

    def row(
        self, name: str, ours: float, unit: str, original: float | None = None, target: float | None = None
    ) -> None:
        """Print a figure; the target is the most that it may be."""
        good = target is None or ours <= target
        self.met &= good
        shown = ["-" if each is None else f"{figure(each)} {unit}" for each in (ours, original, target)]
        print(f"  {name:60}" + "".join(f"{each:>12}" for each in shown) + ("" if good else "   missed"), flush=True)


def figure(value: float) -> str:
    """Return a figure with as many digits as count."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"
