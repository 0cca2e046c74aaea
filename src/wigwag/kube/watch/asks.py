"""The requests that a reflector makes: a page of a list, a watch, or a watch that begins with all that is there.

Beside a watch there are two for metadata alone (see `verify`): all objects, page by page, or one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from wigwag.kube.watch.decode import Key, ListPage, ObjectEvent, ObjectRecord
    from wigwag.kube.watch.spec import Query

T = TypeVar("T")
ANY, NEWEST = "0", ""
"""Versions with a meaning: whatever the server has at hand, and the newest there is."""
MOST_OBJECTS = 1_000_000
MOST_PAGES = 20_000
_LISTS = ("list", "compare", "probe")
_NOT_OLDER = ("resourceVersionMatch", "NotOlderThan")


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
    """How long a watch is to last."""

    @property
    def verb(self) -> str:
        """What the server's rules call it."""
        return "list" if self.how in _LISTS else "watch"

    def query(self) -> Query:
        """Return it as the server reads it."""
        version: Query = (("resourceVersion", self.version),) if self.version else ()
        if self.how in _LISTS:
            limit: Query = (("limit", str(self.limit)),) if self.limit else ()
            if self.token:  # which has the version in it
                return (*limit, ("continue", self.token))
            return (*limit, *version, *((_NOT_OLDER,) if self.version not in (ANY, NEWEST) else ()))
        watch = (("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", str(self.seconds)))
        if self.how == "watch":
            return (*watch, *version)
        return (*watch, *version, ("sendInitialEvents", "true"), _NOT_OLDER)


@dataclass(slots=True)
class PartialList(Generic[T]):
    """A list of which not all pages have come."""

    version: str = ""
    token: str = ""
    pages: int = 0
    records: dict[Key, ObjectRecord[T]] = field(default_factory=dict)

    def add(self, page: ListPage[T]) -> None:
        """Take in a page. The version is the first one's: from there, nothing can be missed."""
        self.version, self.token, self.pages = self.version or page.version, page.token, self.pages + 1
        self.records.update((record.key, record) for record in page.records)

    @property
    def endless(self) -> bool:
        """Whether it is more than any server has."""
        return len(self.records) > MOST_OBJECTS or self.pages > MOST_PAGES


@dataclass(slots=True)
class OpenWatch(Generic[T]):
    """A watch that is open."""

    opened: float
    seconds: int
    heard: float
    """When something came last."""
    base: str
    """The version that it goes on from: what is not newer was known before."""
    initial: dict[Key, ObjectRecord[T]] | None = None
    """The objects that were there in the beginning, until all have come; None: they have."""
    told: bool = False
    """Whether it told anything new."""
    confirmed: bool = False

    def collect(self, change: ObjectEvent[T]) -> None:
        """Take in one of the objects that were there in the beginning."""
        assert self.initial is not None
        if change.gone:
            self.initial.pop(change.record.key, None)
        else:
            self.initial[change.record.key] = change.record
