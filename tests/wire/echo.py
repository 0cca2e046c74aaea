"""The service that the protocol tests call, and how they call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

from wigwag.wire.http import Handler, Headers, Reply, Request, Response, Stream
from wigwag.wire.limits import WireLimits
from wigwag.wire.rpc import Call, Code, Method, RpcError
from wigwag.wire.rpcs.dispatch import rpc_handler

LIMIT = 4000
DETAIL = ("pkg.Why", b"\x08\x01")


def echo(call: Call) -> bytes:
    return (b"json:" if call.json else b"proto:") + call.body


async def echo_later(call: Call) -> bytes:
    await asyncio.sleep(0)
    return echo(call)


async def never(call: Call) -> bytes:
    await asyncio.Event().wait()
    return b""


def refuse(call: Call) -> bytes:
    raise RpcError(Code.NOT_FOUND, "no flag 100% sûr")


def refuse_with_everything(call: Call) -> bytes:
    call.response_headers.append((b"x-head", b"h"))
    call.response_trailers.append((b"x-trail", b"t"))
    raise RpcError(Code.ABORTED, "no", (DETAIL,), ((b"x-meta", b"m"),))


def busy(call: Call) -> bytes:
    raise RpcError(Code.UNAVAILABLE, "busy")


def crash(call: Call) -> bytes:
    raise KeyError(call.body)


def decorated(call: Call) -> bytes:
    call.response_headers.append((b"x-head", b"h"))
    call.response_trailers.append((b"x-trail", b"t"))
    return b"ok"


def count(call: Call) -> AsyncIterator[bytes]:
    call.response_headers.append((b"x-head", b"h"))

    async def numbers() -> AsyncIterator[bytes]:
        for number in range(int(call.body)):
            yield b"%d" % number
        call.response_trailers.append((b"x-trail", b"t"))

    return numbers()


def shut(call: Call) -> AsyncIterator[bytes]:
    raise RpcError(Code.PERMISSION_DENIED, "shut")


async def count_then_refuse(call: Call) -> AsyncIterator[bytes]:
    yield b"0"
    raise RpcError(Code.DATA_LOSS, "lost", (DETAIL,))


async def count_then_crash(call: Call) -> AsyncIterator[bytes]:
    yield b"0"
    raise KeyError(call.body)


async def count_then_hang(call: Call) -> AsyncIterator[bytes]:
    yield b"0"
    await asyncio.Event().wait()


async def large(call: Call) -> AsyncIterator[bytes]:
    yield b"a" * 2000
    yield b"b"


METHODS = {
    b"/t.T/Echo": Method(unary=echo, safe=True),
    b"/t.T/Later": Method(unary=echo_later),
    b"/t.T/Never": Method(unary=never),
    b"/t.T/Refuse": Method(unary=refuse),
    b"/t.T/Busy": Method(unary=busy),
    b"/t.T/Everything": Method(unary=refuse_with_everything),
    b"/t.T/Crash": Method(unary=crash),
    b"/t.T/Decorated": Method(unary=decorated),
    b"/t.T/Count": Method(stream=count),
    b"/t.T/Shut": Method(stream=shut),
    b"/t.T/Lose": Method(stream=count_then_refuse),
    b"/t.T/Break": Method(stream=count_then_crash),
    b"/t.T/Hang": Method(stream=count_then_hang),
    b"/t.T/Large": Method(stream=large),
}
HANDLER = rpc_handler(METHODS, WireLimits(body_bytes=LIMIT))


def post(path: bytes, content_type: bytes, body: bytes = b"", **headers: bytes) -> Request:
    given = tuple((name.replace("_", "-").encode(), value) for name, value in headers.items())
    return Request(b"POST", b"/t.T/" + path, b"", ((b"content-type", content_type), *given), body)


async def settled(answer: Response | Awaitable[Response]) -> Response:
    return answer if isinstance(answer, Reply | Stream) else await answer


def reply(request: Request, handler: Handler = HANDLER) -> Reply:
    async def run() -> Response:
        return await settled(handler(request))

    answer = asyncio.run(run())
    assert isinstance(answer, Reply)
    return answer


def streamed(request: Request) -> tuple[Stream, list[bytes], Headers]:
    """Pull a stream to its end."""

    async def run() -> tuple[Stream, list[bytes], Headers]:
        answer = await settled(HANDLER(request))
        assert isinstance(answer, Stream)
        chunks = [chunk async for chunk in answer.chunks]
        return answer, chunks, answer.trailers() if answer.trailers is not None else ()

    return asyncio.run(run())
