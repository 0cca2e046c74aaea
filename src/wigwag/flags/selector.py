"""Which flags a client asks for: one `key=value`, as flagd has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from wigwag.errors import SelectorError

if TYPE_CHECKING:
    from wigwag.flags.flag import Flag
    from wigwag.flags.model import Json

FLAG_SET, SOURCE = "flagSetId", "source"


def set_id_of(metadata: dict[str, Any]) -> str:
    """Return the flag set that metadata names; empty if it is not text."""
    set_id = metadata.get(FLAG_SET)
    return set_id if set_id.__class__ is str else ""


class Selector(Struct, frozen=True):
    """A constraint on flags; without a key, everything."""

    key: str = ""
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Read a selector. Text without `=` is a source; only the first `=` separates."""
        if not text:
            return cls()
        key, separator, value = text.partition("=")
        if not separator:
            return cls(SOURCE, text)
        if key not in (FLAG_SET, SOURCE):
            raise SelectorError(f'invalid selector key "{key}", valid keys: "{FLAG_SET}", "{SOURCE}"')
        return cls(key, value)

    @property
    def reflected(self) -> dict[str, Json]:
        """The selection as metadata of the resolutions in it."""
        return {self.key: self.value} if self.key else {}

    def matches(self, flag: Flag) -> bool:
        """Return whether a flag is selected."""
        return not self.key or (flag.set_id if self.key == FLAG_SET else flag.source) == self.value

    @property
    def only_set(self) -> str | None:
        """The flag set that all selected flags are in; None: they may be in any."""
        return self.value if self.key == FLAG_SET else None

    def choose(self, flag: Flag) -> Flag | None:
        """Return the flag if it matches, with metadata that reflects the selector unless it says otherwise itself."""
        if not self.matches(flag):
            return None
        return flag.reflecting(self.key, self.value) if self.key else flag
