"""What sources yield: a whole document, and what its sender said it is; or several, of which the last one wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from wigwag.flags.part import written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.flags.part import Part


class Document(NamedTuple):
    """A document as it came. Equal documents are one: whoever loads them may keep what became of the last."""

    content: bytes
    format: Literal["json", "yaml"] | None = None
    """What its media type or name says; None: look at the text."""


class Merged:
    """Several documents by name, read already, in order: the last one wins. A part that did not change is the same.

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
        """The parts as one document. Written when it is first asked for."""
        if self._content is None:
            self._content = written(self.parts.values())
        return self._content

    def __eq__(self, other: object) -> bool:
        """Tell whether two say the same: what a watch that started again yields may be equal, but made anew."""
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
