"""Metrics of a process, and the set-up of its logs.

Instruments are plain objects; a `Registry` reads them, and writes them in the text format of Prometheus. They have
OpenTelemetry names; the Prometheus name follows from that and from the unit. Label values come from clients, so each
instrument holds a bounded number of label sets; further ones are counted together.
"""

from __future__ import annotations

import json
import logging
import sys
from bisect import bisect_left
from operator import add
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from wigwag.colour import painted, wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Samples = Iterable[tuple["Labels", float]]

Labels: TypeAlias = tuple[str, ...]
Cell: TypeAlias = list[float]
"""One number, in place."""
MOST_LABEL_SETS = 2000
_OVERFLOW = "otel_metric_overflow"
_SUFFIXES = {"s": "_seconds", "ms": "_milliseconds", "By": "_bytes"}
"""What the unit adds to a name in Prometheus form."""


class Reading(Struct, frozen=True):
    """An instrument at one moment. A sample of a histogram is the count of each bucket, and at last the sum."""

    kind: Literal["counter", "updown", "gauge", "histogram"]
    name: str
    help: str
    unit: str
    labels: Labels
    samples: list[tuple[Labels, Any]]
    bounds: tuple[float, ...] = ()


class Instrument(Protocol):
    """A metric that can be read."""

    def read(self) -> Reading:
        """Return its current values."""
        ...


class Counter:
    """A number that only grows, for each set of labels."""

    def __init__(self, name: str, help: str, labels: Sequence[str] = (), unit: str = "") -> None:
        self._name, self._help, self._labels, self._unit = name, help, tuple(labels), unit
        self._cells: dict[Labels, Cell] = {}

    @property
    def values(self) -> dict[Labels, float]:
        """The numbers of now."""
        return {labels: cell[0] for labels, cell in self._cells.items()}

    def cells(self) -> Iterable[tuple[Labels, Cell]]:
        """Return what holds the numbers, in an order that stays; new ones come last."""
        return self._cells.items()

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        """Count something."""
        try:
            self._cells[labels][0] += amount
        except KeyError:
            self.cell(labels)[0] += amount

    def cell(self, labels: Labels) -> Cell:
        """Return what holds the number of one set of labels: whoever counts it often adds to `cell[0]`."""
        if labels not in self._cells and len(self._cells) >= MOST_LABEL_SETS:
            labels = (_OVERFLOW,) * len(labels)
        return self._cells.setdefault(labels, [0])

    def read(self) -> Reading:
        return Reading("counter", self._name, self._help, self._unit, self._labels, list(self.values.items()))


class Gauge:
    """A number, or one for each set of labels, that is computed when it is read.

    With `adds`, the numbers of several processes add up to something: OpenTelemetry calls that an up-down counter.
    """

    def __init__(
        self,
        name: str,
        help: str,
        read: Callable[[], Samples],
        labels: Sequence[str] = (),
        unit: str = "",
        *,
        adds: bool = False,
    ) -> None:
        self._name, self._help, self._labels, self._unit = name, help, tuple(labels), unit
        self._read, self._kind = read, "updown" if adds else "gauge"

    def read(self) -> Reading:
        return Reading(self._kind, self._name, self._help, self._unit, self._labels, list(self._read()))  # type: ignore[arg-type]


class Histogram:
    """The distribution of observations, for each set of labels."""

    def __init__(
        self, name: str, help: str, bounds: Sequence[float], labels: Sequence[str] = (), unit: str = ""
    ) -> None:
        self._name, self._help, self._labels, self._unit = name, help, tuple(labels), unit
        self._bounds = tuple(bounds)
        self._cells: dict[Labels, list[float]] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """Record one observation."""
        self.observer(labels)(value)

    def observer(self, labels: Labels) -> Callable[[float], None]:
        """Return a function that records observations for one set of labels: faster for many of them."""
        if labels not in self._cells and len(self._cells) >= MOST_LABEL_SETS:
            labels = (_OVERFLOW,) * len(labels)
        cells, bounds = self._cells.setdefault(labels, [0.0] * (len(self._bounds) + 2)), self._bounds

        def observe(value: float) -> None:
            cells[bisect_left(bounds, value)] += 1
            cells[-1] += value

        return observe

    def read(self) -> Reading:
        samples = [(labels, tuple(cells)) for labels, cells in self._cells.items()]
        return Reading("histogram", self._name, self._help, self._unit, self._labels, samples, self._bounds)


