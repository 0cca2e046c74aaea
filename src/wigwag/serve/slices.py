"""Long work in slices, so that evaluations go on in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_EVALUATIONS = 2_000_000
"""Of one request: a few seconds of work."""
_SECONDS = 0.005


async def in_slices(steps: Iterable[None]) -> None:
    """Do all steps, and let others run after each slice of time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _SECONDS
    for _ in steps:
        if loop.time() >= end:
            await asyncio.sleep(0)
            end = loop.time() + _SECONDS
