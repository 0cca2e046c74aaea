"""watt as an object: the pipeline, its hooks and outputs, and the numbered snapshots. It listens on no port.

    watches ─▶ Pipeline ─▶ WattSnapshot ─▶ WattHistory ─▶ notify hooks, directories, readers
       ▲                        │
       └─ resolvers, watch hooks ┘

As a library:

    async with Watt(source=["services"], notify=[print]) as watt:
        async for snapshot in watt:
            ...

The keyword arguments are the options of `wigwag watt`, without those of the command, and hooks may be Python functions.
A hook whose failure is fatal ends the block with its `HookError`. What the block itself raises is raised as it is, when
all has ended.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from wigwag.kube.hub import Hub, open_watch_promptly
from wigwag.pipeline.limit import Interval, unlimited
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import cause
from wigwag.pipeline.watch import WatchPolicy
from wigwag.sources.consul.hub import ConsulHub
from wigwag.watt.config import initial_watches, read_hooks, read_outputs
from wigwag.watt.hooks.call import HookCaller, HookDeps
from wigwag.watt.hooks.derive import WatchHooks
from wigwag.watt.hooks.hook import NOTIFY_TIMEOUT, WATCH_TIMEOUT
from wigwag.watt.hooks.notify import NotifyHooks
from wigwag.watt.options import options_of
from wigwag.watt.outputs.writer import OutputWriter
from wigwag.watt.snapshots.formats import document
from wigwag.watt.snapshots.history import WattHistory
from wigwag.watt.snapshots.projection import projected_digest
from wigwag.watt.snapshots.snapshot import Assembler
from wigwag.watt.watches.resolvers import Resolvers
from wigwag.watt.watches.watchers import Watchers
from wigwag.watt.watches.watchset import read_watch_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from types import TracebackType

    from wigwag.pipeline.spec import Wanted, Watcher
    from wigwag.watt.hooks.hook import Hook
    from wigwag.watt.options import WattOptions
    from wigwag.watt.snapshots.snapshot import WatchPart, WattSnapshot
    from wigwag.watt.watches.specs import Spec


class Watt:
    """Watches, and publishes one snapshot after the other."""

    def __init__(
        self,
        options: WattOptions | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        policy: WatchPolicy | None = None,
        watcher: Watcher[Spec, WatchPart] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are options by name, instead of `options`. `policy` and `watcher` are for tests."""
        options = options or options_of(settings)
        self.options, self._environment = options, environment
        policy = policy or policy_of(options)
        self._hub = Hub(open_watch=open_watch_promptly)
        consul = ConsulHub(options.consul_connections)
        watcher = watcher or Watchers(self._hub, consul, secrets=options.secrets)
        self._caller = HookCaller(HookDeps(policy.clock, policy.random, environment=environment))
        self.resolvers = Resolvers(environment) if options.consul_resolvers else None
        self.pipeline: Pipeline[Spec, WatchPart, WattSnapshot] = Pipeline(
            initial_watches(options, environment),
            watcher,
            Assembler(),
            self._derive,
            key=lambda snapshot: snapshot.digest,
            policy=policy,
        )
        self.watch_hooks: WatchHooks[WattSnapshot, Wanted[Spec]] = WatchHooks(
            read_hooks(options.watch, "watch", WATCH_TIMEOUT),
            self._encode,
            self._parse,
            self._caller,
            self.pipeline.derive_again,
            _digest,
        )
        self.history = WattHistory(options.history, options.history_bytes)
        self.pipeline.published.subscribe(self._add)
        self.url: Callable[[WattSnapshot], str] = lambda snapshot: ""
        """Returns where notify hooks fetch a snapshot; whoever serves snapshots sets it."""
        hooks = read_hooks(options.notify, "notify", NOTIFY_TIMEOUT)
        self.notify_hooks = NotifyHooks(hooks, self.history.snapshots, self._hook_url, self._caller, _digest)
        self.outputs = [OutputWriter(each, self.history.snapshots, policy) for each in read_outputs(options.outputs)]
        self._stack = AsyncExitStack()

    def background(self, serving: asyncio.Event | None = None) -> list[Coroutine[Any, Any, None]]:
        """Return all that has to run, each until it is cancelled.

        Notify hooks are called once `serving` is set: they fetch snapshots from the port that opens meanwhile.
        """
        outputs = [output.run() for output in self.outputs]
        return [self._hub.run(), self.pipeline.run(), self.watch_hooks.run(), self._notify(serving), *outputs]

    def close(self) -> None:
        """Release what `background` has used."""
        self._caller.close()

    def end(self) -> None:
        """End long polls, event streams and iterations."""
        self.history.snapshots.end(RuntimeError("watt is stopping"))

    def resync(self) -> None:
        """Call all hooks again, though nothing has changed."""
        self.watch_hooks.resync()
        self.pipeline.derive_again()
        self.notify_hooks.resync()

    def wanted_by(self) -> dict[str, list[str]]:
        """Return who wants each watch: hooks by name, or a ConsulResolver; others are in the options."""
        wanted = list(self.watch_hooks.wanted())
        if self.resolvers is not None:
            wanted.append(("a ConsulResolver", self.resolvers.wanted))
        by: dict[str, list[str]] = {}
        for name, results in wanted:
            for each in results:
                by.setdefault(str(each.spec), []).append(name)
        return by

    @property
    def ready(self) -> bool:
        """Whether there is a snapshot, and every hook works: none is failing, and what they want to watch settles."""
        hooks = self.watch_hooks.ready and self.notify_hooks.ready
        return self.history.latest is not None and hooks and self.pipeline.report().unsettled is None

    async def __aenter__(self) -> Self:
        if self.history.snapshots.error is not None:
            raise RuntimeError("this Watt has ended; make another one")
        self._stack.callback(self.close)
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        for each in self.background():
            self._stack.callback(group.create_task(each).cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        cancelled = isinstance(error, asyncio.CancelledError)  # perhaps by the group, because one of its tasks failed
        try:
            await self._stack.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))
        except BaseExceptionGroup as group:
            raise cause(group) from None

    async def __aiter__(self) -> AsyncIterator[WattSnapshot]:
        """Iterate over the newest snapshot, as soon as there is one, and those after it; a slow reader skips some."""
        async for snapshot in self.history.snapshots:
            yield snapshot

    async def _notify(self, serving: asyncio.Event | None) -> None:
        if serving is not None:
            await serving.wait()
        await self.notify_hooks.run()

    def _add(self) -> None:
        self.history.add(self.pipeline.published.value)

    def _encode(self, snapshot: WattSnapshot, hook: Hook) -> bytes:
        return b"".join(document(snapshot, self.options.format, hook.projection))

    def _parse(self, output: bytes) -> tuple[Wanted[Spec], ...]:
        return read_watch_set(output, self._environment)

    async def _derive(self, snapshot: WattSnapshot) -> tuple[Wanted[Spec], ...]:
        resolved = self.resolvers(snapshot) if self.resolvers is not None else ()
        return (*resolved, *await self.watch_hooks(snapshot))

    def _hook_url(self, snapshot: WattSnapshot, hook: Hook) -> str:
        url, query = self.url(snapshot), hook.projection.query()
        return f"{url}?{query}" if url and query else url


def policy_of(options: WattOptions) -> WatchPolicy:
    """Return how watches and snapshots are paced."""
    return WatchPolicy(
        limit=lambda: Interval(options.interval) if options.interval > 0 else unlimited, late=options.late
    )


def _digest(snapshot: WattSnapshot, hook: Hook) -> str:
    """Return the digest of what a hook is for. Which watches have not answered yet does not count."""
    return projected_digest(snapshot, hook.projection)
