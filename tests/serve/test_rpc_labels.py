"""What a request was as a call, in each protocol, as the metrics tell it."""

from __future__ import annotations

import json

import pytest

from wigwag.serve.management.metrics import NO_RPC, Metrics, no_rpc, rpc_labels
from wigwag.wire.http import Reply, Request, Stream
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpc import Call, Code, Method, RpcError
from wigwag.wire.rpcs.dispatch import rpc_handler
from wigwag.wire.rpcs.envelope import wrap

PATH = b"/pkg.Service/Get"


def get(call: Call) -> bytes:
    if b"bad" in call.body:
        raise RpcError(Code.NOT_FOUND, "there is none")
    return b""


HANDLER = rpc_handler({PATH: Method(unary=get)}, WireLimits())


def answer(content_type: bytes, body: bytes) -> Reply:
    message = body if content_type.startswith(b"application/json") else wrap(body)
    found = HANDLER(Request(b"POST", PATH, headers=((b"content-type", content_type),), body=message))
    assert isinstance(found, Reply)
    return found


@pytest.mark.parametrize(
    ("content_type", "body", "system", "code"),
    [
        (b"application/grpc", b"good", "grpc", "0"),
        (b"application/grpc", b"bad", "grpc", "5"),
        (b"application/grpc+json", b"bad", "grpc", "5"),
        (b"application/json", b"good", "connect_rpc", "0"),
        (b"application/json", b"bad", "connect_rpc", "5"),
        (b"application/grpc-web", b"good", "grpc_web", ""),
        (b"application/grpc-web", b"bad", "grpc_web", ""),
    ],
)
def test_a_call_is_told_by_protocol_service_method_and_code(
    content_type: bytes, body: bytes, system: str, code: str
) -> None:
    assert rpc_labels(PATH.decode(), answer(content_type, body)) == (system, "pkg.Service", "Get", code)


async def nothing() -> object:
    yield b""


def test_what_is_no_unary_call_is_none() -> None:
    assert rpc_labels("unknown", answer(b"application/grpc", b"good")) == NO_RPC
    assert rpc_labels(PATH.decode(), Reply(405)) == NO_RPC
    stream = Stream(200, ((b"content-type", b"application/grpc"),), nothing())  # type: ignore[arg-type]
    assert rpc_labels(PATH.decode(), stream) == NO_RPC
    assert no_rpc(PATH.decode(), answer(b"application/grpc", b"good")) == NO_RPC


def test_calls_are_counted_by_code_and_requests_by_status() -> None:
    metrics = Metrics()
    handler = metrics.observing(HANDLER, "service", lambda path: path.decode(), rpc_labels)
    for content_type, body in ((b"application/grpc", b"good"), (b"application/grpc", b"bad")):
        for _ in range(2):
            handler(Request(b"POST", PATH, headers=((b"content-type", content_type),), body=wrap(body)))
    counts = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in metrics.registry.render().splitlines()}
    labels = 'rpc_system="grpc",rpc_service="pkg.Service",rpc_method="Get",rpc_grpc_status_code="{}"'
    call = f"rpc_server_duration_milliseconds_count{{{{{labels}}}}}"
    assert (counts[call.format(0)], counts[call.format(5)]) == ("2", "2")
    (http,) = [name for name in counts if name.startswith("http_server_request_duration_seconds_count")]
    assert counts[http] == "4", "gRPC is always 200 to HTTP"


def test_a_port_without_calls_has_no_metrics_of_calls() -> None:
    metrics = Metrics()
    handler = metrics.observing(lambda request: Reply(200, (), b"x"), "service", lambda path: "/a/b")
    handler(Request(b"GET", b"/a/b", body=json.dumps({}).encode()))
    text = metrics.registry.render()
    assert "http_server_request_duration_seconds_count" in text
    assert "rpc_server_duration_milliseconds_count" not in text
