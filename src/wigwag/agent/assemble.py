"""Assembles snapshots: documents become flags, source by source, and one merged set of them all.

A document is parsed when it arrives, together with the previous flags of its source, so that only changes cost anything
and a flag that went bad keeps its last good definition. A document that cannot be used at all is a failure of the
source, not a value: the flags before it stay in force.
"""

from __future__ import annotations

from itertools import count
from operator import is_
from time import time
from typing import TYPE_CHECKING

from wigwag import library
from wigwag.agent.facts import Facts, combined
from wigwag.errors import StartError
from wigwag.flags.flag import LoadSettings
from wigwag.flags.store import load_parts, update
from wigwag.pipeline.parse import parsed_in_order
from wigwag.serve.snapshot import Snapshot
from wigwag.sources.document import Merged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wigwag.agent.facts import Value
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Fractional
    from wigwag.pipeline.spec import Urgent, Watcher
    from wigwag.serve.snapshot import Extent
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.kind import Documents
    from wigwag.sources.source import Source

    Load = Callable[[Source, AnyDocument], FlagSet]


LARGE = 16 << 10
"""Bytes of new text that are loaded in a thread, and of a rule that is compiled there before anybody asks for it.

To compile a rule of this size takes about 20 ms, of the largest 130 ms: too long for the loop.
"""


class Loader:
    """Parses the documents of sources, each with the flags its source had before at hand."""

    def __init__(self, fractional: Fractional, *, strict: bool) -> None:
        self._fractional: Fractional = fractional
        self._strict = strict
        self.flags: dict[Source, FlagSet] = {}
        """What each source said last; to begin with, what it said in an earlier life."""
        self.documents: dict[Source, AnyDocument] = {}
        """What the flags were loaded from, unless that was in an earlier life."""

    def watcher(
        self,
        documents: Callable[[Source], Documents],
        critical: Callable[[Source, AnyDocument], bool],
        around: Callable[[Load], Load] = lambda load: load,
    ) -> Watcher[Source, FlagSet | Urgent[FlagSet]]:
        """Return what yields the flags of a source each time they change; `around` may wrap each load."""
        # mypy takes the union of documents for object
        return parsed_in_order(documents, around(self._load), self._large, critical)  # type: ignore[misc]

    def _large(self, source: Source, document: AnyDocument) -> bool:
        """Return whether there is much to parse. Of many parts, those that are as they were are not parsed again."""
        if isinstance(document, Merged):
            return document.size_since(self.documents.get(source)) > LARGE
        return len(document.content) > LARGE

    def _load(self, source: Source, document: AnyDocument) -> FlagSet:
        previous = self.flags.get(source)
        if previous is not None and document == self.documents.get(source):
            return previous  # as after a reconnect: nobody need compare flags that are the same object
        flags = self.parse(source, document, previous, strict=self._strict)
        if source.settings.incremental and previous is not None and source in self.documents:
            flags = update(previous, flags)  # not of an earlier life: what went meanwhile is named by nobody
        if previous is not None:
            flags.after(previous)
        if self._large(source, document):  # here, in the thread: otherwise who publishes or evaluates would wait
            flags.compile_rules(LARGE)
            _ = flags.id
        self.flags[source], self.documents[source] = flags, document
        return flags

    def parse(
        self, source: Source, document: AnyDocument, previous: FlagSet | None = None, *, strict: bool = False
    ) -> FlagSet:
        """Load a document as one of a source."""
        if isinstance(document, Merged):
            options = LoadSettings(self._fractional)
            return load_parts(
                document.parts, source=source.name, options=options, strict=strict, previous=previous, clock=time
            )
        return library.load(
            document.content,
            self._fractional,
            strict=strict,
            source=source.name,
            format=document.format,
            previous=previous,
        )


class _Merged:
    """The flags of all sources; the very same object for as long as only facts change."""

    def __init__(self) -> None:
        self._parts: list[FlagSet] = []
        self._flags: FlagSet | None = None

    def of(self, parts: list[FlagSet]) -> FlagSet:
        same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
        if self._flags is None or not same:
            before, self._parts = self._flags, parts
            self._flags = parts[0] if len(parts) == 1 else library.merge(parts)
            if before is not None:
                self._flags.after(before)
        return self._flags


def assembler(
    now: Callable[[], float], required: frozenset[Source] = frozenset()
) -> Callable[[Mapping[Source, Value]], Snapshot]:
    """Return the function that merges the flags of all sources, in order of their priority, and numbers the result."""
    numbers, merged = count(1), _Merged()

    def assemble(values: Mapping[Source, Value]) -> Snapshot:
        by_source = {source: value for source, value in values.items() if not isinstance(value, Facts)}
        if not by_source:
            raise StartError("no source has answered yet; /debug/sources shows why")  # which does not mean no flags
        ordered = sorted(by_source, key=lambda source: source.position)
        flags = merged.of([by_source[source] for source in ordered])
        origins = tuple(source for source in ordered for _ in by_source[source].layers)
        facts = combined(value for value in values.values() if isinstance(value, Facts))
        extent: Extent = "whole" if required <= by_source.keys() else "part"
        return Snapshot(flags, number=next(numbers), published=now(), origins=origins, facts=facts, extent=extent)

    return assemble


def content(snapshot: Snapshot) -> object:
    """Return what makes a snapshot worth publishing: its flags, whether they are all, and what is wrong with them."""
    problems = [problem for layer in snapshot.flags.layers for problem in layer.problems]
    return snapshot.id, snapshot.extent, problems
