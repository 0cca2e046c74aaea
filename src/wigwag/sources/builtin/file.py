"""Files: `file:PATH`. flagd's two ways to watch them, `fsnotify` and `fileinfo`, are the same here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.sources.kind import SourceKind
from wigwag.sources.uris import UriAddress, without_scheme

if TYPE_CHECKING:
    from wigwag.sources.kind import Documents, SharedClients
    from wigwag.sources.source import Source

_FORM = "file:PATH"


def _parse(uri: str) -> UriAddress:
    return UriAddress(without_scheme(uri, ("file:",), _FORM), "file")


async def _watch(source: Source, shared: SharedClients) -> Documents:
    from wigwag.flags.document import format_of
    from wigwag.pipeline.watch import closing
    from wigwag.sources.disk.file import FileWatch, watch_file
    from wigwag.sources.disk.follow import FollowDeps
    from wigwag.sources.document import Document

    spec = FileWatch(source.address, source.settings.most, root=source.settings.root)
    kind = format_of(source.name)
    async with closing(watch_file(spec, FollowDeps(notifier=shared.notifier))) as stream:
        async for item in stream:
            yield Document(item, kind) if isinstance(item, bytes) else item


FILE = SourceKind(
    name="file",
    aliases=("fsnotify", "fileinfo"),
    schemes=("file",),
    forms=(_FORM,),
    parse=_parse,
    watch=_watch,
    fields=frozenset({"maxBytes"}),
    heartbeat=lambda _: 5.0,
)
