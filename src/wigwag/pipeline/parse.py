"""Parsing of what a watcher yields, before it reaches the pipeline.

So a document that cannot be parsed is a failure of its own watch: the last good one stays in force, the status says
why, the first snapshot waits for a good one as the spec asks, and no other source is affected. A document
that is unchanged is as bad as it was.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from wigwag.pipeline.spec import UNCHANGED, S, Unavailable, Unchanged, V
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.pipeline.spec import Watcher

T = TypeVar("T")


def parsed(
    watcher: Watcher[S, V], parse: Callable[[S, V], T], large: Callable[[S, V], bool] = lambda spec, value: False
) -> Watcher[S, T]:
    """Return a watcher that yields what `parse` makes of the values of another; a `ValueError` becomes `Unavailable`.

    What is `large` is parsed in a thread: it takes long enough for others to notice.
    """

    async def watch(spec: S) -> AsyncIterator[T | Unavailable | Unchanged]:
        bad: Unavailable | None = None
        async with closing(watcher(spec)) as stream:
            async for item in stream:
                if item is UNCHANGED:
                    yield bad or item
                elif isinstance(item, Unavailable):
                    yield item
                else:
                    value = await asyncio.to_thread(attempt, spec, item) if large(spec, item) else attempt(spec, item)
                    bad = value if isinstance(value, Unavailable) else None
                    yield value

    def attempt(spec: S, value: V) -> T | Unavailable:
        try:
            return parse(spec, value)
        except ValueError as error:
            return Unavailable.of(error)

    return watch
