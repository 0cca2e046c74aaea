"""What the gRPC settings of published providers make of our answers: retry policies, and keep-alive pings.

An evaluation that fails is asked once: every retry policy takes its error as final.
The policies are those that the providers hand to gRPC. Each is tried with gRPC's own client; two of the providers are
tried themselves, one of them in an old version, in a process and with packages of its own.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2_grpc as v1_grpc

from tests.agent.process import TIMEOUT, AgentProcess, write
from tests.clients.metrics import boolean_calls
from tests.clients.old_python import announce, old_provider
from wigwag.wire.h2 import frames
from wigwag.wire.h2.frames import HEAD

EVERYTHING = [
    "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL",
    "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
]  # fmt: skip
POLICIES = {
    "Python 0.2.7": {"maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "5s", "codes": EVERYTHING},
    "Python 0.6.1": {"maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "5s", "codes": ["UNAVAILABLE", "UNKNOWN"]},
    "Java": {"maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "5s", "codes": ["UNAVAILABLE", "UNKNOWN"]},
    "JavaScript": {"maxAttempts": 4, "initialBackoff": "1s", "maxBackoff": "120s", "codes": ["UNAVAILABLE", "UNKNOWN"]},
    "any": {"maxAttempts": 5, "initialBackoff": "1s", "maxBackoff": "5s", "codes": EVERYTHING},
}
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
FLAGS = {
    "static": FLAG,
    "text": {"state": "ENABLED", "variants": {"a": "A"}, "defaultVariant": "a"},
    "nowhere": {**FLAG, "targeting": {"if": [{"==": [{"var": "tier"}, "gold"]}, "onn", "on"]}},
    "broken": {**FLAG, "targeting": {"nope": []}},
}
FAILURES = {
    "missing": grpc.StatusCode.NOT_FOUND,
    "text": grpc.StatusCode.INVALID_ARGUMENT,
    "nowhere": grpc.StatusCode.UNKNOWN,
    "broken": grpc.StatusCode.DATA_LOSS,
}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    path = tmp_path_factory.mktemp("flags") / "flags.json"
    write(path, {"flags": FLAGS})
    with AgentProcess("--uri", f"file:{path}") as started:
        yield started


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize(("key", "code"), FAILURES.items(), ids=FAILURES)
def test_an_error_is_final_for_the_policy_of_every_provider(
    agent: AgentProcess, policy: dict[str, Any], key: str, code: grpc.StatusCode
) -> None:
    retry = {"backoffMultiplier": 2.0, "retryableStatusCodes": policy["codes"]}
    retry |= {name: policy[name] for name in ("maxAttempts", "initialBackoff", "maxBackoff")}
    config = {"methodConfig": [{"name": [{"service": "flagd.evaluation.v1.Service"}], "retryPolicy": retry}]}
    options = [("grpc.service_config", json.dumps(config)), ("grpc.enable_retries", 1)]
    before = boolean_calls(agent)
    with grpc.insecure_channel(agent.address("evaluation"), options=options) as channel:
        request = v1.ResolveBooleanRequest(flag_key=key)
        request.context.update({"tier": "gold"})
        with pytest.raises(grpc.RpcError) as caught:
            v1_grpc.ServiceStub(channel).ResolveBoolean(request, timeout=TIMEOUT)
    assert caught.value.code() is code
    assert boolean_calls(agent) == before + 1


PING = HEAD.pack(0, 8, frames.PING, 0, 0) + bytes(8)
GREETING = frames.PREFACE + HEAD.pack(0, 0, frames.SETTINGS, 0, 0)


@pytest.mark.parametrize(("port", "goodbye"), [("evaluation", False), ("sync", True)])
def test_keep_alive_is_enforced_on_sync_only(agent: AgentProcess, port: str, goodbye: bool) -> None:
    """The Python provider's keep-alive time is 0, which grpcio takes for a ping per millisecond."""
    with socket.create_connection(("127.0.0.1", agent.port(port)), TIMEOUT) as client:
        client.sendall(GREETING + PING * 200)
        kinds = list(received(client, pongs=200))
    assert (frames.GOAWAY in kinds) is goodbye
    assert (kinds.count(frames.PING) == 200) is not goodbye


def received(client: socket.socket, pongs: int) -> Iterator[int]:
    """Yield the kinds of frames that come, until there were so many answers to pings, or the connection is over."""
    reader = client.makefile("rb")
    while pongs and len(head := reader.read(9)) == 9:
        high, low, kind, _, _ = HEAD.unpack(head)
        reader.read(high << 8 | low)
        pongs -= kind == frames.PING
        yield kind


OLD_CLIENT = """
import json, sys
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.contrib.provider.flagd import FlagdProvider

api.set_provider_and_wait(FlagdProvider(host="127.0.0.1", port=int(sys.argv[1])))
client, gold = api.get_client(), EvaluationContext("user-1", {"tier": "gold"})
results = {key: client.get_boolean_details(key, True, gold) for key in sys.argv[2:]}
print(json.dumps({key: [found.value, found.error_code] for key, found in results.items()}))
api.shutdown()
"""


@pytest.mark.timeout(240)  # the first time, the packages are installed
def test_an_old_python_provider_learns_what_is_wrong_within_its_deadline(
    agent: AgentProcess, request: pytest.FixtureRequest
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(old_provider(announce(request.config)))}
    keys = ("static", *FAILURES)
    command = [sys.executable, "-S", "-c", OLD_CLIENT, str(agent.port("evaluation")), *keys]
    before = boolean_calls(agent)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "static": [False, None],
        "missing": [True, "FLAG_NOT_FOUND"],
        "text": [True, "TYPE_MISMATCH"],
        "nowhere": [True, "GENERAL"],
        "broken": [True, "PARSE_ERROR"],
    }
    assert boolean_calls(agent) == before + len(keys)


def test_the_packages_of_the_old_provider_are_pinned() -> None:
    lines = (Path(__file__).parent / "old_python.txt").read_text().splitlines()
    assert "openfeature-provider-flagd==0.2.7" in lines
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line) for line in lines)
