"""The clients of the soak: each visit opens a connection of its own, asks in one of the protocols, and goes away again,
politely or not.

Plain HTTP is written by hand: half a request, or an answer that nobody reads, is what no client library can do.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

import grpc
from google.protobuf import struct_pb2
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2, evaluation_pb2_grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

HOST = "127.0.0.1"
STEADY = "steady"
"""A flag that is there from the beginning to the end, and always says the same."""
BULK = "/ofrep/v1/evaluate/flags"
RESOLVE = "/flagd.evaluation.v1.Service/ResolveBoolean"
PATIENCE = 20.0
_LOCAL = [("grpc.use_local_subchannel_pool", 1)]


@dataclass
class Ground:
    """Where clients go, and what came of it."""

    ports: dict[str, int]
    random: Random
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def expect(self, met: bool, what: str) -> None:
        """Note a fault unless something is so."""
        if not met:
            self.faults.append(what)


Visit: TypeAlias = Callable[[Ground], Awaitable[None]]


@asynccontextmanager
async def connected(port: int, *, rudely: bool = False) -> AsyncIterator[tuple[Any, asyncio.StreamWriter]]:
    """Connect; at the end close, or cut the connection off."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 22)
    try:
        yield reader, writer
    finally:
        if rudely:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()


async def ask(
    reader: Any, writer: asyncio.StreamWriter, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send a request over HTTP/1.1, and return status, headers and body of the answer."""
    data = b"" if body is None else json.dumps(body).encode()
    fields = {"Host": HOST, "Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", *(f"{name}: {fields[name]}" for name in fields)]
    writer.write("\r\n".join([*lines, "", ""]).replace("_", "-").encode() + data)
    status, told = await head(reader)
    return status, told, await reader.readexactly(int(told.get("content-length", 0)))


async def head(reader: Any) -> tuple[int, dict[str, str]]:
    """Read the beginning of an answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    told = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in told}


async def connect_unary(ground: Ground) -> None:
    async with connected(ground.ports["port"]) as (reader, writer):
        for _ in range(ground.random.randrange(1, 12)):
            status, _, body = await ask(reader, writer, RESOLVE, {"flagKey": STEADY, "context": {"tier": "gold"}})
            ground.expect(status == 200 and json.loads(body)["value"] is True, f"Connect: {status} {body!r}")
            ground.counts["requests"] += 1


async def ofrep(ground: Ground) -> None:
    async with connected(ground.ports["ofrep"]) as (reader, writer):
        status, told, body = await ask(reader, writer, BULK, {"context": {}})
        keys = [flag["key"] for flag in json.loads(body)["flags"]]
        ground.expect(status == 200 and STEADY in keys, f"OFREP bulk: {status} {keys}")
        await ask(reader, writer, BULK, {"context": {}}, If_None_Match=told["etag"])
        for _ in range(ground.random.randrange(1, 8)):
            status, _, body = await ask(reader, writer, f"{BULK}/{STEADY}", {"context": {}})
            ground.expect(status == 200 and json.loads(body)["value"] is True, f"OFREP: {status} {body!r}")
            ground.counts["requests"] += 1
        await ask(reader, writer, f"{BULK}/no-such-flag-{ground.random.random()}", {"context": {}})
        ground.counts["requests"] += 3


async def grpc_unary(ground: Ground) -> None:
    async with grpc.aio.insecure_channel(f"{HOST}:{ground.ports['port']}", _LOCAL) as channel:
        stub: Any = evaluation_pb2_grpc.ServiceStub(channel)
        context = struct_pb2.Struct()
        context.update({"tier": "gold"})
        for _ in range(ground.random.randrange(1, 12)):
            request = evaluation_pb2.ResolveBooleanRequest(flag_key=STEADY, context=context)
            answer = await stub.ResolveBoolean(request, timeout=PATIENCE)
            ground.expect(answer.value is True, f"gRPC: {answer}")
            ground.counts["requests"] += 1
        everything = await stub.ResolveAll(evaluation_pb2.ResolveAllRequest(context=context), timeout=PATIENCE)
        ground.expect(STEADY in everything.flags, "ResolveAll: the steady flag is not there")


