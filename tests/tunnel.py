"""Both directions of a connection that a test stands in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def until_either_ends(*pumps: Coroutine[Any, Any, None]) -> None:
    """Run them until one has ended, and then end the others, too."""
    running = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in running:
            pump.cancel()
        await asyncio.gather(*running, return_exceptions=True)
