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
    from collections.abc import Collection, Iterable, Mapping

    from wigwag.pipeline.spec import Wanted


class Values(dict[S, V]):
    """The values of one moment, in the order of their specs; and what was wanted then and had not answered yet.

    >>> values = Values({"a": 1}, waiting=("b",))
    >>> values, values.waiting
    ({'a': 1}, ('b',))
    """

    __slots__ = ("waiting",)

    def __init__(self, values: Mapping[S, V], waiting: tuple[S, ...] = ()) -> None:
        super().__init__(values)
        self.waiting = waiting


class Aggregate(Generic[S, V]):
    """The latest values."""

    def __init__(self) -> None:
        self._wanted: dict[S, Wanted[S]] = {}
        self._since: dict[S, float] = {}
        self._values: dict[S, V] = {}
        self._dirty = asyncio.Event()

    def want(self, wanted: Iterable[Wanted[S]], now: float) -> None:
        """Want exactly these; of equal specs, the first counts."""
        before = self._answered()
        self._wanted = {}
        for want in wanted:
            self._wanted.setdefault(want.spec, want)
        self._since = {spec: self._since.get(spec, now) for spec in self._wanted}
        self._values = {spec: value for spec, value in self._values.items() if spec in self._wanted}
        if before != self._answered():
            self.touch()

    def specs(self) -> tuple[S, ...]:
        """Return what is wanted, in order."""
        return tuple(self._wanted)

    def put(self, spec: S, value: V) -> None:
        """Take a value from a watcher."""
        if spec in self._wanted and not (spec in self._values and self._values[spec] is value):
            self._values[spec] = value
            self.touch()

    def touch(self) -> None:
        """Make the control loop look, though perhaps nothing has changed."""
        self._dirty.set()

    async def changed(self) -> None:
        """Wait until there may be something new since the last `changed` or `take`."""
        await self._dirty.wait()
        self._dirty.clear()

    def take(self) -> Values[S, V]:
        """Return the values of now. The mapping is the caller's own."""
        self._dirty.clear()
        return Values({spec: self._values[spec] for spec in self._answered()}, self.waiting())

    def waiting(self) -> tuple[S, ...]:
        """Return what is wanted and has not answered yet."""
        return tuple(spec for spec in self._wanted if spec not in self._values)

    def held(self, answered: Collection[S], now: float, longest: float | None = None) -> dict[S, float | None]:
        """Return what a snapshot of these answers has to wait for, and until when: `longest` seconds, if given."""
        missing = (want for spec, want in self._wanted.items() if want.required and spec not in answered)
        ends = {want.spec: self._end(want, longest) for want in missing}
        return {spec: end for spec, end in ends.items() if end is None or end > now}

    def _answered(self) -> list[S]:
        return [spec for spec in self._wanted if spec in self._values]

    def _end(self, want: Wanted[S], longest: float | None) -> float | None:
        seconds = min((limit for limit in (want.grace, longest) if limit is not None), default=None)
        return None if seconds is None else self._since[want.spec] + seconds
