"""Members that mean nothing to the engine. They are not even decoded when a document is loaded, so only lint looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from wigwag.flags.checks.catalogue import finding
from wigwag.flags.model import child
from wigwag.suggest import suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.document import Text
    from wigwag.flags.model import Finding
    from wigwag.flags.parse import Layer

_OF_A_DOCUMENT = ("flags", "$evaluators", "metadata", "$schema")
_OF_A_FLAG = ("key", "state", "variants", "defaultVariant", "targeting", "metadata", "source", "selector")
"""The last two are in what daemons send each other."""
_members = msgspec.json.Decoder(dict[str, Raw]).decode


def member_findings(layer: Layer) -> Iterator[Finding]:
    """Report unknown members of the document and of its flags."""
    yield from _unknown(layer.document.text, "$", _OF_A_DOCUMENT, "a document")
    for place, text in layer.texts.items():
        yield from _unknown(text, child("$.flags", place), _OF_A_FLAG, "a flag")


def _unknown(text: Text | Raw, path: str, known: tuple[str, ...], what: str) -> Iterator[Finding]:
    try:
        members = _members(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return  # no object: reported elsewhere
    for name in members:
        if name not in known:
            message = f"{what} has no member `{name}`, so it is ignored"
            yield finding("member-unknown", child(path, name), message, suggest(name, known))
