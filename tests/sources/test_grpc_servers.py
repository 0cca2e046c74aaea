"""Real servers of flag documents: grpcio's, old and new, and our own agent over TCP, TLS and a unix socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process import AgentProcess, write
from tests.clients.certificates import make_certificates
from tests.pipeline.fakes import FakeClock, run
from tests.real.processes import claim_port
from tests.sources.disk import Reader, reading_stream
from tests.sources.grpc_server import NEW, OLD, SyncServer
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.sources.document import Document
from wigwag.sources.remote.grpc import GrpcWatch, watch_grpc
from wigwag.wire.rpc import Code, RpcError

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


@asynccontextmanager
async def following(spec: GrpcWatch) -> AsyncIterator[Reader]:
    async with reading_stream(watch_grpc(spec), FakeClock()) as reader:
        yield reader


async def failure(spec: GrpcWatch) -> RpcError:
    with pytest.raises(RpcError) as caught:
        async for _ in watch_grpc(spec):
            pass
    return caught.value


@pytest.mark.parametrize("old", [False, True], ids=["flagd.sync.v1", "sync.v1"])
def test_a_server_of_grpcio_is_followed(old: bool) -> None:
    with SyncServer('{"flags": {}}', old=old) as server:

        async def main() -> None:
            spec = GrpcWatch(f"localhost:{server.port}", selector="flagSetId=a", provider_id="p", headers=(("x", "y"),))
            async with following(spec) as reader:
                assert await reader.next() == Document(b'{"flags": {}}', "json")
                for number in range(20):
                    server.change(f'{{"flags": {{}}, "number": {number}}}')
                    assert await reader.next() == Document(b'{"flags": {}, "number": %d}' % number, "json")

        run(main)
        provider, selector, metadata = server.requests[0]
        assert (provider, selector, metadata["flagd-selector"], metadata["x"]) == (
            "p",
            "flagSetId=a",
            "flagSetId=a",
            "y",
        )
        assert server.paths == ([NEW + "SyncFlags", OLD + "SyncFlags"] if old else [NEW + "SyncFlags"])


@pytest.mark.parametrize("compress", [False, True], ids=["identity", "gzip"])
def test_a_document_of_twenty_megabytes_arrives_whole(compress: bool) -> None:
    large = json.dumps({"flags": {}, "padding": "0123456789abcdef" * ((20 << 20) // 16)})
    with SyncServer("{}", compress=compress) as server:

        async def main() -> None:
            async with following(GrpcWatch(f"127.0.0.1:{server.port}")) as reader:
                assert await reader.next() == Document(b"{}", "json")
                server.change(large)
                assert (await reader.next()).content == large.encode()
                server.change("{ }")
                assert await reader.next() == Document(b"{ }", "json")

        run(main)


def test_a_document_over_the_limit_is_refused() -> None:
    with SyncServer("x" * 2_000_000) as server:

        async def main() -> None:
            error = await failure(GrpcWatch(f"127.0.0.1:{server.port}", max_message=1_000_000))
            assert (error.code, error.message) == (
                Code.RESOURCE_EXHAUSTED,
                "RESOURCE_EXHAUSTED: the message is larger than 1000000 bytes",
            )

        run(main)


def test_a_server_that_restarts_is_found_again_and_its_last_word_counts() -> None:
    async def main() -> None:
        first = SyncServer("1", port=claim_port())
        first.__enter__()
        spec = GrpcWatch(f"ipv4:127.0.0.1:{first.port}")
        pipeline: Pipeline[GrpcWatch, Document, bytes] = Pipeline(
            [Wanted(spec)], watch_grpc, lambda values: values[spec].content
        )

        async def until(content: bytes) -> None:
            async for picture in pipeline.published:
                if picture == content:
                    return

        async with asyncio.TaskGroup() as group:
            task = group.create_task(pipeline.run())
            await until(b"1")
            await asyncio.to_thread(first.__exit__, None, None, None)
            async for _ in pipeline.status_changes:
                if pipeline.statuses()[0].state == "failing":
                    break
            assert pipeline.published.value == b"1"
            assert "UNAVAILABLE" in (pipeline.statuses()[0].error or "")
            with SyncServer("2", port=first.port) as second:
                await until(b"2")
                second.change("3")
                await until(b"3")
                assert pipeline.statuses()[0].state == "live"
                task.cancel()

    run(main)


def test_nobody_at_the_port_is_said_in_plain_words() -> None:
    port = claim_port()

    async def main() -> None:
        error = await failure(GrpcWatch(f"127.0.0.1:{port}"))
        assert error.message == f"UNAVAILABLE: cannot connect: 127.0.0.1:{port}: Connection refused"

    run(main)


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    path = tmp_path / "flags.json"
    write(path, flag_set(0))
    return path


def flag_set(revision: int) -> dict[str, Any]:
    mine, yours = {"flagSetId": "mine", "revision": revision}, {"flagSetId": "yours"}
    return {"flags": {"a": {**FLAG, "metadata": mine}, "b": {**FLAG, "metadata": yours}}}


def keys(document: Document) -> list[str]:
    return sorted(json.loads(document.content)["flags"])


def test_an_agent_is_followed_by_selector(flags: Path) -> None:
    with AgentProcess(f"--uri=file:{flags}") as agent:

        async def main() -> None:
            target = agent.address("sync")
            async with (
                following(GrpcWatch(target)) as everything,
                following(GrpcWatch(target, selector="flagSetId=mine")) as mine,
                following(GrpcWatch(target, selector="flagSetId=none")) as none,
            ):
                assert keys(await everything.next()) == ["a", "b"]
                assert keys(await mine.next()) == ["a"]
                assert keys(await none.next()) == []
                write(flags, flag_set(1))
                assert json.loads((await mine.next()).content)["flags"]["a"]["metadata"]["revision"] == 1
                assert keys(await everything.next()) == ["a", "b"]
                assert none.seen == []
            error = await failure(GrpcWatch(target, selector="colour=red"))
            assert error.code is Code.INVALID_ARGUMENT

        run(main)


def test_an_agent_is_followed_over_tls_and_only_if_it_is_the_right_one(flags: Path, tmp_path: Path) -> None:
    files = make_certificates(tmp_path)
    with AgentProcess(f"--uri=file:{flags}", *files.arguments()) as agent:

        async def main() -> None:
            roots = str(files.authority)
            for target in (f"localhost:{agent.port('sync')}", f"dns:///127.0.0.1:{agent.port('sync')}"):
                async with following(GrpcWatch(target, tls=True, cert_path=roots)) as reader:
                    assert keys(await reader.next()) == ["a", "b"]
            untrusted = await failure(GrpcWatch(agent.address("sync"), tls=True))
            assert "its certificate is not accepted: unable to get local issuer certificate" in untrusted.message
            proxied = GrpcWatch(f"envoy://{agent.address('sync')}/other.test", tls=True, cert_path=roots)
            assert "its certificate is not accepted: Hostname mismatch" in (await failure(proxied)).message
            plain = await failure(GrpcWatch(agent.address("sync")))
            assert plain.code is Code.UNAVAILABLE

        run(main)


def test_an_agent_is_followed_at_a_unix_socket(flags: Path, tmp_path: Path) -> None:
    path = tmp_path / "sync"
    with AgentProcess(f"--uri=file:{flags}", f"--sync-socket-path={path}") as agent:

        async def main() -> None:
            for target in (f"unix:{path}", f"unix://{path}", f"uds:{path}"):
                async with following(GrpcWatch(target)) as reader:
                    assert keys(await reader.next()) == ["a", "b"]
            agent.stop()
            error = await failure(GrpcWatch(f"unix:{path}"))
            assert error.message == f"UNAVAILABLE: cannot connect: unix:{path}: No such file or directory"

        run(main)


def test_an_agent_that_stops_is_found_again_at_its_port(flags: Path) -> None:
    async def main() -> None:
        ports = {"sync-port": claim_port()}
        with AgentProcess(f"--uri=file:{flags}", ports=ports) as agent:
            spec = GrpcWatch(agent.address("sync"))
            pipeline: Pipeline[GrpcWatch, Document, Document] = Pipeline(
                [Wanted(spec)], watch_grpc, lambda values: values[spec]
            )
            async with asyncio.TaskGroup() as group:
                task = group.create_task(pipeline.run())
                async for picture in pipeline.published:
                    assert picture is not None
                    if json.loads(picture.content)["flags"]["a"]["metadata"]["revision"] == 7:
                        break
                    await asyncio.to_thread(agent.stop)
                    write(flags, flag_set(7))
                    again = AgentProcess(f"--uri=file:{flags}", ports=ports)
                    await asyncio.to_thread(again.__enter__)
                await asyncio.to_thread(again.__exit__, None, None, None)
                task.cancel()

    run(main)
