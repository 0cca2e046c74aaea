"""What to ask the API server next, and what its answers mean: a watch as a state machine, without a connection.

    stream ──all came──┐                        stream: a watch that begins with all objects, where the server has it
      │ not offered    ▼                        list:   page by page, otherwise
      └──▶ list ──▶ watch ──ended──▶ watch      watch:  from the last version on
             ▲        │ the version is too old
             └────────┘

`next` says what to ask, and when. Whoever asks tells what came of it: `listed`, `opened`, `heard`, `waited` (at the
time `wake`, if nothing came), `ended` or `failed`; each returns what to yield. After any of them `open` tells whether
the stream is still wanted. While it is, `check` may return a request to make beside it, which compares what is known
with what the server has (see `verify`): its answer goes to `checked` or `check_failed`.

What is known changes by what the server says, never by what fails: a list that comes after a failure is compared with
it, and so shows what went meanwhile. A failure is answered by asking for the same again, later; only a version that is
too old, or a server that cannot follow from it, is answered by a list. That is at once, but only a few times in a row:
a server whose lists are too old for its watches must not be asked as fast as it answers.

A watch that ended in any other way than by its timeout may go on at a server that has lost history. Until a comparison
has shown that it has not, neither a bookmark nor an open stream confirms what is known.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

from wigwag.kube.watch.asks import ANY, NEWEST, OpenWatch, PartialList, ReflectorRequest
from wigwag.kube.watch.decode import Bookmark, ObjectEvent
from wigwag.kube.watch.faults import WatchFault
from wigwag.kube.watch.store import ObjectStore, latest, newer
from wigwag.kube.watch.timing import WatchTiming
from wigwag.kube.watch.verify import Verifier
from wigwag.pipeline.backoff import Retry
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from wigwag.kube.requests import Abilities
    from wigwag.kube.watch.decode import Key, ListPage, ObjectRecord

T = TypeVar("T")
Item: TypeAlias = "Mapping[Key, T] | Unavailable | Unchanged"
Heard: TypeAlias = "ObjectEvent[T] | Bookmark | WatchFault"
AT_ONCE = 4
"""How many times in a row something else is asked at once."""
_SMALLEST_PAGE = 4
_STREAM_FAILURES = 3
_SERVER_FAILURES = 3
_AGAIN = (0, 401, 403, 404, 408, 429, 503)
"""After these, asking for the same again is right; after others, a watch may never work from its version."""
_NOT_OFFERED = (400, 422)
_FORBIDDEN, _BUSY = 403, 429
log = logging.getLogger(__name__)


class Reflector(Generic[T]):
    """One watch."""

    def __init__(
        self, abilities: Abilities, timing: WatchTiming, random: Callable[[], float], title: str = "watch"
    ) -> None:
        """`abilities`: of the server; what is learnt here holds for its other watches too. `title`: for the log."""
        self._abilities, self._timing, self._random, self._title = abilities, timing, random, title
        self._retry = Retry(timing.backoff, random)
        self._store = ObjectStore[T]()
        self._verifier = Verifier(self._store, timing, random)
        self._uncertain = False
        """Whether the next watch may be at a server that has lost history."""
        self._stage: Literal["list", "watch"] = "list"
        self._from, self._version, self._limit = ANY, NEWEST, timing.page
        self._listing: PartialList[T] | None = None
        self._stream: OpenWatch[T] | None = None
        self._ask = ReflectorRequest("list", 0.0)
        self._when = self._sign = -math.inf
        self._published = self._bookmarks = False
        self._at_once = self._stream_failures = self._server_failures = 0

    def next(self, now: float) -> ReflectorRequest:
        """Return what to ask."""
        timing, when = self._timing, max(now, self._when)
        seconds = int(timing.shortest + (timing.longest - timing.shortest) * self._random())
        if self._stage == "watch" and self._uncertain and not self._verifier.allowed:
            self._relist(NEWEST)
        if self._stage == "watch":
            self._ask = ReflectorRequest("watch", when, self._version, seconds=seconds)
        elif self._listing is None and self._abilities.streams and self._stream_failures < _STREAM_FAILURES:
            self._ask = ReflectorRequest("stream", when, NEWEST if self._from == ANY else self._from, seconds=seconds)
        else:
            self._listing = self._listing or PartialList()
            self._ask = ReflectorRequest("list", when, self._from, self._limit, self._listing.token)
        return self._ask

    @property
    def open(self) -> bool:
        """Whether the stream is wanted."""
        return self._stream is not None

    @property
    def wake(self) -> float:
        """When `waited` has something to do."""
        stream, timing = self._stream, self._timing
        if stream is None:
            return -math.inf
        ends = [stream.opened + stream.seconds + timing.margin]
        if stream.initial is not None:
            ends.append(stream.heard + timing.initial)
        else:
            ends.append(self._verifier.due(stream.heard))
            if not stream.confirmed and not self._verifier.doubt:
                ends.append(stream.opened + timing.quiet)
        if self._bookmarks:
            ends.append(stream.heard + timing.silence)
        return min(ends)

    def listed(self, page: ListPage[T], now: float) -> list[Item[T]]:
        """A page of the list has come."""
        listing = self._listing or PartialList()
        listing.add(page)
        if listing.endless:
            self._listing = None
            return self.failed(WatchFault("the list does not end; narrow the watch down with a selector"), now)
        if listing.token:
            return []
        self._listing, self._limit = None, self._timing.page
        return self._replace(listing.records.values(), listing.version, now)

    def opened(self, now: float) -> None:
        """The server has begun to answer a watch."""
        ask = self._ask
        self._stream = OpenWatch(now, ask.seconds, now, ask.version, {} if ask.how == "stream" else None)
        if self._uncertain and ask.how == "watch":
            self._verifier.forget()
        self._verifier.begin(now, doubt=self._uncertain or self._verifier.suspicious)

    def heard(self, events: Iterable[Heard[T]], now: float) -> list[Item[T]]:
        """Events have come, all at once: what they change together is one change."""
        changed: bool | None = None
        whole: list[Item[T]] = []
        trouble: list[Item[T]] = []
        for event in events:
            if (stream := self._stream) is None:
                break
            stream.heard = now
            if isinstance(event, WatchFault):
                trouble = self.failed(event, now)
            elif stream.initial is not None:
                whole += self._begin(stream, event, now)
            else:
                changed = self._apply(stream, event, now) or bool(changed)
        news: list[Item[T]] = [] if changed is None else [self._publish()] if changed else self._confirmed()
        return whole + news + trouble

    def waited(self, now: float) -> list[Item[T]]:
        """Nothing has come until `wake`."""
        stream, timing = self._stream, self._timing
        if stream is None or now < self.wake:
            return []
        if now >= stream.opened + stream.seconds + timing.margin:
            return self.failed(WatchFault("the watch did not end when it should; the connection seems to be dead"), now)
        if stream.initial is not None and now >= stream.heard + timing.initial:
            return self._not_offered(now)
        if self._bookmarks and now >= stream.heard + timing.silence:
            self._audit(now)
            return self.failed(WatchFault("no sign of life from the server; the connection seems to be dead"), now)
        items: list[Item[T]] = []
        if not stream.confirmed and not self._verifier.doubt and now >= stream.opened + timing.quiet:
            stream.confirmed = True
            self._retry.succeeded()
            items.append(UNCHANGED)
        return items + self._judged(self._verifier.settle(), now) if self._verifier.settles(now) else items

    def check(self, now: float) -> ReflectorRequest | None:
        """Return what to ask beside the open stream, if it is time for that."""
        stream = self._stream
        if stream is None or stream.initial is not None or now < self._verifier.due(stream.heard):
            return None
        return self._verifier.ask(self._version, now)

    def checked(self, page: ListPage[None], now: float) -> list[Item[T]]:
        """An answer to `check` has come."""
        if self._stream is None:
            return []
        fault = self._verifier.answered(page, now)
        where = f", which is at {page.version}" if page.version else ""
        log.debug("%s: compared with the server%s: %s", self._title, where, fault.text if fault else "no difference")
        return self._judged(fault, now)

    def check_failed(self, fault: WatchFault, now: float) -> list[Item[T]]:
        """What `check` wanted was refused, or not answered. Only silence says that the stream is dead, too."""
        if self._stream is None:
            return []
        log.debug("%s: cannot be compared with the server: %s", self._title, fault.text)
        if not fault.code:
            return self.failed(fault, now) or [Unavailable(fault.text)]
        self._verifier.failed(now, fault.retry_after)
        if fault.code == _FORBIDDEN:
            return self._cannot_check(fault, now)
        if fault.code == _BUSY or fault.expired:
            return []
        self._verifier.doubt = True
        return [Unavailable(fault.text)]

    def ended(self, now: float) -> list[Item[T]]:
        """The server has ended the stream in good order."""
        stream, timing = self._stream, self._timing
        if stream is None:
            return []
        lived = now - stream.opened
        if stream.initial is not None or (lived < timing.hasty and not stream.told):
            return self.failed(WatchFault("the watch ended too soon; see what is between us and the API server"), now)
        self._stream, self._uncertain = None, self._verifier.doubt or lived < stream.seconds - 1
        log.debug("%s: the watch ended after %.0f s", self._title, lived)
        self._lived(lived)
        self._audit(now)
        self._when = now if lived >= timing.long else self._retry.next(now)
        return [] if self._uncertain else [UNCHANGED]

    def failed(self, fault: WatchFault, now: float) -> list[Item[T]]:
        """A request was refused, or what came of it broke off."""
        stream, self._stream, self._uncertain = self._stream, None, True
        lived = 0.0 if stream is None else now - stream.opened
        log.debug("%s: the %s failed: %s", self._title, self._ask.how, fault.text)
        self._lived(lived)
        if self._turn(fault) and self._at_once < AT_ONCE:
            self._at_once += 1
            self._when = now
            return []
        broke = stream is not None and not fault.code
        first = broke and self._published and not self._retry.failures
        self._when = self._retry.next(now, fault.retry_after)
        return [] if first and not self._retry.limited else [Unavailable(fault.text)]

    def _turn(self, fault: WatchFault) -> bool:
        """Decide what is asked instead of what failed; False if it is the same, or nothing that is worth a hurry."""
        ask = self._ask
        if fault.expired or fault.ahead:
            return self._outdated(fault)
        if fault.oversize and ask.how == "list":
            self._listing, self._from, self._limit = None, NEWEST, max(self._limit // 5, _SMALLEST_PAGE)
            return ask.limit != self._limit
        if ask.how == "stream":
            return self._cannot_stream(fault)
        if fault.code not in _AGAIN:
            self._doubt(fault)
        return False

    def _doubt(self, fault: WatchFault) -> None:
        """The server may never answer to what we ask it with: the version of a watch, the next page of a list."""
        self._server_failures += 1
        if fault.code >= 500 and self._server_failures < _SERVER_FAILURES:
            return
        if self._ask.how == "watch":
            self._relist(self._version)
        else:
            self._listing = None

    def _outdated(self, fault: WatchFault) -> bool:
        """The server cannot go on from the version that we have: ask for what it has."""
        ask = self._ask
        if ask.token:
            self._listing, self._limit = None, 0  # in one piece, as it changes faster than we read
        elif ask.how == "watch":
            self._relist(NEWEST if fault.ahead else self._version)
        elif ask.version != NEWEST:
            self._relist(NEWEST)
        else:
            return False
        return True

    def _cannot_stream(self, fault: WatchFault) -> bool:
        if fault.code in _NOT_OFFERED:
            self._abilities.streams = False
            return True
        self._stream_failures += fault.code in (0, *range(500, 600))
        return False

    def _not_offered(self, now: float) -> list[Item[T]]:
        """A server that does not know what was asked for leaves it out: list, now and from now on."""
        self._abilities.streams, self._stream, self._when = False, None, now
        return []

    def _judged(self, fault: WatchFault | None, now: float) -> list[Item[T]]:
        """Act on what a comparison has shown: all is well, a list is needed, or a list is no help."""
        if fault is None:
            if self._stream is None or not self._verifier.sure:
                return []
            self._verifier.doubt, self._stream.confirmed = False, True
            self._retry.succeeded()
            return [UNCHANGED]
        if fault.ahead:
            log.warning("%s: %s; all of it is listed again", self._title, fault.text)
            return self.failed(fault, now)
        self._verifier.doubt = True
        return [Unavailable(fault.text)]

    def _cannot_check(self, fault: WatchFault, now: float) -> list[Item[T]]:
        """An account that may watch but not list cannot compare. What is in doubt is asked for as a whole."""
        log.warning("%s: it is not compared with the server any more: %s", self._title, fault.text)
        self._verifier.allowed = False
        return self.failed(WatchFault(fault.text, ahead=True), now) if self._verifier.doubt else []

    def _confirmed(self) -> list[Item[T]]:
        """Something was heard that changes nothing. In doubt, that proves nothing."""
        return [] if self._verifier.doubt else [UNCHANGED]

    def _relist(self, version: str) -> None:
        log.debug("%s: all objects are listed again, %s", self._title, f"since {version}" if version else "the newest")
        self._stage, self._from, self._listing, self._server_failures = "list", version, None, 0

    def _lived(self, seconds: float) -> None:
        if seconds >= self._timing.long:
            self._at_once = self._server_failures = 0

    def _audit(self, now: float) -> None:
        """After a long silence, have the next request tell whether we still see what the server has."""
        if now - self._sign >= self._timing.audit:
            self._relist(self._version)

    def _begin(self, stream: OpenWatch[T], event: ObjectEvent[T] | Bookmark, now: float) -> list[Item[T]]:
        """Collect what is there in the beginning. The versions of these objects say nothing about how far we are."""
        if isinstance(event, ObjectEvent):
            stream.collect(event)
            return []
        if not event.end or stream.initial is None:
            return []
        records, stream.initial, stream.base = stream.initial, None, event.version
        stream.told = stream.confirmed = self._bookmarks = True
        self._retry.succeeded()
        self._ask = replace(self._ask, how="watch", version=event.version)  # from here on it is nothing else
        return self._replace(records.values(), event.version, now)

    def _apply(self, stream: OpenWatch[T], event: ObjectEvent[T] | Bookmark, now: float) -> bool:
        """Take in an event, and tell whether it changed anything."""
        version = event.version if isinstance(event, Bookmark) else event.record.version
        before, self._version = self._version, latest(version, self._version)
        if newer(before, version):
            self._verifier.suspect(now)  # the server may have gone back
        stream.told |= before != self._version
        stream.confirmed, self._sign = True, now
        if stream.told:
            self._retry.succeeded()
        if isinstance(event, Bookmark):
            self._bookmarks = True
            return False
        if newer(version, stream.base) is False:
            return False
        _warn(event.record)
        return self._store.remove(event.record) if event.gone else self._store.put(event.record)

    def _replace(self, records: Iterable[ObjectRecord[T]], version: str, now: float) -> list[Item[T]]:
        """Take in a whole list."""
        found = list(records)
        for record in found:
            _warn(record)
        self._stage, self._version, self._sign, self._when, self._uncertain = "watch", version, now, now, False
        self._verifier.listed(now)
        self._stream_failures = self._server_failures = 0
        changed = self._store.replace(found)
        return [self._publish()] if changed or not self._published else self._confirmed()

    def _publish(self) -> Mapping[Key, T]:
        self._published = True
        return self._store.snapshot()


def _warn(record: ObjectRecord[T]) -> None:
    if record.problem:
        log.warning("%s/%s: cannot be read, and stays as it was: %s", *record.key, record.problem)
