"""The server that the Connect conformance suite tests: started by it, told by it what to do, and called by its client.

connectconformance --mode server --conf … -- python -m tests.wire.conformance_server
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl

from google.protobuf import any_pb2, json_format

from tests.wire.conformance_messages import PACKAGE, load
from wigwag.wire.http import Handler
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpc import Call, Code, Method, Methods, RpcError
from wigwag.wire.rpcs.dispatch import rpc_handler
from wigwag.wire.server.server import Listener, serve
from wigwag.wire.tls import Tls

MESSAGES: dict[str, Any] = dict(load())
MEGABYTE = 1024 * 1024


def decoded(kind: str, call: Call) -> Any:
    if not call.json:
        return MESSAGES[kind].FromString(call.body)
    return json_format.Parse(call.body.decode(), MESSAGES[kind](), ignore_unknown_fields=True)


def encoded(message: Any, call: Call) -> bytes:
    return json_format.MessageToJson(message).encode() if call.json else bytes(message.SerializeToString())


def grouped(pairs: Iterable[tuple[str, str]]) -> list[Any]:
    """Return Header messages, one for each name."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        found.setdefault(name, MESSAGES["Header"](name=name)).value.append(value)
    return list(found.values())


def as_any(message: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed


def request_info(call: Call, request: Any) -> Any:
    info = MESSAGES["ConformancePayload.RequestInfo"](requests=[as_any(request)])
    info.request_headers.extend(grouped((name.decode(), value.decode()) for name, value in call.headers))
    if call.deadline is not None:
        info.timeout_ms = round(call.deadline * 1000)
    if call.request.method == b"GET":
        query = parse_qsl(call.request.query.decode(), keep_blank_values=True)
        info.connect_get_info.query_params.extend(grouped(query))
    return info


def failure(error: Any, extra: Iterable[any_pb2.Any] = ()) -> RpcError:
    details = tuple((detail.type_url.rpartition("/")[2], detail.value) for detail in (*error.details, *extra))
    return RpcError(Code(error.code), error.message, details)


def added(headers: Iterable[Any], into: list[tuple[bytes, bytes]]) -> None:
    into.extend((header.name.lower().encode(), value.encode()) for header in headers for value in header.value)


def unary(kind: str) -> Callable[[Call], bytes | Awaitable[bytes]]:
    """Return the handler of Unary or IdempotentUnary."""

    def handle(call: Call) -> bytes | Awaitable[bytes]:
        request = decoded(f"{kind}Request", call)
        wanted = request.response_definition
        added(wanted.response_headers, call.response_headers)
        added(wanted.response_trailers, call.response_trailers)
        info = request_info(call, request)
        if wanted.WhichOneof("either") == "error":
            raise failure(wanted.error, [as_any(info)])
        payload = MESSAGES["ConformancePayload"](data=wanted.response_data, request_info=info)
        answer = encoded(MESSAGES[f"{kind}Response"](payload=payload), call)
        return later(answer, wanted.response_delay_ms) if wanted.response_delay_ms else answer

    return handle


async def later(answer: bytes, milliseconds: int) -> bytes:
    await asyncio.sleep(milliseconds / 1000)
    return answer


def server_stream(call: Call) -> AsyncIterator[bytes]:
    request = decoded("ServerStreamRequest", call)
    wanted = request.response_definition
    added(wanted.response_headers, call.response_headers)
    added(wanted.response_trailers, call.response_trailers)
    return answers(call, wanted, request_info(call, request))


async def answers(call: Call, wanted: Any, info: Any) -> AsyncIterator[bytes]:
    for number, data in enumerate(wanted.response_data):
        await asyncio.sleep(wanted.response_delay_ms / 1000)
        payload = MESSAGES["ConformancePayload"](data=data, request_info=None if number else info)
        yield encoded(MESSAGES["ServerStreamResponse"](payload=payload), call)
    if wanted.HasField("error"):
        raise failure(wanted.error, () if wanted.response_data else [as_any(info)])


def unimplemented(call: Call) -> bytes:
    raise RpcError(Code.UNIMPLEMENTED, f"{PACKAGE}.ConformanceService.Unimplemented is not implemented")


SERVICE = f"/{PACKAGE}.ConformanceService/".encode()
METHODS: Methods = {
    SERVICE + b"Unary": Method(unary=unary("Unary")),
    SERVICE + b"IdempotentUnary": Method(unary=unary("IdempotentUnary"), safe=True),
    SERVICE + b"ServerStream": Method(stream=server_stream),
    SERVICE + b"Unimplemented": Method(unary=unimplemented),
}


def read(source: BinaryIO) -> Any:
    size = int.from_bytes(source.read(4), "big")
    return MESSAGES["ServerCompatRequest"].FromString(source.read(size))


def write(target: BinaryIO, message: Any) -> None:
    data = message.SerializeToString()
    target.write(len(data).to_bytes(4, "big") + data)
    target.flush()


async def main() -> None:
    wanted = read(sys.stdin.buffer)
    limit = wanted.message_receive_limit or 4 * MEGABYTE
    handler = rpc_handler(METHODS, WireLimits(body_bytes=limit))
    await serve_as(wanted, handler, WireLimits(body_bytes=limit + MEGABYTE))


async def serve_as(wanted: Any, handler: Handler, limits: WireLimits) -> None:
    """Serve until the suite ends this process, and tell it where."""
    with tempfile.TemporaryDirectory() as folder:
        listener = Listener(host="127.0.0.1", tls=certificates(wanted, Path(folder)) if wanted.use_tls else None)
        async with serve(handler, [listener], limits) as server:
            port = int(server.addresses[0].rpartition(":")[2])
            answer = MESSAGES["ServerCompatResponse"](host="127.0.0.1", port=port, pem_cert=wanted.server_creds.cert)
            write(sys.stdout.buffer, answer)
            await asyncio.Event().wait()


def certificates(wanted: Any, folder: Path) -> Tls:
    """Return the certificate that the suite gives, as files."""
    (folder / "cert").write_bytes(wanted.server_creds.cert)
    (folder / "key").write_bytes(wanted.server_creds.key)
    return Tls(certificate=str(folder / "cert"), key=str(folder / "key"))


if __name__ == "__main__":
    asyncio.run(main())
