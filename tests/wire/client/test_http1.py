"""Connections of the HTTP/1 client."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

from tests.pipeline.fakes import run
from tests.sources.faulty import Authority
from wigwag.wire.client.addresses import anywhere, resolve
from wigwag.wire.client.http1 import Dialer
from wigwag.wire.client.url import parse_url
from wigwag.wire.h1.client import ResponseLimits


class Stubborn(asyncio.Protocol):
    """Agrees on TLS by hand, and never answers that the other side wants to end it."""

    def __init__(self, context: ssl.SSLContext, lost: asyncio.Queue[None]) -> None:
        self._incoming, self._outgoing, self._lost = ssl.MemoryBIO(), ssl.MemoryBIO(), lost
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        with suppress(ssl.SSLError):
            self._tls.do_handshake()
        self._transport.write(self._outgoing.read())

    def connection_lost(self, _: Exception | None) -> None:
        self._lost.put_nowait(None)


def test_a_connection_that_is_given_up_at_any_step_is_closed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=str(authority.path))

    async def main() -> None:
        lost: asyncio.Queue[None] = asyncio.Queue()
        serving, accepted = authority.context("server"), 0

        def accept() -> Stubborn:
            nonlocal accepted
            accepted += 1
            return Stubborn(serving, lost)

        server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
        url = parse_url(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        dialer = Dialer(resolve, lambda: trusting)
        opened = steps = 0
        while opened < 10:
            steps += 1
            opening = asyncio.ensure_future(dialer.open(url, None, anywhere, ResponseLimits()))
            for _ in range(steps):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled():
                opening.result().close()
                opened += 1
        server.close()
        for _ in range(accepted):
            await lost.get()

    run(main)