async def half_a_request(ground: Ground) -> None:
    async with connected(ground.ports["port"], rudely=ground.random.random() < 0.5) as (_, writer):
        writer.write(f"POST {RESOLVE} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{".encode())
        await asyncio.sleep(ground.random.random() / 4)
        ground.counts["broken off"] += 1


async def nonsense(ground: Ground) -> None:
    async with connected(ground.ports[ground.random.choice(("port", "ofrep", "sync", "management"))]) as (_, writer):
        writer.write(ground.random.randbytes(200) + b"\r\n\r\n")
        await asyncio.sleep(0.05)
        ground.counts["broken off"] += 1


async def event_stream(ground: Ground) -> None:
    async with grpc.aio.insecure_channel(f"{HOST}:{ground.ports['port']}", _LOCAL) as channel:
        stub: Any = evaluation_pb2_grpc.ServiceStub(channel)
        await _follow(ground, stub.EventStream(evaluation_pb2.EventStreamRequest()))


async def sync_stream(ground: Ground) -> None:
    async with grpc.aio.insecure_channel(f"{HOST}:{ground.ports['sync']}", _LOCAL) as channel:
        stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
        selector = ground.random.choice(("", "", "flagSetId=file", "flagSetId=none"))
        await _follow(ground, stub.SyncFlags(sync_pb2.SyncFlagsRequest(selector=selector)))


async def _follow(ground: Ground, stream: Any) -> None:
    """Read for a while, then go away without a word."""
    ground.counts["streams"] += 1
    first = await stream.read()
    ground.expect(first is not grpc.aio.EOF, "a stream ended before it began")
    try:
        async with asyncio.timeout(ground.random.uniform(0.1, 2.5)):
            while await stream.read() is not grpc.aio.EOF:
                ground.counts["messages"] += 1
    except TimeoutError:
        stream.cancel()


async def sse(ground: Ground) -> None:
    rude = ground.random.random() < 0.5
    async with connected(ground.ports["ofrep"], rudely=rude) as (reader, writer):
        writer.write(b"GET /ofrep/v1/sse HTTP/1.1\r\nHost: x\r\n\r\n")
        ground.counts["streams"] += 1
        status, _ = await head(reader)
        ground.expect(status == 200, f"SSE: {status}")
        try:
            async with asyncio.timeout(ground.random.uniform(0.1, 2.5)):
                while await reader.readline():
                    ground.counts["messages"] += 1
        except TimeoutError:
            pass


async def stalled(ground: Ground) -> None:
    """Ask for a stream, and never read it."""
    async with connected(ground.ports["ofrep"], rudely=True) as (reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        reader._transport.pause_reading()
        writer.write(b"GET /ofrep/v1/sse HTTP/1.1\r\nHost: x\r\n\r\n")
        ground.counts["streams"] += 1
        await asyncio.sleep(ground.random.uniform(0.5, 3))


VISITS: tuple[Visit, ...] = (
    connect_unary, ofrep, grpc_unary, event_stream, sync_stream, sse, stalled, half_a_request, nonsense,
)  # fmt: skip


async def load(ground: Ground, rate: float, resting: asyncio.Event) -> None:
    """Evaluate on one connection, so many times a second, until told to rest."""
    body = {"flagKey": STEADY, "context": {"tier": "gold"}}
    async with connected(ground.ports["port"]) as (reader, writer):
        while not resting.is_set():
            for _ in range(max(int(rate / 20), 1)):
                status, _, _ = await ask(reader, writer, RESOLVE, body)
                ground.expect(status == 200, f"load: {status}")
                ground.counts["requests"] += 1
            await asyncio.sleep(1 / 20)


async def visitor(ground: Ground, resting: asyncio.Event) -> None:
    """Visit again and again until told to rest."""
    while not resting.is_set():
        visit = ground.random.choice(VISITS)
        try:
            async with asyncio.timeout(PATIENCE):
                await visit(ground)
        except (OSError, EOFError, TimeoutError, grpc.aio.AioRpcError) as error:
            ground.faults.append(f"{visit.__name__}: {type(error).__name__}: {error}")
        ground.counts["visits"] += 1
        await asyncio.sleep(ground.random.uniform(0.02, 0.3))
