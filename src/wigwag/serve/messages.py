"""The messages of flagd's services, read and written in both codecs: protobuf, and JSON as Connect has it.

Field numbers and names are those of flagd's schemas (see `proto/`). In JSON, empty fields are written too, an int64 is
a string, and an `optional` field without a value is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.flags.document import duplicates
from wigwag.jsontext import decode_request
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs.protobuf import BYTES, blob, boolean, double, fields, integer, read_text, read_varint, text
from wigwag.wire.rpcs.struct import decode as decode_struct
from wigwag.wire.rpcs.struct import encode as encode_struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Json = dict[str, Any]

_to_json = msgspec.json.encode
COMPARED_BYTES = 16 * 1024
"""The largest request in which members that appear twice are looked for: that takes many times as long as to decode."""
_FIELD_1, _FIELD_2 = 0x0A, b"\x12"
"""The tags of the first two fields, where they hold bytes."""


def read_json(body: bytes) -> Json:
    """Return a request in JSON as an object, in which no member may appear twice: protobuf's JSON forbids that."""
    try:
        message = decode_request(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise RpcError(Code.INVALID_ARGUMENT, f"the request is not valid JSON: {error}") from error
    if not isinstance(message, dict):
        raise RpcError(Code.INVALID_ARGUMENT, "the request must be a JSON object")
    if len(body) <= COMPARED_BYTES and body.count(b":") != _members(message) and (repeated := duplicates(body)):
        raise RpcError(Code.INVALID_ARGUMENT, f"the request is not valid JSON: {repeated[0]} appears twice")
    return message


def _members(message: Json) -> int:
    """Count the members of a message and of its context, as far as they are flat: each has a colon in the text.

    Where that is all the colons, no member appears twice, and nobody need look closer.
    """
    context = message.get("context")
    return len(message) + len(context) if context.__class__ is dict else len(message)


def read_resolve(body: bytes, json: bool) -> tuple[str, Json]:
    """Read `Resolve*Request`: 1 flag_key, 2 context."""
    if json:
        message = read_json(body)
        return _string(message, "flagKey", "flag_key"), _object(message, "context")
    size = body[1] if len(body) > 3 else 0x80
    if size < 0x80 and body[0] == _FIELD_1 and body[2 + size : 3 + size] == _FIELD_2:  # as every client writes it
        length, start = read_varint(body, 3 + size)
        if start + length == len(body):
            return read_text(body[2 : 2 + size]), decode_struct(body[start:])
    key, context = "", []
    for number, kind, value in fields(body):
        if kind == BYTES:
            if number == 1:
                key = read_text(value)  # type: ignore[arg-type]
            elif number == 2:
                context.append(value)
    return key, decode_struct(b"".join(context)) if context else {}  # type: ignore[arg-type]


def read_context(body: bytes, json: bool) -> Json:
    """Read `ResolveAllRequest`: 1 context."""
    if json:
        return _object(read_json(body), "context")
    context = b"".join(value for number, kind, value in fields(body) if number == 1 and kind == BYTES)  # type: ignore[misc]
    return decode_struct(context) if context else {}


def read_sync(body: bytes, json: bool) -> tuple[str, str]:
    """Read `SyncFlagsRequest` and `FetchAllFlagsRequest`: 1 provider_id, 2 selector."""
    if json:
        message = read_json(body)
        return _string(message, "providerId", "provider_id"), _string(message, "selector")
    values = {number: value for number, kind, value in fields(body) if kind == BYTES}
    return read_text(values.get(1, b"")), read_text(values.get(2, b""))  # type: ignore[arg-type]


def _string(message: Json, name: str, proto_name: str = "") -> str:
    value = message.get(name)
    if proto_name and proto_name in message:
        if name in message:
            raise RpcError(Code.INVALID_ARGUMENT, f"{name} appears twice: also as {proto_name}")
        value = message[proto_name]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RpcError(Code.INVALID_ARGUMENT, f"{name} must be text")
    return value


def _object(message: Json, name: str) -> Json:
    value = message.get(name)
    if value is not None and not isinstance(value, dict):
        raise RpcError(Code.INVALID_ARGUMENT, f"{name} must be an object")
    return value or {}


def _clamped(value: int) -> int:
    """Return the int64 that is closest to a number."""
    return max(-(1 << 63), min(value, (1 << 63) - 1))


def _int64(number: int, value: int) -> bytes:
    return integer(number, _clamped(value))


def _struct(number: int, value: Json) -> bytes:
    return blob(number, encode_struct(value))


_VALUES: dict[str, tuple[Callable[[int, Any], bytes], Any]] = {
    "boolean": (boolean, False),
    "string": (text, ""),
    "integer": (_int64, 0),
    "float": (double, 0.0),
    "object": (_struct, {}),
}
"""How a value of each type is written, and its zero, which protobuf does not write."""


def resolved(
    type: str, value: Any, reason: str, variant: str | None, metadata: Json, *, optional: bool, json: bool
) -> bytes:
    """Write `Resolve*Response`: 1 value, 2 reason, 3 variant, 4 metadata. No variant means no value either.

    Where the fields are `optional` they are then left out; where they are not, they are zero. A zero object is an empty
    message, which is written: clients see whether it is there.
    """
    encode, zero = _VALUES[type]
    if json:
        return _resolved_json(type, zero if variant is None else value, reason, variant, metadata, optional)
    message = b""
    if variant is not None and (optional or value != zero or type == "object"):
        message = encode(1, value)
    elif type == "object" and not optional:
        message = encode(1, zero)
    message += text(2, reason)
    if variant:
        message += text(3, variant)
    elif variant is not None and optional:
        message += text(3, "")
    return message + blob(4, encode_struct(metadata))


def _resolved_json(type: str, value: Any, reason: str, variant: str | None, metadata: Json, optional: bool) -> bytes:
    answer: Json = {"reason": reason, "metadata": metadata}
    if variant is not None or not optional:
        answer |= {"value": str(_clamped(value)) if type == "integer" else value, "variant": variant or ""}
    return _to_json(answer)


class AnyFlag(msgspec.Struct, frozen=True):
    """One flag of `ResolveAllResponse`: reason, variant, a value of one of four types, metadata."""

    reason: str
    variant: str
    type: str
    value: Any
    metadata: Json | None
    """None in the oldest service, which has no such field."""

    def encode(self) -> bytes:
        """Write it: 1 reason, 2 variant, 3 bool, 4 string, 5 double or 6 object value, 7 metadata."""
        number, write = _ANY[self.type]
        flag = text(1, self.reason) + text(2, self.variant) + write(number, self.value)
        return flag if self.metadata is None else flag + blob(7, encode_struct(self.metadata))

    def to_json(self) -> Json:
        """Return it as JSON has it."""
        flag = {"reason": self.reason, "variant": self.variant, _ANY_NAMES[self.type]: self.value}
        return flag if self.metadata is None else flag | {"metadata": self.metadata}


_ANY: dict[str, tuple[int, Callable[[int, Any], bytes]]] = {
    "boolean": (3, boolean),
    "string": (4, text),
    "float": (5, double),
    "object": (6, _struct),
}
_ANY_NAMES = {"boolean": "boolValue", "string": "stringValue", "float": "doubleValue", "object": "objectValue"}


def all_entry(key: str, flag: AnyFlag, *, json: bool) -> bytes:
    """Write one flag of `ResolveAllResponse`, as a member of its map."""
    if json:
        return _to_json({key: flag.to_json()})[1:-1]
    return blob(1, text(1, key) + blob(2, flag.encode()))


def resolved_all(entries: Sequence[bytes], metadata: Json | None, *, json: bool) -> bytes:
    """Write `ResolveAllResponse`: 1 flags by key, 2 metadata, which the oldest service does not have."""
    if json:
        tail = b"" if metadata is None else b',"metadata":' + _to_json(metadata)
        return b'{"flags":{' + b",".join(entries) + b"}" + tail + b"}"
    flags = b"".join(entries)
    return flags if metadata is None else flags + blob(2, encode_struct(metadata))


def event(type: str, data: Json, *, json: bool) -> bytes:
    """Write `EventStreamResponse`: 1 type, 2 data."""
    return _to_json({"type": type, "data": data}) if json else text(1, type) + blob(2, encode_struct(data))


def synced(document: str, context: Json | None, *, json: bool) -> bytes:
    """Write `SyncFlagsResponse`: 1 flag_configuration, 2 sync_context."""
    if json:
        response: Json = {"flagConfiguration": document}
        return _to_json(response if context is None else response | {"syncContext": context})
    return text(1, document) + (b"" if context is None else blob(2, encode_struct(context)))


def synced_of_old(document: str, *, json: bool) -> bytes:
    """Write `SyncFlagsResponse` of the older service: 1 flag_configuration, 2 state, which is always ALL."""
    if json:
        return _to_json({"flagConfiguration": document, "state": "SYNC_STATE_ALL"})
    return text(1, document) + integer(2, 1)


def metadata(values: Json, *, json: bool) -> bytes:
    """Write `GetMetadataResponse`: 2 metadata."""
    return _to_json({"metadata": values}) if json else blob(2, encode_struct(values))


HEALTH = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


def health(status: str, *, json: bool) -> bytes:
    """Write `HealthCheckResponse`: 1 status."""
    return _to_json({"status": status}) if json else integer(1, HEALTH.index(status))


def read_nothing(body: bytes, json: bool) -> None:
    """Read a request without fields, such as `EventStreamRequest`; one that cannot be read raises."""
    if body:
        read_json(body) if json else fields(body)


def read_health(body: bytes, json: bool) -> str:
    """Read `HealthCheckRequest`: 1 service."""
    if json:
        return _string(read_json(body), "service")
    return next((read_text(value) for number, kind, value in fields(body) if number == 1 and kind == BYTES), "")  # type: ignore[arg-type]
