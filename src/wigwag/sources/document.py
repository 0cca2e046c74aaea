"""What remote sources yield: a whole document, and what its sender said it is."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Document(NamedTuple):
    """A document as it came. Equal documents are one: whoever loads them may keep what became of the last."""

    content: bytes
    format: Literal["json", "yaml"] | None = None
    """What its media type or name says; None: look at the text."""