class HistogramView:
    """A histogram by some of its labels, perhaps in another unit; samples without the first of them are left out."""

    def __init__(
        self, of: Histogram, name: str, help: str, labels: Sequence[str], unit: str = "", scale: float = 1
    ) -> None:
        self._of, self._name, self._help, self._labels = of, name, help, tuple(labels)
        self._unit, self._scale = unit, scale

    def read(self) -> Reading:
        whole = self._of.read()
        places = [whole.labels.index(name) for name in self._labels]
        merged: dict[Labels, tuple[float, ...]] = {}
        for values, cells in whole.samples:
            labels = tuple(values[place] for place in places)
            if labels[0]:
                merged[labels] = tuple(map(add, merged.get(labels, (0.0,) * len(cells)), cells))
        samples = [(labels, (*cells[:-1], cells[-1] * self._scale)) for labels, cells in merged.items()]
        bounds = tuple(bound * self._scale for bound in whole.bounds)
        return Reading("histogram", self._name, self._help, self._unit, self._labels, samples, bounds)


class Registry:
    """The instruments of a process."""

    def __init__(self, instruments: Iterable[Instrument] = ()) -> None:
        self._instruments = list(instruments)

    def add(self, *instruments: Instrument) -> None:
        """Add instruments."""
        self._instruments += instruments

    def read(self) -> list[Reading]:
        """Return the current values of all of them."""
        return [instrument.read() for instrument in self._instruments]

    def render(self) -> str:
        """Return the Prometheus text format."""
        return render(self.read())


def render(readings: Iterable[Reading]) -> str:
    """Return readings in the Prometheus text format."""
    return "\n".join(line for reading in readings for line in _lines(reading)) + "\n"


def _lines(reading: Reading) -> Iterator[str]:
    name, labels = _flat(reading.name) + _SUFFIXES.get(reading.unit, ""), tuple(map(_flat, reading.labels))
    kind = "gauge" if reading.kind == "updown" else reading.kind
    full = f"{name}_total" if kind == "counter" else name
    yield f"# HELP {full} {reading.help}"
    yield f"# TYPE {full} {kind}"
    for values, sample in reading.samples:
        if kind == "histogram":
            yield from _buckets(name, labels, values, sample, reading.bounds)
        else:
            yield f"{full}{_rendered(labels, values)} {sample:.17g}"


def _buckets(
    name: str, labels: Labels, values: Labels, cells: tuple[float, ...], bounds: tuple[float, ...]
) -> Iterator[str]:
    running = 0.0
    for bound, count in zip((*bounds, "+Inf"), cells, strict=False):
        running += count
        yield f"{name}_bucket{_rendered((*labels, 'le'), (*values, str(bound)))} {running:g}"
    yield f"{name}_sum{_rendered(labels, values)} {cells[-1]!r}"
    yield f"{name}_count{_rendered(labels, values)} {running:g}"


def _flat(name: str) -> str:
    """Return a name as Prometheus spells it."""
    return name.replace(".", "_")


def _rendered(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    escaped = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in values)
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(names, escaped, strict=False)) + "}"


def set_up_logging(format: str, *, debug: bool) -> None:
    """Log to standard error: lines for people (`console`, coloured in a terminal) or JSON objects (`json`)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if format == "json" else _ConsoleFormatter(colours=wanted(sys.stderr)))
    logging.basicConfig(level=logging.DEBUG if debug else logging.INFO, handlers=[handler], force=True)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "level": record.levelname.lower(),
            "ts": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


_LEVEL_STYLES = {"DEBUG": "dim", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class _ConsoleFormatter(logging.Formatter):
    def __init__(self, *, colours: bool = False) -> None:
        line = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
        if colours:
            line = f"{painted('%(asctime)s', 'dim')} %(style)s {painted('%(name)s:', 'dim')} %(message)s"
        super().__init__(line, "%H:%M:%S")
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        if self._colours:
            record.style = painted(f"{record.levelname:7}", _LEVEL_STYLES.get(record.levelname, "bold"))
        text = super().format(record)
        return text + "".join(f" {self._name(name)}{value}" for name, value in fields.items())

    def _name(self, name: str) -> str:
        return painted(f"{name}=", "cyan") if self._colours else f"{name}="
