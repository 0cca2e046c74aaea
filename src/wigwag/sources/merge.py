"""Merge several documents into one source: the last one wins, and each is parsed again only when it changes.

A document that cannot be parsed does not affect the others: its last good version stays.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from wigwag.errors import DocumentError
from wigwag.flags.document import format_of
from wigwag.flags.model import Limits
from wigwag.flags.part import read_part
from wigwag.sources.document import Merged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wigwag.flags.document import Format
    from wigwag.flags.part import Part

SLICE = 1 << 17
"""Bytes that are parsed before other tasks run: about two milliseconds."""
MANY = 500
"""Documents that take a millisecond to compare."""
_LIMITS = Limits()


class _Known(NamedTuple):
    """What is known of one document."""

    content: bytes
    part: Part | None
    """The last version that could be parsed."""
    problem: str = ""
    """Why the content cannot be parsed; empty if it can."""


class Merger:
    """Merges documents by name, and remembers the last good version of each."""

    def __init__(self, read: Callable[[bytes, Limits, Format | None], Part] = read_part) -> None:
        self._read_part = read
        self._known: dict[str, _Known] = {}
        self._merged = Merged({})

    def merge(self, documents: Mapping[str, bytes], format: Format | None = None) -> tuple[Merged, str]:
        """Return the documents as one, and what is wrong with those that cannot be parsed; empty if all can.

        `format` of all of them; None: by name or content. If nothing changed, the result is the same object.
        """
        for name, content in self._new(documents):
            self._read(name, content, format)
        return self._whole(documents)

    async def merge_in_turns(self, documents: Mapping[str, bytes], format: Format | None = None) -> tuple[Merged, str]:
        """Merge as `merge` does, but let other tasks run in between."""
        read = 0
        for name, content in self._new(documents):
            self._read(name, content, format)
            read += len(content)
            if read > SLICE:
                read = 0
                await asyncio.sleep(0)
        merged = self._whole(documents)
        if len(documents) > MANY:
            await asyncio.sleep(0)  # before it is loaded
        return merged

    def _new(self, documents: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
        known = self._known
        return [
            (name, content)
            for name, content in documents.items()
            if name not in known or known[name].content != content
        ]

    def _read(self, name: str, content: bytes, format: Format | None) -> None:
        before = self._known.get(name)
        old = before.part if before else None
        try:
            part = self._read_part(content, _LIMITS, format or format_of(name))
        except DocumentError as error:
            self._known[name] = _Known(content, old, f"{name}: {error}")
            return
        self._known[name] = _Known(content, old if old is not None and old.says(part) else part)

    def _whole(self, documents: Mapping[str, bytes]) -> tuple[Merged, str]:
        if len(self._known) > len(documents):
            self._known = {name: known for name, known in self._known.items() if name in documents}
        known = self._known
        parts = {name: part for name in documents if (part := known[name].part) is not None}
        if parts != self._merged.parts or list(parts) != list(self._merged.parts):
            self._merged = Merged(parts)
        return self._merged, _few([known[name].problem for name in documents if known[name].problem])


def _few(problems: list[str]) -> str:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}" if problems else ""
