"""What sources yield: a whole document with its format; or several documents, of which the last one wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from wigwag.flags.part import written
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.flags.part import Part

V = TypeVar("V")


class Document(NamedTuple):
    """A document as it was received. Equal documents need not be loaded again."""

    content: bytes
    format: Literal["json", "yaml"] | None = None
    """From its media type or name; None: detect it from the text."""


class Merged:
    """Several parsed documents by name, in order: the last one wins. An unchanged part is the same object.

    >>> Merged({}).content
    b'{"flags":{}}'
    """

    __slots__ = ("_content", "parts")
    format: Literal["json"] = "json"

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self.parts = parts
        self._content: bytes | None = None

    @property
    def content(self) -> bytes:
        """The parts as one document, written on first use."""
        if self._content is None:
            self._content = written(self.parts.values())
        return self._content

    def __eq__(self, other: object) -> bool:
        """Compare by content: a restarted watch yields equal parts that are new objects."""
        if not isinstance(other, Merged):
            return NotImplemented
        ours, theirs = self.parts, other.parts
        return self is other or (
            list(ours) == list(theirs)
            and all(one is theirs[name] or one.says(theirs[name]) for name, one in ours.items())
        )

    __hash__ = None  # type: ignore[assignment]

    def size_since(self, before: AnyDocument | None) -> int:
        """Return how many bytes of flags are in parts that were not in another document."""
        known = before.parts if isinstance(before, Merged) else {}
        return sum([part.size for name, part in self.parts.items() if known.get(name) is not part])


AnyDocument: TypeAlias = "Document | Merged"


class ReadResult(NamedTuple, Generic[V]):
    """What a response holds: a value, what is wrong, or both. What is right counts even if something is wrong."""

    value: V | None = None
    trouble: Unavailable | None = None

    def items(self, last: V | None) -> list[V | Unavailable | Unchanged]:
        """Return what a watcher yields, after it has yielded `last`."""
        items: list[V | Unavailable | Unchanged] = []
        if self.value is not None and self.value != last:
            items.append(self.value)
        if self.trouble is not None:
            items.append(self.trouble)
        elif self.value is not None and not items:
            items.append(UNCHANGED)
        return items
