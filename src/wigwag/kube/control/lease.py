"""Leader election: one of several replicas leads, by a Lease, with the algorithm and the fields of client-go.

    stand by ──the lease is free, or has not changed for its duration──▶ lead ──renewed every few seconds──┐
       ▲                                                                  │ ▲───────────────────────────────┘
       └── cancel the work at once ◀── not renewed before the deadline ◀──┘

There are never two leaders, and no two clocks are compared:

- A leader counts from when it *sent* its last successful update, and stops after `renew_deadline`.
- Others count from when they *saw* the lease change, which is later, and wait `duration`, which is longer.
- The update that takes the lease over names the version that was seen. If the leader has renewed it meanwhile, the
  server answers 409, and the others wait again.

`wake` makes a replica that waits try at once; who watches the lease calls it when nobody holds it any more. An attempt
that comes early is like any other.

So clocks may be wrong, and one may run faster than the other by the ratio of the two durations (a half, by default).

The hard case is a process that was paused for longer than the lease. When it goes on, the work is cancelled before it
gets to run again, except for what is ready in the same turn of the loop; before a write that must not happen twice,
ask `holds`. A request that was under way is stopped by nobody: let the server check the version of what it writes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec
from msgspec import Raw

from wigwag.errors import UsageError, WigwagError
from wigwag.kube.client import KubeDeps, Object
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import LEASE, Kind
from wigwag.pipeline.clock import deadline, sleep_until, wait_event
from wigwag.pipeline.spec import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

_JITTER = 1.2
"""Of the pause between two attempts to acquire: up to so much more, as in client-go."""
log = logging.getLogger(__name__)


class LeaseApi(Protocol):
    """What an elector needs of `Kube`."""

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object:
        """Return an object."""
        ...

    async def create(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        """Create an object."""
        ...

    async def replace(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        """Replace an object if its version is the one in `body`."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds. The defaults are those of client-go."""

    duration: int = 15
    """How long others wait for a leader that does not renew its lease."""
    renew_deadline: float = 10.0
    """How long a leader goes on without a successful renewal."""
    retry: float = 2.0
    """The pause between two renewals, or attempts to acquire."""
    release: float = 1.0
    """How long a release may take when the process stops."""

    def __post_init__(self) -> None:
        if not 0 < self.retry * _JITTER < self.renew_deadline < self.duration:
            raise UsageError("a lease needs 1.2 * retry < renew deadline < duration")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The spec of a Lease."""

    holder: str = ""
    duration: float = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0

    @classmethod
    def read(cls, lease: Object) -> Self:
        """Read the spec; what is missing or has the wrong type is empty."""
        spec = lease.get("spec") or {}
        text = {name: str(spec.get(name) or "") for name in ("holderIdentity", "acquireTime", "renewTime")}
        seconds, transitions = (spec.get(name) or 0 for name in ("leaseDurationSeconds", "leaseTransitions"))
        return cls(text["holderIdentity"], seconds, text["acquireTime"], text["renewTime"], transitions)

    def spec(self) -> dict[str, Any]:
        """Return the spec as JSON."""
        times = {name: at for name, at in (("acquireTime", self.acquired), ("renewTime", self.renewed)) if at}
        count = {"leaseDurationSeconds": int(self.duration), "leaseTransitions": self.transitions}
        return {"holderIdentity": self.holder, **count, **times}

    def taken(self, identity: str, duration: int, wall: str) -> LeaseRecord:
        """Return the record with which a replica acquires the lease, or renews its own."""
        if self.holder == identity:
            return replace(self, duration=duration, renewed=wall)
        return LeaseRecord(identity, duration, wall, wall, self.transitions + bool(self.acquired))

    def released(self, wall: str) -> LeaseRecord:
        """Return the record with which the holder gives the lease up: anybody may take it."""
        return LeaseRecord("", 1, wall, wall, self.transitions)


def lease_holder(raw: Raw) -> str:
    """Decode who holds a Lease; empty: nobody.

    >>> lease_holder(Raw(b'{"spec": {"holderIdentity": "replica-1"}}')), lease_holder(Raw(b'{"spec": {}}'))
    ('replica-1', '')
    """
    return LeaseRecord.read(msgspec.json.decode(raw)).holder


class LeaderElector:
    """Takes part in the election for one lease.

    elector = LeaderElector(kube, "wigwag-system", "wigwag-operator", f"{pod}_{uuid4()}")
    await elector.run(controllers.run)
    """

    def __init__(
        self,
        api: LeaseApi,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming = LeaseTiming(),  # noqa: B008 - a frozen value
        deps: KubeDeps = KubeDeps(),  # noqa: B008 - a frozen value
    ) -> None:
        """`identity` must be unique: a process that was restarted is another one."""
        self._api, self._identity, self._timing, self._deps = api, identity, timing, deps
        self._name = {"namespace": namespace, "name": name}
        self._about = f"lease {namespace}/{name}"
        self.record = LeaseRecord()
        """The lease as it was seen last; its holder leads, if it is not too old."""
        self._seen_at = -math.inf
        self._metadata: Object | None = None
        """Of the lease, with its version; None: not known."""
        self._until = -math.inf
        """How long we lead, if nothing else happens."""
        self._problem = ""
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Try to acquire the lease now, instead of after a pause; nothing happens while this replica leads."""
        self._woken.set()

    def holds(self) -> bool:
        """Tell whether this replica leads now, by the clock."""
        return self._deps.clock.now() < self._until

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `lead` whenever this replica leads; return when it returns. If leadership is lost, it is cancelled."""
        clock, over = self._deps.clock, False
        try:
            while not over:
                while not await self._attempt():
                    pause = self._timing.retry * (1 + _JITTER * self._deps.random())
                    await wait_event(clock, self._woken, clock.now() + pause)
                log.info("%s: %s leads", self._about, self._identity)
                over = await self._lead(lead)
        finally:
            await self._release()

    async def _lead(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Lead until leadership is lost; tell whether the work has ended by itself before."""
        async with asyncio.TaskGroup() as group:
            work = group.create_task(lead(), name=f"{self._about}: leading")
            renewing = group.create_task(self._renew(work), name=f"{self._about}: renewing")
            work.add_done_callback(lambda _: renewing.cancel())
        if self.holds() and not work.cancelled():
            return True
        self._until = -math.inf
        log.warning("%s: %s leads no longer", self._about, self._identity)
        return False

    async def _renew(self, work: asyncio.Task[None]) -> None:
        """Renew the lease every few seconds. When the deadline comes, the clock itself cancels the work, at once."""
        clock = self._deps.clock
        while self.holds():
            timer = clock.call_at(self._until, work.cancel)
            try:
                await sleep_until(clock, clock.now() + self._timing.retry)
                await self._attempt()
            finally:
                timer.cancel()
        work.cancel()

    async def _attempt(self) -> bool:
        """Try once to acquire or renew the lease; tell whether it is ours."""
        problem = ""
        try:
            async with deadline(self._deps.clock, self._timing.renew_deadline):
                await self._acquire_or_renew()
        except (WigwagError, TimeoutError) as error:
            self._metadata = None  # whether the update has happened is not known
            lost_race = isinstance(error, ApiError) and (error.conflict or error.already_exists)
            problem = "" if lost_race else describe(error)
        if problem not in ("", self._problem):
            log.warning("%s: cannot be acquired or renewed: %s; it is tried again", self._about, problem)
        self._problem = problem
        return self.holds()

    async def _acquire_or_renew(self) -> None:
        if self._metadata is not None and self.record.holder == self._identity:
            try:  # without reading it, as long as nobody else writes it
                await self._take()
            except ApiError as error:
                if not (error.conflict or error.not_found):
                    raise
            else:
                return
        await self._read()
        expired = self._deps.clock.now() >= self._seen_at + self.record.duration
        if expired or self.record.holder in ("", self._identity):
            await self._take()
        else:
            self._until = -math.inf

    async def _take(self) -> None:
        """Write the lease as ours. We lead for a time that begins before the request is sent."""
        sent = self._deps.clock.now()
        await self._write(self.record.taken(self._identity, self._timing.duration, self._wall()))
        self._until = sent + self._timing.renew_deadline

    async def _read(self) -> None:
        """Read the lease. A change counts from when it is seen. One that was deleted still holds until it expires."""
        try:
            lease = await self._api.get(LEASE, self._name["name"], self._name["namespace"])
        except ApiError as error:
            if not error.not_found:
                raise
            self._metadata = self._name
            return
        record = LeaseRecord.read(lease)
        if record != self.record:
            if record.holder not in (self.record.holder, self._identity):
                log.info("%s: %s leads", self._about, record.holder or "nobody")
            self.record, self._seen_at = record, self._deps.clock.now()
        self._metadata = lease["metadata"]

    async def _write(self, record: LeaseRecord) -> None:
        """Create the lease, or replace the version that we know."""
        metadata = {name: value for name, value in (self._metadata or {}).items() if name != "managedFields"}
        body = {"apiVersion": LEASE.api, "kind": LEASE.kind, "metadata": metadata, "spec": record.spec()}
        stored = await (self._api.replace if "resourceVersion" in metadata else self._api.create)(LEASE, body)
        self._metadata = stored["metadata"]
        self.record, self._seen_at = LeaseRecord.read(stored), self._deps.clock.now()

    async def _release(self) -> None:
        """Give the lease up if it is ours, so that another replica leads at once."""
        self._until = -math.inf
        with suppress(WigwagError, TimeoutError):
            async with deadline(self._deps.clock, self._timing.release):
                await self._read()  # an update that was cancelled may have happened
                if self.record.holder == self._identity:
                    await self._write(self.record.released(self._wall()))
                    log.info("%s: %s has released it", self._about, self._identity)

    def _wall(self) -> str:
        """Return the time of day as a Lease has it; nobody but people compares it."""
        at = datetime.fromtimestamp(self._deps.wall(), UTC)
        return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
