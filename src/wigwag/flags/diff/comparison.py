"""What a comparison of two sets of flags says, as values, as JSON, and as text for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType, field, to_builtins

from wigwag.flags.model import FLAG_NOT_FOUND, Json, Resolution, few

Style: TypeAlias = Callable[[str, str], str]
"""Puts a text in a style, such as `red`, where the reader has any."""
_LONGEST = 40
_NAMED = 5
_ABSENT = "(no such flag)"
_DEFAULT = "(caller's default)"


class Name(Struct, frozen=True, order=True):
    """Which flag: the flag set it is in, if any, and its key."""

    set_id: str
    key: str

    def __str__(self) -> str:
        return f"{self.key} ({self.set_id})" if self.set_id else self.key

    def to_dict(self) -> dict[str, Json]:
        """Return the name as plain JSON."""
        return {"key": self.key, "flagSetId": self.set_id}


class MemberChange(Struct, frozen=True, omit_defaults=True):
    """One member of a flag that differs: plain texts before and after, or the names of what differs in it."""

    name: str = field(name="member")
    before: str | UnsetType | None = UNSET
    after: str | UnsetType | None = UNSET
    added: list[str] = []
    removed: list[str] = []
    changed: list[str] = []
    how: str = ""
    """For a rule, which is too long to show: added, removed or changed."""

    def __str__(self) -> str:
        if self.how:
            return f"{self.name} {self.how}"
        signs = (("+", self.added), ("-", self.removed), ("~", self.changed))
        named = [sign + name for sign, names in signs for name in names]
        change = few(named) if named else f"{self.before or 'none'} → {self.after or 'none'}"
        return f"{self.name} {change}"


class FlagChange(Struct, frozen=True):
    """A flag that both sides have, and the members in which they differ."""

    name: Name
    members: tuple[MemberChange, ...]

    def to_dict(self) -> dict[str, Json]:
        """Return the change as plain JSON."""
        return self.name.to_dict() | {"members": [to_builtins(member) for member in self.members]}


class ClientResult(Struct, frozen=True):
    """What a client gets for a key."""

    variant: str | None
    value: Json
    reason: str
    error: str | None

    @classmethod
    def of(cls, resolution: Resolution) -> ClientResult:
        """Keep what decides of a resolution."""
        return cls(resolution.variant, resolution.value, resolution.reason, resolution.error)

    def __str__(self) -> str:
        if self.error is not None:
            return _ABSENT if self.error == FLAG_NOT_FOUND else self.error
        return _DEFAULT if self.variant is None else self.variant


class Shift(Struct, frozen=True):
    """A key whose outcome differs, for one context or for several."""

    key: str
    before: ClientResult
    after: ClientResult
    noticed: bool = True
    """Whether clients notice: not if only the reason differs, nor if the flag is new."""

    @property
    def new(self) -> bool:
        """Whether there was no such flag before."""
        return self.before.error == FLAG_NOT_FOUND

    def __str__(self) -> str:
        """Say what differs: the variants; the values, if the variants have the same name; or else the reasons."""
        old, new = self.before, self.after
        if str(old) != str(new):
            return f"{old} → {new}"
        sides = (_short(old.value), _short(new.value)) if self.noticed else (old.reason, new.reason)
        return f"{old} {sides[0]} → {new} {sides[1]}"

    def to_dict(self) -> dict[str, Json]:
        """Return the shift as plain JSON."""
        return {"key": self.key, "before": to_builtins(self.before), "after": to_builtins(self.after)}


class Move(Struct):
    """How many contexts move from one outcome of a flag to another, and the first of them."""

    shift: Shift
    count: int = 0
    examples: list[int] = []
    names: list[str] = []

    def who(self) -> str:
        """Name the first few contexts."""
        more = f" and {self.count - _NAMED} more" if self.count > _NAMED else ""
        return ", ".join(self.names[:_NAMED]) + more

    def to_dict(self) -> dict[str, Json]:
        """Return the move as plain JSON."""
        return self.shift.to_dict() | {"contexts": self.count, "examples": self.examples}


class Affected(Struct, frozen=True):
    """A context for which something differs, by its position from 0."""

    context: int
    name: str
    shifts: tuple[Shift, ...]

    def to_dict(self) -> dict[str, Json]:
        """Return it as plain JSON."""
        return {"context": self.context, "name": self.name, "flags": [shift.to_dict() for shift in self.shifts]}


class Comparison(Struct, frozen=True, kw_only=True):
    """All differences between two sets of flags. False if there are none."""

    before: str
    after: str
    """The ids of both sides."""
    added: tuple[Name, ...] = ()
    removed: tuple[Name, ...] = ()
    changed: tuple[FlagChange, ...] = ()
    metadata: MemberChange | None = None
    """The metadata of the whole, if it differs."""
    contexts: int = 0
    """How many were tried."""
    affected: int = 0
    """For how many of them a flag that was there has another variant, value or error."""
    moves: tuple[Move, ...] = ()
    outcomes: tuple[Affected, ...] = ()
    """Those contexts one by one; the first of them, if there are very many."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.metadata)

    def to_dict(self) -> dict[str, Json]:
        """Return the comparison as plain JSON."""
        fields: dict[str, Json] = {"before": self.before, "after": self.after, "same": not self}
        for name in self.__struct_fields__[2:]:
            value = getattr(self, name)
            fields[name] = [each.to_dict() for each in value] if isinstance(value, tuple) else value
        return fields | {"metadata": to_builtins(self.metadata)}

    def __str__(self) -> str:
        return "\n".join(self.lines(lambda text, style: text))

    def lines(self, styled: Style) -> Iterator[str]:
        """Return the comparison as text, line by line."""
        if not self:
            yield "no flag differs"
        for name in self.removed:
            yield styled(f"- {name}", "red")
        for name in self.added:
            yield styled(f"+ {name}", "green")
        for change in self.changed:
            yield f"{styled(f'~ {change.name}', 'yellow')}   {', '.join(map(str, change.members))}"
        if self.metadata:
            yield f"{styled('~', 'yellow')} {self.metadata} of the flag set"
        if self.contexts:
            yield from self._answers(styled)

    def _answers(self, styled: Style) -> Iterator[str]:
        noticed = [(move, str(move.shift)) for move in self.moves if move.shift.noticed]
        new = [(move, str(move.shift.after)) for move in self.moves if move.shift.new]
        yield from ("", self._summary(), *_table(noticed, styled))
        others = len({move.shift.key for move in self.moves} - {move.shift.key for move, _ in noticed + new})
        if others:
            more = "1 more flag gives" if others == 1 else f"{others} more flags give"
            yield styled(f"  {more} other reasons only", "dim")
        if new:
            yield from ("", "of new flags they get:", *_table(new, styled))

    def _summary(self) -> str:
        if self.contexts == 1:
            return "the context gets other answers:" if self.affected else "the context gets the same answers"
        if not self.affected:
            return f"none of {self.contexts} contexts gets another answer"
        return f"{self.affected} of {self.contexts} contexts get another answer:"


def _table(moves: list[tuple[Move, str]], styled: Style) -> Iterator[str]:
    width = max((len(move.shift.key) for move, _ in moves), default=0)
    wide = max((len(outcome) for _, outcome in moves), default=0)
    for move, outcome in moves:
        key = styled(move.shift.key.ljust(width), "bold")
        yield f"  {key}   {outcome.ljust(wide)}   {move.count}: {styled(move.who(), 'dim')}"


def _short(value: Json) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
