"""The one place in which flags change.

Every change, of one flag or of a thousand, is a commit: under the lock, values are judged, the new snapshot takes the
place of the old one in a single step, each flag gets its value, and what the notifiers are to be told is written down.
Those that are called by whoever made the change are called after the lock is released, in the order of the commits.

The hard case is a notifier that itself sets a flag: what follows from that waits until the present call is over, so
nobody hears of the second change before the first. When two threads commit at once, one of them makes the calls of
both, and the other waits for him; but never within a notifier, nor as an updater. Two that wait for each other would
wait for ever.

The other hard case is an end in the middle: a signal handler that raises, a process that is forked. All that may fail
is done before anything changes. From then on a change is either not begun or is made to its end (`_make`), by whoever
finds it half made.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.dflag.checks import Check, newly_broken, refusal
from wigwag.dflag.fork import catch_up
from wigwag.dflag.notifying import news
from wigwag.dflag.notifying.notifiers import ValueChange
from wigwag.dflag.origin import Held, Origin, Slot, strongest
from wigwag.dflag.snapshot import Snapshot

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.notifying.notify import ChangeEvent

_PATIENCE = 1.0
"""Seconds that a fork waits for a commit to end; one that takes longer is in a validator of the user."""


class Put(NamedTuple):
    """A value that has been judged, for a slot of a flag; with `drop`, the slot is emptied."""

    flag: DynFlag[Any]
    slot: Slot
    value: Any = None
    until: float | None = None
    drop: bool = False
    part: str = ""


class _Change(NamedTuple):
    """A commit that was decided on."""

    snapshot: Snapshot
    layers: Mapping[DynFlag[Any], Mapping[Slot, Held[Any]]]
    chosen: Mapping[DynFlag[Any], Held[Any]]
    steps: deque[tuple[ChangeEvent, ValueChange]]
    """What is still to be told."""
    news: Sequence[news.ChangeLog]
    broken: Sequence[str]


class _Depth(threading.local):
    """Within how many notifiers this thread is."""

    value = 0


_depth = _Depth()


class FlagStore:
    """The values of a flag set."""

    def __init__(self, event: ChangeEvent, precedence: Sequence[Origin], wall: Callable[[], float]) -> None:
        self._event, self._precedence, self._wall = event, precedence, wall
        self._snapshot: Snapshot | None = Snapshot(0, {}, {})
        self._generation = 0
        self._flags: Mapping[str, DynFlag[Any]] = {}
        self._checks: tuple[Check, ...] = ()
        self._change: _Change | None = None
        self._pending: deque[tuple[ChangeEvent, ValueChange]] = deque()
        self._posted = self._told = 0
        self._teller: int | None = None
        self.renew()

    def renew(self) -> None:
        """Have locks that nobody holds."""
        self.lock, self._turn, self._held = threading.RLock(), threading.Condition(), False

    def know(self, flags: Mapping[str, DynFlag[Any]]) -> None:
        """Have these flags, by each of their names. The snapshot is made when it is asked for."""
        self._flags, self._snapshot = flags, None

    def snapshot(self) -> Snapshot:
        """Return all values of now."""
        found = self._snapshot
        if found is None:
            catch_up()
            with self.lock:
                found = self._snapshot = self._snapshot or self._made()
        return found

    def _made(self) -> Snapshot:
        aliases = {name: flag.name for name, flag in self._flags.items() if name != flag.name}
        return Snapshot(self._generation, {flag.name: flag.held for flag in self._flags.values()}, aliases)

    def commit(
        self,
        decide: Callable[[], Iterable[Put]],
        done: Callable[[], None] = lambda: None,
        *,
        wait: bool = True,
        must: bool = False,
    ) -> None:
        """Make changes under one generation; they are decided on under the lock.

        `done` is called when all values are in place, before anybody is told. Without `wait`, the calls to be made are
        left to another thread if one is at it. What `must` be is not refused by a check over several flags.
        """
        catch_up()
        with self.lock:
            before = self._posted
            change = self._swap(list(decide()), must)
            mine = self._posted
            done()
        try:
            if change is not None:
                news.tell(change.news, change.broken)
        finally:
            if mine != before:
                self._deliver(mine, wait)

    def judge(self, puts: Iterable[Put]) -> None:
        """Raise if a change would break a check."""
        with self.lock:
            self._decided(list(puts))

    def add_check(self, check: Check) -> str | None:
        """Have something hold from now on; return what is wrong if it does not hold now."""
        with self.lock:
            fault = check.fault(self.snapshot())
            if fault is None:
                self._checks += (check,)
            return fault

    def _swap(self, puts: list[Put], must: bool) -> _Change | None:
        change = self._decided(puts, must=must)
        if change is not None:
            self._change = change
            try:
                self._make(change)
            except BaseException:
                self._make(change)
                raise
        return change

    def _decided(self, puts: list[Put], *, must: bool = False) -> _Change | None:
        number = self._generation + 1
        touched = _layered(puts, number, self._wall())
        if not touched:
            return None
        chosen = {flag: strongest(layers.values(), self._precedence) for flag, layers in touched.items()}
        steps = deque((flag.event, _step(flag, held)) for flag, held in chosen.items())
        told = _news(puts, chosen, steps) if news.wanted() else ()
        before = self.snapshot()
        after = before.replacing(number, {flag.name: held for flag, held in chosen.items()})
        broken = newly_broken(self._checks, before, after)
        if broken and not must:
            raise refusal((flag.name for flag in chosen), broken)
        steps.append((self._event, ValueChange(before, after)))
        return _Change(after, touched, chosen, steps, told, broken)

    def _make(self, change: _Change) -> None:
        """Make a change that was decided on; half of it may have been made before. Nothing in here fails by itself."""
        self._generation, self._snapshot = change.snapshot.generation, change.snapshot
        for flag, held in change.chosen.items():
            flag.become(change.layers[flag], held)
        while change.steps:
            event, step = change.steps[0]
            if event.post(step):
                self._pending.append((event, step))
                self._posted += 1
            change.steps.popleft()
        self._change = None

    def _deliver(self, mine: int, wait: bool) -> None:
        """See that the calls are made up to this one: make them, or leave it to who is at it, and wait for him."""
        with self._turn:
            while self._teller is not None:
                if self._teller == get_ident() or _depth.value or not wait:
                    return
                self._turn.wait()
                if self._told >= mine:
                    return
            self._teller = get_ident()
        turn, depth = self._turn, _depth.value
        try:
            _depth.value = depth + 1
            self._tell(turn)
        finally:
            _depth.value = depth
            with turn:  # a signal may have ended it anywhere
                if self._teller == get_ident() and self._turn is turn:
                    self._teller = None
                    turn.notify_all()

    def _tell(self, turn: threading.Condition) -> None:
        interrupt: KeyboardInterrupt | None = None
        while (due := self._next(turn)) is not None:
            try:
                due[0].call(due[1])
            except KeyboardInterrupt as error:
                interrupt = error
            if self._turn is not turn:
                return  # the notifier has forked, and this is the child: the rest is told by others
            with turn:
                self._pending.popleft()
                self._told += 1
                turn.notify_all()
        if interrupt is not None:
            raise interrupt

    def _next(self, turn: threading.Condition) -> tuple[ChangeEvent, ValueChange] | None:
        with turn:
            if self._pending:
                return self._pending[0]
            self._teller = None
            turn.notify_all()
            return None

    def before_fork(self) -> None:
        """Let no commit be in the middle."""
        self._held = self.lock.acquire(timeout=_PATIENCE)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._held:
            self._held = False
            self.lock.release()

    def go_on_in_child(self) -> None:
        """Go on with a change that was half made, and with the calls that were still to be made.

        One that was being made is made again; unless it was by this thread, which has forked and would fork again.
        """
        if self._change is not None:
            self._make(self._change)
        if self._teller == get_ident() and self._pending:
            self._pending.popleft()
            self._told += 1
        self._teller = None
        if self._pending:
            self._deliver(self._posted, wait=False)


def _step(flag: DynFlag[Any], held: Held[Any]) -> ValueChange:
    return ValueChange(flag.get(), held.value, flag.same(flag.get(), held.value))


def _news(
    puts: Iterable[Put], chosen: Mapping[DynFlag[Any], Held[Any]], steps: Iterable[tuple[ChangeEvent, ValueChange]]
) -> list[news.ChangeLog]:
    levels = news.level_of(puts)
    changed = zip(chosen.items(), steps, strict=True)
    return [
        news.ChangeLog(flag, flag.held, held, levels[flag]) for (flag, held), (_, step) in changed if not step.equal
    ]


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
            layers[put.slot] = Held(put.value, put.slot, generation, at, put.until, put.part, put.flag.secret)
    return touched
