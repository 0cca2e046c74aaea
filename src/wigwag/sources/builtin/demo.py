"""The flags that come with wigwag, served when no source is configured. They never change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.sources.kind import SourceKind

if TYPE_CHECKING:
    from wigwag.sources.kind import Documents, SharedClients
    from wigwag.sources.source import Source

_HEARTBEAT = 1.0


async def _watch(_source: Source, _shared: SharedClients) -> Documents:
    import asyncio
    from importlib.resources import files

    from wigwag.pipeline.spec import UNCHANGED
    from wigwag.sources.document import Document

    yield Document(files("wigwag").joinpath("demo.json").read_bytes(), "json")
    while True:
        await asyncio.sleep(_HEARTBEAT)
        yield UNCHANGED


DEMO = SourceKind(name="demo", watch=_watch, heartbeat=lambda _: _HEARTBEAT, internal=True)
