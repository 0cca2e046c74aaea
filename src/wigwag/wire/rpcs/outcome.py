"""How a call ends, in any protocol: in time or not, and with which error.

Plain handlers just run. What is awaited is cut at the deadline: an awaitable as a whole, a stream in whatever pull is
under way, since pulls are what its consumer awaits and each may happen in another task. An error that is not an
`RpcError` is our fault: it is logged with where it happened but without its text, which could quote a message, and the
client learns nothing.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import TypeVar

from wigwag.loglimit import LogLimiter
from wigwag.wire.rpc import Call, Code, RpcError

T = TypeVar("T")
_log = LogLimiter(logging.getLogger("wigwag.wire"), most=100)


def explain(error: Exception, path: bytes) -> RpcError:
    """Return what the client may know of an error."""
    if isinstance(error, RpcError):
        return error
    where = "".join(traceback.format_tb(error.__traceback__))
    kind = error.__class__.__qualname__
    _log.log(logging.ERROR, monotonic(), "%s raised %s\n%s", path.decode("ascii", "replace"), kind, where)
    return RpcError(Code.INTERNAL, "internal error")


async def in_time(result: Awaitable[T], seconds: float | None) -> T:
    """Return what is awaited, if it comes within a number of seconds."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await result
    except TimeoutError:
        if limit.expired():
            raise _late() from None
        raise


async def chunks(
    messages: AsyncIterator[bytes],
    call: Call,
    frame: Callable[[bytes], bytes],
    ending: Callable[[Call], bytes] | None = None,
) -> AsyncIterator[bytes]:
    """Yield each message in its frame, then the ending, which finds in `call.error` how it ended."""
    pull = messages.__anext__ if call.deadline is None else _pull_until(messages, call.deadline)
    try:
        while True:
            try:
                message = await pull()
            except StopAsyncIteration:
                break
            yield frame(message)
    except Exception as error:  # noqa: BLE001  the border of a request
        call.error = explain(error, call.request.path)
    finally:
        if close := getattr(messages, "aclose", None):
            await close()
    if ending is not None:
        yield ending(call)


def _pull_until(messages: AsyncIterator[bytes], seconds: float) -> Callable[[], Awaitable[bytes]]:
    now = asyncio.get_running_loop().time
    end = now() + seconds
    return lambda: in_time(messages.__anext__(), end - now())


def remaining(seconds: float) -> float:
    """Return a client's timeout; one of zero has passed already, and raises."""
    if seconds <= 0:
        raise _late()
    return seconds


def _late() -> RpcError:
    return RpcError(Code.DEADLINE_EXCEEDED, "the deadline has passed")
