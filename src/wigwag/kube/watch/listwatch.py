"""The list-watch protocol: the requests that a reflector makes, what it holds of their responses, faults and timing.

A watch is a list (in pages) and then a stream of events from its version on; or, where the server offers it, a stream
that begins with all objects ("stream", Kubernetes' WatchList). Beside an open watch there are two requests for metadata
alone, which `verify` needs: all objects page by page ("compare"), or one object ("probe").
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from wigwag.kube.errors import ApiError, ApiStatus
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.spec import Unavailable
from wigwag.wire.client.errors import OversizeError, UnreachableError

if TYPE_CHECKING:
    from wigwag.kube.kinds import Query
    from wigwag.kube.watch.decode import Key, ListPage, ObjectRecord
    from wigwag.kube.watch.spec import KubeWatch

T = TypeVar("T")
ANY, NEWEST = "0", ""
"""Resource versions with a meaning: any (from the watch cache), and the newest (a quorum read)."""
MOST_OBJECTS = 1_000_000
MOST_PAGES = 20_000
_LISTS = ("list", "compare", "probe")
_NOT_OLDER = ("resourceVersionMatch", "NotOlderThan")
FORBIDDEN, MISSING = 403, 404
_USER = re.compile(r'User "([^"]{1,300})"')


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """The timing of a watch, in seconds unless noted."""

    backoff: Backoff = Backoff(first=0.8, reconnects=4.0)
    """Fewer reconnects than elsewhere: a reconnect may lead to a list of all objects."""
    unreachable: Backoff = Backoff(first=0.8)
    """While no connection can be made: an attempt costs the server nothing then."""
    page: int = 500
    """Objects per page of a list."""
    shortest: float = 300.0
    longest: float = 600.0
    """The timeout of a watch is a random time between these, so that the reconnects of a fleet spread."""
    margin: float = 15.0
    """How long after its timeout a watch counts as dead."""
    silence: float = 100.0
    """How long a server that sends bookmarks may be silent: kube-apiserver sends one every 60 to 77 s."""
    probe: float = 20.0
    """After this long a silence, less up to a quarter (jitter), a probe is sent."""
    answer: float = 8.0
    """The timeout of a probe. A dead connection is detected within the sum of the two."""
    compare: float = 180.0
    """The interval, plus or minus a third, at which all objects are compared with the server's."""
    verify: float = 3.0
    """After a reconnect they are compared within this time; random, so that a fleet spreads."""
    settle: float = 5.0
    """How long an event may lag behind a comparison."""
    initial: float = 10.0
    """How long a watch may be silent before it has sent all initial objects."""
    quiet: float = 1.0
    """How long a new watch must be open without an event to confirm the store."""
    hasty: float = 1.0
    """A watch that ends sooner without an event has failed."""
    long: float = 30.0
    """After a watch that lasted this long, the next starts at once."""
    audit: float = 1800.0
    """After this long without an event, list again: a restored server may be silent for ever."""

    @classmethod
    def prompt(cls) -> WatchTiming:
        """Return the timing for data that traffic depends on: a server that is back is noticed within a second.

        It is for a few processes of a cluster. All agents of a large one would come back in that second, too.
        """
        return cls(unreachable=Backoff(first=0.25, most=1.0))


@dataclass(frozen=True, slots=True)
class ReflectorRequest:
    """One request.

    >>> ReflectorRequest("list", 0.0, version="7", limit=500).query()
    (('limit', '500'), ('resourceVersion', '7'), ('resourceVersionMatch', 'NotOlderThan'))
    >>> ReflectorRequest("list", 0.0, version="7", limit=500, token="abc").query()
    (('limit', '500'), ('continue', 'abc'))
    """

    how: Literal["list", "watch", "stream", "compare", "probe"]
    when: float
    """Not before this time."""
    version: str = NEWEST
    limit: int = 0
    token: str = ""
    seconds: int = 0
    """The timeout of a watch."""

    @property
    def verb(self) -> str:
        """The verb that RBAC checks."""
        return "list" if self.how in _LISTS else "watch"

    def query(self) -> Query:
        """Return the query parameters."""
        version: Query = (("resourceVersion", self.version),) if self.version else ()
        if self.how in _LISTS:
            limit: Query = (("limit", str(self.limit)),) if self.limit else ()
            if self.token:  # the version is in it
                return (*limit, ("continue", self.token))
            return (*limit, *version, *((_NOT_OLDER,) if self.version not in (ANY, NEWEST) else ()))
        watch = (("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", str(self.seconds)))
        if self.how == "watch":
            return (*watch, *version)
        return (*watch, *version, ("sendInitialEvents", "true"), _NOT_OLDER)


