"""Documents become flags, source by source, and one merged set of them all.

A source's document is parsed when it arrives, with the flags it had before at hand, so that only what changed costs
anything and a flag that went bad keeps its last good definition. A document that cannot be used at all is trouble with
the source, not a value: whatever it said last stays in force.
"""

from __future__ import annotations

import asyncio
import time
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING

import wigwag
from wigwag.agent.sources import DEMO, Source
from wigwag.errors import StartError
from wigwag.flags.document import format_of
from wigwag.pipeline.parse import parsed
from wigwag.serve.snapshot import Snapshot
from wigwag.sources.file import FileWatch, watch_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Fractional
    from wigwag.pipeline.spec import Trouble, Unchanged, Watcher


class Loader:
    """Parses the documents of sources, each with the flags its source had before at hand."""

    def __init__(self, fractional: Fractional, *, strict: bool) -> None:
        self._fractional: Fractional = fractional
        self._strict = strict
        self._previous: dict[Source, FlagSet] = {}

    def watcher(self) -> Watcher[Source, FlagSet]:
        """Return what yields the flags of a source each time they change."""
        return parsed(documents, self._load)

    def _load(self, source: Source, document: bytes) -> FlagSet:
        flags = wigwag.load(
            document,
            self._fractional,
            strict=self._strict,
            source=source.name,
            format=format_of(source.name),
            previous=self._previous.get(source),
        )
        self._previous[source] = flags
        return flags


async def documents(source: Source) -> AsyncIterator[bytes | Trouble | Unchanged]:
    """Yield the documents of a source."""
    if source.provider == DEMO:
        yield files("wigwag").joinpath("demo.json").read_bytes()
        await asyncio.Event().wait()  # it never changes
    async for document in watch_file(FileWatch(source.name)):
        yield document


def assembler(now: Callable[[], float] = time.time) -> Callable[[Mapping[Source, FlagSet]], Snapshot]:
    """Return the function that merges the flags of all sources, in order of their priority, and numbers the result."""
    numbers = count(1)

    def assemble(values: Mapping[Source, FlagSet]) -> Snapshot:
        if not values:
            raise StartError("no source has answered yet")  # nothing is not the same as no flags
        ordered = sorted(values, key=lambda source: source.position)
        flags = wigwag.merge([values[source] for source in ordered])
        return Snapshot(flags, number=next(numbers), published=now())

    return assemble


def content(snapshot: Snapshot) -> object:
    """Return what makes a snapshot worth publishing: its flags, and what is wrong with them."""
    return snapshot.id, [problem for layer in snapshot.flags.layers for problem in layer.problems]
