"""Notify hooks: a set of hooks that gets the newest snapshot, one hook at a time, in order.

    newest snapshot ─▶ hook 1 ─ok─▶ hook 2 ─ok─▶ … ─▶ wait for another digest, or for a resync
          ▲               └─ failed, retry: pause ─┐
          └────────────────────────────────────────┘

Each hook remembers the digest that it took last, and a pass over the set calls those hooks that have taken another one.
So a snapshot that comes while a hook runs waits, a newer one replaces it, and equal content is not sent twice. A pass
keeps its snapshot until its end, or the last hook of a set would starve while snapshots come faster than the first one
runs. After a failure, the next pass begins with the newest snapshot and the first hook: hooks that have taken it are
left out, so without a newer one this is the same hook again, and no hook sees a snapshot before those in front of it
have.

The hard case is a snapshot whose content comes back: A, then B fails, then A again. Nobody knows how much of B the hook
has done, so a call makes the hook forget what it took before, and A is sent again.

Sets run beside each other, each with its own queue. If a set is cancelled, a hook that is running gets some time to
end.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from wigwag.pipeline.backoff import Retry
from wigwag.pipeline.clock import deadline, wait_event
from wigwag.watt.hooks.call import Invocation
from wigwag.watt.hooks.hook import HookError, HookStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.watt.hooks.call import HookCaller
    from wigwag.watt.hooks.hook import Hook

log = logging.getLogger(__name__)


class NumberedSnapshot(Protocol):
    """What a notify hook is told about a snapshot."""

    @property
    def id(self) -> int:
        """Its number."""
        ...

    @property
    def digest(self) -> str:
        """A hash of its content."""
        ...

    @property
    def complete(self) -> bool:
        """Whether all that it refers to is in it."""
        ...


N = TypeVar("N", bound=NumberedSnapshot)


@dataclass(slots=True)
class _NotifiedHook:
    """A hook of a set, and how far it is."""

    hook: Hook
    retry: Retry
    status: HookStatus
    taken: str | None = None
    """The digest that it took last; None: nobody knows."""


class NotifyHooks(Generic[N]):
    """One set of notify hooks."""

    def __init__(
        self,
        hooks: Iterable[Hook],
        published: Broadcast[N],
        url: Callable[[N, Hook], str],
        caller: HookCaller,
        digest: Callable[[N, Hook], str] = lambda snapshot, _: snapshot.digest,
    ) -> None:
        """`url` returns where a hook fetches a snapshot, `digest` that of the part which the hook is for."""
        self._published, self._url, self._digest, self._caller = published, url, digest, caller
        self._deps = deps = caller.deps
        self._hooks = [_NotifiedHook(hook, Retry(deps.backoff, deps.random), HookStatus(hook.name)) for hook in hooks]
        self._wake = asyncio.Event()
        self._resync = False

    def resync(self) -> None:
        """Call all hooks again with the newest snapshot, though they may have it. This also ends a pause."""
        self._resync = True
        self._wake.set()

    def statuses(self) -> tuple[HookStatus, ...]:
        """Return how each hook is doing."""
        return tuple(each.status for each in self._hooks)

    @property
    def ready(self) -> bool:
        """Whether no hook failed when it was last called; those that may be skipped do not count."""
        return all(each.hook.on_failure == "skip" or each.status.state != "degraded" for each in self._hooks)

    async def run(self) -> None:
        """Call the hooks until cancelled; `HookError` if one fails whose failure is fatal."""
        self._published.subscribe(self._wake.set)
        try:
            while True:
                self._wake.clear()
                retry_at = await self._pass() if self._published.serial else None
                if retry_at is None:
                    await self._wake.wait()
                else:
                    await self._pause(retry_at)
        finally:
            self._published.unsubscribe(self._wake.set)

    async def _pause(self, until: float) -> None:
        """Wait for a retry. Snapshots that come meanwhile do not shorten it."""
        clock = self._deps.clock
        while clock.now() < until and not self._resync:
            await wait_event(clock, self._wake, until)

    async def _pass(self) -> float | None:
        """Call each hook that does not have the newest snapshot; return when to retry if one fails."""
        if self._resync:
            self._resync = False
            for each in self._hooks:
                each.taken = None
        snapshot = self._published.value
        for each in self._hooks:
            digest = self._digest(snapshot, each.hook)
            if each.taken == digest:
                continue
            error = await self._finished(each, snapshot)
            if error is not None and each.hook.on_failure == "fatal":
                raise error
            if error is not None and each.hook.on_failure == "retry":
                return each.retry.next(self._deps.clock.now())
            each.retry.succeeded()
            each.taken = digest
        return None

    async def _finished(self, each: _NotifiedHook, snapshot: N) -> HookError | None:
        """Call a hook; if this is cancelled meanwhile, let the hook end first, for a limited time."""
        async with asyncio.TaskGroup() as group:
            call = group.create_task(self._called(each, snapshot))
            try:
                return await asyncio.shield(call)
            except asyncio.CancelledError:
                with suppress(TimeoutError):
                    async with deadline(self._deps.clock, self._deps.grace):
                        await asyncio.shield(call)
                raise  # the group cancels a call that is still running, and waits for its end

    async def _called(self, each: _NotifiedHook, snapshot: N) -> HookError | None:
        """Call a hook, and note how that went."""
        clock, initial = self._deps.clock, each.status.last_ok is None
        each.taken, each.status = None, each.status.started(clock.now())
        try:
            await self._caller.call(each.hook, invocation(snapshot, self._url(snapshot, each.hook), initial=initial))
        except HookError as error:
            again = each.hook.on_failure == "retry" and each.status.error == error.reason
            level = logging.DEBUG if again else logging.WARNING
            log.log(level, "%s; snapshot %d, %s", error, snapshot.id, _EFFECTS[each.hook.on_failure])
            each.status = each.status.failed(clock.now(), error.reason)
            return error
        except BaseException:
            each.status = each.status.interrupted()
            raise
        each.status = each.status.succeeded(clock.now(), snapshot.id)
        log.debug("hook %s took snapshot %d in %.3f s", each.hook, snapshot.id, each.status.seconds)
        return None


_EFFECTS = {
    "retry": "and those after it wait: the newest is sent after a pause",
    "skip": "which it does not get again: the others go on",
    "fatal": "so the process ends, because on-failure is fatal",
}


def invocation(snapshot: NumberedSnapshot, url: str, *, initial: bool) -> Invocation:
    """Return what a notify hook is called with: the URL of the snapshot, not its content."""
    number = str(snapshot.id)
    body = {
        "id": snapshot.id, "url": url, "digest": snapshot.digest, "complete": snapshot.complete, "initial": initial
    }  # fmt: skip
    environment = {
        "WATT_SNAPSHOT_ID": number,
        "WATT_SNAPSHOT_URL": url,
        "WATT_SNAPSHOT_DIGEST": snapshot.digest,
        "WATT_INITIAL": "1" if initial else "0",
    }
    fields = (("X-Snapshot-Id", number),)
    return Invocation(snapshot, lambda: msgspec.json.encode(body), url, environment, fields, capture=False)
