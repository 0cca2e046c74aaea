"""A set of flags: their names, the ways to read them together, and the ways to change them.

How a change is made is in `store`, how flags are defined in `define`; here is what a set of them is for its users.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from wigwag.dflag import fork
from wigwag.dflag.crew import Crew
from wigwag.dflag.define import Definitions
from wigwag.dflag.expiry import Expiry
from wigwag.dflag.flag import DynFlag, Traits
from wigwag.dflag.naming import check_name, path_name
from wigwag.dflag.notify import Bell
from wigwag.dflag.origin import PRECEDENCE, Origin, Slot
from wigwag.dflag.snapshot import Snapshot, pinned_for, pinning
from wigwag.dflag.store import Put, Store
from wigwag.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from contextlib import AbstractContextManager

    from wigwag.dflag.checksum import Which
    from wigwag.dflag.notify import How, Subscription
    from wigwag.dflag.values.kinds import Kind

T = TypeVar("T")


class FlagSet(Definitions):
    """Flags by name.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate, name = flags.int("rate", 10), flags.str("name", "x", dynamic=False)
    >>> flags.assign("rate", "20"); flags.snapshot()[rate], [flag.name for flag in flags]
    (20, ['name', 'rate'])
    """

    fork_order = 1

    def __init__(
        self,
        name: str = "",
        *,
        precedence: Sequence[Origin] = PRECEDENCE,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`precedence` is from the weakest origin to the strongest; what is not in it counts by time, the last most."""
        self.name, self.precedence, self._clock = name, tuple(precedence), clock
        self._flags: dict[str, DynFlag[Any]] = {}
        self._bell = Bell(f"flags {name}", lambda: self.crew, self.count_fault)
        self._store = Store(self._bell, self.precedence, wall)
        self._expiry = Expiry(self.expire)
        self._overrides = count(1)
        self.crew = Crew()
        """The threads that call notifiers."""
        self.notifier_errors = 0
        """How often a notifier has raised."""
        self.frozen = False
        """Whether static flags can no longer change."""
        fork.remember(self)

    def define(self, name: str, kind: Kind[T], default: T, usage: str, options: Any) -> DynFlag[T]:
        check_name(name)
        traits: Traits[T] = Traits(**options)
        flag = DynFlag(self, kind, default, usage, traits, name)
        with self._store.lock:
            self._register(flag, [name, *traits.aliases])
            flag.names = (name, *traits.aliases)
        if traits.path_flag is not None:
            self.str(path_name(name), traits.path_flag, f"a file to read {name} from", dynamic=False)
        return flag

    def bind(self, name: str, flag: DynFlag[T]) -> DynFlag[T]:
        """Give a flag a name in this set: one that was made by `dflag.new`, or one of this set for one more name."""
        if flag.home is not self and flag.name:
            raise UsageError(f"flag {flag.name!r} belongs to the set {flag.home.name!r} already")
        with self._store.lock:
            names = [name] if flag.home is self else [name, *flag.traits.aliases]
            self._register(flag, names)
            flag.bind(self, names)
        return flag

    @classmethod
    def around(cls, kind: Kind[T], default: T, usage: str, options: Any) -> DynFlag[T]:
        """Make a flag without a name, in a set of its own."""
        home, traits = cls(), cast("Traits[T]", Traits(**options))
        flag = DynFlag(home, kind, default, usage, traits)
        home._flags = {"": flag}
        home._store.know(home._flags)
        return flag

    def _register(self, flag: DynFlag[Any], names: Sequence[str]) -> None:
        for position, name in enumerate(names):
            check_name(name)
            if name in self._flags or name in names[:position]:
                raise UsageError(f"the set {self.name!r} has a flag {name!r} already")
        self._flags |= dict.fromkeys(names, flag)
        self._store.know(self._flags)

    def __getitem__(self, name: str) -> DynFlag[Any]:
        return self._flags[name]

    def find(self, name: str) -> DynFlag[Any] | None:
        """Return the flag of a name or alias, if there is one."""
        return self._flags.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._flags

    def __iter__(self) -> Iterator[DynFlag[Any]]:
        """Iterate over the flags in the order of their names, each once."""
        return iter(sorted(set(self._flags.values()), key=lambda flag: flag.name))

    def __len__(self) -> int:
        return len(set(self._flags.values()))

    @property
    def generation(self) -> int:
        """How many times something was committed."""
        return self._store.snapshot().generation

    def snapshot(self) -> Snapshot:
        """Return all values of now; they are of one generation and stay as they are."""
        return self._store.snapshot()

    def current(self) -> Snapshot:
        """Return the snapshot that is pinned here, or that of now."""
        pinned = pinned_for(self)
        return self._store.snapshot() if pinned is None else pinned

    def pinned(self) -> AbstractContextManager[Snapshot]:
        """Pin a snapshot: within, `flag()` is the value of its generation. Within another, this is the outer's."""
        fork.catch_up()
        return pinning(self, self.current())

    def checksum(self, which: Which = "all", *, legacy: bool = False) -> str:
        """Return a digest of the names and values of now; with `legacy`, as the original computes it."""
        from wigwag.dflag.checksum import checksum

        return checksum(self, which, legacy=legacy)

    def usage(self) -> str:
        """Return a text for people about all flags."""
        from wigwag.dflag.usage import usage

        return usage(self)

    def assign(
        self, name: str, text: str, origin: Origin = Origin.PROGRAM, place: str = "", ttl: float | None = None
    ) -> None:
        """Set a flag by name from text; `ttl` is the seconds after which the value runs out."""
        if name not in self._flags:
            raise UsageError(f"there is no flag {name!r} in the set {self.name!r}")
        self.put(self._flags[name], text, Slot(origin, place), ttl)

    def set_default(self, text: str, *names: str) -> None:
        """Change the default of flags, and with it the value of those that nothing else has given one."""
        unknown = [name for name in names if name not in self._flags]
        if unknown:
            raise UsageError(f"there is no flag {unknown[0]!r} in the set {self.name!r}")
        found, slot = [self._flags[name] for name in names], Slot(Origin.DEFAULT)

        def decide() -> list[Put]:
            for flag in found:
                flag.refuse_if_static(self.frozen)
            return [Put(flag, slot, flag.parse(text)) for flag in found]

        self.commit(decide)

    def put(self, flag: DynFlag[T], content: str | bytes, slot: Slot, ttl: float | None = None) -> None:
        """Set a flag from text."""
        until = None if ttl is None else self._clock() + ttl
        if ttl is not None and not ttl > 0:
            raise UsageError(f"a value must live for more than {ttl} seconds")

        def decide() -> list[Put]:
            flag.refuse_if_static(self.frozen)
            return [Put(flag, slot, flag.parse(content), until)]

        self._store.commit(decide)
        if until is not None:
            self.expire()

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
        left to another thread if one is at it.
        """
        self._store.commit(decide, done, wait=wait)

    @contextmanager
    def override(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Iterator[None]:
        """Hold other values for the length of a test, whatever else happens; also of static flags."""
        wanted = [(self[name], value) for name, value in {**(values or {}), **named}.items()]
        with self.overriding(wanted):
            yield

    @contextmanager
    def overriding(self, values: Iterable[tuple[DynFlag[Any], Any]]) -> Iterator[None]:
        """Hold other values, given by flag."""
        slot = Slot(Origin.TEST, position=next(self._overrides))
        puts = [Put(flag, slot, flag.admit(value)) for flag, value in values]
        self.commit(lambda: puts)
        try:
            yield
        finally:
            self.commit(lambda: [put._replace(drop=True) for put in puts])

    def on_change(
        self,
        callback: Callable[[Snapshot, Snapshot], object],
        how: How | None = None,
        loop: AbstractEventLoop | None = None,
    ) -> Subscription:
        """Have a function called once for each generation, with the snapshots before and after it."""
        return self._bell.add(callback, how, loop, always=False)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the notifiers that threads call have been called; tell whether that came in time."""
        fork.catch_up()
        with self._store.lock:  # a commit whose values can be seen already has told the crew when this is free
            pass
        return self.crew.flush(timeout)

    def freeze(self) -> None:
        """Let no static flag change any more."""
        self.frozen = True

    def expire(self) -> None:
        """Drop what has run out, and come back when the next does."""
        now = self._clock()
        self._store.commit(lambda: [put for put in self._mortal() if (put.until or 0.0) <= now])
        with self._store.lock:
            self._expiry.arm(min((put.until - now for put in self._mortal() if put.until is not None), default=None))

    def _mortal(self) -> Iterator[Put]:
        for flag in self:
            for slot, held in flag.layers.items():
                if held.until is not None:
                    yield Put(flag, slot, until=held.until, drop=True)

    def count_fault(self) -> None:
        """Count a notifier that raised."""
        with self._store.lock:
            self.notifier_errors += 1

    def _bells(self) -> list[Bell]:
        return [self._bell, *(flag.bell for flag in self)]

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"the set {self.name!r} belongs to this process: copy or send `snapshot()`, or its checksum")

    def before_fork(self) -> None:
        self._store.before_fork()

    def after_fork_in_parent(self) -> None:
        self._store.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        self.crew.reset()
        self._expiry.renew()
        self._store.renew()
        for bell in self._bells():
            bell.renew()

    def go_on_in_child(self) -> None:
        self._store.go_on_in_child()
        for bell in self._bells():
            bell.resume()
        if any(True for _ in self._mortal()):
            self.expire()
