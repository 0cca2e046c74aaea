"""Whether what a watch has shown is what the server has: requests for metadata, beside the watch.

A watch can go wrong without a word. An API server whose etcd was restored from a backup counts from an earlier version:
a watch from our version is accepted, and nothing that happens below that version is ever sent on it. A load balancer
may keep a connection open whose other end is gone. So what is known is compared with what the server has:

    when                                                    what is asked for                             time
    a watch was opened again after anything but its end     metadata of all objects ("compare")           0 to `verify`
    a bookmark or an event has a lower version than ours    the same                                      at once
    for `compare` seconds, give or take a third             the same                                      2 to 4 min
    nothing was heard for `probe` seconds, or a bit less    metadata of one object ("probe")              15 to 20 s

All of these leave `resourceVersion` out. That is the only form that must not be answered from an older state: etcd
is read, or (Kubernetes 1.31 and later) the watch cache, once it is as new as etcd. With `resourceVersion=0` a server
that lags behind looks like a restored one, and one that has lost its etcd looks well; with our own version and
`NotOlderThan`, a restored server makes us wait for three seconds and then refuses. The cost is small: one object is one
key of etcd, and only metadata is sent. The probe of a watch of one object is a GET, which always reads etcd, and so
shows a watch cache that was left behind by a restore; of several objects, it is a list of one.

What follows from an answer:

    the version of the list is below ours                   the server went back: list
    an object has another version or uid, not above ours    the watch has missed that: list
    an object has a version above ours, or is not there     it may be on its way: list if it has not come in `settle` s
    the same difference after that list                     the server contradicts itself: that is an error
    no answer at all                                        the connection is dead: reconnect

The hard case is an answer that was overtaken by events. So versions are compared with what was known when it was asked,
and an object that has changed here since then is not compared.

Not found: an object that was written in the same version, with the same uid, before and after a restore, if the server
has passed our version before it is asked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from wigwag.kube.watch.asks import PartialList, ReflectorRequest
from wigwag.kube.watch.faults import WatchFault
from wigwag.kube.watch.store import newer

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.kube.watch.decode import Key, ListPage
    from wigwag.kube.watch.store import ObjectStore, ObjectVersion
    from wigwag.kube.watch.timing import WatchTiming

T = TypeVar("T")


class Verifier(Generic[T]):
    """Compares one store with the server."""

    def __init__(self, store: ObjectStore[T], timing: WatchTiming, random: Callable[[], float]) -> None:
        self._store, self._timing, self._random = store, timing, random
        self.doubt = False
        """Whether the store may not be what the server has: until that is known, nothing confirms it."""
        self.allowed = True
        """Whether the server lets us ask."""
        self._asked: ReflectorRequest | None = None
        self._again = False
        """Whether there was a reason to ask since it was asked."""
        self._known = ""
        """The version that was known when it was asked."""
        self._listing = PartialList[None]()
        self._pending: dict[Key, tuple[str, ObjectVersion]] = {}
        """What was different and may be on its way: as the server has it, and as it was here."""
        self._settled = math.inf
        self._suspects: dict[Key, str] = {}
        """The differences that the last list was asked for because of, and what showed them."""
        self._by: Literal["compare", "probe"] = "compare"
        self._next = self._whole = math.inf
        self._gap = self._draw()

    def begin(self, now: float, *, doubt: bool) -> None:
        """A watch is open, and nothing is under way."""
        self.doubt, self._asked, self._again, self._listing = doubt, None, False, PartialList()
        self._pending, self._settled = {}, math.inf
        self._next = now + (self._timing.verify * self._random() if doubt else self._draw())
        if self._whole == math.inf:
            self._plan_whole(now)

    def listed(self, now: float) -> None:
        """All objects have come. If that was because of a difference, compare once more: it may be there still."""
        self.begin(now, doubt=bool(self._suspects))
        self._plan_whole(now)

    def forget(self) -> None:
        """Another server may answer from now on: whether the last one contradicted itself does not matter."""
        self._suspects = {}

    def suspect(self, now: float) -> None:
        """Something does not fit: compare at once, and once more if that is under way already."""
        self.doubt, self._next, self._again = True, min(self._next, now), self._asked is not None

    @property
    def suspicious(self) -> bool:
        """Whether the last list was asked for because of a difference, and it is not known to be over."""
        return bool(self._suspects)

    def due(self, heard: float) -> float:
        """Return when there is something to do; `heard` is when something came on the watch."""
        if not self.allowed or self._asked is not None:
            return math.inf
        if self._pending:
            return self._settled
        if self._listing.token or self.doubt:
            return self._next
        return min(max(self._next, heard + self._gap), self._whole)

    def ask(self, version: str, now: float) -> ReflectorRequest | None:
        """Return what to ask, now that it is due; None if an answer is waited for, or a difference to settle."""
        if self._asked is not None or self._pending:
            return None
        if not self._listing.token:
            self._known = version
        whole = bool(self._listing.token) or self.doubt or now >= self._whole
        how = self._by if self._suspects and not self._listing.token else "compare" if whole else "probe"
        limit = self._timing.page if how == "compare" else 1
        self._asked, self._again = ReflectorRequest(how, now, limit=limit, token=self._listing.token), False
        self._gap = self._draw()
        return self._asked

    def answered(self, page: ListPage[None], now: float) -> WatchFault | None:
        """Take in an answer. A fault says what is wrong; otherwise `sure` tells whether all is well."""
        ask, self._asked = self._asked, None
        if ask is None:
            return None
        self._listing.add(page)
        self._next = now
        if ask.how == "compare" and self._listing.token:
            return None
        listing, self._listing = self._listing, PartialList()
        if ask.how == "compare":
            self._plan_whole(now)
        if not self._again:
            self._next = now + self._gap
        if newer(self._known, listing.version):
            return WatchFault(f"the server's version went from {self._known} back to {listing.version}", ahead=True)
        found = self._store.differing(listing.records, self._known, whole=not listing.token)
        return self._differ(found, ask.how, now)

    def settle(self) -> WatchFault | None:
        """See whether what may have been on its way has come. A fault says what has not, as in `answered`."""
        left = {key: there for key, (there, was) in self._pending.items() if self._store.identity(key) == was}
        self._pending, self._settled = {}, math.inf
        if left:
            return self._missed(left)
        self._suspects = {}
        return None

    def settles(self, now: float) -> bool:
        """Tell whether it is time to `settle`."""
        return now >= self._settled

    @property
    def sure(self) -> bool:
        """Whether the last comparison is over, and showed no difference."""
        return not (self._asked or self._again or self._pending or self._listing.token or self._suspects)

    def failed(self, now: float, retry_after: float) -> None:
        """There was no answer that could be compared: try again."""
        self._asked, self._again, self._listing = None, False, PartialList()
        self._next = now + max(self._draw(), retry_after)
        self._whole = max(self._whole, self._next)

    def _differ(self, found: dict[Key, str], how: str, now: float) -> WatchFault | None:
        if not found:
            self._suspects = {} if how == self._by else self._suspects
            return None
        self._by = "probe" if how == "probe" else "compare"
        missed = {key: version for key, version in found.items() if version and newer(version, self._known) is False}
        if missed:
            return self._missed(missed)
        self._pending = {key: (version, self._store.identity(key)) for key, version in found.items()}
        self._settled = now + self._timing.settle
        return None

    def _missed(self, found: dict[Key, str]) -> WatchFault:
        key, version = next(iter(found.items()))
        known = self._store.identity(key)
        there, here = (f"has version {each}" if each else "is missing" for each in (version, known.version))
        text = f"{'/'.join(key)} {there} on the server and {here} in what was watched"
        if found == self._suspects:
            advice = "its watch cache is not what etcd has; restart the API server, as after every restore of etcd"
            return WatchFault(f"the API server contradicts itself: {text}, and its list does not show that; {advice}")
        self._suspects = found
        return WatchFault(text, ahead=True)

    def _plan_whole(self, now: float) -> None:
        self._whole = now + self._timing.compare * (2.0 + 2.0 * self._random()) / 3.0

    def _draw(self) -> float:
        return self._timing.probe * (0.75 + 0.25 * self._random())
