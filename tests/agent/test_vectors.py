"""The shared vectors once more, over real sockets: gRPC v1 and v2, Connect with JSON, and OFREP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format, struct_pb2
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2_grpc as v1_grpc
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2_grpc as v2_grpc

import wigwag
from tests.agent.process import AgentProcess, write
from tests.flags.test_conformance import evaluations, read

NAMES = {"boolean": "Boolean", "string": "String", "integer": "Int", "float": "Float", "object": "Object"}
Ask = Callable[[str, str, dict[str, Any]], tuple[Any, ...]]
ERROR = ("error",)


@pytest.fixture(scope="module", params=["evaluator-v2", "evaluator-v3", "provider-v2", "provider-v3"])
def suite(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str, AgentProcess]]:
    name, version = request.param.split("-")
    path: Path = tmp_path_factory.mktemp("vectors") / "flags.json"
    write(path, read(f"{name}-flags"))
    with AgentProcess(f"--uri=file:{path}", f"--fractional={version}") as agent:
        yield name, version, agent


def over_grpc(agent: AgentProcess, module: Any, stubs: Any) -> Iterator[Ask]:
    with grpc.insecure_channel(agent.address("evaluation")) as channel:
        stub = stubs.ServiceStub(channel)

        def ask(kind: str, key: str, context: dict[str, Any]) -> tuple[Any, ...]:
            struct = struct_pb2.Struct()
            struct.update(context)
            request = getattr(module, f"Resolve{NAMES[kind]}Request")(flag_key=key, context=struct)
            try:
                found = getattr(stub, f"Resolve{NAMES[kind]}")(request)
            except grpc.RpcError:
                return ERROR
            value = json_format.MessageToDict(found.value) if kind == "object" else found.value
            return (value, found.variant, found.reason) if found.variant else (None, None, found.reason)

        yield ask


def over_connect(agent: AgentProcess) -> Iterator[Ask]:
    connection = HTTPConnection(agent.address("evaluation"))

    def ask(kind: str, key: str, context: dict[str, Any]) -> tuple[Any, ...]:
        body = json.dumps({"flagKey": key, "context": context})
        path = f"/flagd.evaluation.v2.Service/Resolve{NAMES[kind]}"
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        if answer.status != 200:
            return ERROR
        value = told.get("value")
        return int(value) if kind == "integer" and value else value, told.get("variant"), told["reason"]

    yield ask
    connection.close()


def over_ofrep(agent: AgentProcess) -> Iterator[Ask]:
    connection = HTTPConnection(agent.address("OFREP"))

    def ask(kind: str, key: str, context: dict[str, Any]) -> tuple[Any, ...]:
        connection.request("POST", f"/ofrep/v1/evaluate/flags/{key}", json.dumps({"context": context}))
        answer = connection.getresponse()
        told = json.loads(answer.read())
        return ERROR if answer.status != 200 else (told.get("value"), told.get("variant"), told["reason"])

    yield ask
    connection.close()


PROTOCOLS: dict[str, Callable[[AgentProcess], Iterator[Ask]]] = {
    "grpc-v1": lambda agent: over_grpc(agent, v1, v1_grpc),
    "grpc-v2": lambda agent: over_grpc(agent, v2, v2_grpc),
    "connect": over_connect,
    "ofrep": over_ofrep,
}


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_every_vector_comes_out_the_same_over_the_wire(suite: tuple[str, str, AgentProcess], protocol: str) -> None:
    name, version, agent = suite
    local = wigwag.load(read(f"{name}-flags"), fractional=version)  # type: ignore[arg-type]
    cases = [parameters.values for parameters in evaluations(name) if parameters.values[1] == version]
    assert len(cases) > 60
    exchange = PROTOCOLS[protocol](agent)
    ask = next(exchange)
    for _, _, case in cases:
        kind = None if protocol == "ofrep" else case["type"]
        found = local.resolve(case["flag"], kind, None, case["context"])
        expected: tuple[Any, ...] = ERROR if found.error else (found.value, found.variant, found.reason)
        if protocol == "grpc-v1" and expected == (None, None, "DEFAULT"):
            expected = ERROR
        assert ask(case["type"], case["flag"], case["context"]) == expected, case
    next(exchange, None)
