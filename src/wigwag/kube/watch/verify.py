"""Whether the store of a watch is what the server has: requests for metadata, beside the watch.

A watch can go wrong silently. An API server whose etcd was restored from a backup counts from an earlier version:
a watch from our version is accepted, and nothing that happens below that version is ever sent on it. A load balancer
may keep a connection open whose other end is gone. So the store is compared with the server:

    when                                                    request                                       time
    a watch was opened again after anything but its end     metadata of all objects ("compare")           0 to `verify`
    a bookmark or an event has a lower version than ours    the same                                      at once
    for `compare` seconds, give or take a third             the same                                      2 to 4 min
    no event for `probe` seconds, or a bit less             metadata of one object ("probe")              15 to 20 s

All of these leave `resourceVersion` out. That is the only form that must not be answered from an older state: etcd
is read, or (Kubernetes 1.31 and later) the watch cache, once it is as new as etcd. With `resourceVersion=0` a server
that lags behind looks like a restored one, and one that has lost its etcd looks well; with our own version and
`NotOlderThan`, a restored server makes us wait for three seconds and then refuses. The cost is small: one object is one
key of etcd, and only metadata is sent. The probe of a watch of one object is a GET, which always reads etcd, and so
shows a watch cache that was left behind by a restore; of several objects, it is a list of one.

What follows from a response:

    the version of the list is below ours                   the server went back: list
    an object has another version or uid, not above ours    the watch has missed that: list
    an object has a version above ours, or is not there     it may be on its way: list if it is missing after `settle` s
    the same difference after that list                     the server contradicts itself: that is an error
    no response                                             the connection is dead: reconnect

The hard case is a response that events have overtaken. So versions are compared with what was known when the request
was sent, and an object that has changed here since then is not compared.

Not detected: an object that was written in the same version, with the same uid, before and after a restore, if the
server has passed our version before the comparison.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from wigwag.kube.watch.listwatch import PartialList, ReflectorRequest, WatchFault
from wigwag.kube.watch.store import newer

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.kube.watch.decode import Key, ListPage
    from wigwag.kube.watch.listwatch import WatchTiming
    from wigwag.kube.watch.store import ObjectStore, ObjectVersion

T = TypeVar("T")


class Verifier(Generic[T]):
    """Compares one store with the server."""

    def __init__(self, store: ObjectStore[T], timing: WatchTiming, random: Callable[[], float]) -> None:
        self._store, self._timing, self._random = store, timing, random
        self.doubt = False
        """Whether the store may differ from the server: until a comparison, nothing confirms it."""
        self.allowed = True
        """Whether this account may list."""
        self._sent: ReflectorRequest | None = None
        self._again = False
        """Whether another comparison is needed after the current one."""
        self._known = ""
        """The version of the store when the request was sent."""
        self._listing = PartialList[None]()
        self._pending: dict[Key, tuple[str, ObjectVersion]] = {}
        """Differences that may be on their way as events: the version on the server, and the one here."""
        self._settled = math.inf
        self._suspects: dict[Key, str] = {}
        """The differences that led to the last list, and which request showed them."""
        self._by: Literal["compare", "probe"] = "compare"
        self._next = self._whole = math.inf
        self._gap = self._draw()

    def begin(self, now: float, *, doubt: bool) -> None:
        """A watch has opened; start anew."""
        self.doubt, self._sent, self._again, self._listing = doubt, None, False, PartialList()
        self._pending, self._settled = {}, math.inf
        self._next = now + (self._timing.verify * self._random() if doubt else self._draw())
        if self._whole == math.inf:
            self._plan_whole(now)

    def listed(self, now: float) -> None:
        """A list is complete. If a difference led to it, compare once more: it may still be there."""
        self.begin(now, doubt=bool(self._suspects))
        self._plan_whole(now)

    def forget(self) -> None:
        """Another server may answer from now on: forget whether the last one contradicted itself."""
        self._suspects = {}

    def suspect(self, now: float) -> None:
        """Something does not fit: compare at once, and once more if a comparison is under way."""
        self.doubt, self._next, self._again = True, min(self._next, now), self._sent is not None

    @property
    def suspicious(self) -> bool:
        """Whether a difference led to the last list, and no comparison has cleared it."""
        return bool(self._suspects)

    def due(self, last_event: float) -> float:
        """Return when there is something to do; `last_event` is the time of the last event on the watch."""
        if not self.allowed or self._sent is not None:
            return math.inf
        if self._pending:
            return self._settled
        if self._listing.token or self.doubt:
            return self._next
        return min(max(self._next, last_event + self._gap), self._whole)

    def next(self, version: str, now: float) -> ReflectorRequest | None:
        """Return the request that is due; None while one is under way, or a difference has to settle."""
        if self._sent is not None or self._pending:
            return None
        if not self._listing.token:
            self._known = version
        whole = bool(self._listing.token) or self.doubt or now >= self._whole
        how = self._by if self._suspects and not self._listing.token else "compare" if whole else "probe"
        limit = self._timing.page if how == "compare" else 1
        self._sent, self._again = ReflectorRequest(how, now, limit=limit, token=self._listing.token), False
        self._gap = self._draw()
        return self._sent

    def answered(self, page: ListPage[None], now: float) -> WatchFault | None:
        """Compare a response. A fault says what differs; without one, `sure` says whether all is well."""
        request, self._sent = self._sent, None
        if request is None:
            return None
        self._listing.add(page)
        self._next = now
        if request.how == "compare" and self._listing.token:
            return None
        listing, self._listing = self._listing, PartialList()
        if request.how == "compare":
            self._plan_whole(now)
        if not self._again:
            self._next = now + self._gap
        if newer(self._known, listing.version):
            return WatchFault(f"the server's version went from {self._known} back to {listing.version}", ahead=True)
        differences = self._store.differing(listing.records, self._known, whole=not listing.token)
        return self._differ(differences, request.how, now)

    def settles(self, now: float) -> bool:
        """Return whether it is time to `settle`."""
        return now >= self._settled

    def settle(self) -> WatchFault | None:
        """Check whether events have resolved the differences. A fault says which are left, as in `answered`."""
        left = {key: there for key, (there, was) in self._pending.items() if self._store.identity(key) == was}
        self._pending, self._settled = {}, math.inf
        if left:
            return self._missed(left)
        self._suspects = {}
        return None

    @property
    def sure(self) -> bool:
        """Whether the last comparison is over, and showed no difference."""
        return not (self._sent or self._again or self._pending or self._listing.token or self._suspects)

    def failed(self, now: float, retry_after: float) -> None:
        """There was no usable response: try again later."""
        self._sent, self._again, self._listing = None, False, PartialList()
        self._next = now + max(self._draw(), retry_after)
        self._whole = max(self._whole, self._next)

    def _differ(self, differences: dict[Key, str], how: str, now: float) -> WatchFault | None:
        if not differences:
            self._suspects = {} if how == self._by else self._suspects
            return None
        self._by = "probe" if how == "probe" else "compare"
        missed = {
            key: version for key, version in differences.items() if version and newer(version, self._known) is False
        }
        if missed:
            return self._missed(missed)
        self._pending = {key: (version, self._store.identity(key)) for key, version in differences.items()}
        self._settled = now + self._timing.settle
        return None

    def _missed(self, differences: dict[Key, str]) -> WatchFault:
        key, version = next(iter(differences.items()))
        known = self._store.identity(key)
        there, here = (f"has version {each}" if each else "is missing" for each in (version, known.version))
        text = f"{'/'.join(key)} {there} on the server and {here} in the store of the watch"
        if differences == self._suspects:
            advice = "its watch cache is not what etcd has; restart the API server, as after every restore of etcd"
            return WatchFault(f"the API server contradicts itself: {text}, and its list does not show that; {advice}")
        self._suspects = differences
        return WatchFault(text, ahead=True)

    def _plan_whole(self, now: float) -> None:
        self._whole = now + self._timing.compare * (2.0 + 2.0 * self._random()) / 3.0

    def _draw(self) -> float:
        return self._timing.probe * (0.75 + 0.25 * self._random())
