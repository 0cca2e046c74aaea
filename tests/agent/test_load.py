"""Clients that come in numbers or mean harm: others keep being served, memory stays bounded, nobody misses the end."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from tests.agent.process import AgentProcess, write

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
RESOLVE = "/flagd.evaluation.v1.Service/ResolveBoolean"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentProcess]:
    document(tmp_path, 0)
    with AgentProcess(f"--uri=file:{tmp_path / 'flags.json'}") as process:
        yield process


def document(folder: Path, revision: int, padding: int = 0) -> None:
    flag = {**FLAG, "metadata": {"revision": revision, "padding": "x" * padding}}
    write(folder / "flags.json", {"flags": {"x": flag}})


def served(agent: AgentProcess) -> None:
    """Every port still answers."""
    status, body = agent.fetch("evaluation", RESOLVE, {"flagKey": "x"}, content_type="application/json")
    assert (status, json.loads(body)["variant"]) == (200, "off")
    assert agent.fetch("OFREP", "/ofrep/v1/evaluate/flags/x", {})[0] == 200
    assert agent.fetch("management", "/readyz")[0] == 200


def memory(agent: AgentProcess) -> int:
    """Return the memory of the agent, in KiB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{agent.process.pid}/status").read_text())
    assert found
    return int(found[1])


def connect(agent: AgentProcess, name: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", agent.port(name)), 20)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def test_many_idle_connections_cost_little_and_hold_up_nobody(agent: AgentProcess) -> None:
    before = memory(agent)
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(agent, "evaluation")) for _ in range(400)]
        for each in idle[::2]:
            each.sendall(PREFACE)
        served(agent)
        assert memory(agent) - before < 40 * len(idle)  # KiB


def test_a_client_that_never_reads_costs_bounded_memory(agent: AgentProcess, tmp_path: Path) -> None:
    with connect(agent, "sync") as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        window = frame(8, 0, 0, (1 << 30).to_bytes(4, "big"))
        settings = frame(4, 0, 0, (4).to_bytes(2, "big") + (1 << 30).to_bytes(4, "big"))
        head = frame(1, 4, 1, SYNC_HEADERS)
        stuck.sendall(PREFACE[:24] + settings + window + head + frame(0, 1, 1, bytes(5)))
        before = memory(agent)
        for revision in range(1, 41):
            seen = len(agent.lines)
            document(tmp_path, revision, 500_000)
            agent.wait_for_log(lambda line: line["msg"] == "snapshot published", seen)
        served(agent)
        assert memory(agent) - before < 30_000  # KiB; forty documents are 20 MB, and each is kept more than once


def test_many_clients_that_never_read_a_large_document_share_it(agent: AgentProcess, tmp_path: Path) -> None:
    seen = len(agent.lines)
    document(tmp_path, 1, 900_000)
    agent.wait_for_log(lambda line: line["msg"] == "snapshot published", seen)
    before = memory(agent)
    request = b"POST /flagd.sync.v1.FlagSyncService/SyncFlags HTTP/1.1\r\nhost: x\r\n"
    request += b"content-type: application/connect+json\r\ncontent-length: 7\r\n\r\n\0\0\0\0\x02{}"
    with ExitStack() as stack:
        for _ in range(30):
            stuck = stack.enter_context(socket.socket())
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", agent.port("sync")))
            stuck.sendall(request)
        with stack.enter_context(connect(agent, "sync")) as one:
            settings = frame(4, 0, 0, (4).to_bytes(2, "big") + (1).to_bytes(4, "big"))
            opened = [frame(1, 4, n, SYNC_HEADERS) + frame(0, 1, n, bytes(5)) for n in range(1, 61, 2)]
            one.sendall(PREFACE[:24] + settings + b"".join(opened))
            served(agent)
            assert memory(agent) - before < 30_000  # KiB; a copy for each would be 54 MB


def literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


SYNC_HEADERS = b"".join(
    literal(name, value)
    for name, value in (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/flagd.sync.v1.FlagSyncService/SyncFlags"),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
)


def test_no_subscriber_misses_the_last_of_many_changes(agent: AgentProcess, tmp_path: Path) -> None:
    streams, changes = 100, 50

    async def last(stub: Any) -> None:
        stream = stub.SyncFlags(sync_pb2.SyncFlagsRequest())
        while f'"revision":{changes}' not in (await stream.read()).flag_configuration:
            pass

    async def main() -> None:
        async with asyncio.timeout(120), grpc.aio.insecure_channel(agent.address("sync")) as channel:
            stub = sync_pb2_grpc.FlagSyncServiceStub(channel)
            async with asyncio.TaskGroup() as group:
                for _ in range(streams):
                    group.create_task(last(stub))
                for revision in range(1, changes + 1):
                    await asyncio.to_thread(document, tmp_path, revision)

    asyncio.run(main())
    served(agent)


def test_rapid_resets_end_that_connection_only(agent: AgentProcess) -> None:
    resets = b"".join(
        frame(1, 5, stream, SYNC_HEADERS) + frame(3, 0, stream, (8).to_bytes(4, "big")) for stream in range(1, 8001, 2)
    )
    with connect(agent, "evaluation") as attacker:
        with suppress(OSError):  # cut off before all of it was sent
            attacker.sendall(PREFACE + resets)
        assert ended(attacker)
    served(agent)


def test_a_header_bomb_is_refused_without_being_unpacked(agent: AgentProcess) -> None:
    before = memory(agent)
    block = b"\x40" + bytes((1,)) + b"a" + b"\x7f\x9e\x1e" + b"v" * 4001 + b"\xbe" * 16_000
    pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
    frames = frame(1, 0, 1, pieces[0]) + b"".join(frame(9, 0, 1, piece) for piece in pieces[1:]) + frame(9, 4, 1)
    with connect(agent, "evaluation") as attacker:
        attacker.sendall(PREFACE + frames)
        assert refused(attacker, stream=1)
    served(agent)
    assert memory(agent) - before < 10_000


def refused(connection: socket.socket, stream: int) -> bool:
    """Read frames until the stream is answered or reset, or all of the connection is."""
    reader = connection.makefile("rb")
    while head := reader.read(9):
        reader.read(int.from_bytes(head[:3], "big"))
        if head[3] == 7 or (head[3] in (1, 3) and int.from_bytes(head[5:], "big") == stream):
            return True
    return True


@pytest.mark.parametrize("start", [b"POST / HTTP/1.1\r\nx: ", PREFACE[:10], b"\x16\x03"])
def test_a_client_that_takes_its_time_is_cut_off_and_holds_up_nobody(agent: AgentProcess, start: bytes) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(agent, "OFREP")) for _ in range(50)]
        for each in slow:
            each.sendall(start)
        served(agent)
        assert all(ended(each) for each in slow)
    served(agent)


def ended(connection: socket.socket) -> bool:
    """Read until the other side ends the connection."""
    connection.settimeout(20)
    with suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True