@dataclass(slots=True)
class PartialList(Generic[T]):
    """A list whose pages are still arriving."""

    version: str = ""
    token: str = ""
    pages: int = 0
    records: dict[Key, ObjectRecord[T]] = field(default_factory=dict)

    def add(self, page: ListPage[T]) -> None:
        """Add a page. The version is that of the first: a watch from there misses nothing."""
        self.version, self.token, self.pages = self.version or page.version, page.token, self.pages + 1
        self.records.update((record.key, record) for record in page.records)

    @property
    def endless(self) -> bool:
        """Whether it is larger than any server can hold."""
        return len(self.records) > MOST_OBJECTS or self.pages > MOST_PAGES


@dataclass(slots=True)
class OpenWatch(Generic[T]):
    """A watch that is open."""

    opened: float
    seconds: int
    last_event: float
    """When the last event arrived."""
    base: str
    """The version that the watch started from: older events are repetitions."""
    initial: dict[Key, ObjectRecord[T]] | None = None
    """The objects of a watch that begins with all of them, until it has sent all; None: it has."""
    progressed: bool = False
    """Whether it has sent anything new."""
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class WatchFault:
    """Why a list or a watch failed."""

    text: str
    code: int = 0
    """The HTTP status; 0: there was no response, or it broke off."""
    expired: bool = False
    """Whether the server no longer has the history since our version."""
    ahead: bool = False
    """Whether our version is newer than the server's."""
    oversize: bool = False
    """Whether the response exceeded our limit."""
    unreachable: bool = False
    """Whether there was no connection."""
    retry_after: float = 0.0
    """Seconds to wait, from the server's Retry-After."""

    @property
    def item(self) -> Unavailable:
        """What the watch yields."""
        return {MISSING: KindNotServed, FORBIDDEN: WatchForbidden}.get(self.code, Unavailable)(self.text)


@dataclass(frozen=True, slots=True)
class KindNotServed(Unavailable):
    """The API server does not have the kind, or no longer in this version."""


@dataclass(frozen=True, slots=True)
class WatchForbidden(Unavailable):
    """The account may not list or watch these objects."""


def fault_of(error: Exception, spec: KubeWatch, verb: str) -> WatchFault:
    """Return the fault for an exception. `verb`: list, watch or get."""
    if isinstance(error, ApiError):
        return refusal(error.status, spec, verb, error.retry_after)
    oversize, unreachable = isinstance(error, OversizeError), isinstance(error, UnreachableError)
    return WatchFault(str(error), oversize=oversize, unreachable=unreachable)


def refusal(status: ApiStatus, spec: KubeWatch, verb: str, retry_after: float | None = None) -> WatchFault:
    """Return the fault for an error status."""
    text = f"the API server answered {status} to {verb} {spec}"
    if status.code == FORBIDDEN:
        text = _forbidden(status, spec, verb)
    elif status.code == MISSING:
        text = f"the API server has no {spec.kind.plural} in {spec.kind.api}; install their definition (CRD)"
    seconds = retry_after if retry_after is not None else status.retry_after
    return WatchFault(text, status.code, status.expired, status.ahead, retry_after=seconds or 0.0)


def _forbidden(status: ApiStatus, spec: KubeWatch, verb: str) -> str:
    user = _USER.search(status.message)
    who = user[1] if user else "this account"
    where = f"in the namespace {spec.namespace}" if spec.namespace else "in all namespaces"
    role = "Role" if spec.namespace else "ClusterRole"
    place = f" {where}" if spec.kind.namespaced else ""
    return f"{who} may not {verb} {spec.kind}{place}; allow it with a {role} that has the rule {spec.rule()}"
