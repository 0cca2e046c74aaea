"""The trivial server that bench/wire.py and h2spec talk to: prints its port, then serves until its input ends.

    python bench/wire_server.py [port]

A POST is answered like a gRPC call, a GET with `hello`; a line on standard input with the CPU seconds so far.
"""

from __future__ import annotations

import asyncio
import os
import sys

from wigwag.wire.http import Reply, Request
from wigwag.wire.server.server import Listener, serve

GRPC = Reply(200, ((b"content-type", b"application/grpc"),), b"\0\0\0\0\0", ((b"grpc-status", b"0"),))
PLAIN = Reply(200, ((b"content-type", b"text/plain"),), b"hello")


def handler(request: Request) -> Reply:
    return GRPC if request.method == b"POST" else PLAIN


async def main(port: int) -> None:
    async with serve(handler, [Listener(host="127.0.0.1", port=port)]) as server:
        print(server.addresses[0], flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            times = os.times()
            print(times.user + times.system, flush=True)


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    with runner:
        runner.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
