"""What a set is for its own flags, and for all that changes them: an updater, the page, the front ends.

It puts values in their slots, many under one generation; drops them when they run out; and goes on after a fork. What a
set is for a program is in `flagset`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from wigwag.dflag import fork
from wigwag.dflag.notifying.expiry import ExpiryTimer, Ttl, seconds
from wigwag.dflag.notifying.notifiers import NotifierPool
from wigwag.dflag.notifying.notify import ChangeEvent
from wigwag.dflag.origin import PRECEDENCE, Origin, Slot, ranked
from wigwag.dflag.store import FlagStore, Put
from wigwag.errors import FlagError

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.updating.updater import Updater

T = TypeVar("T")


class Home:
    """Where flags live."""

    fork_order = 1

    def __init__(
        self,
        name: str = "",
        *,
        precedence: Sequence[Origin] = PRECEDENCE,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`precedence` is from the weakest origin to the strongest; what is not in it counts by time, the last most.

        A default counts least, and what a test holds most, named there or not.
        """
        self.name, self.precedence, self._clock = name, ranked(precedence), clock
        self._flags: dict[str, DynFlag[Any]] = {}
        self._event = ChangeEvent(f"flags {name}", lambda: self.notifiers, self.count_fault)
        self._store = FlagStore(self._event, self.precedence, wall)
        self._expiry = ExpiryTimer(self.expire, clock)
        self._overrides = count(1)
        self.notifiers = NotifierPool()
        """The threads that call notifiers."""
        self.notifier_errors = 0
        """How often a notifier has raised."""
        self.frozen = False
        """Whether static flags can no longer change."""
        self.updater: Updater | None = None
        """What keeps these flags up to date: the updater that was started last. A page shows how it is doing."""
        fork.remember(self)

    def __iter__(self) -> Iterator[DynFlag[Any]]:
        """Iterate over the flags in the order of their names, each once."""
        return iter(sorted(set(self._flags.values()), key=lambda flag: flag.name))

    def put(self, flag: DynFlag[T], content: str | bytes, slot: Slot, ttl: Ttl | None = None) -> None:
        """Set a flag from text."""
        until = None if ttl is None else self._clock() + seconds(ttl)

        def decide() -> list[Put]:
            flag.refuse_if_static(self.frozen)
            return [Put(flag, slot, flag.parse(content), until)]

        self.commit(decide)

    def put_value(self, flag: DynFlag[T], value: T, slot: Slot) -> None:
        """Set a flag to a value."""

        def decide() -> list[Put]:
            flag.refuse_if_static(self.frozen)
            return [Put(flag, slot, flag.admit(value))]

        self._store.commit(decide)

    def drop(self, flag: DynFlag[T], slot: Slot) -> None:
        """Empty a slot of a flag, and uncover what lies beneath."""
        self.commit(lambda: [Put(flag, slot, drop=True)])

    def commit(
        self, decide: Callable[[], Iterable[Put]], done: Callable[[], None] = lambda: None, *, wait: bool = True
    ) -> None:
        """Make many changes under one generation; `decide` is called while nobody else changes anything.

        `done` is called when all values are in place, before anybody is told. Without `wait`, the calls to be made are
        left to another thread if one is at it. `FlagError` if a check over several flags refuses, or if nothing would
        end a value that runs out: then nothing changes.
        """
        self._store.commit(lambda: self._with_an_end(decide()), done, wait=wait)

    def judge(self, puts: Iterable[Put]) -> None:
        """Raise what `commit` would, without changing anything."""
        self._store.judge(puts)

    @contextmanager
    def overriding(self, values: Iterable[tuple[DynFlag[Any], Any]]) -> Iterator[None]:
        """Hold other values, given by flag."""
        slot = Slot(Origin.TEST, position=next(self._overrides))
        puts = [Put(flag, slot, flag.admit(value)) for flag, value in values]
        try:
            self.commit(lambda: puts)
            yield
        finally:
            self._store.commit(lambda: [put._replace(drop=True) for put in puts], must=True)

    def freeze(self) -> None:
        """Let no static flag change any more."""
        self.frozen = True

    def expire(self) -> None:
        """Drop what has run out, and come back when the next does."""
        self._store.commit(self._run_out, wait=False, must=True)

    def _run_out(self) -> list[Put]:
        now, mortal = self._clock(), list(self._mortal())
        self._expiry.then(min((until for until, _ in mortal if until > now), default=None))
        return [put for until, put in mortal if until <= now]

    def _mortal(self) -> Iterator[tuple[float, Put]]:
        for flag in self:
            for slot, held in flag.layers.items():
                if held.until is not None:
                    yield held.until, Put(flag, slot, until=held.until, drop=True)

    def _with_an_end(self, puts: Iterable[Put]) -> list[Put]:
        """See that values which run out will; before they come, for then it can still be refused."""
        found = list(puts)
        for put in found:
            if put.until is not None:
                try:
                    self._expiry.by(put.until)
                except RuntimeError as error:
                    reason = f"no thread is to be had that would end it ({error}): try again, or set it without a ttl"
                    raise FlagError(put.flag.name, reason) from error
        return found

    def count_fault(self) -> None:
        """Count a notifier that raised."""
        with self._store.lock:
            self.notifier_errors += 1

    def _events(self) -> list[ChangeEvent]:
        return [self._event, *(flag.event for flag in self)]

    def before_fork(self) -> None:
        self._store.before_fork()

    def after_fork_in_parent(self) -> None:
        self._store.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        self.notifiers.reset()
        self._expiry.renew()
        self._store.renew()
        for event in self._events():
            event.renew()

    def go_on_in_child(self) -> None:
        self._store.go_on_in_child()
        for event in self._events():
            event.resume()
        if any(True for _ in self._mortal()):
            self.expire()
