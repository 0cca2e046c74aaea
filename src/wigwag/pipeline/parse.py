"""Parsing of what a watcher yields, before it reaches the pipeline.

So a document that cannot be parsed is a failure of its own watch: the last good one stays in force, the status says
why, the first snapshot waits for a good one as the spec asks, and no other source is affected. A document
that is unchanged is as bad as it was.

Where some values are urgent, the others are parsed in turn (`lanes`). The values of one spec keep their order: an
urgent one does not overtake an ordinary one of the same spec.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from wigwag.pipeline.lanes import ParseLanes
from wigwag.pipeline.spec import UNCHANGED, S, Unavailable, Unchanged, Urgent, V
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from wigwag.pipeline.spec import Watcher

T = TypeVar("T")


def parsed(
    watcher: Watcher[S, V], parse: Callable[[S, V], T], large: Callable[[S, V], bool] = lambda spec, value: False
) -> Watcher[S, T]:
    """Return a watcher that yields what `parse` makes of the values of another; a `ValueError` becomes `Unavailable`.

    What is `large` is parsed in a thread: it takes long enough for others to notice.
    """

    async def run(spec: S, value: V) -> T | Unavailable:
        job = partial(_attempt, parse, spec, value)
        return await asyncio.to_thread(job) if large(spec, value) else job()

    return _watching(watcher, run)


def parsed_in_order(
    watcher: Watcher[S, V], parse: Callable[[S, V], T], large: Callable[[S, V], bool], urgent: Callable[[S, V], bool]
) -> Watcher[S, T | Urgent[T]]:
    """Return a watcher as `parsed` does, that parses what is `urgent` first, and yields it as `Urgent`."""
    lanes = ParseLanes()

    async def run(spec: S, value: V) -> T | Urgent[T] | Unavailable:
        first = urgent(spec, value)
        job = partial(_attempt, parse, spec, value)
        result = await lanes.parse(job, urgent=first, large=large(spec, value))
        return Urgent(result) if first and not isinstance(result, Unavailable) else result

    return _watching(watcher, run)


def _watching(watcher: Watcher[S, V], run: Callable[[S, V], Awaitable[T | Unavailable]]) -> Watcher[S, T]:
    async def watch(spec: S) -> AsyncIterator[T | Unavailable | Unchanged]:
        bad: Unavailable | None = None
        async with closing(watcher(spec)) as stream:
            async for item in stream:
                if item is UNCHANGED:
                    yield bad or item
                elif isinstance(item, Unavailable):
                    yield item
                else:
                    value = await run(spec, item)
                    bad = value if isinstance(value, Unavailable) else None
                    yield value

    return watch


def _attempt(parse: Callable[[S, V], T], spec: S, value: V) -> T | Unavailable:
    try:
        return parse(spec, value)
    except ValueError as error:
        return Unavailable.of(error)
