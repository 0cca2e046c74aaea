"""Watch hooks: what else to watch, derived from a snapshot by hooks.

    snapshot ─▶ each hook, if its input is new ─▶ parse ─▶ results of all hooks, in order
                    └─ fails: its last good result ─▶┘

A failing hook changes nothing: its last good result stays, so no watch is torn down because a hook crashed. It is
called again after a pause, not earlier, however many snapshots come: the pipeline awaits this and would stand still
meanwhile. `retry_at` is when to look again though nothing has changed.

The hard case is a hook that has never worked. Without its result the picture is not complete, so nothing may be
published: the error goes to the pipeline, which keeps its gate closed and asks again. With `skip`, the hook counts as
having nothing to add.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from wigwag.errors import WigwagError
from wigwag.pipeline.backoff import Retry
from wigwag.watt.hooks.call import Invocation
from wigwag.watt.hooks.hook import HookError, HookStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    digest: str | None = None
    """The input of the last good call; None: there was none."""
    results: tuple[R, ...] = ()
    error: HookError | None = None
    retry_at: float | None = None
    again: bool = False
    """Whether to call it though its input is the same."""


class WatchHooks(Generic[D, R]):
    """Watch hooks, and their last good results. It is awaited by one caller at a time, as `derive` of a pipeline."""

    def __init__(
        self,
        hooks: Iterable[Hook],
        encode: Callable[[D, Hook], bytes],
        parse: Callable[[bytes], Iterable[R]],
        caller: HookCaller,
        digest: Callable[[D, Hook], str] = lambda snapshot, _: snapshot.digest,
    ) -> None:
        """`encode` returns a snapshot as a hook gets it, `digest` its digest; `parse` reads what hooks return."""
        self._encode, self._parse, self._digest, self._caller, deps = encode, parse, digest, caller, caller.deps
        self._clock = deps.clock
        self._hooks = [_WatchHook[R](hook, Retry(deps.backoff, deps.random), HookStatus(hook.name)) for hook in hooks]
        self._failed = asyncio.Event()

    @property
    def retry_at(self) -> float | None:
        """When a failing hook is due again; None: no hook is failing."""
        return min((each.retry_at for each in self._hooks if each.retry_at is not None), default=None)

    def resync(self) -> None:
        """Call all hooks again at the next snapshot, though they may have had it. This also ends a pause."""
        for each in self._hooks:
            each.again = True

    def statuses(self) -> tuple[HookStatus, ...]:
        """Return how each hook is doing."""
        return tuple(each.status for each in self._hooks)

    async def __call__(self, snapshot: D) -> tuple[R, ...]:
        """Return the results for a snapshot; `HookError` if a hook has never worked and must."""
        payloads: dict[Projection, Callable[[], bytes]] = {}  # hooks for the same part share its serialisation
        async with asyncio.TaskGroup() as group:
            for each in self._hooks:
                if self._due(each, digest := self._digest(snapshot, each.hook)):
                    new = cache(partial(self._encode, snapshot, each.hook))
                    payload = payloads.setdefault(each.hook.projection, new)
                    group.create_task(self._run(each, Invocation(snapshot, payload), digest))
        for each in self._hooks:
            if each.error is not None and each.digest is None and each.hook.on_failure != "skip":
                raise each.error
        return tuple(result for each in self._hooks for result in each.results)

    async def fatal(self) -> None:
        """Wait until a hook fails whose failure is fatal, and raise its `HookError`: a pipeline would only log it."""
        await self._failed.wait()
        raise next(each.error for each in self._hooks if each.error and each.hook.on_failure == "fatal")

    def _due(self, each: _WatchHook[R], digest: str) -> bool:
        if each.again:
            return True
        return self._clock.now() >= each.retry_at if each.retry_at is not None else each.digest != digest

    async def _run(self, each: _WatchHook[R], invocation: Invocation, digest: str) -> None:
        each.again, each.status = False, each.status.started(self._clock.now())
        try:
            results = self._parsed(each.hook, await self._caller.call(each.hook, invocation))
        except HookError as error:
            self._degrade(each, error)
        except BaseException:
            each.status = each.status.interrupted()
            raise
        else:
            each.digest, each.results, each.error, each.retry_at = digest, results, None, None
            each.retry.succeeded()
            each.status = each.status.succeeded(self._clock.now())

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
        if each.hook.on_failure == "fatal":
            self._failed.set()
