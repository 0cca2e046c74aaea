"""A stream that can be ended from outside, with an error, whatever it is waiting for.

A stream is pulled, and each pull may happen in another task, so there is no task to cancel. But each pull is awaited,
and what is awaited can be given a deadline: the end is a deadline that has just passed. Between two pulls the next one
fails instead.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class RevocableStream:
    """The messages of a stream, until it is ended."""

    __slots__ = ("_error", "_messages", "_pull")

    def __init__(self, messages: AsyncIterator[bytes]) -> None:
        self._messages = messages
        self._error: Exception | None = None
        self._pull: asyncio.Timeout | None = None

    def end(self, error: Exception) -> None:
        """Make the current pull, or else the next one, raise this error. The first error counts."""
        self._error = self._error or error
        if self._pull is not None:
            self._pull.reschedule(0)

    def __aiter__(self) -> RevocableStream:
        return self

    async def __anext__(self) -> bytes:
        if self._error is not None:
            raise self._error
        try:
            async with asyncio.timeout(None) as self._pull:
                return await self._messages.__anext__()
        except TimeoutError:
            if self._error is not None:
                raise self._error from None
            raise
        finally:
            self._pull = None

    async def aclose(self) -> None:
        """Close the stream itself."""
        close = getattr(self._messages, "aclose", None)
        if close is not None:
            await close()
