"""A set of flags: how they are defined, read together and changed.

A flag set maps names to flags; its `FlagStore` makes all changes. There is a definer for each kind of value. They are
named after the types, as in `flags.int("rate", 10)`, so within the class the types have other names (`Int`, `Str`).
"""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar, Unpack, cast, overload

from wigwag.dflag import fork
from wigwag.dflag.checks import Check
from wigwag.dflag.flag import DynFlag, Put
from wigwag.dflag.naming import check_name, did_you_mean, path_name
from wigwag.dflag.notifying.expiry import Ttl, seconds
from wigwag.dflag.origin import PRECEDENCE, Origin, Slot, ranked
from wigwag.dflag.snapshot import Snapshot, pinned_for, pinning
from wigwag.dflag.store import FlagStore
from wigwag.dflag.traits import FlagOptions, ListOptions, MapOptions, Traits, with_options
from wigwag.dflag.values import kinds
from wigwag.dflag.values.containers import list_kind, mapping_kind, set_kind
from wigwag.dflag.values.numerals import parse_duration
from wigwag.dflag.values.types import kind_of
from wigwag.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from contextlib import AbstractContextManager

    from wigwag.dflag.checksum import Which
    from wigwag.dflag.notifying.notifiers import How, Subscription
    from wigwag.dflag.origin import Held
    from wigwag.dflag.updating.health import UpdaterHealth
    from wigwag.dflag.values.structured import Unknown

T = TypeVar("T")
E = TypeVar("E", bound=Enum)
E_co = TypeVar("E_co", covariant=True)
Bool: TypeAlias = bool
Int: TypeAlias = int
Float: TypeAlias = float
Str: TypeAlias = str
Bytes: TypeAlias = bytes
List: TypeAlias = list[T]


class EnumMember(Protocol[E_co]):
    """A member of an enumeration, as an instance of its class: pyright infers a type of its own for `Colour.RED`."""

    @property  # type: ignore[misc]
    def __class__(self) -> type[E_co]: ...  # type: ignore[override]


