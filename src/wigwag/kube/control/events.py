"""Events: what happened to an object, as `kubectl describe` shows it at the end. Recording never waits.

    record() ──▶ the same as before? then one more ──▶ pending, one entry per Event ──run──▶ create, or patch the count

An Event that repeats (the same object, type, reason and message) is one object whose `count` grows. While the writer is
busy, repeats add up, so a burst is one request. Each object has a token bucket of its own; beyond that, and beyond the
bounds of memory, Events are dropped and counted: they are a courtesy to people, and nothing may depend on them.

They are `v1` Events, not `events.k8s.io/v1`: both are the same objects on the server, but only `count`,
`firstTimestamp`, `lastTimestamp` and `source` are shown by every kubectl.

The hard case is a server that is away: an Event is tried once and dropped, and the next repeat creates it anew. Anybody
who may read Events reads the messages, so callers put no secret in them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from wigwag.errors import WigwagError
from wigwag.kube.client import KubeDeps, Object
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import EVENT, Kind
from wigwag.loglimit import LogLimiter
from wigwag.observe import Counter
from wigwag.pipeline.limit import Burst
from wigwag.pipeline.spec import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.pipeline.limit import Limiter

LONGEST = 1024
"""The most characters of a message, as for `events.k8s.io/v1`."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,199}[a-z0-9])?")
log = logging.getLogger(__name__)


class EventApi(Protocol):
    """What a recorder needs of `Kube`."""

    async def create(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        """Create an object."""
        ...

    async def patch(self, kind: Kind, name: str, change: Any, namespace: str = "") -> Object:
        """Change a part of an object."""
        ...


class EventKey(NamedTuple):
    """What makes two Events the same."""

    api: str
    kind: str
    namespace: str
    name: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str

    @property
    def object(self) -> tuple[str, ...]:
        """Identifies the object."""
        return self[:5]

    def reference(self) -> Object:
        """Return the `involvedObject`."""
        names = ("apiVersion", "kind", "namespace", "name", "uid")
        return {name: value for name, value in zip(names, self.object, strict=True) if value}


@dataclass(slots=True)
class _Series:
    """One Event and its repeats."""

    first: float
    last: float = 0.0
    count: int = 0
    name: str = ""
    """Of the Event; empty: it is not created yet."""


@dataclass(frozen=True, slots=True)
class EventLimits:
    """Bounds of a recorder."""

    objects: int = 1000
    """How many objects, and how many Events, are remembered."""
    pending: int = 200
    """How many Events wait to be written."""
    burst: int = 25
    """How many writes about one object are made at once."""
    seconds: float = 60.0
    """After which there may be one more about it."""


class EventRecorder:
    """Records Events as one component of one process. Run it."""

    def __init__(
        self,
        api: EventApi,
        component: str,
        instance: str,
        limits: EventLimits = EventLimits(),  # noqa: B008 - a frozen value
        deps: KubeDeps = KubeDeps(),  # noqa: B008 - a frozen value
    ) -> None:
        """`component` is shown as `From`: the name of the controller. `instance` is the name of the pod."""
        self._api, self._component, self._instance, self._limits, self._deps = api, component, instance, limits, deps
        self.dropped = Counter(
            "wigwag_events_dropped", "Kubernetes Events that were not written: full, rate, api.", ("reason",)
        )
        self._series: OrderedDict[EventKey, _Series] = OrderedDict()
        self._limiters: OrderedDict[tuple[str, ...], Limiter] = OrderedDict()
        self._pending: dict[EventKey, _Series] = {}
        self._wake = asyncio.Event()
        self._log = LogLimiter(log, 1, 60.0)

    def record(self, kind: Kind, about: Object, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Record an Event about an object, of which the metadata is needed. `reason` is one word in CamelCase."""
        metadata, now = about["metadata"], self._deps.wall()
        text = message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"
        reference = kind.api, kind.kind, metadata.get("namespace", ""), metadata["name"], metadata.get("uid", "")
        key = EventKey(*reference, type, reason[:128], text)
        series = self._series.setdefault(key, _Series(now))
        series.count, series.last = series.count + 1, now
        self._keep(self._series, key)
        self._enqueue(key, series)

    def _enqueue(self, key: EventKey, series: _Series) -> None:
        """Have an Event written, if it does not wait for that already and the bounds allow it."""
        if key in self._pending:
            return
        limiter = self._limiters.setdefault(key.object, Burst(self._limits.burst, self._limits.seconds))
        self._keep(self._limiters, key.object)
        if len(self._pending) >= self._limits.pending:
            self.dropped.add(("full",))
        elif limiter(self._deps.clock.now()):
            self.dropped.add(("rate",))
        else:
            self._pending[key] = series
            self._wake.set()

    def _keep(self, memory: OrderedDict[Any, Any], key: object) -> None:
        """Note a use, and forget what was used longest ago."""
        memory.move_to_end(key)
        if len(memory) > self._limits.objects:
            memory.popitem(last=False)

    async def run(self) -> None:
        """Write Events until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                key = next(iter(self._pending))
                await self._write(key, self._pending.pop(key))

    async def _write(self, key: EventKey, series: _Series) -> None:
        try:
            if not (series.name and await self._repeat(key, series)):
                series.name = ""
                body = self._event(key, series)
                await self._api.create(EVENT, body)
                series.name = body["metadata"]["name"]
        except WigwagError as error:
            self._series.pop(key, None)
            self.dropped.add(("api",))
            self._log.log(
                logging.WARNING, self._deps.clock.now(), "an Event was not written and is dropped: %s", describe(error)
            )

    async def _repeat(self, key: EventKey, series: _Series) -> bool:
        """Raise the count of an Event; tell whether it still exists: the server deletes them after an hour."""
        change = {"count": series.count, "lastTimestamp": timestamp(series.last), "message": key.message}
        try:
            await self._api.patch(EVENT, series.name, change, key.namespace or "default")
        except ApiError as error:
            if not error.not_found:
                raise
            series.count, series.first = 1, series.last
            return False
        return True

    def _event(self, key: EventKey, series: _Series) -> Object:
        stem = key.name if _NAME.fullmatch(key.name) else "event"
        name = f"{stem}.{int(series.first * 1e6):x}.{int(self._deps.random() * (1 << 32)):08x}"
        return {
            "apiVersion": EVENT.api,
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": key.namespace or "default"},
            "involvedObject": key.reference(),
            "type": key.type,
            "reason": key.reason,
            "message": key.message,
            "count": series.count,
            "firstTimestamp": timestamp(series.first),
            "lastTimestamp": timestamp(series.last),
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def timestamp(seconds: float) -> str:
    """Return a time in Unix seconds as objects have it.

    >>> timestamp(1_800_000_000.0)
    '2027-01-15T08:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
