"""gRPC reflection: the schemas are those of `proto/`, and grpcurl finds every service of every port."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc_tools  # type: ignore[import-untyped]
import pytest
from google.protobuf import descriptor_pb2

import wigwag.proto
from tests.agent.process import TIMEOUT, AgentProcess
from tests.proxy.process import ProxyProcess
from wigwag.serve.reflection import Reflection, schemas

PROTO = Path(wigwag.proto.__file__).parent
REFLECTION = ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"]
EVALUATION = ["flagd.evaluation.v1.Service", "flagd.evaluation.v2.Service", *REFLECTION, "schema.v1.Service"]
SYNC = ["flagd.sync.v1.FlagSyncService", *REFLECTION, "sync.v1.FlagSyncService"]
HEALTH = ["grpc.health.v1.Health", *REFLECTION]


def test_the_descriptors_are_those_of_the_schemas(tmp_path: Path) -> None:
    compiled = tmp_path / "descriptors.binpb"
    includes = [f"-I{PROTO}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    names = sorted(path.name for path in PROTO.glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", *includes, "--include_imports"]
    subprocess.run([*command, f"--descriptor_set_out={compiled}", *names], check=True, timeout=TIMEOUT)
    expected, committed = descriptor_pb2.FileDescriptorSet(), descriptor_pb2.FileDescriptorSet()
    expected.ParseFromString(compiled.read_bytes())
    committed.ParseFromString((PROTO / "descriptors.binpb").read_bytes())
    assert {file.name: file for file in committed.file} == {file.name: file for file in expected.file}, (
        "run scripts/protos"
    )


def message(field: int, value: bytes) -> bytes:
    return bytes((field << 3 | 2, len(value))) + value


@pytest.mark.parametrize(
    "symbol",
    [
        b"flagd.evaluation.v2.Service",
        b".flagd.evaluation.v1.Service.ResolveAll",
        b"flagd.evaluation.v1.ResolveAllResponse.FlagsEntry",
        b"flagd.sync.v1.SyncFlagsResponse.sync_context",
        b"google.protobuf.Struct",
        b"grpc.health.v1.HealthCheckResponse.ServingStatus",
        b"sync.v1.SyncState",
    ],
)
def test_the_file_of_a_symbol_comes_with_all_that_it_imports(symbol: bytes) -> None:
    answer = Reflection([]).answer(message(4, symbol))
    assert b"error" not in answer
    name = schemas().symbols[symbol.decode().removeprefix(".")]
    for content in schemas().with_imports(name):
        assert content in answer
    assert len(schemas().with_imports("evaluation_v1.proto")) == 2


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (message(4, b"no.Such"), b"there is no 'no.Such'"),
        (message(3, b"no.proto"), b"there is no file 'no.proto'"),
        (message(6, b"no.Such"), b"there is no 'no.Such'"),
        (message(5, b""), b"there are no extensions"),
        (b"", b"nothing is asked for"),
    ],
)
def test_what_is_not_there_is_an_error_in_the_answer(request_: bytes, text: bytes) -> None:
    assert text in Reflection([]).answer(request_)


@pytest.fixture(scope="module")
def agent() -> Iterator[AgentProcess]:
    with AgentProcess() as started:
        yield started


def grpcurl(*arguments: str) -> str:
    program = shutil.which("grpcurl")
    if program is None:
        pytest.skip("GRPCURL IS NOT INSTALLED: reflection was not tried with it (scripts/tools builds it)")
    done = subprocess.run(
        [program, "-plaintext", *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("port", "services"), [("evaluation", EVALUATION), ("sync", SYNC), ("management", HEALTH)], ids=lambda each: each[0]
)
def test_grpcurl_lists_the_services_of_a_port(agent: AgentProcess, port: str, services: list[str]) -> None:
    assert grpcurl(agent.address(port), "list").split() == services


def test_grpcurl_calls_a_method_that_it_knows_by_reflection_only(agent: AgentProcess) -> None:
    data = '{"flag_key": "new-welcome-banner", "context": {"email": "fay@example.com"}}'
    answer = json.loads(grpcurl("-d", data, agent.address("evaluation"), "flagd.evaluation.v2.Service/ResolveBoolean"))
    assert (answer["value"], answer["variant"]) == (True, "on")
    status = json.loads(grpcurl(agent.address("management"), "grpc.health.v1.Health/Check"))
    assert status == {"status": "SERVING"}


def test_grpcurl_lists_the_services_of_the_proxy() -> None:
    with ProxyProcess() as proxy:
        assert grpcurl(proxy.address("sync"), "list").split() == SYNC


@pytest.mark.parametrize("port", ["evaluation", "sync", "management"])
def test_a_stream_of_an_unknown_method_is_answered_before_its_client_has_said_anything(
    agent: AgentProcess, port: str
) -> None:
    over = threading.Event()

    def silence() -> Iterator[bytes]:
        over.wait(TIMEOUT)
        yield from ()

    with grpc.insecure_channel(agent.address(port)) as channel:
        stream: Any = channel.stream_stream("/no.Such/Method")(silence(), timeout=TIMEOUT)  # type: ignore[arg-type]
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        over.set()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
