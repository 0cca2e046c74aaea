"""A real server on loopback and clients that talk to it, on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import h2.config
import h2.connection
import h2.events
import uvloop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


def run(test: Callable[[], Coroutine[Any, Any, None]], loop: str = "asyncio") -> None:
    """Run a test to its end, but not for ever: less than pytest allows, and enough for a busy machine."""

    async def bounded() -> None:
        async with asyncio.timeout(120):
            await test()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(bounded())


@asynccontextmanager
async def connected(address: str, **options: Any) -> AsyncIterator[tuple[Reader, Writer]]:
    """A client's connection to `host:port`, or to the path of a unix socket."""
    host, _, port = address.rpartition(":")
    opening = asyncio.open_connection(host, int(port), **options) if host else asyncio.open_unix_connection(address)
    reader, writer = await opening
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def http1(address: str, path: str = "/", **options: Any) -> bytes:
    """Ask once, with HTTP/1.1; return the whole answer."""
    async with connected(address, **options) as (reader, writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        return await reader.read()


class Http2Client:
    """An HTTP/2 client of the `h2` library on a connection."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.flush()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def get(self, stream: int, path: str = "/", method: str = "GET") -> None:
        headers = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "h")]
        self.h2.send_headers(stream, headers, end_stream=True)
        self.flush()

    async def until(self, kind: type[h2.events.Event], stream: int | None = None) -> Any:
        """Read until such an event; return it."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and stream in (None, getattr(event, "stream_id", None)):
                    self.events.remove(event)
                    return event
            data = await self.reader.read(65_536)
            assert data, f"closed before {kind.__name__}"
            self.events += self.h2.receive_data(data)
            self.flush()
