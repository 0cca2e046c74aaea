"""The one place in which flags change.

Every change, of one flag or of a thousand, is a commit: under the lock, values are judged, the new snapshot takes the
place of the old one in a single step, each flag gets its value, and what the notifiers are to be told is written down.
Those that are called by whoever made the change are called after the lock is released, in the order of the commits.

The hard case is a notifier that itself sets a flag: what follows from that waits until the present call is over, so
nobody hears of the second change before the first. When two threads commit at once, one of them may make the calls of
both; a commit returns when its own have been made.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.dflag.crew import Step
from wigwag.dflag.origin import Held, Origin, Slot, strongest
from wigwag.dflag.snapshot import Snapshot

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.notify import Bell

_PATIENCE = 1.0
"""Seconds that a fork waits for a commit to end; one that takes longer is in a validator of the user."""


class Put(NamedTuple):
    """A value that has been judged, for a slot of a flag; with `drop`, the slot is emptied."""

    flag: DynFlag[Any]
    slot: Slot
    value: Any = None
    until: float | None = None
    drop: bool = False


class Store:
    """The values of a flag set."""

    def __init__(self, bell: Bell, precedence: Sequence[Origin], wall: Callable[[], float]) -> None:
        self._bell, self._precedence, self._wall = bell, precedence, wall
        self._snapshot: Snapshot | None = Snapshot(0, {}, {})
        self._generation = 0
        self._flags: Mapping[str, DynFlag[Any]] = {}
        self._pending: deque[tuple[Bell, Step]] = deque()
        self._held = False
        self._renew()

    def _renew(self) -> None:
        self.lock, self._delivery, self._delivering = threading.RLock(), threading.RLock(), False

    def know(self, flags: Mapping[str, DynFlag[Any]]) -> None:
        """Have these flags, by each of their names. The snapshot is made when it is asked for."""
        self._flags, self._snapshot = flags, None

    def snapshot(self) -> Snapshot:
        """Return all values of now."""
        found = self._snapshot
        if found is None:
            with self.lock:
                found = self._snapshot = self._snapshot or self._made()
        return found

    def _made(self) -> Snapshot:
        aliases = {name: flag.name for name, flag in self._flags.items() if name != flag.name}
        return Snapshot(self._generation, {flag.name: flag.held for flag in self._flags.values()}, aliases)

    def commit(self, decide: Callable[[], Iterable[Put]], done: Callable[[], None] = lambda: None) -> None:
        """Make changes under one generation; they are decided on under the lock.

        `done` is called when all values are in place, before anybody is told.
        """
        with self.lock:
            due = self._swap(list(decide()))
            done()
        if due:
            self._deliver()

    def _swap(self, puts: list[Put]) -> bool:
        before, number = self.snapshot(), self._generation + 1
        touched = _layered(puts, number, self._wall())
        if not touched:
            return False
        chosen = {flag: strongest(layers.values(), self._precedence) for flag, layers in touched.items()}
        after = before.replacing(number, {flag.name: held for flag, held in chosen.items()})
        self._generation, self._snapshot = number, after
        steps = []
        for flag, held in chosen.items():
            steps.append((flag.bell, Step(flag.get(), held.value, flag.same(flag.get(), held.value))))
            flag.become(touched[flag], held)
        due = [step for step in (*steps, (self._bell, Step(before, after))) if step[0].post(step[1])]
        self._pending += due
        return bool(due)

    def _deliver(self) -> None:
        with self._delivery:
            if self._delivering:
                return
            self._delivering = True
            try:
                while self._pending:
                    bell, step = self._pending[0]
                    bell.call(step)
                    self._pending.popleft()
            finally:
                self._delivering = False

    def before_fork(self) -> None:
        """Let no commit be in the middle."""
        self._held = self.lock.acquire(timeout=_PATIENCE)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._held:
            self.lock.release()

    def after_fork_in_child(self) -> None:
        """Go on with new locks, and with the calls that were still to be made."""
        self._renew()
        self._deliver()


def _layered(puts: Iterable[Put], generation: int, at: float) -> dict[DynFlag[Any], dict[Slot, Held[Any]]]:
    """Return the values by slot of each flag that is touched."""
    touched: dict[DynFlag[Any], dict[Slot, Held[Any]]] = {}
    for put in puts:
        if put.drop and (put.slot not in put.flag.layers or put.slot.origin is Origin.DEFAULT):
            continue
        layers = touched.setdefault(put.flag, dict(put.flag.layers))
        if put.drop:
            del layers[put.slot]
        else:
            layers[put.slot] = Held(put.value, put.slot, generation, at, put.until)
    return touched
