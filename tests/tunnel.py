"""Connections that a test stands in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


async def until_either_ends(*pumps: Coroutine[Any, Any, None]) -> None:
    """Run them until one has ended, and then end the others, too."""
    running = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in running:
            pump.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Passing:
    """`async with Passing(url) as way:`; who connects to `way.url` is connected through, until told to stop.

    Then connections stay open and nothing passes, in either direction, on those that are there and on new ones.
    """

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._open = asyncio.Event()
        self._open.set()

    def stop(self) -> None:
        """Pass nothing on."""
        self._open.clear()

    def go_on(self) -> None:
        """Pass on what has come meanwhile, and what comes."""
        self._open.set()

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"{self._to.scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, away = await asyncio.open_connection(self._to.hostname, self._to.port)
        try:
            await until_either_ends(self._pump(reader, away), self._pump(there, writer))
        except asyncio.CancelledError:
            pass  # at the end of the test; a server would log it
        finally:
            self._tasks.discard(task)
            away.transport.abort()
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
