"""Which flags a client asks for: one `key=value`, as flagd has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wigwag.errors import SelectorError

if TYPE_CHECKING:
    from wigwag.flags.flag import Flag
    from wigwag.flags.model import Json

FLAG_SET, SOURCE = "flagSetId", "source"


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
        """What evaluations tell the client about the selection it made."""
        return {self.key: self.value} if self.key else {}

    def apply(self, sets: dict[str, dict[str, Flag]]) -> dict[str, dict[str, Flag]]:
        """Keep the flags that match. Their metadata reflects the selector, unless they say otherwise themselves."""
        if not self.key:
            return sets
        if self.key == FLAG_SET:
            sets = {self.value: sets.get(self.value, {})}
        return {set_id: self._matching(flags) for set_id, flags in sets.items()}

    def _matching(self, flags: dict[str, Flag]) -> dict[str, Flag]:
        by_source, wanted = self.key == SOURCE, self.reflected
        return {
            key: flag if flag.metadata.get(self.key) == self.value else _reflecting(flag, wanted)
            for key, flag in flags.items()
            if not by_source or flag.source == self.value
        }


def _reflecting(flag: Flag, reflected: dict[str, Json]) -> Flag:
    return replace(flag, metadata={**reflected, **flag.metadata}, tables={}, _digest=b"")
