"""A server of the `h2` library on a real socket that does what the test tells it, and nothing else."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import h2.config
import h2.connection
import h2.events

from tests.wire.served import Reader, Writer

E = TypeVar("E")
GRPC = [(":status", "200"), ("content-type", "application/grpc")]
Script = Callable[["Scripted"], Awaitable[None]]


class Scripted:
    """One connection, seen from the server."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self.events: list[h2.events.Event] = []

    def greet(self) -> None:
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    async def until(self, kind: type[E]) -> E:
        """Read until such an event; return it."""
        while True:
            for event in self.events:
                if isinstance(event, kind):
                    self.events.remove(event)
                    return event
            data = await self.reader.read(65_536)
            assert data, f"closed before {kind.__name__}"
            self.events += self.h2.receive_data(data)
            self.flush()

    async def asked(self) -> int:
        """Wait for a whole request, and begin to answer it; return its stream."""
        stream: Any = (await self.until(h2.events.StreamEnded)).stream_id
        self.h2.send_headers(stream, GRPC)
        self.flush()
        return int(stream)

    def say(self, stream: int, data: bytes) -> None:
        self.h2.send_data(stream, data)
        self.flush()

    def end(self, stream: int, status: str = "0") -> None:
        self.h2.send_headers(stream, [("grpc-status", status)], end_stream=True)
        self.flush()

    async def gone(self) -> None:
        """Read until the client is gone."""
        with suppress(ConnectionError):
            while await self.reader.read(65_536):
                pass


@asynccontextmanager
async def scripted(script: Script, listening: socket.socket | None = None) -> AsyncIterator[tuple[str, int]]:
    """Run a script to its end for every connection; give where to connect."""

    async def converse(reader: Reader, writer: Writer) -> None:
        try:
            await script(Scripted(reader, writer))
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async with asyncio.TaskGroup() as group:

        def arrive(reader: Reader, writer: Writer) -> None:
            group.create_task(converse(reader, writer))

        listening = listening or socket.create_server(("127.0.0.1", 0))
        opening = asyncio.start_unix_server if listening.family == socket.AF_UNIX else asyncio.start_server
        server = await opening(arrive, sock=listening)
        try:
            name = listening.getsockname()
            yield ("127.0.0.1", name[1]) if isinstance(name, tuple) else ("", 0)
        finally:
            server.close()


async def hold(link: Scripted) -> None:
    """Greet, and say nothing more until the client goes."""
    link.greet()
    await link.gone()


def bytes_only(data: bytes) -> Script:
    """Say some bytes that may mean nothing."""

    async def script(link: Scripted) -> None:
        link.writer.write(data)
        await link.gone()

    return script
