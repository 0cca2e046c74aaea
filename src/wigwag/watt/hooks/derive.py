"""Watch hooks: what else to watch, derived from a snapshot by hooks.

    snapshot ─▶ each hook, if its input is new ─▶ parse ─▶ results of all hooks, in order
                    └─ fails: its last good result ─▶┘
                          └─ run: pause, call it again ─▶ changed

A failing hook changes nothing: its last good result stays, so no watch is torn down because a hook crashed. The
pipeline stands still while it awaits this, so it waits for a hook that hangs only once. From then on `run` calls that
hook, with the newest snapshot, after a pause and beside the pipeline, and says so when it works again (`changed`).

The hard case is a hook that has never worked. Without its result the picture is not complete, so nothing may be
published: the error goes to the pipeline, which keeps its gate closed and asks again. With `skip`, the hook counts as
having nothing to add.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from wigwag.errors import WigwagError
from wigwag.pipeline.backoff import Retry
from wigwag.pipeline.clock import wait_event
from wigwag.watt.hooks.call import Invocation
from wigwag.watt.hooks.hook import HookError, HookStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from wigwag.watt.hooks.call import HookCaller
    from wigwag.watt.hooks.hook import Hook
    from wigwag.watt.snapshots.projection import Projection

R = TypeVar("R")
log = logging.getLogger(__name__)


class DigestedSnapshot(Protocol):
    """A snapshot whose content is known by its digest."""

    @property
    def digest(self) -> str:
        """A hash of its content."""
        ...


D = TypeVar("D", bound=DigestedSnapshot)


@dataclass(slots=True)
class _WatchHook(Generic[R]):
    """A watch hook and its last good result."""

    hook: Hook
    retry: Retry
    status: HookStatus
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    digest: str | None = None
    """The input of the last good call; None: there was none."""
    results: tuple[R, ...] = ()
    error: HookError | None = None
    retry_at: float | None = None
    """When a failing hook is due; None: it is not failing."""
    pending: tuple[Any, str] | None = None
    """The snapshot, with its digest, for the next call of a failing hook."""
    again: bool = False
    """Whether to call it though its input is the same, and without a pause."""


class WatchHooks(Generic[D, R]):
    """Watch hooks, and their last good results. It is awaited by one caller at a time, as `derive` of a pipeline."""

    def __init__(
        self,
        hooks: Iterable[Hook],
        encode: Callable[[D, Hook], bytes],
        parse: Callable[[bytes], Iterable[R]],
        caller: HookCaller,
        changed: Callable[[], object],
        digest: Callable[[D, Hook], str] = lambda snapshot, _: snapshot.digest,
    ) -> None:
        """`encode` returns a snapshot as a hook gets it, `digest` its digest; `parse` reads what hooks return.

        `changed` is called when a failing hook works again: its result is another one, though no snapshot is.
        """
        self._encode, self._parse, self._digest, self._caller, deps = encode, parse, digest, caller, caller.deps
        self._changed = changed
        self._clock = deps.clock
        self._hooks = [_WatchHook[R](hook, Retry(deps.backoff, deps.random), HookStatus(hook.name)) for hook in hooks]
        self._failed = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether no hook failed when it was last called; those that may be skipped do not count."""
        return all(each.hook.on_failure == "skip" or each.status.state != "degraded" for each in self._hooks)

    def wanted(self) -> Iterator[tuple[str, tuple[R, ...]]]:
        """Return what each hook wants: its last good result."""
        return ((each.hook.name, each.results) for each in self._hooks)

    def statuses(self) -> tuple[HookStatus, ...]:
        """Return how each hook is doing."""
        return tuple(each.status for each in self._hooks)

    async def __call__(self, snapshot: D) -> tuple[R, ...]:
        """Return the results for a snapshot; `HookError` if a hook has never worked and must."""
        payloads: dict[Projection, Callable[[], bytes]] = {}  # hooks for the same part share its serialisation
        async with asyncio.TaskGroup() as group:
            for each in self._hooks:
                digest, failing = self._digest(snapshot, each.hook), each.retry_at is not None
                if each.digest == digest and not (each.again or failing):
                    continue
                each.pending = snapshot, digest
                if not failing:
                    new = cache(partial(self._encode, snapshot, each.hook))
                    payload = payloads.setdefault(each.hook.projection, new)
                    group.create_task(self._run(each, Invocation(snapshot, payload), digest))
        for each in self._hooks:
            if each.error is not None and each.digest is None and each.hook.on_failure != "skip":
                raise each.error.with_traceback(None)
        return tuple(result for each in self._hooks for result in each.results)

    def resync(self) -> None:
        """Call all hooks the next time, though their input may be the same; failing ones now."""
        for each in self._hooks:
            each.again = True
            each.wake.set()

    async def run(self) -> None:
        """Call failing hooks again until cancelled; `HookError` if one fails whose failure is fatal."""
        async with asyncio.TaskGroup() as group:
            for each in self._hooks:
                group.create_task(self._retry(each))
            await self._failed.wait()
            raise next(each.error for each in self._hooks if each.error and each.hook.on_failure == "fatal")

    async def _retry(self, each: _WatchHook[R]) -> None:
        """Call a hook again after each failure and a pause. Snapshots that come meanwhile do not shorten that."""
        while True:
            while each.retry_at is None:
                await each.wake.wait()
                each.wake.clear()
            while self._clock.now() < each.retry_at and not each.again:
                await wait_event(self._clock, each.wake, each.retry_at)
            assert each.pending is not None, "it has failed with one"
            snapshot, digest = each.pending
            if await self._run(each, Invocation(snapshot, partial(self._encode, snapshot, each.hook)), digest):
                self._changed()

    async def _run(self, each: _WatchHook[R], invocation: Invocation, digest: str) -> bool:
        """Call a hook; return whether it worked."""
        each.again, each.status = False, each.status.started(self._clock.now())
        try:
            results = self._parsed(each.hook, await self._caller.call(each.hook, invocation))
        except HookError as error:
            self._degrade(each, error)
            return False
        except BaseException:
            each.status = each.status.interrupted()
            raise
        each.digest, each.results, each.error, each.retry_at, each.pending = digest, results, None, None, None
        each.retry.succeeded()
        each.status = each.status.succeeded(self._clock.now())
        return True

    def _parsed(self, hook: Hook, output: bytes) -> tuple[R, ...]:
        try:
            return tuple(self._parse(output))
        except WigwagError as error:
            raise HookError(hook, f"its output cannot be used: {error}") from error

    def _degrade(self, each: _WatchHook[R], error: HookError) -> None:
        now = self._clock.now()
        each.error, each.retry_at = error, each.retry.next(now)
        kept = "nothing is derived from it yet" if each.digest is None else "its last good result stays in force"
        if each.hook.on_failure == "fatal":
            log.warning("%s; the process ends, because on-failure is fatal", error)
        elif each.status.error != error.reason:
            log.warning("%s; %s; it is called again in %.1f s", error, kept, each.retry_at - now)
        each.status = each.status.failed(now, error.reason)
        each.wake.set()
        if each.hook.on_failure == "fatal":
            self._failed.set()
