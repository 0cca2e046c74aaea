"""One request to a server, byte for byte as recorded, and the response reduced to what a client can tell apart.

HTTP/2 is spoken by the `h2` library and HTTP/1.1 by a plain socket, so that nothing is corrected on the way. Protobuf
messages are decoded with our descriptors: the order of map entries, and white space in JSON, mean nothing.
"""

from __future__ import annotations

import json
import socket
from functools import cache
from http.client import HTTPResponse
from importlib.resources import files
from time import monotonic
from typing import Any
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

from tests.agent.process import TIMEOUT

Exchange = dict[str, Any]
Answer = dict[str, Any]
Fields = list[tuple[str, str]]
TOLD = ("content-type", "allow", "grpc-status", "grpc-message")
END, TRAILERS = 0x02, 0x80


def perform(address: str, exchange: Exchange, seconds: float = TIMEOUT) -> Answer:
    """Send the request of an exchange to `host:port` and return the reduced response."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), seconds) as connection:
        if "pings" in exchange:
            return _pings(connection, exchange["pings"])
        return _http2(connection, exchange) if exchange["http"] == 2 else _http1(connection, exchange)


def _body(exchange: Exchange) -> bytes:
    return bytes.fromhex(exchange["hex"]) if "hex" in exchange else exchange.get("body", "").encode()


def _http1(connection: socket.socket, exchange: Exchange) -> Answer:
    body, fields = _body(exchange), [*exchange["headers"]]
    if body or exchange["method"] == "POST":
        fields.append(["content-length", str(len(body))])
    lines = [f"{exchange['method']} {exchange['path']} HTTP/1.1", "host: h", "connection: close"]
    head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in fields), "", ""])
    connection.sendall(head.encode("latin-1") + body)
    response = HTTPResponse(connection, method=exchange["method"])
    response.begin()
    with response:
        seen = [(name.lower(), value) for name, value in response.getheaders()]
        return {"status": response.status} | _told(seen) | _content(exchange, dict(seen), response.read())


def _client(connection: socket.socket) -> h2.connection.H2Connection:
    """Return a client that sends header fields as they are, valid or not."""
    config = h2.config.H2Configuration(
        client_side=True, header_encoding="latin-1", validate_outbound_headers=False, normalize_outbound_headers=False
    )
    client = h2.connection.H2Connection(config)
    client.initiate_connection()
    connection.sendall(client.data_to_send())
    return client


def _http2(connection: socket.socket, exchange: Exchange) -> Answer:
    client, body = _client(connection), _body(exchange)
    fields = [(":method", exchange["method"]), (":scheme", "http"), (":path", exchange["path"]), (":authority", "h")]
    stays_open = exchange.get("open", False)
    client.send_headers(1, [*fields, *map(tuple, exchange["headers"])], end_stream=not (body or stays_open))
    if body:
        client.send_data(1, body, end_stream=not stays_open)
    connection.sendall(client.data_to_send())
    heads: list[Fields] = []
    received, ending = _receive(connection, client, heads, exchange.get("messages", 0))
    if not heads:
        return ending
    first = dict(heads[0])
    answer: Answer = {"status": int(first[":status"])} | _told(heads[0]) | ending
    if len(heads) > 1:
        answer |= _told(heads[1])
    if "grpc-status" in answer:
        answer["headers_first"] = "grpc-status" not in first
    return answer | _content(exchange, first, received)


def _receive(
    connection: socket.socket, client: h2.connection.H2Connection, heads: list[Fields], messages: int
) -> tuple[bytes, Answer]:
    """Read until the response ends, or has so many messages; return the data, and what is odd about the end."""
    received, end = b"", monotonic() + (connection.gettimeout() or TIMEOUT)
    while True:
        connection.settimeout(max(end - monotonic(), 0.001))  # in all: a stream that stays open has keep-alives
        for event in client.receive_data(_read(connection)):
            if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                heads.append([(str(name), str(value)) for name, value in event.headers or ()])
            elif isinstance(event, h2.events.DataReceived):
                received += event.data or b""
            elif isinstance(event, h2.events.StreamEnded):
                return received, {}
            elif isinstance(event, h2.events.StreamReset):
                return received, {"reset": int(event.error_code or 0)}
            elif isinstance(event, h2.events.ConnectionTerminated):
                return received, _goaway(event)
        connection.sendall(client.data_to_send())
        if messages and len(_envelopes(received)) >= messages:
            return received, {"still_open": True}


def _read(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    assert data, "the connection was closed before the response ended"
    return data


def _goaway(event: h2.events.ConnectionTerminated) -> Answer:
    return {"goaway": int(event.error_code or 0), "debug": (event.additional_data or b"").decode()}


def _pings(connection: socket.socket, count: int) -> Answer:
    """Send pings, each when the last one was answered."""
    client, answered, sent = _client(connection), 0, 0
    while answered < count:
        if sent == answered:
            client.ping(b"%8d" % sent)
            sent += 1
        connection.sendall(client.data_to_send())
        for event in client.receive_data(_read(connection)):
            answered += isinstance(event, h2.events.PingAckReceived)
            if isinstance(event, h2.events.ConnectionTerminated):
                return {"pings": sent} | _goaway(event)
    return {"pings": sent}


def _told(fields: Fields) -> Answer:
    """Return the header fields that matter to a client."""
    return {name: unquote(value) for name, value in fields if name in TOLD and value}


def _content(exchange: Exchange, head: dict[str, str], body: bytes) -> Answer:
    kind = head.get("content-type", "").partition(";")[0]
    if kind.startswith(("application/grpc", "application/connect+")):
        return _enveloped(exchange["path"], kind, body)
    if kind == "application/json":
        return {"json": json.loads(body)}
    if kind == "application/proto":
        return {"message": _decoded(exchange["path"], body)}
    return {"text": body.decode()} if body else {}


def _enveloped(path: str, kind: str, body: bytes) -> Answer:
    answer: Answer = {}
    for flags, payload in _envelopes(body):
        if flags & TRAILERS:
            lines = [line.partition(":") for line in payload.decode().split("\r\n")]
            answer |= _told([(name.lower(), value.strip()) for name, _, value in lines])
        elif flags & END:
            answer["end"] = json.loads(payload)
        else:
            message = json.loads(payload) if kind.endswith("+json") else _decoded(path, payload)
            answer.setdefault("messages", []).append(message)
    return answer


def _envelopes(body: bytes) -> list[tuple[int, bytes]]:
    """Return flags and payload of every whole envelope."""
    found, at = [], 0
    while len(body) >= at + 5:
        end = at + 5 + int.from_bytes(body[at + 1 : at + 5])
        if len(body) < end:
            break
        found.append((body[at], body[at + 5 : end]))
        at = end
    return found


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    every = descriptor_pb2.FileDescriptorSet.FromString(
        files("wigwag.proto").joinpath("descriptors.binpb").read_bytes()
    )
    for file in every.file:
        pool.Add(file)
    return pool


def message(path: str, *, request: bool = False) -> Message:
    """Return an empty response of the method of a path, or an empty request."""
    service, _, name = path.partition("?")[0].strip("/").rpartition("/")
    method = _pool().FindServiceByName(service).methods_by_name[name]
    return message_factory.GetMessageClass(method.input_type if request else method.output_type)()


def _decoded(path: str, payload: bytes) -> Any:
    decoded = message(path)
    decoded.ParseFromString(payload)
    return json_format.MessageToDict(decoded)