class FlagSet:
    """Flags by name.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate, name = flags.int("rate", 10), flags.str("name", "x", dynamic=False)
    >>> flags.assign("rate", "20"); flags.snapshot()[rate], [flag.name for flag in flags]
    (20, ['name', 'rate'])
    """

    def __init__(
        self,
        name: Str = "",
        *,
        precedence: Sequence[Origin] = PRECEDENCE,
        clock: Callable[[], Float] = time.monotonic,
        wall: Callable[[], Float] = time.time,
    ) -> None:
        """`precedence` is from the weakest origin to the strongest; among origins not in it, the last change counts.

        A default always is the weakest, and the override of a test the strongest.
        """
        self.name = name
        self.precedence: Sequence[Origin] = ranked(precedence)
        self._clock, self._overrides = clock, count(1)
        self._flags: dict[Str, DynFlag[Any]] = {}
        self._store = FlagStore(name, self.precedence, clock, wall)
        self.notifiers = self._store.notifiers
        """The threads that call notifiers."""
        self.frozen = False
        """Whether static flags can no longer change."""
        self.updater: UpdaterHealth | None = None
        """The updater that was started last, for the page to show."""

    # --- flags by name

    def define(
        self, name: Str, kind: kinds.ValueKind[T], default: T, usage: Str, options: Mapping[Str, Any]
    ) -> DynFlag[T]:
        """Define a flag of any kind."""
        check_name(name)
        traits: Traits[T] = Traits(**options)
        flag = DynFlag(self, kind, default, usage, traits, name)
        with self._store.lock:
            self._register(flag, [name, *traits.aliases])
            flag.names = (name, *traits.aliases)
        if traits.path_flag is not None:
            self.str(path_name(name), traits.path_flag, f"a file to read {name} from", dynamic=False)
        return flag

    def bind(self, name: Str, flag: DynFlag[T]) -> DynFlag[T]:
        """Give a flag a name in this set: one that was made by `dflag.new`, or one more name to a flag of this set."""
        if flag.owner is not self and flag.name:
            raise UsageError(f"flag {flag.name!r} belongs to the set {flag.owner.name!r} already")
        with self._store.lock:
            names = [name] if flag.owner is self else [name, *flag.traits.aliases]
            self._register(flag, names)
            flag.bind(self, names)
        return flag

    def _register(self, flag: DynFlag[Any], names: Sequence[Str]) -> None:
        for position, name in enumerate(names):
            check_name(name)
            if name in self._flags or name in names[:position]:
                raise UsageError(f"the set {self.name!r} has a flag {name!r} already")
        self._flags |= dict.fromkeys(names, flag)
        self._store.register(self._flags)

    def __getitem__(self, name: Str) -> DynFlag[Any]:
        if name not in self._flags:
            raise KeyError(self.without(name))
        return self._flags[name]

    def find(self, name: Str) -> DynFlag[Any] | None:
        """Return the flag of a name or alias, or None."""
        return self._flags.get(name)

    def without(self, name: Str) -> Str:
        """Return the message for a name that no flag has."""
        return f"there is no flag {name!r} in the set {self.name!r}{did_you_mean(name, self._flags)}"

    def _named(self, names: Iterable[Str]) -> List[DynFlag[Any]]:
        """Return the flags of these names; `UsageError` if one is missing."""
        names = [*names]
        for name in names:
            if name not in self._flags:
                raise UsageError(self.without(name))
        return [self._flags[name] for name in names]

    def __contains__(self, name: object) -> Bool:
        return name in self._flags

    def __iter__(self) -> Iterator[DynFlag[Any]]:
        """Iterate over the flags in the order of their names, each once."""
        return iter(sorted(set(self._flags.values()), key=lambda flag: flag.name))

    def __len__(self) -> Int:
        return len(set(self._flags.values()))

    # --- reading

    @property
    def generation(self) -> Int:
        """How many times changes were committed."""
        return self._store.snapshot().generation

    def snapshot(self) -> Snapshot:
        """Return all current values; they are of one generation and never change."""
        return self._store.snapshot()

    def current(self) -> Snapshot:
        """Return the pinned snapshot, or that of the current values."""
        pinned = pinned_for(self)
        return self._store.snapshot() if pinned is None else pinned

    def pinned(self) -> AbstractContextManager[Snapshot]:
        """Pin a snapshot: within the block, `flag()` is the value in it. A block within another has the outer's."""
        fork.catch_up()
        return pinning(self, self.current())

    def checksum(self, which: Which = "all", *, legacy: Bool = False) -> Str:
        """Return a digest of the current names and values; with `legacy`, as the original computes it."""
        from wigwag.dflag.checksum import checksum

        return checksum(((flag, flag.text) for flag in self), which, legacy=legacy)

    def usage(self) -> Str:
        """Return a help text about all flags."""
        from wigwag.dflag.usage import usage

        return usage(self)

    # --- changing

    def assign(
        self, name: Str, text: Str, origin: Origin = Origin.PROGRAM, place: Str = "", ttl: Ttl | None = None
    ) -> None:
        """Set a flag by name from text; `ttl` (seconds, or a duration) is when the value expires."""
        (flag,) = self._named([name])
        until = None if ttl is None else self._clock() + seconds(ttl)

        def decide() -> List[Put]:
            flag.refuse_if_static()
            return [Put(flag, Slot(origin, place), flag.parse(text), until)]

        self.commit(decide)

    def clear(self, origin: Origin) -> None:
        """Drop all values of an origin, such as those of `load_environment`; the next in precedence apply again.

        Static flags keep theirs once they can no longer change.
        """
        if origin is Origin.DEFAULT:
            raise UsageError("a flag always has a default: change it with set_default")

        def decide() -> Iterator[Put]:
            for flag in self:
                if flag.dynamic or not self.frozen:
                    yield from (Put(flag, slot, drop=True) for slot in flag.layers if slot.origin is origin)

        self.commit(decide)

    def set_default(self, text: Str, *names: Str) -> None:
        """Change the default of flags, and with it the value of those that nothing else has set."""
        flags = self._named(names)

        def decide() -> List[Put]:
            for flag in flags:
                flag.refuse_if_static()
            return [Put(flag, Slot(Origin.DEFAULT), flag.parse(text)) for flag in flags]

        self.commit(decide)

    def check(self, holds: Callable[[Snapshot], object], wants: Str) -> None:
        """Reject every change, of one flag or of a whole ConfigMap, after which a condition would not hold.

        `holds` gets the snapshot after the change, and rejects it by returning something false or raising ValueError.
        `wants` is the message then. The condition must hold now, too.

        >>> from wigwag import dflag
        >>> flags = dflag.FlagSet("example")
        >>> low, high = flags.int("low", 1), flags.int("high", 10)
        >>> flags.check(lambda after: after[low] <= after[high], "low must be at most high")
        >>> low.set("11")
        Traceback (most recent call last):
        wigwag.errors.FlagError: flag 'low': low must be at most high
        """
        fault = self._store.add_check(Check(holds, wants))
        if fault is not None:
            raise UsageError(f"the set {self.name!r} breaks the check already: {fault}")

    @contextmanager
    def override(self, values: Mapping[Str, Any] | None = None, /, **named: Any) -> Iterator[None]:
        """Replace values for the length of a test, whatever else happens; also of static flags."""
        wanted = {**(values or {}), **named}
        slot = Slot(Origin.TEST, position=next(self._overrides))
        pairs = zip(self._named(wanted), wanted.values(), strict=True)
        puts = [Put(flag, slot, flag.admit(value)) for flag, value in pairs]
        try:
            self.commit(lambda: puts)
            yield
        finally:
            self._store.commit(lambda: [put._replace(drop=True) for put in puts], must=True)

    def commit(
        self, decide: Callable[[], Iterable[Put]], done: Callable[[], None] = lambda: None, *, wait: Bool = True
    ) -> None:
        """Make many changes under one generation; see `FlagStore.commit`."""
        self._store.commit(decide, done, wait=wait)

    def validate(self, puts: Iterable[Put]) -> Mapping[DynFlag[Any], Held[Any]]:
        """Return what flags would hold after a change, or raise what `commit` would raise; nothing changes."""
        return self._store.validate(puts)

    def freeze(self) -> None:
        """Let static flags change no more."""
        self.frozen = True

    def expire(self) -> None:
        """Drop the values that have expired; a timer calls this by itself."""
        self._store.expire()

    # --- notifiers

    def on_change(
        self,
        callback: Callable[[Snapshot, Snapshot], object],
        how: How | None = None,
        loop: AbstractEventLoop | None = None,
    ) -> Subscription:
        """Call a function once for each generation, with the snapshots before and after it."""
        return self._store.event.add(callback, how, loop, always=False)

    @property
    def notifier_errors(self) -> Int:
        """How many times a notifier has raised."""
        return self.notifiers.errors

    def flush(self, timeout: Float | None = None) -> Bool:
        """Wait until the threads have called their notifiers; return False if the timeout comes first."""
        fork.catch_up()
        with self._store.lock:  # a commit whose values are visible has queued its calls when the lock is free
            pass
        return self.notifiers.flush(timeout)

    def __repr__(self) -> Str:
        plural = "" if len(self) == 1 else "s"
        return f"<FlagSet {self.name}: {len(self)} flag{plural}, generation {self.generation}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"the set {self.name!r} belongs to this process: copy or send `snapshot()`, or its checksum")

    # --- definers: each takes a name, a default, a usage text and `FlagOptions`

    @with_options
    def flag(
        self, type: type[T], name: Str, default: T, usage: Str = "", **options: Unpack[FlagOptions[T]]
    ) -> DynFlag[T]:
        """Define a flag of a Python type: a plain one, a list, set or map of those, or one that JSON can represent."""
        return self.define(name, kind_of(type), default, usage, options)

    @with_options
    def bool(self, name: Str, default: Bool, usage: Str = "", **options: Unpack[FlagOptions[Bool]]) -> DynFlag[Bool]:
        """Define a flag that is true or false."""
        return self.define(name, kinds.BOOL, default, usage, options)

    @with_options
    def int(self, name: Str, default: Int, usage: Str = "", **options: Unpack[FlagOptions[Int]]) -> DynFlag[Int]:
        """Define an integer of 64 bits."""
        return self.define(name, kinds.INT, default, usage, options)

    @with_options
    def float(
        self, name: Str, default: Float, usage: Str = "", **options: Unpack[FlagOptions[Float]]
    ) -> DynFlag[Float]:
        """Define a number."""
        return self.define(name, kinds.FLOAT, default, usage, options)

    @with_options
    def str(self, name: Str, default: Str, usage: Str = "", **options: Unpack[FlagOptions[Str]]) -> DynFlag[Str]:
        """Define a text."""
        return self.define(name, kinds.STR, default, usage, options)

    @with_options
    def duration(
        self, name: Str, default: timedelta | Str, usage: Str = "", **options: Unpack[FlagOptions[timedelta]]
    ) -> DynFlag[timedelta]:
        """Define a duration, written as `1h30m`; so may be its default."""
        value = parse_duration(default) if isinstance(default, Str) else default
        return self.define(name, kinds.DURATION, value, usage, options)

    @with_options
    def bytes(
        self, name: Str, default: Bytes, usage: Str = "", **options: Unpack[FlagOptions[Bytes]]
    ) -> DynFlag[Bytes]:
        """Define bytes: the content of a file as it is, or base64 where only text can be given."""
        return self.define(name, kinds.BYTES, default, usage, options)

    @with_options
    def path(
        self, name: Str, default: Path | Str, usage: Str = "", **options: Unpack[FlagOptions[Path]]
    ) -> DynFlag[Path]:
        """Define a path."""
        return self.define(name, kinds.PATH, Path(default), usage, options)

    @with_options
    def decimal(
        self, name: Str, default: Decimal, usage: Str = "", **options: Unpack[FlagOptions[Decimal]]
    ) -> DynFlag[Decimal]:
        """Define a decimal number."""
        return self.define(name, kinds.DECIMAL, default, usage, options)

    @with_options
    def enum(self, name: Str, default: EnumMember[E], usage: Str = "", **options: Unpack[FlagOptions[E]]) -> DynFlag[E]:
        """Define a member of an enumeration, the one of the default."""
        return self.define(name, kinds.enum_kind(default.__class__), cast("E", default), usage, options)

    @overload
    def list(
        self, name: Str, default: Sequence[Str], usage: Str = "", **options: Unpack[ListOptions[List[Str]]]
    ) -> DynFlag[List[Str]]: ...
    @overload
    def list(
        self,
        name: Str,
        default: Sequence[T],
        usage: Str = "",
        *,
        item: type[T],
        **options: Unpack[ListOptions[List[T]]],
    ) -> DynFlag[List[T]]: ...
    @with_options
    def list(
        self, name: Str, default: Sequence[Any], usage: Str = "", *, item: Any = Str, **options: Any
    ) -> DynFlag[List[Any]]:
        """Define a list of texts, or of another type (`item`), written as `a,b,c`, in lines, or as a JSON array.

        With `quoted`, an item may be in double quotes and contain a comma. With `keep_empty`, the text is split at
        commas only, and blanks and empty items are kept, as in the original.
        """
        kind = list_kind(kind_of(item), **_syntax(options))
        return self.define(name, kind, [*default], usage, options)

    @overload
    def set(
        self, name: Str, default: AbstractSet[Str], usage: Str = "", **options: Unpack[ListOptions[frozenset[Str]]]
    ) -> DynFlag[frozenset[Str]]: ...
    @overload
    def set(
        self,
        name: Str,
        default: AbstractSet[T],
        usage: Str = "",
        *,
        item: type[T],
        **options: Unpack[ListOptions[frozenset[T]]],
    ) -> DynFlag[frozenset[T]]: ...
    @with_options
    def set(
        self, name: Str, default: AbstractSet[Any], usage: Str = "", *, item: Any = Str, **options: Any
    ) -> DynFlag[frozenset[Any]]:
        """Define a set, written as a list is."""
        kind = set_kind(kind_of(item), **_syntax(options))
        return self.define(name, kind, frozenset(default), usage, options)

    @overload
    def mapping(
        self, name: Str, default: Mapping[Str, Str], usage: Str = "", **options: Unpack[MapOptions[Mapping[Str, Str]]]
    ) -> DynFlag[Mapping[Str, Str]]: ...
    @overload
    def mapping(
        self,
        name: Str,
        default: Mapping[Str, T],
        usage: Str = "",
        *,
        item: type[T],
        **options: Unpack[MapOptions[Mapping[Str, T]]],
    ) -> DynFlag[Mapping[Str, T]]: ...
    @with_options
    def mapping(
        self, name: Str, default: Mapping[Str, Any], usage: Str = "", *, item: Any = Str, **options: Any
    ) -> DynFlag[Mapping[Str, Any]]:
        """Define a map from text to text, or to another type (`item`), written as `k=v,k=v` or as a JSON object."""
        return self.define(name, mapping_kind(kind_of(item), **_syntax(options)), default, usage, options)

    @with_options
    def json(
        self,
        name: Str,
        default: T,
        usage: Str = "",
        *,
        type: type[T] | None = None,
        unknown_fields: Unknown = "ignore",
        **options: Unpack[FlagOptions[T]],
    ) -> DynFlag[T]:
        """Define a value that is written as JSON: a dict or list, or an instance of a class that JSON can represent.

        With `unknown_fields="error"`, a member that the class does not have is an error; otherwise it is ignored.
        """
        from wigwag.dflag.values.structured import json_kind  # needs msgspec, which plain kinds do without

        plain = type is None and isinstance(default, dict | builtins.list | tuple)
        kind = json_kind(None if plain else type or default.__class__, unknown_fields=unknown_fields)
        return self.define(name, kind, default, usage, options)


def _syntax(options: dict[str, Any]) -> dict[str, bool]:
    """Remove the options about the syntax of a list, set or map, and return them."""
    return {name: options.pop(name) for name in ("quoted", "keep_empty") if name in options}


@with_options
def new(type: type[T], default: T, usage: str = "", **options: Unpack[FlagOptions[T]]) -> DynFlag[T]:
    """Make a flag that has no name yet, for a library; `FlagSet.bind` gives it one. Until then it works alone.

    >>> from wigwag import dflag
    >>> size = dflag.new(int, 4, "threads in the pool")
    >>> size.set("8")
    >>> flags = dflag.FlagSet("example")
    >>> flags.bind("pool_size", size) is flags["pool_size"], flags.snapshot()["pool_size"]
    (True, 8)
    """
    owner, traits = FlagSet(), cast("Traits[T]", Traits(**cast("dict[str, Any]", options)))
    flag = DynFlag(owner, kind_of(type), default, usage, traits)
    owner._flags = {"": flag}
    owner._store.register(owner._flags)
    return flag
