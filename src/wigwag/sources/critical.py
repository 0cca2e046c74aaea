"""Which documents of sources must not wait: those in which a critical flag has changed, within limits.

Agent and proxy ask for each document that arrives, before anything else is done with it. The first document of a source
is no change. A source that marks everything as critical must not be able to hold up the others: each has a token bucket
of passes, and when it is empty, its changes are ordinary ones until the next token, and the log says so.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from wigwag.flags.critical import combine, critical_digest
from wigwag.flags.model import Limits
from wigwag.loglimit import LogLimiter
from wigwag.observe import Counter
from wigwag.pipeline.limit import Burst
from wigwag.sources.document import Merged

if TYPE_CHECKING:
    from wigwag.pipeline.clock import Clock
    from wigwag.pipeline.limit import Limiter
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.source import Source

PASSES, SECONDS = 10, 6.0
"""Critical changes of one source that are passed on at once; and how long it takes until there is one more."""
PAUSE = 4.0
"""How many times as long as a snapshot took the next ordinary one waits.

In a storm of changes, most of the time is then left to evaluations, and to a change that must not wait. A single change
waits for nothing.
"""
MOST_REMEMBERED = 10_000
log = logging.getLogger("wigwag.sources")


class _Seen(NamedTuple):
    digest: bytes
    limit: Limiter


class CriticalChanges:
    """Judges documents. `changes` counts critical ones, by whether they were passed on at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._limited = clock, LogLimiter(log, 1, 60.0)
        self._seen: OrderedDict[Source, _Seen] = OrderedDict()
        """What each source said last, the most recent one last."""
        self.changes = Counter(
            "wigwag_critical_changes", "Changes of critical flags, by how they went: first, or ordinary.", ("passed",)
        )

    def __call__(self, source: Source, document: AnyDocument) -> bool:
        """Tell whether a critical flag of a source has changed, and may be passed on at once."""
        digest, before = digest_of(source, document), self._seen.pop(source, None)
        limit = Burst(PASSES, SECONDS) if before is None else before.limit
        self._seen[source] = _Seen(digest, limit)
        if len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)
        if before is None or before.digest == digest:
            return False
        passed = not limit(self._clock.now())
        self.changes.add(("first" if passed else "ordinary",))
        if not passed:
            message = (
                "source %s: critical flags change more than %d times a minute, so this change waits like any other;"
                " mark only flags that must be switched off at once"
            )
            self._limited.log(logging.WARNING, self._clock.now(), message, source.name, 60 / SECONDS)
        return passed


def digest_of(source: Source, document: AnyDocument) -> bytes:
    """Return the digest of the critical flags of a document."""
    if isinstance(document, Merged):
        return combine(part.critical for part in document.parts.values())
    return critical_digest(document.content, Limits(document_bytes=source.settings.most), document.format)
