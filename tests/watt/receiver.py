"""An HTTP server on loopback that takes hooks' requests and answers as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.wire.served import Reader, Writer


@dataclass
class Received:
    """The requests that came, and what they are answered."""

    url: str = ""
    answer: bytes | None = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    """None: nothing, until the client goes."""
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def receiving() -> AsyncIterator[Received]:
    """Serve while the test runs."""
    received = Received()

    async def converse(reader: Reader, writer: Writer) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(line for line in head.lower().splitlines() if line.startswith("content-length"))
            received.bodies.append(await reader.readexactly(int(length.partition(":")[2])))
            received.heads.append(head)
            if received.answer is None:
                await reader.read()
            else:
                writer.write(received.answer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async with asyncio.TaskGroup() as group:
        server = await asyncio.start_server(
            lambda reader, writer: group.create_task(converse(reader, writer)), "127.0.0.1", 0
        )
        received.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        try:
            yield received
        finally:
            server.close()
