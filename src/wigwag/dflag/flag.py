"""One flag: a value that is read without a lock, and the path on which it changes.

    text ─▶ input mutator ─▶ parse ─▶ value mutator ─▶ validators ─▶ swap ─▶ notifiers
                              value ──────▲

A value that is rejected on that path leaves the flag as it was. The owner, the flag set, swaps, and makes
many changes under one generation. A flag without a name has a set of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from wigwag.dflag.notifying.notifiers import ChangeEvent
from wigwag.dflag.origin import HIDDEN, Held, Origin, Slot
from wigwag.dflag.snapshot import pinned_for
from wigwag.dflag.values import validators
from wigwag.dflag.values.kinds import holds_nan
from wigwag.errors import FlagError, StaticFlagError, UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import AsyncGenerator
    from contextlib import AbstractContextManager
    from typing import Self

    from wigwag.dflag.notifying.notifiers import How, NotifierPool, Subscription
    from wigwag.dflag.traits import Traits
    from wigwag.dflag.values.kinds import ValueKind

T = TypeVar("T")
_DEFAULT = Slot(Origin.DEFAULT)
_PROGRAM = Slot(Origin.PROGRAM)


class Put(NamedTuple):
    """A change of one slot of a flag: a valid value for it; with `drop`, the slot is emptied."""

    flag: DynFlag[Any]
    slot: Slot
    value: Any = None
    until: float | None = None
    drop: bool = False
    part: str = ""


class FlagOwner(Protocol):
    """What a flag needs of its flag set."""

    name: str
    frozen: bool
    precedence: Sequence[Origin]
    notifiers: NotifierPool

    def commit(self, decide: Callable[[], Iterable[Put]]) -> None:
        """Make changes under one generation; `decide` is called under the lock."""

    def override(self, values: Mapping[str, Any], /) -> AbstractContextManager[None]:
        """Replace values, by name, until the end of the block."""
        ...


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
        "_owner",
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
        self, owner: FlagOwner, kind: ValueKind[T], default: T, usage: str, traits: Traits[T], name: str = ""
    ) -> None:
        self._owner, self.kind, self.usage, self.traits = owner, kind, usage, traits
        self.names: tuple[str, ...] = (name,)
        self.event = ChangeEvent(name, owner.notifiers, traits.secret)
        self.default = self._checked_default(default)
        self._value = self.default
        self._held = Held(self.default, _DEFAULT, 0, 0.0, secret=traits.secret)
        self.layers: Mapping[Slot, Held[T]] = {_DEFAULT: self._held}
        """All values that were set, by slot. The map is replaced, never changed."""

    def get(self) -> T:
        """Return the current value."""
        return self._value

    @property
    def value(self) -> T:
        """The current value."""
        return self._value

    def __call__(self) -> T:
        """Return the value in the pinned snapshot; the current one if none is pinned, or while a test overrides it."""
        pinned = pinned_for(self._owner)
        held = None if pinned is None else pinned.find(self.names[0])
        return self._value if held is None or self._held.slot.origin is Origin.TEST else held.value

    def __bool__(self) -> NoReturn:
        """Raise: `if debug:` is meant as `if debug.get():`, and a flag itself would always be true."""
        raise TypeError(f"flag {self.name!r} is neither true nor false: ask for its value with .get()")

    if not TYPE_CHECKING:  # a type checker reports the comparison itself, unless it sees an `__eq__` here

        def __eq__(self, other: object) -> bool:
            """Raise: `rate == 10` means `rate.get() == 10`, and would always be false. Two flags can be compared."""
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
        """The current value, with its origin."""
        return self._held

    @property
    def text(self) -> str:
        """The current value as text that `set` accepts; secrets included."""
        return self.kind.format(self._value)

    @property
    def shown(self) -> str:
        """The current value as text for people."""
        return self.show(self._value)

    def show(self, value: T) -> str:
        """Return a value as text for people; secrets are hidden. It never raises."""
        if self.secret:
            return HIDDEN
        try:
            return self.kind.format(value)
        except Exception as error:  # noqa: BLE001 - the value's own code
            return f"(cannot be shown: {type(error).__name__})"

    def set(self, text: str) -> None:
        """Parse a text and swap the value in; `FlagError` if it is rejected."""
        self._put(_PROGRAM, lambda: self.parse(text))

    def set_value(self, value: T) -> None:
        """Swap in a value; `FlagError` if it is rejected."""
        self._put(_PROGRAM, lambda: self.admit(value))

    def set_default(self, value: T) -> None:
        """Change the default, and with it the value if nothing else has set one."""
        self._put(_DEFAULT, lambda: self.admit(value))

    def _put(self, slot: Slot, read: Callable[[], T]) -> None:
        def decide() -> list[Put]:
            self.refuse_if_static()
            return [Put(self, slot, read())]

        self._owner.commit(decide)

    def reset(self) -> None:
        """Drop the value that the program has set; the next one in precedence applies again."""
        if _PROGRAM in self.layers:
            self.refuse_if_static()
        self._owner.commit(lambda: [Put(self, _PROGRAM, drop=True)])

    def override(self, value: T) -> AbstractContextManager[None]:
        """Replace the value for the length of a test, whatever else happens; also of a static flag."""
        return self._owner.override({self.name: value})

    def on_change(
        self,
        callback: Callable[[T, T], object],
        how: How | None = None,
        loop: AbstractEventLoop | None = None,
        *,
        always: bool = False,
    ) -> Subscription:
        """Call a function with the old and the new value of each change; see `notifiers` for `how`.

        With `always`, also when it is set to a value that equals the old one.
        """
        return self.event.add(callback, how, loop, always)

    async def changes(self) -> AsyncGenerator[T, None]:
        """Yield the current value, then the newest after each change; a slow reader may skip values."""
        from asyncio import Event  # a program without an event loop does not load asyncio

        changed = Event()

        async def wake(old: T, new: T) -> None:
            changed.set()

        with self.on_change(wake):
            while True:
                yield self.get()
                await changed.wait()
                changed.clear()

    async def wait_for(self, wanted: Callable[[T], bool]) -> T:
        """Wait for a value of which `wanted` is true, and return it."""
        from contextlib import aclosing

        async with aclosing(self.changes()) as values:
            async for value in values:
                if wanted(value):
                    return value
        raise AssertionError("the changes of a flag never end")

    def parse(self, content: str | bytes) -> T:
        """Parse and validate a text as `set` does, without swapping the value in."""
        if not isinstance(content, str | bytes):
            raise FlagError(self.name, self._not_text(content))
        return self._guarded(lambda: self._read(content))

    def compose(self, parts: list[Any] | dict[str, Any]) -> T:
        """Parse and validate a list or map of texts, without swapping the value in."""
        return self._guarded(lambda: self._validated(self.kind.composed(parts)))

    def admit(self, value: T) -> T:
        """Validate a value as `set_value` does, without swapping it in."""
        return self._guarded(lambda: self._validated(self.kind.take(value)))

    def refuse_if_static(self) -> None:
        """Raise if the flag is static and its set is frozen."""
        if self._owner.frozen and not self.dynamic:
            raise StaticFlagError(self.name, "it is static: it changes only before start(); restart the program")

    def bind(self, owner: FlagOwner, names: Sequence[str]) -> None:
        """Move to a flag set, under more names. Called by the flag set."""
        self.names = (*filter(None, self.names), *names)
        self._owner, self.event.name, self.event.notifiers = owner, self.name, owner.notifiers

    @property
    def owner(self) -> FlagOwner:
        """The flag set that it belongs to."""
        return self._owner

    def become(self, layers: Mapping[Slot, Held[T]], held: Held[T]) -> None:
        """Swap in a value. Called by the flag set, under its lock."""
        self.layers, self._held, self._value = layers, held, held.value
        self.default = layers[_DEFAULT].value

    def same(self, old: T, new: T) -> bool:
        """Tell whether two values are equal, so that setting one after the other is no change."""
        if old is new:
            return True
        try:
            if self.kind.is_json or (holds_nan(old) and holds_nan(new)):
                return self.kind.format(old) == self.kind.format(new)
            return bool(old == new)
        except Exception:  # noqa: BLE001 - the value's own code; what cannot be compared counts as changed
            return False

    def _not_text(self, value: object) -> str:
        shown = "…" if self.secret else repr(value)[:60]
        return f"set() takes text, got {type(value).__name__}: use set_value({shown})"

    def _read(self, content: str | bytes) -> T:
        if isinstance(content, bytes):
            if self.kind.raw is not None:
                return self._validated(self.kind.raw(content))
            content = _decoded(content)
        mutate = self.traits.input_mutator
        return self._validated(self.kind.parse(content if mutate is None else mutate(content)))

    def _validated(self, value: T) -> T:
        if self.traits.mutator is not None:
            value = self.kind.take(self.traits.mutator(value))
        validators.run(self.traits.validators, value)
        return value

    def _guarded(self, task: Callable[[], T]) -> T:
        """Turn what a kind, a mutator or a validator raises into `FlagError`, without text for a secret flag."""
        try:
            return task()
        except (Exception, SystemExit) as error:  # the user's functions: a bad value must not end the program
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
        """Return itself: a copy would never change."""
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
