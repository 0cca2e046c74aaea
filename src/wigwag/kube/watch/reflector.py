"""A reflector: which request to send to the API server next, and what its responses mean. A state machine without I/O.

    stream ──all sent──┐                        stream: a watch that begins with all objects, where the server has it
      │ not offered    ▼                        list:   page by page, otherwise
      └──▶ list ──▶ watch ──ended──▶ watch      watch:  from the last version on
             ▲        │ the version is too old
             └────────┘

`next` returns the next request, and when to send it. The caller (`follow`) reports what happened: `listed`, `opened`,
`received`, `waited` (at the time `wake`, if nothing arrived), `ended` or `failed`; each returns the items to yield.
After any of them, `open` says whether the stream is still wanted. While it is, `check` may return a request to send
beside it, which compares the store with the server (see `verify`): its response goes to `checked` or `check_failed`.

The store changes by what the server sends, never by a failure: a list after a failure is compared with it, and so shows
what was deleted meanwhile. After a failure the same request is retried later. Only a version that is too old, or one
that the server cannot watch from, leads to a list. That is at once, but only a few times in a row: a server whose lists
are too old for its watches must not get requests as fast as it answers them.

The hard case: a watch that ended in any other way than by its timeout may resume at a server that has lost history.
Until a comparison has shown otherwise, neither a bookmark nor an open stream confirms the store.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

from wigwag.kube.watch.decode import Bookmark, ObjectEvent
from wigwag.kube.watch.listwatch import ANY, NEWEST, OpenWatch, PartialList, ReflectorRequest, WatchFault, WatchTiming
from wigwag.kube.watch.store import ObjectStore, latest, newer
from wigwag.kube.watch.verify import Verifier
from wigwag.pipeline.backoff import Retry
from wigwag.pipeline.spec import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.kube.client import Capabilities
    from wigwag.kube.watch.decode import ListPage, ObjectRecord
    from wigwag.kube.watch.objects import Objects
    from wigwag.pipeline.spec import Unavailable, Unchanged

T = TypeVar("T")
Item: TypeAlias = "Objects[T] | Unavailable | Unchanged"
Received: TypeAlias = "ObjectEvent[T] | Bookmark | WatchFault"
AT_ONCE = 4
"""How many times in a row another request follows without a pause."""
_SMALLEST_PAGE = 4
_STREAM_FAILURES = 3
_SERVER_FAILURES = 3
_RETRYABLE = (0, 401, 403, 404, 408, 429, 503)
"""After these, the same request is retried; after others, a watch may never work from its version."""
_NOT_OFFERED = (400, 422)
_FORBIDDEN, _BUSY = 403, 429
log = logging.getLogger(__name__)


class Reflector(Generic[T]):
    """One watch."""

    def __init__(
        self, capabilities: Capabilities, timing: WatchTiming, random: Callable[[], float], title: str = "watch"
    ) -> None:
        """`capabilities` of the server are shared with its other watches. `title` is for the log."""
        self._capabilities, self._timing, self._random, self._title = capabilities, timing, random, title
        self._retry, self._redial = Retry(timing.backoff, random), Retry(timing.unreachable, random)
        self._store = ObjectStore[T]()
        self._verifier = Verifier(self._store, timing, random)
        self._uncertain = False
        """Whether the next watch may reach a server that has lost history."""
        self._stage: Literal["list", "watch"] = "list"
        self._from, self._version, self._limit = ANY, NEWEST, timing.page
        self._listing: PartialList[T] | None = None
        self._stream: OpenWatch[T] | None = None
        self._request = ReflectorRequest("list", 0.0)
        self._when = self._last_event = -math.inf
        self._published = self._bookmarks = False
        self._at_once = self._stream_failures = self._server_failures = 0

    def next(self, now: float) -> ReflectorRequest:
        """Return the next request."""
        timing, when = self._timing, max(now, self._when)
        seconds = int(timing.shortest + (timing.longest - timing.shortest) * self._random())
        if self._stage == "watch" and self._uncertain and not self._verifier.allowed:
            self._relist(NEWEST)
        if self._stage == "watch":
            self._request = ReflectorRequest("watch", when, self._version, seconds=seconds)
        elif self._listing is None and self._capabilities.watch_list and self._stream_failures < _STREAM_FAILURES:
            version = NEWEST if self._from == ANY else self._from
            self._request = ReflectorRequest("stream", when, version, seconds=seconds)
        else:
            self._listing = self._listing or PartialList()
            self._request = ReflectorRequest("list", when, self._from, self._limit, self._listing.token)
        return self._request

    @property
    def open(self) -> bool:
        """Whether the stream is still wanted."""
        return self._stream is not None

    @property
    def wake(self) -> float:
        """When `waited` has something to do."""
        stream, timing = self._stream, self._timing
        if stream is None:
            return -math.inf
        ends = [stream.opened + stream.seconds + timing.margin]
        if stream.initial is not None:
            ends.append(stream.last_event + timing.initial)
        else:
            ends.append(self._verifier.due(stream.last_event))
            if not stream.confirmed and not self._verifier.doubt:
                ends.append(stream.opened + timing.quiet)
        if self._bookmarks:
            ends.append(stream.last_event + timing.silence)
        return min(ends)

    def listed(self, page: ListPage[T], now: float) -> list[Item[T]]:
        """A page of the list has arrived."""
        self._redial.succeeded()
        listing = self._listing or PartialList()
        listing.add(page)
        if listing.endless:
            self._listing = None
            return self.failed(WatchFault("the list does not end; narrow the watch with a selector"), now)
        if listing.token:
            return []
        self._listing, self._limit = None, self._timing.page
        return self._replace(listing.records.values(), listing.version, now)

    def opened(self, now: float) -> None:
        """The response to a watch has begun."""
        self._redial.succeeded()
        request = self._request
        self._stream = OpenWatch(now, request.seconds, now, request.version, {} if request.how == "stream" else None)
        if self._uncertain and request.how == "watch":
            self._verifier.forget()
        self._verifier.begin(now, doubt=self._uncertain or self._verifier.suspicious)

    def received(self, events: Iterable[Received[T]], now: float) -> list[Item[T]]:
        """Events have arrived together; what they change is published once."""
        changed: bool | None = None
        whole: list[Item[T]] = []
        failure: list[Item[T]] = []
        for event in events:
            if (stream := self._stream) is None:
                break
            stream.last_event = now
            if isinstance(event, WatchFault):
                failure = self.failed(event, now)
            elif stream.initial is not None:
                whole += self._begin(stream, event, now)
            else:
                changed = self._apply(stream, event, now) or bool(changed)
        result: list[Item[T]] = [] if changed is None else [self._publish()] if changed else self._confirmed()
        return whole + result + failure

    def waited(self, now: float) -> list[Item[T]]:
        """Nothing has arrived until `wake`."""
        stream, timing = self._stream, self._timing
        if stream is None or now < self.wake:
            return []
        if now >= stream.opened + stream.seconds + timing.margin:
            return self.failed(WatchFault("the watch outlived its timeout; the connection seems to be dead"), now)
        if stream.initial is not None and now >= stream.last_event + timing.initial:
            self._capabilities.watch_list, self._stream, self._when = False, None, now  # it ignores sendInitialEvents
            return []
        if self._bookmarks and now >= stream.last_event + timing.silence:
            self._audit(now)
            return self.failed(WatchFault("the server is silent for too long; the connection seems to be dead"), now)
        items: list[Item[T]] = []
        if not stream.confirmed and not self._verifier.doubt and now >= stream.opened + timing.quiet:
            stream.confirmed = True
            self._retry.succeeded()
            items.append(UNCHANGED)
        return items + self._after_check(self._verifier.settle(), now) if self._verifier.settles(now) else items

    def check(self, now: float) -> ReflectorRequest | None:
        """Return a request to send beside the open stream, if one is due."""
        stream = self._stream
        if stream is None or stream.initial is not None or now < self._verifier.due(stream.last_event):
            return None
        return self._verifier.next(self._version, now)

    def checked(self, page: ListPage[None], now: float) -> list[Item[T]]:
        """The response to `check` has arrived."""
        if self._stream is None:
            return []
        fault = self._verifier.answered(page, now)
        where = f", which is at {page.version}" if page.version else ""
        log.debug("%s: compared with the server%s: %s", self._title, where, fault.text if fault else "no difference")
        return self._after_check(fault, now)

    def check_failed(self, fault: WatchFault, now: float) -> list[Item[T]]:
        """The request of `check` failed. No response at all means that the stream is dead, too."""
        if self._stream is None:
            return []
        log.debug("%s: cannot be compared with the server: %s", self._title, fault.text)
        if not fault.code:
            return self.failed(fault, now) or [fault.item]
        self._verifier.failed(now, fault.retry_after)
        if fault.code == _FORBIDDEN:
            return self._cannot_check(fault, now)
        if fault.code == _BUSY or fault.expired:
            return []
        self._verifier.doubt = True
        return [fault.item]

    def ended(self, now: float) -> list[Item[T]]:
        """The server has ended the stream properly."""
        stream, timing = self._stream, self._timing
        if stream is None:
            return []
        lived = now - stream.opened
        if stream.initial is not None or (lived < timing.hasty and not stream.progressed):
            return self.failed(WatchFault("the watch ended too soon; check the proxies before the API server"), now)
        self._stream, self._uncertain = None, self._verifier.doubt or lived < stream.seconds - 1
        log.debug("%s: the watch ended after %.0f s", self._title, lived)
        self._lived(lived)
        self._audit(now)
        self._when = now if lived >= timing.long else self._retry.next(now)
        return [] if self._uncertain else [UNCHANGED]

    def failed(self, fault: WatchFault, now: float) -> list[Item[T]]:
        """A request was refused, or its response broke off."""
        stream, self._stream, self._uncertain = self._stream, None, True
        lived = 0.0 if stream is None else now - stream.opened
        log.debug("%s: the %s failed: %s", self._title, self._request.how, fault.text)
        self._lived(lived)
        if self._change_request(fault) and self._at_once < AT_ONCE:
            self._at_once += 1
            self._when = now
            return []
        broke = stream is not None and not fault.code
        first = broke and self._published and not self._retry.failures
        self._when = (self._redial if fault.unreachable else self._retry).next(now, fault.retry_after)
        return [] if first and not self._retry.limited else [fault.item]

    def _change_request(self, fault: WatchFault) -> bool:
        """Choose another request after a fault; False to retry the same, or after the usual pause."""
        request = self._request
        if fault.expired or fault.ahead:
            return self._outdated(fault)
        if fault.oversize and request.how == "list":
            self._listing, self._from, self._limit = None, NEWEST, max(self._limit // 5, _SMALLEST_PAGE)
            return request.limit != self._limit
        if request.how == "stream":
            return self._cannot_stream(fault)
        if fault.code not in _RETRYABLE:
            self._reset(fault)
        return False

    def _reset(self, fault: WatchFault) -> None:
        """The server may never accept this version of a watch, or this page of a list: list from the beginning."""
        self._server_failures += 1
        if fault.code >= 500 and self._server_failures < _SERVER_FAILURES:
            return
        if self._request.how == "watch":
            self._relist(self._version)
        else:
            self._listing = None

    def _outdated(self, fault: WatchFault) -> bool:
        """The server cannot watch from our version: list what it has."""
        request = self._request
        if request.token:
            self._listing, self._limit = None, 0  # without pages: it changes faster than they arrive
        elif request.how == "watch":
            self._relist(NEWEST if fault.ahead else self._version)
        elif request.version != NEWEST:
            self._relist(NEWEST)
        else:
            return False
        return True

    def _cannot_stream(self, fault: WatchFault) -> bool:
        if fault.code in _NOT_OFFERED:
            self._capabilities.watch_list = False
            return True
        self._stream_failures += fault.code in (0, *range(500, 600))
        return False

    def _after_check(self, fault: WatchFault | None, now: float) -> list[Item[T]]:
        """Act on a comparison: no difference, a difference that a list repairs, or one that it does not."""
        if fault is None:
            if self._stream is None or not self._verifier.sure:
                return []
            self._verifier.doubt, self._stream.confirmed = False, True
            self._retry.succeeded()
            return [UNCHANGED]
        if fault.ahead:
            log.warning("%s: %s; listing again", self._title, fault.text)
            return self.failed(fault, now)
        self._verifier.doubt = True
        return [fault.item]

    def _cannot_check(self, fault: WatchFault, now: float) -> list[Item[T]]:
        """An account that may watch but not list cannot compare. If the store is in doubt, list it."""
        log.warning("%s: no longer compared with the server: %s", self._title, fault.text)
        self._verifier.allowed = False
        return self.failed(WatchFault(fault.text, ahead=True), now) if self._verifier.doubt else []

    def _confirmed(self) -> list[Item[T]]:
        """Something arrived that changes nothing. It confirms the store, unless that is in doubt."""
        return [] if self._verifier.doubt else [UNCHANGED]

    def _relist(self, version: str) -> None:
        log.debug("%s: listing again from version %s", self._title, version or "newest")
        self._stage, self._from, self._listing, self._server_failures = "list", version, None, 0

    def _lived(self, seconds: float) -> None:
        if seconds >= self._timing.long:
            self._at_once = self._server_failures = 0

    def _audit(self, now: float) -> None:
        """After a long silence, list again to see whether events were missed."""
        if now - self._last_event >= self._timing.audit:
            self._relist(self._version)

    def _begin(self, stream: OpenWatch[T], event: ObjectEvent[T] | Bookmark, now: float) -> list[Item[T]]:
        """Collect the initial objects. Their versions say nothing about how far the watch is."""
        assert stream.initial is not None
        records = stream.initial
        if isinstance(event, ObjectEvent):
            if event.gone:
                records.pop(event.record.key, None)
            else:
                records[event.record.key] = event.record
        if isinstance(event, ObjectEvent) or not event.end:
            return []
        stream.initial, stream.base = None, event.version
        stream.progressed = stream.confirmed = self._bookmarks = True
        self._retry.succeeded()
        self._request = replace(self._request, how="watch", version=event.version)  # an ordinary watch from here on
        return self._replace(records.values(), event.version, now)

    def _apply(self, stream: OpenWatch[T], event: ObjectEvent[T] | Bookmark, now: float) -> bool:
        """Apply an event; return whether it changed the store."""
        version = event.version if isinstance(event, Bookmark) else event.record.version
        before, self._version = self._version, latest(version, self._version)
        if newer(before, version):
            self._verifier.suspect(now)  # the server may have gone back
        stream.progressed |= before != self._version
        stream.confirmed, self._last_event = True, now
        if stream.progressed:
            self._retry.succeeded()
        if isinstance(event, Bookmark):
            self._bookmarks = True
            return False
        if newer(version, stream.base) is False:
            return False
        _warn(event.record)
        return self._store.remove(event.record) if event.gone else self._store.put(event.record)

    def _replace(self, records: Iterable[ObjectRecord[T]], version: str, now: float) -> list[Item[T]]:
        """Apply a whole list."""
        objects = list(records)
        for record in objects:
            _warn(record)
        self._stage, self._version, self._last_event, self._when, self._uncertain = "watch", version, now, now, False
        self._verifier.listed(now)
        self._stream_failures = self._server_failures = 0
        changed = self._store.replace(objects)
        return [self._publish()] if changed or not self._published else self._confirmed()

    def _publish(self) -> Objects[T]:
        self._published = True
        return self._store.snapshot()


def _warn(record: ObjectRecord[T]) -> None:
    if record.problem:
        log.warning("%s/%s: cannot be decoded, its last good version stays: %s", *record.key, record.problem)
