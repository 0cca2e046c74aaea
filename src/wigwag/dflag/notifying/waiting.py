"""Waiting for a flag in an event loop."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from wigwag.dflag.flag import DynFlag

T = TypeVar("T")


async def changes(flag: DynFlag[T]) -> AsyncGenerator[T, None]:
    """Yield the value of now, and then the newest whenever it has changed."""
    heard = asyncio.Event()

    async def hear(old: T, new: T) -> None:
        heard.set()

    subscription = flag.on_change(hear)
    try:
        while True:
            yield flag.get()
            await heard.wait()
            heard.clear()
    finally:
        subscription.cancel()


async def wait_for(flag: DynFlag[T], wanted: Callable[[T], bool]) -> T:
    """Wait until a flag holds a value of which this is true."""
    async with aclosing(changes(flag)) as stream:
        async for value in stream:
            if wanted(value):
                return value
    raise AssertionError("the changes of a flag never end")
