"""Two sets of flags side by side: which flags differ and in what, and who would get another answer.

    flags      by flag set and key        added, removed, changed: which members
    answers    by key, for each context   what a client gets before and after, counted per flag

Answers are those of clients: where several flag sets have a key, the flag that answers for it; to compare one set,
select it. Only flags with a difference that can change an answer are evaluated, and both sides see the same time. Many
evaluations take a while, so `Comparing` works in steps, between which a server can do something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

from wigwag.errors import DocumentError, UsageError
from wigwag.flags.diff.comparison import Affected, ClientResult, Comparison, FlagChange, MemberChange, Move, Name, Shift
from wigwag.flags.model import FLAG_NOT_FOUND, canonical
from wigwag.flags.rules import refs

if TYPE_CHECKING:
    from wigwag.flags.flag import Flag
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Json, Resolution

T = TypeVar("T")
MOST_CONTEXTS = 10_000
MOST_LISTED = 1_000
"""Contexts that are listed one by one; the moves count all of them."""
_EXAMPLES = 20
_STEP = 256
_LONGEST_NAME = 64
_UNDECIDING = frozenset(("metadata", "source"))
"""Members that change no outcome. What metadata says about hashing is a member of its own."""


class CompareOptions(TypedDict, total=False):
    """The options of a comparison."""

    now: float | None
    """The time in Unix seconds that the rules of both sides see; without it, the clock of `after` is read once."""
    sources: bool
    """Whether a flag counts as changed that only comes from another source; true by default."""
    most: int
    """How many contexts there may be."""
    work: int | None
    """How many evaluations there may be; more are refused before the first."""


def compare(
    before: FlagSet, after: FlagSet, contexts: Iterable[Mapping[str, Json]] = (), **options: Unpack[CompareOptions]
) -> Comparison:
    """Compare two sets of flags, and what each of the contexts gets of them.

    >>> import wigwag
    >>> flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off"}
    >>> rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
    >>> before, after = (wigwag.load({"flags": {"a": f}}) for f in (flag, {**flag, "targeting": rule}))
    >>> print(compare(before, after, [{"targetingKey": "fay", "tier": "gold"}, {"targetingKey": "bo"}]))
    ~ a   targeting added
    <BLANKLINE>
    1 of 2 contexts get another answer:
      a   off → on   1: fay
    """
    comparing = Comparing(before, after, contexts, **options)
    for _ in comparing.steps():
        pass
    return comparing.result()


class Comparing:
    """A comparison under way."""

    def __init__(
        self,
        before: FlagSet,
        after: FlagSet,
        contexts: Iterable[Mapping[str, Json]] = (),
        **options: Unpack[CompareOptions],
    ) -> None:
        self._before, self._after = before, after
        self._contexts = _checked(contexts, options.get("most", MOST_CONTEXTS))
        now = options.get("now")
        self._now = after.clock() if now is None else now
        self._sources, self._work = options.get("sources", True), options.get("work")
        self._old: dict[Name, Flag] = {}
        self._new: dict[Name, Flag] = {}
        self._changed: list[FlagChange] = []
        self._keys: list[str] = []
        self._tally = _Tally()

    def steps(self) -> Iterator[None]:
        """Do it; each step is a small part of it."""
        self._old, self._new = _by_name(self._before), _by_name(self._after)
        for names in _batches(self._new):
            yield
            self._changed += self._changes(names)
        if self._contexts:
            for batch in _batches(sorted({*self._before, *self._after})):
                yield
                self._keys += self._deciding(batch)
            self._check_work()
        for position, context in enumerate(self._contexts):
            shifts: list[Shift] = []
            for batch in _batches(self._keys):
                yield
                shifts += self._shifts(batch, context, position)
            self._tally.add(position, _name(position, context), shifts)

    def _changes(self, names: Iterable[Name]) -> Iterator[FlagChange]:
        for name in names:
            old = self._old.get(name)
            members = differing(old, self._new[name], self._sources) if old is not None else ()
            if members:
                yield FlagChange(name, members)

    def _deciding(self, keys: Iterable[str]) -> Iterator[str]:
        """Return the keys that may have another outcome."""
        for key in keys:
            old, new = self._before.flag(key), self._after.flag(key)
            if old is None or new is None or {member.name for member in differing(old, new)} - _UNDECIDING:
                yield key

    def _check_work(self) -> None:
        each = 2 * len(self._keys)
        if self._work is not None and each * len(self._contexts) > self._work:
            fewer = f"compare {self._work // each} contexts at a time"
            raise UsageError(
                f"{len(self._contexts)} contexts are too many for {len(self._keys)} changed flags; {fewer}"
            )

    def _shifts(self, keys: Iterable[str], context: Mapping[str, Json], position: int) -> Iterator[Shift]:
        try:
            for key in keys:
                old = self._before.resolve(key, None, None, context, self._now)
                new = self._after.resolve(key, None, None, context, self._now)
                alike = self._tally.alike(key, old, new)
                if not alike or old.reason != new.reason:
                    noticed = not alike and old.error != FLAG_NOT_FOUND
                    yield Shift(key, ClientResult.of(old), ClientResult.of(new), noticed)
        except RecursionError as error:
            raise UsageError(f"context {_name(position, context)} is nested too deeply") from error

    def result(self) -> Comparison:
        """Return the comparison, when all steps are done."""
        return Comparison(
            before=self._before.id,
            after=self._after.id,
            added=tuple(name for name in self._new if name not in self._old),
            removed=tuple(name for name in self._old if name not in self._new),
            changed=tuple(self._changed),
            metadata=_named("metadata", self._before.metadata, self._after.metadata),
            contexts=len(self._contexts),
            affected=self._tally.affected,
            moves=self._tally.moves(),
            outcomes=tuple(self._tally.listed),
        )


def differing(old: Flag, new: Flag, sources: bool = True) -> tuple[MemberChange, ...]:
    """Return the members in which two definitions of a flag differ."""
    if old is new or old.digest == new.digest:
        return ()
    members = (
        _plain("state", old.definition.state or None, new.definition.state or None),
        _plain("defaultVariant", old.default_variant, new.default_variant),
        _named("variants", old.variants, new.variants),
        _rule(old, new),
        _plain("fractional", old.fractional, new.fractional),
        _plain("numbers", old.setting.options.numbers, new.setting.options.numbers),
        _named("metadata", old.metadata, new.metadata),
        _plain("source", old.source, new.source) if sources else None,
    )
    return tuple(member for member in members if member is not None)


def _plain(name: str, old: str | None, new: str | None) -> MemberChange | None:
    return MemberChange(name, old, new) if old != new else None


def _named(name: str, old: Mapping[str, Json], new: Mapping[str, Json]) -> MemberChange | None:
    """Compare two objects by content: the order of members does not count, and true is not 1."""
    added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    changed = sorted(key for key in new.keys() & old.keys() if canonical(old[key]) != canonical(new[key]))
    if not (added or removed or changed):
        return None
    return MemberChange(name, added=added, removed=removed, changed=changed)


def _rule(old: Flag, new: Flag) -> MemberChange | None:
    if old.targeted != new.targeted:
        return MemberChange("targeting", how="added" if new.targeted else "removed")
    if not old.targeted or _rule_text(old) == _rule_text(new):
        return None
    return MemberChange("targeting", how="changed")


def _rule_text(flag: Flag) -> bytes:
    """Return the rule and the shared rules that it reaches; of a rule that cannot be decoded, its text."""
    try:
        return canonical([flag.rule, refs.reachable(flag.rule, flag.setting.evaluators)])
    except DocumentError:
        return bytes(flag.definition.targeting or b"")


def _by_name(flags: FlagSet) -> dict[Name, Flag]:
    return {Name(flag.set_id, flag.key): flag for flag in flags.flags()}


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, _STEP)):
        yield batch


def _checked(contexts: Iterable[Mapping[str, Json]], most: int) -> tuple[Mapping[str, Json], ...]:
    checked = tuple(islice(contexts, most + 1))
    if len(checked) > most:
        raise UsageError(f"more than {most} contexts; compare a sample of them")
    for position, context in enumerate(checked):
        if not isinstance(context, Mapping):
            raise UsageError(f"context #{position + 1} must be an object of attributes, not {type(context).__name__}")
    return checked


def _name(position: int, context: Mapping[str, Json]) -> str:
    """Return what people know a context by: its targeting key, or which one it is, counted from 1."""
    key = context.get("targetingKey")
    return key[:_LONGEST_NAME] if isinstance(key, str) and key else f"#{position + 1}"


class _Tally:
    """Counts who moves from where to where."""

    def __init__(self) -> None:
        self.affected = 0
        self.listed: list[Affected] = []
        self._moves: dict[tuple[object, ...], Move] = {}
        self._equal: dict[tuple[str, str], bool] = {}

    def alike(self, key: str, old: Resolution, new: Resolution) -> bool:
        """Tell whether two answers are the same to a client. A variant's value is compared once: it may be large."""
        if old.variant != new.variant or old.error != new.error:
            return False
        if old.variant is None:
            return True
        known = self._equal.get((key, old.variant))
        if known is None:
            known = self._equal[key, old.variant] = canonical(old.value) == canonical(new.value)
        return known

    def add(self, position: int, name: str, shifts: list[Shift]) -> None:
        if not shifts:
            return
        self.affected += any(shift.noticed for shift in shifts)
        if len(self.listed) < MOST_LISTED:
            self.listed.append(Affected(position, name, tuple(shifts)))
        for shift in shifts:
            move = self._moves.setdefault(_identity(shift), Move(shift))
            move.count += 1
            if len(move.examples) < _EXAMPLES:
                move.examples.append(position)
                move.names.append(name)

    def moves(self) -> tuple[Move, ...]:
        """Return all moves by key, the most frequent first."""
        return tuple(sorted(self._moves.values(), key=lambda move: (move.shift.key, -move.count, str(move.shift))))


def _identity(shift: Shift) -> tuple[object, ...]:
    """Return what makes two shifts one move; of one side, a variant has one value."""
    return shift.key, *((side.variant, side.reason, side.error) for side in (shift.before, shift.after))
