"""Connections whose other end is gone without a word: what the kernel is told about them."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from contextlib import suppress

import pytest

from wigwag.pipeline.clock import LoopClock
from wigwag.wire.client.addresses import Address, dial
from wigwag.wire.client.http2 import Endpoint, KeepAlive, connected


def timings(made: socket.socket) -> dict[str, int]:
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    found = {name: made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names}
    return {"on": bool(made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)), **found}


@pytest.mark.skipif(sys.platform != "linux", reason="the names and the defaults are those of Linux")
def test_the_kernel_gives_a_connected_connection_up_within_half_a_minute() -> None:
    """Those of HTTP/1.1 and those of HTTP/2 alike; a unix socket has no such thing."""
    expected = {"on": 1, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 20_000}

    async def first() -> dict[str, int]:
        made, _ = await dial([Address(socket.AF_INET, server.getsockname())], 5.0)
        with made:
            return timings(made)

    async def second() -> dict[str, int]:
        endpoint = Endpoint(places=(server.getsockname(),), authority="flags")
        async with connected(endpoint, KeepAlive(), LoopClock()) as link:
            return timings(link.transport.get_extra_info("socket"))

    def greet() -> None:
        """Say what a server of HTTP/2 says first, to each of the two."""
        for _ in range(2):
            client, _ = server.accept()
            with client, suppress(OSError):
                client.sendall(b"\0\0\0\4\0\0\0\0\0")
                while client.recv(1 << 16):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=greet)
        thread.start()
        assert asyncio.run(first()) == expected
        assert asyncio.run(second()) == expected
        thread.join()
    assert expected["TCP_KEEPIDLE"] + expected["TCP_KEEPINTVL"] * expected["TCP_KEEPCNT"] < 30
