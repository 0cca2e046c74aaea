"""Parsing at the door: what a watcher yields becomes a typed value before anybody else sees it.

So a document that cannot be parsed is the trouble of its own watch: the last good one stays in force, the status says
why, the first picture waits for a good one as the spec asks, and no other source notices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from wigwag.pipeline.spec import S, Trouble, V
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.pipeline.spec import Watcher

T = TypeVar("T")


def parsed(watcher: Watcher[S, V], parse: Callable[[S, V], T]) -> Watcher[S, T]:
    """Return a watcher that yields what `parse` makes of the values of another; a `ValueError` becomes `Trouble`."""

    async def watch(spec: S) -> AsyncIterator[T | Trouble]:
        async with closing(watcher(spec)) as stream:
            async for item in stream:
                yield item if isinstance(item, Trouble) else attempt(spec, item)

    def attempt(spec: S, value: V) -> T | Trouble:
        try:
            return parse(spec, value)
        except ValueError as error:
            return Trouble.of(error)

    return watch
