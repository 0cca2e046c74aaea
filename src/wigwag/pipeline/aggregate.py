"""The latest value of every wanted watch, and what the first snapshot still waits for.

This is the mailbox between watchers and the control loop: a value replaces the one before it, so nothing can pile up,
and neither side waits for the other. A value for a spec that is not wanted is dropped, and so is the value of a spec
that is no longer wanted. Values come out in the order in which their specs are wanted: in a merge, the order is the
precedence.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic

from wigwag.pipeline.spec import S, V

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.pipeline.spec import Wanted


class Values(dict[S, V]):
    """The values of one moment, in the order of their specs; and what was wanted then and had not answered yet.

    >>> values = Values({"a": 1}, waiting=("b",))
    >>> values, values.waiting
    ({'a': 1}, ('b',))
    """

    __slots__ = ("waiting", "wanted")

    def __init__(self, values: Mapping[S, V], waiting: tuple[S, ...] = (), wanted: object = None) -> None:
        super().__init__(values)
        self.waiting = waiting
        self.wanted = wanted
        """What was wanted at that moment, to be compared by identity."""


class Aggregate(Generic[S, V]):
    """The latest values.

    With a thousand watches, one change must not cost a thousand hashes of specs. So the values are kept in the order of
    the specs, and what is missing is known; a copy of a dictionary hashes nothing.
    """

    def __init__(self) -> None:
        self._wanted: dict[S, Wanted[S]] = {}
        self._since: dict[S, float] = {}
        self._values: dict[S, V] = {}
        self._ordered = True
        """Whether the values are in the order of the specs. Only the first value of a spec can change that."""
        self._missing: dict[S, None] = {}
        self._dirty = asyncio.Event()

    def want(self, wanted: Iterable[Wanted[S]], now: float) -> None:
        """Want exactly these; of equal specs, the first counts."""
        before = list(self._in_order())
        self._wanted = {}
        for want in wanted:
            self._wanted.setdefault(want.spec, want)
        self._since = {spec: self._since.get(spec, now) for spec in self._wanted}
        self._ordered = False
        self._missing = dict.fromkeys(spec for spec in self._wanted if spec not in self._values)
        if before != list(self._in_order()):
            self.touch()

    def specs(self) -> tuple[S, ...]:
        """Return what is wanted, in order."""
        return tuple(self._wanted)

    def put(self, spec: S, value: V) -> None:
        """Take a value from a watcher."""
        if spec in self._missing:
            del self._missing[spec]
            self._ordered = False
        elif spec not in self._values or self._values[spec] is value:
            return
        self._values[spec] = value
        self.touch()

    def touch(self) -> None:
        """Make the control loop look, though perhaps nothing has changed."""
        self._dirty.set()

    async def changed(self) -> None:
        """Wait until there may be something new since the last `changed` or `take`."""
        await self._dirty.wait()
        self._dirty.clear()

    def current(self) -> Mapping[S, V]:
        """Return the values of now, in any order; they change with the next `put`."""
        return self._values

    def take(self) -> Values[S, V]:
        """Return the values of now. The mapping is the caller's own."""
        self._dirty.clear()
        return Values(self._in_order(), self.waiting(), self._wanted)

    def waiting(self) -> tuple[S, ...]:
        """Return what is wanted and has not answered yet."""
        return tuple(self._missing)

    def keep(self, values: Values[S, V]) -> Values[S, V]:
        """Return those of earlier values that are still wanted; what is wanted and not among them is waited for."""
        kept = {spec: values[spec] for spec in self._wanted if spec in values}
        return Values(kept, tuple(spec for spec in self._wanted if spec not in kept), self._wanted)

    def missing(self, values: Values[S, V]) -> tuple[S, ...]:
        """Return what is wanted and not among these values."""
        return values.waiting if values.wanted is self._wanted else self.keep(values).waiting

    def held(self, missing: Iterable[S], now: float, longest: float | None = None) -> dict[S, float | None]:
        """Return what a snapshot without these has to wait for, and until when: `longest` seconds, if given."""
        wants = (self._wanted[spec] for spec in missing)
        ends = {want.spec: self._end(want, longest) for want in wants if want.required}
        return {spec: end for spec, end in ends.items() if end is None or end > now}

    def _in_order(self) -> dict[S, V]:
        if not self._ordered:
            self._values = {spec: self._values[spec] for spec in self._wanted if spec in self._values}
            self._ordered = True
        return self._values

    def _end(self, want: Wanted[S], longest: float | None) -> float | None:
        seconds = min((limit for limit in (want.grace, longest) if limit is not None), default=None)
        return None if seconds is None else self._since[want.spec] + seconds
