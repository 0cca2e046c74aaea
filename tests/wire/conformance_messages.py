"""The messages of connectrpc.conformance.v1, made at run time from the table below: nothing generated is kept here.

Only the fields that a server with unary methods and server streams meets; the rest are unknown fields, in JSON as well.
"""

from __future__ import annotations

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message, message_factory

from wigwag.wire.rpc import Code

PACKAGE = "connectrpc.conformance.v1"
CODES = ["UNSPECIFIED", *(code.connect_name.upper() for code in Code if code)]

# number name type, `*` repeated, `?` one of the alternatives
MESSAGES = {
    "Header": "1 name string, 2 value string*",
    "Error": "1 code Code, 2 message string?, 3 details Any*",
    "UnaryResponseDefinition": (
        "1 response_headers Header*, 2 response_data bytes?, 3 error Error?, 4 response_trailers Header*, "
        "6 response_delay_ms uint32"
    ),
    "StreamResponseDefinition": (
        "1 response_headers Header*, 2 response_data bytes*, 3 response_delay_ms uint32, 4 error Error, "
        "5 response_trailers Header*"
    ),
    "UnaryRequest": "1 response_definition UnaryResponseDefinition, 2 request_data bytes",
    "IdempotentUnaryRequest": "1 response_definition UnaryResponseDefinition, 2 request_data bytes",
    "ServerStreamRequest": "1 response_definition StreamResponseDefinition, 2 request_data bytes",
    "UnaryResponse": "1 payload ConformancePayload",
    "IdempotentUnaryResponse": "1 payload ConformancePayload",
    "ServerStreamResponse": "1 payload ConformancePayload",
    "ConformancePayload": "1 data bytes, 2 request_info ConformancePayload.RequestInfo",
    "ConformancePayload.RequestInfo": (
        "1 request_headers Header*, 2 timeout_ms int64?, 3 requests Any*, "
        "4 connect_get_info ConformancePayload.ConnectGetInfo"
    ),
    "ConformancePayload.ConnectGetInfo": "1 query_params Header*",
    "TLSCreds": "1 cert bytes, 2 key bytes",
    "ServerCompatRequest": (
        "1 protocol int32, 2 http_version int32, 4 use_tls bool, 6 message_receive_limit uint32, "
        "7 server_creds TLSCreds"
    ),
    "ServerCompatResponse": "1 host string, 2 port uint32, 3 pem_cert bytes",
}

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "uint32": _Field.TYPE_UINT32,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
}


def _add_field(into: descriptor_pb2.DescriptorProto, line: str) -> None:
    number, name, kind = line.split()
    field = into.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.endswith("*"):
        field.label = _Field.LABEL_REPEATED
    if kind.endswith("?"):
        if not into.oneof_decl:
            into.oneof_decl.add(name="either")
        field.oneof_index = 0
    kind = kind.rstrip("*?")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _Field.TYPE_ENUM if kind == "Code" else _Field.TYPE_MESSAGE
        field.type_name = ".google.protobuf.Any" if kind == "Any" else f".{PACKAGE}.{kind}"


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="conformance.proto", package=PACKAGE, syntax="proto3")
    file.dependency.append(any_pb2.DESCRIPTOR.name)
    codes = file.enum_type.add(name="Code")
    for number, name in enumerate(CODES):
        codes.value.add(name=f"CODE_{name}", number=number)
    made: dict[str, descriptor_pb2.DescriptorProto] = {}
    for full, lines in MESSAGES.items():
        outer, _, name = full.rpartition(".")
        made[full] = made[outer].nested_type.add(name=name) if outer else file.message_type.add(name=name)
        for line in lines.split(", "):
            _add_field(made[full], line)
    return file


def load() -> dict[str, type[message.Message]]:
    """Return the message classes by their short names."""
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(_file().SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}
