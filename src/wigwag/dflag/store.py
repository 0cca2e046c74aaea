"""Where flags change: every change, of one flag or of a thousand, is a commit of a `FlagStore`.

Under the lock, changes are decided and checked, the new snapshot replaces the old one in a single step, each flag gets
its value, and the calls of notifiers are queued. Those that the committing thread makes itself (`sync`) are made after
the lock is released, in the order of the commits.

The hard case is a notifier that sets a flag: the calls that follow from it wait until the present call has returned, so
no notifier gets the second change before the first. When two threads commit at once, one makes the calls of both, and
the other waits for it; but not within a notifier, nor in an updater, because two that wait for each other never end.

The other hard case is an interruption: a signal handler that raises, or a fork. Everything that can fail is done before
anything changes. After that a change is not begun, or it is completed (`_apply` can be repeated).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.dflag import fork
from wigwag.dflag.checks import Check, newly_broken
from wigwag.dflag.flag import DynFlag, Put
from wigwag.dflag.notifying import changelog
from wigwag.dflag.notifying.expiry import ExpiryTimer
from wigwag.dflag.notifying.notifiers import ChangeEvent, NotifierPool, ValueChange
from wigwag.dflag.origin import Held, Origin, Slot, strongest
from wigwag.dflag.snapshot import Snapshot
from wigwag.errors import FlagError

if TYPE_CHECKING:
    from typing import TypeAlias

    Layers: TypeAlias = Mapping[Slot, Held[Any]]
    Calls: TypeAlias = deque[tuple[ChangeEvent, ValueChange]]

_SHOWN = 10
_FORK_PATIENCE = 1.0
"""Seconds that a fork waits for a commit to end; one that takes longer is in a validator of the user."""


class _Change(NamedTuple):
    """A commit that was decided on."""

    snapshot: Snapshot
    layers: Mapping[DynFlag[Any], Layers]
    chosen: Mapping[DynFlag[Any], Held[Any]]
    calls: Calls
    """Events that are not posted yet."""
    puts: Sequence[Put]
    before: Snapshot
    broken: Sequence[str]


class _Depth(threading.local):
    """How many notifiers this thread is within."""

    value = 0


_depth = _Depth()


class FlagStore:
    """The values of a flag set, with what happens when they change: checks, notifiers, expiry."""

    fork_order = 1

    def __init__(
        self, name: str, precedence: Sequence[Origin], clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self._precedence, self._clock, self._wall = precedence, clock, wall
        self.notifiers = NotifierPool()
        self.event = ChangeEvent(f"flags {name}", self.notifiers)
        self._expiry = ExpiryTimer(self.expire, clock)
        self._snapshot: Snapshot | None = Snapshot(0, {}, {})
        self._generation = 0
        self._flags: Mapping[str, DynFlag[Any]] = {}
        self._checks: tuple[Check, ...] = ()
        self._change: _Change | None = None
        self._pending: Calls = deque()
        self._queued = self._delivered = 0
        self._deliverer: int | None = None
        self._renew_locks()
        fork.remember(self)

    def _renew_locks(self) -> None:
        self.lock, self._turn, self._held = threading.RLock(), threading.Condition(), False

    def register(self, flags: Mapping[str, DynFlag[Any]]) -> None:
        """Replace the flags, given by each of their names. The snapshot is made when it is needed."""
        self._flags, self._snapshot = flags, None

    def snapshot(self) -> Snapshot:
        """Return all current values."""
        snapshot = self._snapshot
        if snapshot is None:
            fork.catch_up()
            with self.lock:
                if self._snapshot is None:
                    aliases = {name: flag.name for name, flag in self._flags.items() if name != flag.name}
                    held = {flag.name: flag.held for flag in self._flags.values()}
                    self._snapshot = Snapshot(self._generation, held, aliases)
                snapshot = self._snapshot
        return snapshot

    def commit(
        self,
        decide: Callable[[], Iterable[Put]],
        done: Callable[[], None] = lambda: None,
        *,
        wait: bool = True,
        must: bool = False,
    ) -> None:
        """Make changes under one generation; `decide` is called under the lock.

        `done` is called when all values are in place, before any notifier. Without `wait`, the calls are left to
        another thread if one is making calls. With `must`, no check can reject the change. `FlagError` if a check
        does, or if a value that expires cannot get a timer: then nothing changes.
        """
        fork.catch_up()
        with self.lock:
            before = self._queued
            change = self._swap(list(decide()), must)
            mine = self._queued
            done()
        try:
            if change is not None:
                changelog.log_changes(change.puts, change.before, change.chosen)
                changelog.log_broken(change.broken)
        finally:
            if mine != before:
                self._deliver(mine, wait)

    def validate(self, puts: Iterable[Put]) -> Mapping[DynFlag[Any], Held[Any]]:
        """Return what flags would hold after a change; raise if it would break a check."""
        with self.lock:
            change = self._decided(list(puts))
        return {} if change is None else change.chosen

    def add_check(self, check: Check) -> str | None:
        """Add a check; return what is wrong if it does not hold now."""
        with self.lock:
            fault = check.fault(self.snapshot())
            if fault is None:
                self._checks += (check,)
            return fault

    def _swap(self, puts: list[Put], must: bool) -> _Change | None:
        self._time_expiry(puts)
        change = self._decided(puts, must=must)
        if change is not None:
            self._change = change
            try:
                self._apply(change)
            except BaseException:
                self._apply(change)
                raise
        return change

    def _decided(self, puts: list[Put], *, must: bool = False) -> _Change | None:
        number = self._generation + 1
        layers = _layered(puts, number, self._wall())
        if not layers:
            return None
        chosen = {flag: strongest(values.values(), self._precedence) for flag, values in layers.items()}
        calls: Calls = deque()
        for flag, held in chosen.items():
            calls.append((flag.event, ValueChange(flag.get(), held.value, flag.same(flag.get(), held.value))))
        before = self.snapshot()
        after = before.replacing(number, {flag.name: held for flag, held in chosen.items()})
        broken = newly_broken(self._checks, before, after)
        if broken and not must:
            raise FlagError(", ".join(sorted(flag.name for flag in chosen)[:_SHOWN]), "; ".join(broken))
        calls.append((self.event, ValueChange(before, after)))
        return _Change(after, layers, chosen, calls, puts, before, broken)

    def _apply(self, change: _Change) -> None:
        """Apply a change, or complete one that was interrupted. Nothing in here fails by itself."""
        self._generation, self._snapshot = change.snapshot.generation, change.snapshot
        for flag, held in change.chosen.items():
            flag.become(change.layers[flag], held)
        while change.calls:
            event, step = change.calls[0]
            if event.post(step):
                self._pending.append((event, step))
                self._queued += 1
            change.calls.popleft()
        self._change = None

    def _deliver(self, mine: int, wait: bool) -> None:
        """Make the queued calls, or wait until the thread that makes calls has made those up to `mine`."""
        with self._turn:
            while self._deliverer is not None:
                if self._deliverer == get_ident() or _depth.value or not wait:
                    return
                self._turn.wait()
                if self._delivered >= mine:
                    return
            self._deliverer = get_ident()
        turn, depth = self._turn, _depth.value
        try:
            _depth.value = depth + 1
            self._call_pending(turn)
        finally:
            _depth.value = depth
            with turn:  # a signal may have interrupted it anywhere
                if self._deliverer == get_ident() and self._turn is turn:
                    self._deliverer = None
                    turn.notify_all()

    def _call_pending(self, turn: threading.Condition) -> None:
        interrupt: KeyboardInterrupt | None = None
        while (due := self._next(turn)) is not None:
            try:
                due[0].call(due[1])
            except KeyboardInterrupt as error:
                interrupt = error
            if self._turn is not turn:
                return  # the notifier has forked, and this is the child: `go_on_in_child` makes the other calls
            with turn:
                self._pending.popleft()
                self._delivered += 1
                turn.notify_all()
        if interrupt is not None:
            raise interrupt

    def _next(self, turn: threading.Condition) -> tuple[ChangeEvent, ValueChange] | None:
        with turn:
            if self._pending:
                return self._pending[0]
            self._deliverer = None
            turn.notify_all()
            return None

    def _time_expiry(self, puts: Iterable[Put]) -> None:
        """Start the timer for values that expire; before they are in place, while they can still be rejected."""
        for put in puts:
            if put.until is not None and not put.drop:
                try:
                    self._expiry.by(put.until)
                except RuntimeError as error:
                    reason = f"no thread can be started to end it ({error}): try again, or set it without a ttl"
                    raise FlagError(put.flag.name, reason) from error

    def expire(self) -> None:
        """Drop the values that have expired, and set the timer for the next."""
        self.commit(self._expired, wait=False, must=True)

    def _expired(self) -> list[Put]:
        now, expiring = self._clock(), list(self._expiring())
        self._expiry.then(min((until for until, _ in expiring if until > now), default=None))
        return [put for until, put in expiring if until <= now]

    def _expiring(self) -> Iterator[tuple[float, Put]]:
        for flag in dict.fromkeys(self._flags.values()):
            for slot, held in flag.layers.items():
                if held.until is not None:
                    yield held.until, Put(flag, slot, until=held.until, drop=True)

    def _events(self) -> list[ChangeEvent]:
        return [self.event, *(flag.event for flag in dict.fromkeys(self._flags.values()))]

    def before_fork(self) -> None:
        """Wait for a commit to end, and allow none until the fork is over."""
        self._held = self.lock.acquire(timeout=_FORK_PATIENCE)

    def after_fork_in_parent(self) -> None:
        """Allow commits again."""
        if self._held:
            self._held = False
            self.lock.release()

    def after_fork_in_child(self) -> None:
        """Replace locks, and forget the threads of the parent."""
        self.notifiers.reset()
        self._expiry.renew()
        self._renew_locks()
        for event in self._events():
            event.renew()

    def go_on_in_child(self) -> None:
        """Complete a change that was interrupted, and make the calls that were queued.

        A call that another thread was making is made again. One that this thread was making has forked: it would fork
        again.
        """
        if self._change is not None:
            self._apply(self._change)
        if self._deliverer == get_ident() and self._pending:
            self._pending.popleft()
            self._delivered += 1
        self._deliverer = None
        if self._pending:
            self._deliver(self._queued, wait=False)
        for event in self._events():
            event.resume()
        if any(True for _ in self._expiring()):
            self.expire()


def _layered(puts: Iterable[Put], generation: int, at: float) -> dict[DynFlag[Any], dict[Slot, Held[Any]]]:
    """Return the new values by slot of each flag that changes."""
    layered: dict[DynFlag[Any], dict[Slot, Held[Any]]] = {}
    for put in puts:
        if put.drop and (put.slot not in put.flag.layers or put.slot.origin is Origin.DEFAULT):
            continue
        layers = layered.setdefault(put.flag, dict(put.flag.layers))
        if put.drop:
            del layers[put.slot]
        else:
            layers[put.slot] = Held(put.value, put.slot, generation, at, put.until, put.part, put.flag.secret)
    return layered
