"""Snapshots and hooks that a test drives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.pipeline.fakes import FakeClock, settle
from wigwag.pipeline.broadcast import Broadcast
from wigwag.watt.hooks.call import HookCaller, HookDeps
from wigwag.watt.hooks.hook import Hook
from wigwag.watt.hooks.notify import NotifyHooks


@dataclass(frozen=True)
class Numbered:
    """A snapshot as hooks see it."""

    id: int
    digest: str
    complete: bool = True


@dataclass
class Driven:
    """A hook that ends when the test says so, and how."""

    name: str = "hook"
    calls: list[int] = field(default_factory=list)
    """The ids that it was called with."""
    running: list[asyncio.Future[Any]] = field(default_factory=list)

    async def __call__(self, snapshot: Any) -> Any:
        self.calls.append(snapshot.id)
        future = asyncio.get_running_loop().create_future()
        self.running.append(future)
        try:
            return await future
        finally:
            self.running.remove(future)

    async def end(self, result: object = None) -> None:
        """End the call that is running: with a result, or with an error."""
        (future,) = self.running
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
        await settle()

    def hook(self, **options: Any) -> Hook:
        async def call(snapshot: Any) -> Any:
            return await self(snapshot)

        return Hook(call, self.name, **options)


class Published:
    """A set of hooks beside the test, and the snapshots that it gets."""

    def __init__(self, *hooks: Hook, clock: FakeClock | None = None, **deps: Any) -> None:
        self.clock = clock or FakeClock()
        self.broadcast = Broadcast[Numbered]()
        self.caller = HookCaller(HookDeps(self.clock, random=lambda: 1.0, **deps))
        self.notify = NotifyHooks(hooks, self.broadcast, lambda snapshot, _: f"http://h/{snapshot.id}", self.caller)

    async def publish(self, digest: str = "", *, complete: bool = True) -> None:
        number = self.broadcast.serial + 1
        self.broadcast.publish(Numbered(number, digest or f"digest{number}", complete))
        await settle()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.notify.run())
            await settle()
            try:
                yield task
            finally:
                task.cancel()
        self.caller.close()
        assert self.broadcast.subscribers == 0
