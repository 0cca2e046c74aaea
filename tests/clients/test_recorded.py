"""Every exchange that was recorded with flagd's evaluator and libraries, again with a real agent.

`data/recorded.json` has the flags, the requests, and the responses as a client saw them. An agent with the same flags
gets the same requests, and has to answer the same, but for what `DIFFERENCES` lists with its reason. Each entry says
what our response has instead, so that nothing else can slip through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process import AgentProcess, write
from tests.clients.exchange import Answer, Exchange, perform

RECORDED = json.loads(Path(__file__).with_name("data").joinpath("recorded.json").read_bytes())
EXCHANGES: list[Exchange] = RECORDED["exchanges"]
PORTS = {"ofrep": "OFREP"}
ABSENT = object()
WORDING = "(the wording of a library)"
TEXTS = re.compile(
    "Flag not found|Type mismatch error|General error|Error parsing input or configuration|unknown service"
    '|invalid selector key "x", valid keys: "flagSetId", "source"'
)
"""What flagd itself says. Every other text is that of a library, and clients are not to depend on it."""


@dataclass(frozen=True)
class Difference:
    """What is in our responses instead, and why."""

    reason: str
    names: str
    ours: Mapping[str, Any]


def error(code: str) -> Mapping[str, str]:
    return {"code": code, "message": WORDING}


UNKNOWN = {"grpc-status": "12", "grpc-message": WORDING, "text": ABSENT, "status": 200}
VALUE = {
    "value": True,
    "reason": "STATIC",
    "variant": "on",
    "metadata": {"owner": "team", "size": 3, "live": True},
}
INVALID_CONTEXT = {
    "key": "targeted",
    "errorCode": "INVALID_CONTEXT",
    "errorDetails": "Provider context is not valid",
    "metadata": None,
}


def missing(key: str) -> Mapping[str, Any]:
    details = f"flag `{key}` does not exist"
    found = {"key": key, "errorCode": "FLAG_NOT_FOUND", "errorDetails": details, "metadata": {}}
    return {"status": 404, "content-type": "application/json", "text": ABSENT, "json": found}


DIFFERENCES = (
    Difference(
        "a number beyond int64 becomes the nearest one; what it is in Go depends on the processor",
        r"grpc .*: int beyond int64",
        {"messages[0].value": "9223372036854775807"},
    ),
    Difference(
        "the same in JSON",
        r"connect .*: int beyond int64",
        {"json.value": "9223372036854775807"},
    ),
    Difference(
        "ResolveAll: a variant of another type than the default is not named beside the error",
        r"grpc .*: all flags for ann",
        {"messages[0].flags.mixed.variant": ABSENT},
    ),
    Difference("the same in JSON", r"connect .*: all flags for ann", {"json.flags.mixed.variant": ""}),
    Difference(
        "an unknown method has the status of its protocol, which says more than HTTP 404",
        r"grpc.*: (unknown (streaming )?method.*|unknown service|v2 has no ResolveAll)",
        UNKNOWN | {"content-type": "application/grpc", "headers_first": False},
    ),
    Difference(
        "the same for gRPC-Web",
        r"application/grpc-web: unknown method",
        UNKNOWN | {"content-type": "application/grpc-web"},
    ),
    Difference(
        "the same for Connect, with HTTP 404",
        r"connect.*: (unknown method|unknown service.*|unknown path|v2 has no ResolveAll|path .*)",
        {"content-type": "application/json", "text": ABSENT, "json": error("unimplemented")},
    ),
    Difference(
        "the same for a stream of Connect, whose status is always 200",
        r"connect.*: unknown streaming method",
        {
            "status": 200,
            "content-type": "application/connect+json",
            "text": ABSENT,
            "end": {"error": error("unimplemented")},
        },
    ),
    Difference("404 without a body", r"connect: unknown path by GET", {"content-type": ABSENT, "text": ABSENT}),
    Difference(
        "no member may appear twice, known or not",
        r"connect body: duplicate unknown field",
        {"status": 400, "json": error("invalid_argument")},
    ),
    Difference(
        "flags of an envelope that mean nothing are the client's fault, and INTERNAL would be ours",
        r"grpc body: reserved flag",
        {"grpc-status": "3"},
    ),
    Difference(
        "a negative timeout is not one that has passed, but invalid",
        r"connect-timeout-ms negative",
        {"status": 400, "json": error("invalid_argument")},
    ),
    Difference(
        "a stream of schema.v1 that was cut by its client's timeout has not succeeded",
        r"grpc-timeout 100m of a stream of schema.v1",
        {"grpc-status": "4", "grpc-message": WORDING},
    ),
    Difference(
        "a charset is accepted for gRPC, too",
        r"content-type application/grpc; ?charset=utf-8 over HTTP/2",
        {
            "status": 200,
            "content-type": "application/grpc",
            "grpc-status": "0",
            "headers_first": True,
            "messages": [VALUE],
        },
    ),
    Difference(
        "JSON is UTF-8, so no response says it",
        r"content-type application/json; ?charset=.?(utf|UTF)-8.? over HTTP/1.1",
        {"content-type": "application/json"},
    ),
    Difference("Connect GET is served", r"(connect|grpc) by .*|connect GET: .*", {"allow": "GET, POST"}),
    Difference(
        "Connect GET is served",
        r"connect GET: message",
        {"status": 200, "allow": ABSENT, "content-type": "application/json", "json": VALUE},
    ),
    Difference(
        "Connect GET is served",
        r"connect GET: (no message|broken base64|other version)",
        {"status": 400, "allow": ABSENT, "content-type": "application/json", "json": error("invalid_argument")},
    ),
    Difference(
        "Connect GET is served",
        r"connect GET: unknown compression",
        {"status": 501, "allow": ABSENT, "content-type": "application/json", "json": error("unimplemented")},
    ),
    Difference(
        "members of a request match as OFREP writes them",
        r"ofrep: single, body context in upper case",
        {"json.value": False, "json.reason": "DEFAULT", "json.variant": "off"},
    ),
    Difference(
        "text after the JSON of a body is an error",
        r"ofrep: single, body (trailing text|two values)",
        {"status": 400, "json": INVALID_CONTEXT},
    ),
    Difference(
        "OFREP bulk: a variant of another type than the default is an answer",
        r"ofrep: bulk for ann",
        {
            "json.flags[mixed]": {
                "value": "text",
                "key": "mixed",
                "reason": "TARGETING_MATCH",
                "variant": "t",
                "metadata": {},
            }
        },
    ),
    Difference(
        "405 says which method is allowed, as HTTP demands",
        r"ofrep: (single|bulk) by (?!HEAD).*",
        {"allow": "POST", "content-type": "text/plain; charset=utf-8", "text": "method not allowed\n"},
    ),
    Difference(
        "the same, without the body",
        r"ofrep: (single|bulk) by HEAD",
        {"allow": "POST", "content-type": "text/plain; charset=utf-8"},
    ),
    Difference("a key may have slashes", r"ofrep: path .*/flags/(a/b|a%2Fb)", missing("a/b")),
    Difference("a key may have slashes", r"ofrep: path .*/flags/boolean/", missing("boolean/")),
    Difference("a key may begin with a slash", r"ofrep: path .*/flags//boolean", missing("/boolean")),
    Difference(
        "paths are not rewritten; a redirect would turn POST into GET",
        r"ofrep: path .*/\.\./flags/boolean",
        missing("../flags/boolean"),
    ),
    Difference(
        "paths are not rewritten; a redirect would turn POST into GET",
        r"ofrep: path //ofrep.*",
        {"status": 404, "content-type": "text/plain; charset=utf-8", "text": "404 page not found\n"},
    ),
    Difference(
        "an unknown method is trailers only on every port",
        r"health: unknown (method|service)",
        {"headers_first": False},
    ),
    Difference(
        "a message that cannot be read is the client's fault on every port",
        r"(health|sync): .*not protobuf",
        {"grpc-status": "3"},
    ),
    Difference(
        "probes name the type of their empty body",
        r"management: .* /(healthz|readyz)",
        {"content-type": "text/plain; charset=utf-8"},
    ),
    Difference(
        "errors have headers first on every port, so that they are final for every retry policy",
        r"sync: (.* with an invalid selector|.*not protobuf|compressed flag .*|unknown encoding|timeout 0n)",
        {"headers_first": True},
    ),
    Difference(
        "a unary call with two messages is not one",
        r"sync: two messages",
        {"grpc-status": "12", "grpc-message": WORDING, "messages": ABSENT},
    ),
    Difference(
        "a timeout that cannot be read is an error of the call, not of HTTP",
        r"sync: timeout without a unit",
        {"status": 200, "grpc-status": "3", "headers_first": True},
    ),
    Difference(
        "a stream that its client's timeout cuts says so",
        r"sync: timeout 100m of a stream",
        {"reset": ABSENT, "grpc-status": "4", "grpc-message": WORDING, "headers_first": True},
    ),
    Difference(
        "the sync port speaks Connect, too: what it does not speak is refused as HTTP does",
        r"sync: (content-type (text/plain|application/grpcfoo)|by GET)",
        {"content-type": ABSENT, "grpc-status": ABSENT, "grpc-message": ABSENT, "headers_first": ABSENT},
    ),
    Difference("405 says which method is allowed, as HTTP demands", r"sync: by GET", {"allow": "POST"}),
    Difference(
        "the sync port speaks Connect, too",
        r"sync: content-type application/json",
        {
            "status": 400,
            "content-type": "application/json",
            "grpc-status": ABSENT,
            "grpc-message": ABSENT,
            "headers_first": ABSENT,
            "json": error("invalid_argument"),
        },
    ),
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    path = tmp_path_factory.mktemp("flags") / "flags.json"
    write(path, RECORDED["document"])
    with AgentProcess("--uri", f"file:{path}", "--ofrep-sse-enabled=false") as started:
        yield started


@pytest.mark.parametrize("exchange", EXCHANGES, ids=[exchange["name"] for exchange in EXCHANGES])
def test_a_recorded_request_gets_the_recorded_response(agent: AgentProcess, exchange: Exchange) -> None:
    port = str(exchange["port"])
    assert comparable(perform(agent.address(PORTS.get(port, port)), exchange)) == expected(exchange)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.names)
def test_a_difference_is_one(difference: Difference) -> None:
    """An entry that no recorded response needs would hide what we get wrong later."""
    concerned = [exchange for exchange in EXCHANGES if re.fullmatch(difference.names, exchange["name"])]
    assert concerned
    assert all(amended(comparable(each["answer"]), difference.ours) != comparable(each["answer"]) for each in concerned)


def expected(exchange: Exchange) -> Answer:
    """Return the recorded response with what ours has instead."""
    answer = comparable(exchange["answer"])
    for difference in DIFFERENCES:
        if re.fullmatch(difference.names, exchange["name"]):
            answer = amended(answer, difference.ours)
    return answer


def amended(answer: Any, ours: Mapping[str, Any]) -> Answer:
    """Return a copy with other values at some paths, such as `json.value`, `messages[0].value` or `flags[key]`."""
    copy: Answer = json.loads(json.dumps(answer))
    for path, value in ours.items():
        *parents, last = re.findall(r"[^.\[\]]+", path) if path not in copy else [path]
        holder: Any = copy
        for name in parents:
            holder = holder[int(name) if isinstance(holder, list) else name]
        if isinstance(holder, list):
            holder[:] = [value if item["key"] == last else item for item in holder]
        elif value is ABSENT:
            holder.pop(last, None)
        else:
            holder[last] = value
    return copy


def comparable(answer: Answer) -> Answer:
    """Return a response with the texts of libraries replaced."""
    copy: Answer = json.loads(json.dumps(answer))
    described = copy["json"] if isinstance(copy.get("json"), dict) else {}
    ended = copy.get("end", {}).get("error", {})
    for holder, name in ((copy, "grpc-message"), (described, "message"), (ended, "message")):
        if name in holder and not TEXTS.fullmatch(holder[name]):
            holder[name] = WORDING
    return copy
