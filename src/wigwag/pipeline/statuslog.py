"""The log of a pipeline: one line when the state or the error of a watch changes, and when it is no longer watched."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from wigwag.pipeline.spec import S

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.pipeline.run import Pipeline


async def log_statuses(pipeline: Pipeline[S, Any, Any], write: Callable[[int, S, str], object]) -> None:
    """Call `write` with the level, the spec and the text of each line, until cancelled."""
    logged: dict[S, str] = {}
    async for _ in pipeline.status_changes:
        current = {}
        for status in pipeline.statuses():
            failing = status.state == "failing" and status.error is not None
            current[status.spec] = text = str(status.error) if failing else status.state
            if logged.get(status.spec) != text:
                write(logging.WARNING if failing else logging.INFO, status.spec, text)
        for spec in logged.keys() - current.keys():
            write(logging.INFO, spec, "no longer watched")
        logged = current
