"""A kind of source, in one record: how its URIs look, which fields it takes, and how it is watched.

    --uri / --sources ─▶ parse ─▶ Source ─▶ prepare (once, at start) ─▶ watch ─▶ documents

Built-in kinds are in `builtin`; other packages add kinds by an entry point (`plugins`). Both use this record, and only
`kinds` calls its functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from wigwag.sources.uris import visible_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from wigwag.kube.hub import Hub
    from wigwag.pipeline.spec import Unavailable, Unchanged
    from wigwag.sources.disk.notify import Notifier
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.fields import Fields
    from wigwag.sources.source import Source
    from wigwag.sources.uris import UriAddress

    Documents: TypeAlias = AsyncIterator[AnyDocument | Unavailable | Unchanged]
    Warn: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class SharedClients:
    """Clients that all sources of a process share; None: a source makes its own."""

    hub: Hub | None = None
    """Watches of Kubernetes API servers."""
    notifier: Notifier | None = None
    """The inotify instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """Everything about a kind of source."""

    name: str
    """The value of `provider` in `--sources`, and the kind in `/debug/sources` and logs."""
    watch: Callable[[Source, SharedClients], Documents]
    """Yields the whole document when it changes, `UNCHANGED` when it holds, and `Unavailable` when it does not know."""
    aliases: tuple[str, ...] = ()
    """Further values of `provider`."""
    schemes: tuple[str, ...] = ()
    """The URI schemes of `--uri`, without the colon."""
    prefix: str = ""
    """How a URI of `--uri` without a scheme begins."""
    forms: tuple[str, ...] = ()
    """How to write a URI, for messages; the first is the usual one."""
    parse: Callable[[str], UriAddress] | None = None
    """Parses a URI; raises `UsageError`. None: the URI without secrets is the name, and the whole URI the address."""
    fields: frozenset[str] = frozenset()
    """The fields of `--sources` that have an effect, beside `uri`, `provider`, `required` and `optional`."""
    contradictions: Callable[[Fields, UriAddress], Iterable[tuple[str, str]]] = lambda _fields, _address: ()
    """Returns fields that cannot be used together, each with the reason."""
    prepare: Callable[[Source, Warn, Mapping[str, str]], object] = lambda _source, _warn, _environment: None
    """Checks before anything is served, with the environment: raises `UsageError` if a source can never work."""
    heartbeat: Callable[[Source], float] = lambda source: source.settings.interval
    """Returns the longest time in seconds between two items of a source that works; by default, the poll interval."""
    remote: bool = False
    """Whether its flags come from another machine, by credentials of their own (`credentialsFolder`)."""
    internal: bool = False
    """Whether wigwag alone makes such sources: no URI or `provider` names the kind."""

    @property
    def names(self) -> tuple[str, ...]:
        """All values of `provider` that name it."""
        return (self.name, *self.aliases)

    @property
    def form(self) -> str:
        """How to write a URI of this kind."""
        return self.forms[0] if self.forms else f"{(*self.schemes, self.name)[0]}:…"

    def address_of(self, uri: str) -> UriAddress:
        """Parse a URI of this kind."""
        return visible_address(uri, self.name) if self.parse is None else self.parse(uri)
