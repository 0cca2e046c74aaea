"""What a running process tells about itself: counters and histograms in Prometheus form, and the set-up of logging.

Instruments are plain objects that belong to whoever made them; a `Registry` only knows how to write them out. Label
values come from outside, so each instrument holds a bounded number of label sets; what exceeds it is counted together.
"""

from __future__ import annotations

import json
import logging
import sys
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Labels = tuple[str, ...]
    Samples = Iterable[tuple[Labels, float]]

MOST_LABEL_SETS = 2000
_OVERFLOW = "otel_metric_overflow"


class Instrument(Protocol):
    """Anything that can be written out."""

    def lines(self) -> Iterator[str]:
        """Return the lines of the Prometheus text format."""


class Counter:
    """A number that only grows, for each set of labels."""

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self._name, self._help, self._labels = name, help, tuple(labels)
        self.values: dict[Labels, float] = {}

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        """Count something."""
        values = self.values
        try:
            values[labels] += amount
        except KeyError:
            if len(values) >= MOST_LABEL_SETS:
                labels = (_OVERFLOW,) * len(labels)
            values[labels] = values.get(labels, 0) + amount

    def lines(self) -> Iterator[str]:
        yield from _samples(self._name, self._help, "counter", self._labels, self.values.items())


class Gauge:
    """A number, or one for each set of labels, that is asked for when somebody looks."""

    def __init__(self, name: str, help: str, read: Callable[[], Samples], labels: Sequence[str] = ()) -> None:
        self._name, self._help, self._labels, self._read = name, help, tuple(labels), read

    def lines(self) -> Iterator[str]:
        yield from _samples(self._name, self._help, "gauge", self._labels, self._read())


class Histogram:
    """How observations are spread, for each set of labels."""

    def __init__(self, name: str, help: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> None:
        self._name, self._help, self._labels, self._bounds = name, help, tuple(labels), tuple(bounds)
        self._cells: dict[Labels, list[float]] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Note one observation."""
        self.observer(labels)(value)

    def observer(self, labels: Labels) -> Callable[[float], None]:
        """Return what notes observations for one set of labels, for those who note many."""
        if labels not in self._cells and len(self._cells) >= MOST_LABEL_SETS:
            labels = (_OVERFLOW,) * len(labels)
        cells, bounds = self._cells.setdefault(labels, [0.0] * (len(self._bounds) + 2)), self._bounds

        def observe(value: float) -> None:
            cells[bisect_left(bounds, value)] += 1
            cells[-1] += value

        return observe

    def lines(self) -> Iterator[str]:
        yield from _head(self._name, self._help, "histogram")
        for labels, cells in self._cells.items():
            running = 0.0
            for bound, count in zip((*self._bounds, "+Inf"), cells, strict=False):
                running += count
                yield f"{self._name}_bucket{_rendered((*self._labels, 'le'), (*labels, str(bound)))} {running:g}"
            yield f"{self._name}_sum{_rendered(self._labels, labels)} {cells[-1]!r}"
            yield f"{self._name}_count{_rendered(self._labels, labels)} {running:g}"


class Registry:
    """The instruments of a process."""

    def __init__(self, instruments: Iterable[Instrument] = ()) -> None:
        self._instruments = list(instruments)

    def add(self, *instruments: Instrument) -> None:
        """Write these out too."""
        self._instruments += instruments

    def render(self) -> str:
        """Return the Prometheus text format."""
        return "\n".join(line for instrument in self._instruments for line in instrument.lines()) + "\n"


def _samples(name: str, help: str, kind: str, labels: Labels, samples: Samples) -> Iterator[str]:
    full = f"{name}_total" if kind == "counter" else name
    yield from _head(full, help, kind)
    for values, number in list(samples):
        yield f"{full}{_rendered(labels, values)} {number:.17g}"


def _head(name: str, help: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _rendered(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    escaped = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in values)
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=False)) + "}"


def set_up_logging(format: str, *, debug: bool) -> None:
    """Log to standard error, as lines for people (`console`) or as one JSON object each (`json`)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if format == "json" else _ConsoleFormatter())
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler], force=True)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "level": record.levelname.lower(),
            "ts": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        told |= getattr(record, "fields", {})
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class _ConsoleFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        text = super().format(record)
        return text + "".join(f" {name}={value}" for name, value in fields.items())
