"""The part of the updater that lives in an event loop: pictures are taken, and how places are doing is noted.

A watch that fails is begun again by the pipeline. What fails here is the updater itself, in code that nobody foresaw;
it is begun again, too (`persist`), because flags that silently follow nothing any more are worse than any error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from wigwag.pipeline.backoff import Retry
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted, cause
from wigwag.pipeline.watch import WatchPolicy

if TYPE_CHECKING:
    from wigwag.dflag.updating.contents import Contents
    from wigwag.dflag.updating.places import Place
    from wigwag.dflag.updating.plan import Picture
    from wigwag.dflag.updating.updater import Updater
    from wigwag.pipeline.spec import Watcher
    from wigwag.pipeline.status import Status

    Flow: TypeAlias = Pipeline[Place, Contents, Picture]
    Statuses: TypeAlias = tuple[Status[Place], ...]


def pipeline(places: Iterable[Place], watcher: Watcher[Place, Contents], *, required: bool) -> Flow:
    """Make what watches places; the first picture waits for those that are required, if any is."""
    wanted = [Wanted(place, required=required and place.required) for place in places]
    return Pipeline(wanted, watcher, dict)


async def follow(
    flow: Flow,
    prepare: Callable[[Picture], Awaitable[None]],
    take: Callable[[Picture], None],
    turn: Callable[[Statuses], None],
) -> None:
    """Pass on each picture, once it is prepared, and each turn for the better or worse, until cancelled."""

    async def pictures() -> None:
        async for picture in flow.published:
            turn(flow.statuses())
            await prepare(picture)
            take(picture)

    async def turns() -> None:
        async for _ in flow.status_changes:
            turn(flow.statuses())

    async with asyncio.TaskGroup() as group:
        group.create_task(flow.run())
        group.create_task(pictures())
        group.create_task(turns())


async def persist(
    attempt: Callable[[], Awaitable[None]],
    failed: Callable[[BaseException], None],
    policy: WatchPolicy = WatchPolicy(),  # noqa: B008 - a frozen value
) -> None:
    """Have something go on until cancelled: when it fails, tell, wait a while, and begin again.

    An attempt has succeeded if it lasted longer than the longest pause: it delivers nothing that could be seen here.
    """
    clock, retry = policy.clock, Retry(policy.backoff, policy.random)
    while True:
        began = clock.now()
        try:
            await attempt()
        except Exception as error:  # noqa: BLE001 - it may fail in any way, and is told of
            failed(cause(error))
        if clock.now() - began >= policy.backoff.most:
            retry.succeeded()
        await sleep_until(clock, retry.next(clock.now()))


@asynccontextmanager
async def beside(updater: Updater) -> AsyncIterator[None]:
    """Run an updater beside the block. No task group: it would wrap the errors of the block in a group of one."""
    ready = asyncio.Event()
    task = asyncio.get_running_loop().create_task(updater.run(ready.set), name="dflag updater")
    try:
        await ready.wait()
        updater.check()
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()
