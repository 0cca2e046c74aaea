"""One flag: a value that everybody reads without a lock, and the path on which it is changed.

    text ─▶ input mutator ─▶ parse ─▶ value mutator ─▶ validators ─▶ swap ─▶ notifiers
                              value ──────▲

Whatever is refused on that path leaves the flag as it was. The swap is the business of the flag's set, which puts many
of them under one generation; a flag that nobody has named yet has a set of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from wigwag.dflag.notifying.notify import ChangeEvent
from wigwag.dflag.origin import HIDDEN, Held, Origin, Slot
from wigwag.dflag.snapshot import pinned_for
from wigwag.dflag.values import validators
from wigwag.dflag.values.kinds import holds_nan
from wigwag.errors import FlagError, StaticFlagError, UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncIterator, Iterator
    from typing import Self

    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.notifying.notify import How, Subscription
    from wigwag.dflag.traits import Traits
    from wigwag.dflag.values.kinds import ValueKind

T = TypeVar("T")
_DEFAULT = Slot(Origin.DEFAULT)
_PROGRAM = Slot(Origin.PROGRAM)


class DynFlag(Generic[T]):
    """A typed value that can change while the program runs.

    >>> from wigwag import dflag
    >>> rate = dflag.FlagSet("example").int("rate", 10, "requests per second", validators=[dflag.in_range(0, 100)])
    >>> rate.get()
    10
    >>> rate.set("0x20"); rate.get()
    32
    >>> rate.set("1000")
    Traceback (most recent call last):
    wigwag.errors.FlagError: flag 'rate': must be from 0 to 100, got 1000
    """

    __slots__ = (
        "__weakref__",
        "_held",
        "_home",
        "_value",
        "default",
        "event",
        "kind",
        "layers",
        "names",
        "traits",
        "usage",
    )

    def __init__(
        self, home: FlagSet, kind: ValueKind[T], default: T, usage: str, traits: Traits[T], name: str = ""
    ) -> None:
        self._home, self.kind, self.usage, self.traits = home, kind, usage, traits
        self.names: tuple[str, ...] = (name,)
        self.event = ChangeEvent(name, lambda: self._home.notifiers, self._failed, traits.secret)
        self.default = self._checked_default(default)
        self._value = self.default
        self._held = Held(self.default, _DEFAULT, 0, 0.0, secret=traits.secret)
        self.layers: Mapping[Slot, Held[T]] = {_DEFAULT: self._held}
        """All values that it was given, by where they come from; replaced and never changed."""

    def get(self) -> T:
        """Return the value of now."""
        return self._value

    @property
    def value(self) -> T:
        """The value of now."""
        return self._value

    def __call__(self) -> T:
        """Return the value as of the snapshot that is pinned here, or of now if none is, or if a test overrides it."""
        pinned = pinned_for(self._home)
        held = None if pinned is None else pinned.find(self.names[0])
        return self._value if held is None or self._held.slot.origin is Origin.TEST else held.value

    def __bool__(self) -> NoReturn:
        """Refuse: who writes `if debug:` means `if debug.get():`, and a flag itself would always be true."""
        raise TypeError(f"flag {self.name!r} is neither true nor false: ask for its value with .get()")

    if not TYPE_CHECKING:  # a type checker says so beforehand, as long as it sees no comparison of our own

        def __eq__(self, other: object) -> bool:
            """Refuse: `rate == 10` means `rate.get() == 10`, and would be false for ever. Two flags may be compared."""
            if isinstance(other, DynFlag):
                return self is other
            raise TypeError(f"flag {self.name!r} is compared, and not its value: ask for that with .get()")

        __hash__ = object.__hash__

    @property
    def name(self) -> str:
        """Its first name."""
        return self.names[0]

    @property
    def dynamic(self) -> bool:
        """Whether it may change while the program runs."""
        return self.traits.dynamic

    @property
    def secret(self) -> bool:
        """Whether its value must not be shown."""
        return self.traits.secret

    @property
    def held(self) -> Held[T]:
        """The value of now, with where it comes from."""
        return self._held

    @property
    def text(self) -> str:
        """The value of now as text, which `set` would understand. Of a secret flag it is the secret."""
        return self.kind.format(self._value)

    @property
    def shown(self) -> str:
        """The value of now as text for people."""
        return self.show(self._value)

    def show(self, value: T) -> str:
        """Return a value as text for people: a secret is hidden, and what cannot be written is said to be so."""
        if self.secret:
            return HIDDEN
        try:
            return self.kind.format(value)
        except Exception as error:  # noqa: BLE001 - a value's own code; showing it must not fail
            return f"(cannot be shown: {type(error).__name__})"

    def set(self, text: str) -> None:
        """Read a value from text, and swap it in; `FlagError` if it is refused."""
        self._home.put(self, text, _PROGRAM)

    def set_value(self, value: T) -> None:
        """Swap in a value; `FlagError` if it is refused."""
        self._home.put_value(self, value, _PROGRAM)

    def reset(self) -> None:
        """Forget what the program has set, and uncover what lies beneath."""
        if _PROGRAM in self.layers:
            self.refuse_if_static(self._home.frozen)
        self._home.drop(self, _PROGRAM)

    def set_default(self, value: T) -> None:
        """Change the default, and with it the value if nothing else has given it one."""
        self._home.put_value(self, value, _DEFAULT)

    @contextmanager
    def override(self, value: T) -> Iterator[None]:
        """Hold another value for the length of a test, whatever else happens."""
        with self._home.overriding([(self, value)]):
            yield

    def on_change(
        self,
        callback: Callable[[T, T], object],
        how: How | None = None,
        loop: AbstractEventLoop | None = None,
        *,
        always: bool = False,
    ) -> Subscription:
        """Have a function called with the old and the new value of each change; see `notify` for `how`.

        With `always`, also when it is set to a value that equals the old one.
        """
        return self.event.add(callback, how, loop, always)

    def changes(self) -> AsyncIterator[T]:
        """Yield the value of now, and then each that follows; one that comes too fast for the reader may be skipped."""
        from wigwag.dflag.notifying.waiting import changes

        return changes(self)

    async def wait_for(self, wanted: Callable[[T], bool]) -> T:
        """Wait until it holds a value of which this is true, and return that."""
        from wigwag.dflag.notifying.waiting import wait_for

        return await wait_for(self, wanted)

    def parse(self, content: str | bytes) -> T:
        """Read a value as `set` does, without swapping it in."""
        if not isinstance(content, str | bytes):
            raise FlagError(self.name, self._no_text(content))
        return self._guarded(lambda: self._read(content))

    def compose(self, parts: list[Any] | dict[str, Any]) -> T:
        """Read a value from a list or map of texts, without swapping it in."""
        return self._guarded(lambda: self._judged(self.kind.composed(parts)))

    def admit(self, value: T) -> T:
        """Judge a value as `set_value` does, without swapping it in."""
        return self._guarded(lambda: self._judged(self.kind.take(value)))

    def refuse_if_static(self, frozen: bool) -> None:
        """Raise if the time for changes is over for this flag."""
        if frozen and not self.dynamic:
            raise StaticFlagError(self.name, "it is static: it changes only before start(); restart the program")

    def bind(self, home: FlagSet, names: Sequence[str]) -> None:
        """Belong to a set, under more names. For the use of the set."""
        self.names = (*filter(None, self.names), *names)
        self._home, self.event.name = home, self.name

    @property
    def home(self) -> FlagSet:
        """The set that it belongs to."""
        return self._home

    def become(self, layers: Mapping[Slot, Held[T]], held: Held[T]) -> None:
        """Hold another value. For the use of the set, under its lock."""
        self.layers, self._held, self._value = layers, held, held.value
        self.default = layers[_DEFAULT].value

    def same(self, old: T, new: T) -> bool:
        """Tell whether two values are equal, so that going from one to the other is no change."""
        if old is new:
            return True
        try:
            if self.kind.is_json or (holds_nan(old) and holds_nan(new)):
                return self.kind.format(old) == self.kind.format(new)
            return bool(old == new)
        except Exception:  # noqa: BLE001 - a value's own code; what cannot be compared has changed
            return False

    def _no_text(self, value: object) -> str:
        told = "…" if self.secret else repr(value)[:60]
        return f"set() takes text, got {type(value).__name__}: use set_value({told})"

    def _failed(self) -> None:
        self._home.count_fault()

    def _read(self, content: str | bytes) -> T:
        if isinstance(content, bytes):
            if self.kind.raw is not None:
                return self._judged(self.kind.raw(content))
            content = _decoded(content)
        mutate = self.traits.input_mutator
        return self._judged(self.kind.parse(content if mutate is None else mutate(content)))

    def _judged(self, value: T) -> T:
        if self.traits.mutator is not None:
            value = self.kind.take(self.traits.mutator(value))
        validators.run(self.traits.validators, value)
        return value

    def _guarded(self, task: Callable[[], T]) -> T:
        """Turn whatever a kind, a mutator or a validator raises into the one error; it never tells a secret."""
        try:
            return task()
        except (Exception, SystemExit) as error:  # they are the user's functions; a bad value is no more than that
            if self.secret:
                raise FlagError(self.name, f"not a {self.kind.name} that is accepted (secret, so not shown)") from None
            if isinstance(error, ValueError | TypeError):
                raise FlagError(self.name, str(error)) from error
            raise FlagError(self.name, f"{type(error).__name__}: {error}") from error

    def _checked_default(self, default: T) -> T:
        try:
            validators.refuse_async(self.traits.validators)
            return self.admit(default)
        except UsageError as error:
            raise UsageError(f"flag {self.name!r}: {error}") from None
        except FlagError as error:
            raise UsageError(f"flag {self.name!r}: the default is refused: {error.reason}") from error.__cause__

    def __copy__(self) -> Self:
        """There is one of it: a copy would never hear of a change."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"flag {self.name!r} belongs to this process: send its value, or its name, to another")

    def __repr__(self) -> str:
        shown = self.shown
        return f"<DynFlag {self.name} ({self.kind.name}) {shown if len(shown) <= 60 else shown[:60] + '…'}>"


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start} of {len(content)})") from None


AnyFlag = DynFlag[Any]
