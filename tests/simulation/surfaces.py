"""Every way to ask the agent, each decoded by somebody else's code and told in the same words.

The handlers are those of the agent's ports: all of it but the bytes of HTTP. An evaluation that does not answer at once
is a failure, whatever it would have said.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from google.protobuf import struct_pb2
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2 as v1
from openfeature.schemas.protobuf.flagd.evaluation.v2 import evaluation_pb2 as v2

import wigwag
from tests.simulation.model import Answer
from wigwag.wire.http import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.wire.http import Handler

BULK = b"/ofrep/v1/evaluate/flags"
NAMES = {"boolean": "Boolean", "string": "String", "integer": "Int", "float": "Float", "object": "Object"}
_ZEROS: dict[str, Any] = {"boolean": False, "string": "", "integer": 0, "float": 0.0, "object": {}}
_GRPC = {5: "FLAG_NOT_FOUND", 3: "TYPE_MISMATCH", 15: "PARSE_ERROR"}
_CONNECT = {"not_found": "FLAG_NOT_FOUND", "invalid_argument": "TYPE_MISMATCH", "data_loss": "PARSE_ERROR"}
_ANY = {"boolValue": "boolean", "stringValue": "string", "doubleValue": "float", "objectValue": "object"}
SNAPSHOT, AGE = "wigwag.snapshot", "wigwag.age"


@dataclass(frozen=True)
class Asked:
    """Who asks."""

    selector: str
    tier: str

    @property
    def context(self) -> dict[str, str]:
        return {"tier": self.tier} if self.tier else {}

    def headers(self, content_type: bytes) -> tuple[tuple[bytes, bytes], ...]:
        told = ((b"content-type", content_type),)
        return (*told, (b"flagd-selector", self.selector.encode())) if self.selector else told


@dataclass(frozen=True)
class Bulk:
    """An answer about all flags."""

    status: int
    etag: bytes
    flags: dict[str, Answer] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    error: str = ""


def plain(struct: Any) -> dict[str, Any]:
    """Return a protobuf Struct as a dictionary."""
    return {name: _value(value) for name, value in struct.fields.items()}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return plain(value.struct_value)
    return [_value(each) for each in value.list_value.values] if kind == "list_value" else getattr(value, kind)


def at_once(handler: Handler, request: Request) -> Reply:
    """Ask, and insist on an answer now."""
    reply = handler(request)
    assert type(reply) is Reply, f"P1: {request.path!r} does not answer at once but with {reply!r}"
    return reply


class Surfaces:
    """The ports of an agent, by name."""

    def __init__(self, ports: Mapping[str, Handler]) -> None:
        self.evaluation, self.management = ports["evaluation"], ports["management"]
        self.sync, self.ofrep = ports["sync"], ports["ofrep"]
        self._loaded: tuple[str, wigwag.FlagSet] = ("", wigwag.load({"flags": {}}))

    def one(self, key: str, kind: str, asked: Asked) -> dict[str, Answer]:
        """Evaluate one flag in every way."""
        return {
            "evaluation.v1, gRPC": self._grpc(v1, "v1", key, kind, asked),
            "evaluation.v2, gRPC": self._grpc(v2, "v2", key, kind, asked),
            "evaluation.v1, Connect": self._connect("v1", key, kind, asked),
            "evaluation.v2, Connect": self._connect("v2", key, kind, asked),
            "OFREP": self._single(key, asked),
        }

    def _grpc(self, stubs: Any, version: str, key: str, kind: str, asked: Asked) -> Answer:
        name = NAMES[kind]
        context = struct_pb2.Struct()
        context.update(asked.context)
        message = getattr(stubs, f"Resolve{name}Request")(flag_key=key, context=context).SerializeToString()
        path = f"/flagd.evaluation.{version}.Service/Resolve{name}".encode()
        headers = asked.headers(b"application/grpc")
        reply = at_once(
            self.evaluation, Request(b"POST", path, b"", headers, len(message).to_bytes(5, "big") + message)
        )
        status = dict(reply.trailers or reply.headers)[b"grpc-status"]
        if status != b"0":
            return Answer(reason="ERROR", error=_GRPC.get(int(status), f"status {status!r}"))
        found = getattr(stubs, f"Resolve{name}Response").FromString(reply.body[5:])
        value = plain(found.value) if kind == "object" else found.value
        return _told(value, found.variant, found.reason, plain(found.metadata), kind)

    def _connect(self, version: str, key: str, kind: str, asked: Asked) -> Answer:
        path = f"/flagd.evaluation.{version}.Service/Resolve{NAMES[kind]}".encode()
        body = json.dumps({"flagKey": key, "context": asked.context}).encode()
        reply = at_once(self.evaluation, Request(b"POST", path, b"", asked.headers(b"application/json"), body))
        told = json.loads(reply.body)
        if reply.status != 200:
            return Answer(reason="ERROR", error=_CONNECT.get(told["code"], told["code"]))
        value = told.get("value", _ZEROS[kind])
        return _told(
            int(value) if kind == "integer" else value, told.get("variant", ""), told["reason"], told["metadata"], kind
        )

    def _single(self, key: str, asked: Asked) -> Answer:
        body = json.dumps({"context": asked.context}).encode()
        request = Request(b"POST", BULK + b"/" + key.encode(), b"", asked.headers(b"application/json"), body)
        return _item(json.loads(at_once(self.ofrep, request).body))

    def bulk(self, asked: Asked, etag: bytes = b"") -> Bulk:
        """Evaluate all flags over OFREP, unless they are as they were when they had this ETag."""
        body = json.dumps({"context": asked.context}).encode()
        headers = asked.headers(b"application/json")
        headers = (*headers, (b"if-none-match", etag)) if etag else headers
        reply = at_once(self.ofrep, Request(b"POST", BULK, b"", headers, body))
        tag = dict(reply.headers).get(b"etag", b"")
        if reply.status != 200:
            code = json.loads(reply.body)["errorCode"] if reply.body else ""
            return Bulk(reply.status, tag, error=code)
        told = json.loads(reply.body)
        found = {item["key"]: _item(item) for item in told["flags"]}
        assert len(found) == len(told["flags"]), "P6: a key comes twice in one answer"
        return Bulk(200, tag, found, told["metadata"])

    def all(self, asked: Asked) -> dict[str, dict[str, Answer] | None]:
        """Evaluate all flags with ResolveAll; None if that is refused because there are none yet."""
        context = struct_pb2.Struct()
        context.update(asked.context)
        message = v1.ResolveAllRequest(context=context).SerializeToString()
        path, body = b"/flagd.evaluation.v1.Service/ResolveAll", len(message).to_bytes(5, "big") + message
        reply = at_once(self.evaluation, Request(b"POST", path, b"", asked.headers(b"application/grpc"), body))
        refused = dict(reply.trailers or reply.headers)[b"grpc-status"] == b"14"
        found = v1.ResolveAllResponse.FromString(reply.body[5:])
        body = json.dumps({"context": asked.context}).encode()
        reply = at_once(self.evaluation, Request(b"POST", path, b"", asked.headers(b"application/json"), body))
        told = json.loads(reply.body).get("flags") if reply.status != 503 else None
        return {
            "ResolveAll, gRPC": None if refused else {key: _any(flag) for key, flag in found.flags.items()},
            "ResolveAll, Connect": told if told is None else {key: _any_json(flag) for key, flag in told.items()},
        }

    def in_process(self, document: str, key: str, kind: Any, context: Mapping[str, Any]) -> Answer:
        """Evaluate a flag of a sync document, as a provider that holds it does."""
        if document != self._loaded[0]:
            self._loaded = document, wigwag.load(document)
        found = self._loaded[1].resolve(key, kind, None, context)
        if found.error is not None:
            return Answer(reason="ERROR", error=found.error)
        return Answer(found.value, found.variant, found.reason, None, found.metadata)

    def page(self, path: str) -> Reply:
        """Get a page of the management port."""
        place, _, query = path.encode().partition(b"?")
        return at_once(self.management, Request(b"GET", place, query, ((b"host", b"localhost"),)))


def _told(value: Any, variant: str, reason: str, metadata: dict[str, Any], kind: str) -> Answer:
    if variant:
        return Answer(value, variant, reason, None, metadata)
    assert value == _ZEROS[kind], f"P8: {value!r} without a variant"
    return Answer(None, None, reason, None, metadata)


def _item(told: dict[str, Any]) -> Answer:
    if "errorCode" in told:
        return Answer(reason="ERROR", error=told["errorCode"], metadata=told["metadata"] or {})
    return Answer(told.get("value"), told.get("variant"), told["reason"], None, told["metadata"])


def _any(flag: Any) -> Answer:
    kind = flag.WhichOneof("value")
    value = plain(flag.object_value) if kind == "object_value" else getattr(flag, kind)
    return _zeroless(Answer(value, flag.variant or None, flag.reason, None, plain(flag.metadata)))


def _any_json(flag: dict[str, Any]) -> Answer:
    (name,) = _ANY.keys() & flag.keys()
    return _zeroless(Answer(flag[name], flag["variant"] or None, flag["reason"], None, flag["metadata"]))


def _zeroless(found: Answer) -> Answer:
    """Without a variant the value is zero, and of an error only the reason is told."""
    if found.variant is not None:
        return found
    assert not found.value, f"P8: {found.value!r} without a variant"
    return replace(found, value=None, error="PARSE_ERROR" if found.reason == "ERROR" else None)
