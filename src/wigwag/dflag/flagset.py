"""A set of flags: their names, the ways to read them together, and the ways to change them.

How a change is made is in `store`, how flags are defined in `define`, what a set is for its flags in `home`; here is
what it is for its users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from wigwag.dflag import fork
from wigwag.dflag.checks import Check
from wigwag.dflag.define import Definitions
from wigwag.dflag.flag import DynFlag
from wigwag.dflag.home import Home
from wigwag.dflag.naming import check_name, did_you_mean, path_name
from wigwag.dflag.origin import Origin, Slot
from wigwag.dflag.snapshot import Snapshot, pinned_for, pinning
from wigwag.dflag.store import Put
from wigwag.dflag.traits import Traits
from wigwag.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from contextlib import AbstractContextManager

    from wigwag.dflag.checksum import Which
    from wigwag.dflag.notifying.expiry import Ttl
    from wigwag.dflag.notifying.notify import How, Subscription
    from wigwag.dflag.values.kinds import ValueKind

T = TypeVar("T")


class FlagSet(Home, Definitions):
    """Flags by name.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate, name = flags.int("rate", 10), flags.str("name", "x", dynamic=False)
    >>> flags.assign("rate", "20"); flags.snapshot()[rate], [flag.name for flag in flags]
    (20, ['name', 'rate'])
    """

    def define(self, name: str, kind: ValueKind[T], default: T, usage: str, options: Any) -> DynFlag[T]:
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
    def _around(cls, kind: ValueKind[T], default: T, usage: str, options: Any) -> DynFlag[T]:
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
        if name not in self._flags:
            raise KeyError(self.without(name))
        return self._flags[name]

    def without(self, name: str) -> str:
        """Return the message for a name that no flag has."""
        return f"there is no flag {name!r} in the set {self.name!r}{did_you_mean(name, self._flags)}"

    def _found(self, names: Iterable[str]) -> list[DynFlag[Any]]:
        """Return the flags of these names, all of which there must be."""
        wanted = list(names)
        for name in wanted:
            if name not in self._flags:
                raise UsageError(self.without(name))
        return [self._flags[name] for name in wanted]

    def find(self, name: str) -> DynFlag[Any] | None:
        """Return the flag of a name or alias, if there is one."""
        return self._flags.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._flags

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
        self, name: str, text: str, origin: Origin = Origin.PROGRAM, place: str = "", ttl: Ttl | None = None
    ) -> None:
        """Set a flag by name from text; `ttl` is after how many seconds, or which duration, the value runs out."""
        (flag,) = self._found([name])
        self.put(flag, text, Slot(origin, place), ttl)

    def clear(self, origin: Origin) -> None:
        """Forget all values of an origin, such as what `load_environment` has set; what lies beneath is back.

        Static flags that may no longer change keep theirs.
        """
        if origin is Origin.DEFAULT:
            raise UsageError("a flag always has a default: change it with set_default")
        self.commit(lambda: [Put(flag, slot, drop=True) for flag, slot in self._slots(origin)])

    def _slots(self, origin: Origin) -> Iterator[tuple[DynFlag[Any], Slot]]:
        for flag in self:
            if flag.dynamic or not self.frozen:
                yield from ((flag, slot) for slot in flag.layers if slot.origin is origin)

    def set_default(self, text: str, *names: str) -> None:
        """Change the default of flags, and with it the value of those that nothing else has given one."""
        found, slot = self._found(names), Slot(Origin.DEFAULT)

        def decide() -> list[Put]:
            for flag in found:
                flag.refuse_if_static(self.frozen)
            return [Put(flag, slot, flag.parse(text)) for flag in found]

        self.commit(decide)

    def check(self, holds: Callable[[Snapshot], object], wants: str) -> None:
        """Refuse every change, of one flag or of a whole ConfigMap, after which something would not hold.

        `holds` gets the snapshot that there would be, and refuses by returning what is false, or raising ValueError.
        `wants` is what whoever is refused is told. It must hold now, too.

        >>> from wigwag import dflag
        >>> flags = dflag.FlagSet("example")
        >>> low, high = flags.int("low", 1), flags.int("high", 10)
        >>> flags.check(lambda found: found[low] <= found[high], "low must be at most high")
        >>> low.set("11")
        Traceback (most recent call last):
        wigwag.errors.FlagError: flag 'low': low must be at most high
        """
        fault = self._store.add_check(Check(holds, wants))
        if fault is not None:
            raise UsageError(f"the set {self.name!r} breaks the check already: {fault}")

    @contextmanager
    def override(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Iterator[None]:
        """Hold other values for the length of a test, whatever else happens; also of static flags."""
        wanted = {**(values or {}), **named}
        with self.overriding(zip(self._found(wanted), wanted.values(), strict=True)):
            yield

    def on_change(
        self,
        callback: Callable[[Snapshot, Snapshot], object],
        how: How | None = None,
        loop: AbstractEventLoop | None = None,
    ) -> Subscription:
        """Have a function called once for each generation, with the snapshots before and after it."""
        return self._event.add(callback, how, loop, always=False)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the notifiers that threads call have been called; tell whether that came in time."""
        fork.catch_up()
        with self._store.lock:  # a commit whose values can be seen already has told the crew when this is free
            pass
        return self.notifiers.flush(timeout)

    def __repr__(self) -> str:
        many = "" if len(self) == 1 else "s"
        return f"<FlagSet {self.name}: {len(self)} flag{many}, generation {self.generation}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"the set {self.name!r} belongs to this process: copy or send `snapshot()`, or its checksum")
