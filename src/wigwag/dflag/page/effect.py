"""What a change would do to a flag, and doing it.

All is decided under the lock of the flags: whether the tag still holds, whether the value is accepted, and which value
counts then. So a dry run tells exactly what the change itself would do, and nothing comes between a tag and the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wigwag.dflag.flag import Put
from wigwag.dflag.origin import Held, Origin, Slot, strongest
from wigwag.dflag.page.messages import HttpError
from wigwag.dflag.page.state import entry, pretty, written
from wigwag.errors import FlagError

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.page.change import FlagEdit
    from wigwag.dflag.page.state import PageStateCache

_SLOT = Slot(Origin.HTTP)
_STATIC = "it is static: the program has read it already; change it where it is configured, and restart the program"


@dataclass(frozen=True, slots=True)
class EditEffect:
    """What a change does, or would do."""

    name: str
    old: str
    new: str
    changed: bool | None
    """Whether the value becomes another; of a secret flag nobody is told, or he could guess it."""
    in_force: bool
    """Whether what was given is what counts, and nothing stronger."""
    validate_only: bool

    def described(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "name": self.name,
            "old_value": self.old,
            "new_value": self.new,
            "changed": self.changed,
            "in_force": self.in_force,
            "validate_only": self.validate_only,
        }

    def told(self) -> str:
        """Say what a dry run has found."""
        if not self.in_force:
            return "Accepted, but something stronger would count."
        if self.changed is None:
            return "Accepted."
        return f"Would change from {self.old} to {self.new}" if self.changed else "Accepted; nothing would change."


class Changer:
    """Changes flags."""

    def __init__(self, flags: FlagSet, camera: PageStateCache, clock: Callable[[], float]) -> None:
        self._flags, self._camera, self._clock = flags, camera, clock

    def set(self, flag: AnyFlag, change: FlagEdit) -> EditEffect:
        """Give a flag a value, over whatever else it holds."""
        until = None if change.ttl is None else self._clock() + change.ttl

        def puts() -> list[Put]:
            return [Put(flag, _SLOT, change.read(flag), until)]

        return self._commit(flag, change, puts)

    def reset(self, flag: AnyFlag, change: FlagEdit) -> EditEffect:
        """Take back what came over HTTP, and uncover what lies beneath."""

        def puts() -> list[Put]:
            return [Put(flag, slot, drop=True) for slot in flag.layers if slot.origin is Origin.HTTP]

        return self._commit(flag, change, puts)

    def _commit(self, flag: AnyFlag, change: FlagEdit, puts: Callable[[], list[Put]]) -> EditEffect:
        if not flag.dynamic:
            raise HttpError(409, f"flag {flag.name!r}: {_STATIC}")
        found: list[EditEffect] = []

        def decide() -> list[Put]:
            self._compare(flag, change.if_match)
            wanted = puts()
            self._flags.validate(wanted)
            found.append(self._effect(flag, wanted, change.validate_only))
            return [] if change.validate_only else wanted

        try:
            self._flags.commit(decide)
        except FlagError as error:
            raise HttpError(422, str(error)) from error
        return found[0]

    def _compare(self, flag: AnyFlag, if_match: str) -> None:
        """Refuse a change to what has changed meanwhile; the tag of the flag and that of all flags will do."""
        if not if_match or "*" in (wanted := tags(if_match)):
            return
        if entry(flag).tag not in wanted and self._camera.state().tag not in wanted:
            raise HttpError(412, f"flag {flag.name!r}: it has changed since you looked; look again")

    def _effect(self, flag: AnyFlag, wanted: list[Put], validate_only: bool) -> EditEffect:
        layers = _after(flag.layers, wanted, self._flags.generation + 1)
        held = strongest(layers.values(), self._flags.precedence)
        old, new = (pretty(flag.kind, written(flag, each.value)) for each in (flag.held, held))
        changed = None if flag.secret else not flag.same(flag.held.value, held.value)
        given = any(not put.drop for put in wanted)
        return EditEffect(flag.name, old, new, changed, (held.slot == _SLOT) == given, validate_only)


def tags(if_match: str) -> set[str]:
    """Return the tags of an `If-Match`; a weak one matches nothing.

    >>> sorted(tags('"a", W/"b", c'))
    ['a', 'c']
    """
    parts = (part.strip() for part in if_match.split(","))
    return {part.strip('"') for part in parts if part and not part.startswith("W/")}


def _after(layers: Mapping[Slot, Held[Any]], puts: list[Put], generation: int) -> dict[Slot, Held[Any]]:
    gone = {put.slot for put in puts if put.drop}
    kept = {slot: held for slot, held in layers.items() if slot not in gone}
    return kept | {put.slot: Held(put.value, put.slot, generation, 0.0, put.until) for put in puts if not put.drop}
