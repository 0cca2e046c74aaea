"""Messages in a stream of bytes: one flag byte, four bytes of length, the message; gzip if the flag says so.

A request carries exactly one message, so `unwrap` takes a whole body and gives the message. Nothing is trusted: the
length must be the body's, and decompression stops at the limit, so that a small bomb cannot become a large message.
A gzip body must be one member: a chain of members would cost more than it says.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from functools import lru_cache

from wigwag.wire.rpc import Code, RpcError

COMPRESSED = 0x01
PREFIX = 5
WORTH_COMPRESSING = 1024
"""Bytes; under it gzip costs more time than it saves."""
ACCEPTED = b"gzip"
_GZIP = 31


def wrap(message: bytes, flags: int = 0) -> bytes:
    r"""Return the message with its prefix.

    >>> wrap(b"abc")
    b'\x00\x00\x00\x00\x03abc'
    """
    return (flags << 32 | len(message)).to_bytes(PREFIX, "big") + message


def pack(message: bytes, gzip: bool) -> bytes:
    """Return the message with its prefix, compressed if the other side takes gzip and it is worth it."""
    return _large(message, gzip) if len(message) >= WORTH_COMPRESSING else wrap(message)


@lru_cache(maxsize=4)
def _large(message: bytes, gzip: bool) -> bytes:
    """Remember the last few: a document goes to every stream, and all of them share one compressed copy of it."""
    return wrap(compress(message), COMPRESSED) if gzip else wrap(message)


def unwrap(body: bytes, encoding: bytes | None, limit: int) -> bytes:
    """Return the one message of a body.

    >>> unwrap(wrap(b"abc"), None, 10)
    b'abc'
    """
    size = len(body) - PREFIX
    if size >= 0 and body[:PREFIX] == size.to_bytes(PREFIX, "big") and size <= limit:
        return body[PREFIX:]
    if size < 0 or body[0] != COMPRESSED or int.from_bytes(body[1:PREFIX], "big") != size or size > limit:
        raise _misfit(body, limit)
    if not is_gzip(encoding):
        raise RpcError(Code.INTERNAL, "the message is compressed, but the headers name no compression")
    return decompress(body[PREFIX:], limit) if size else b""


async def unwrap_stream(pieces: AsyncIterator[bytes], encoding: bytes | None, limit: int) -> AsyncIterator[bytes]:
    """Yield the messages of a body that arrives in pieces, which need not be cut where messages are.

    A piece may hold thousands of them: between two, others get their turn.
    """
    buffer = bytearray()
    async for piece in pieces:
        buffer += piece
        while len(buffer) >= PREFIX:
            end = PREFIX + int.from_bytes(buffer[1:PREFIX], "big")
            if end - PREFIX > limit:
                raise too_large(limit)
            if len(buffer) < end:
                break
            message = bytes(buffer[:end])
            del buffer[:end]
            yield unwrap(message, encoding, limit)
            await asyncio.sleep(0)
    if buffer:
        raise RpcError(Code.INVALID_ARGUMENT, "the last message is incomplete")


def _misfit(body: bytes, limit: int) -> RpcError:
    """Say why a body is not exactly one message. None and several are what a method of another kind would get."""
    if not body:
        return RpcError(Code.UNIMPLEMENTED, "the call has no message; this method takes exactly one")
    if len(body) < PREFIX:
        return RpcError(Code.INVALID_ARGUMENT, "the message's prefix is incomplete")
    if body[0] > COMPRESSED:
        return RpcError(Code.INVALID_ARGUMENT, f"the message's flags 0x{body[0]:02x} mean nothing in a request")
    size = int.from_bytes(body[1:PREFIX], "big")
    if size > limit:
        return too_large(limit)
    if size > len(body) - PREFIX:
        return RpcError(Code.INVALID_ARGUMENT, "the message is shorter than its prefix says")
    return RpcError(Code.UNIMPLEMENTED, "the call has several messages; this method takes exactly one")


def is_gzip(encoding: bytes | None) -> bool:
    """Tell whether a body is compressed; refuse an encoding that we do not know."""
    if not encoding or encoding == b"identity":
        return False
    if encoding == b"gzip":
        return True
    name = encoding[:40].decode("ascii", "replace")
    raise RpcError(Code.UNIMPLEMENTED, f"unknown compression {name!r}: supported are gzip and identity")


def accepts_gzip(accepted: bytes | None) -> bool:
    """Tell whether a list of encodings has gzip in it.

    >>> accepts_gzip(b"br, gzip;q=0.5"), accepts_gzip(b"gzip;q=0"), accepts_gzip(None)
    (True, False, False)
    """
    for item in accepted.lower().split(b",") if accepted else ():
        name, _, weight = item.replace(b" ", b"").partition(b";q=")
        if name == b"gzip":
            return weight.strip(b"0.") != b"" or not weight
    return False


def compress(message: bytes) -> bytes:
    """Return the message as gzip."""
    return zlib.compress(message, 1, _GZIP)


def decompress(data: bytes, limit: int) -> bytes:
    """Return what was compressed, if it is no longer than the limit.

    >>> decompress(compress(b"a" * 100), 100) == b"a" * 100
    True
    """
    inflate = zlib.decompressobj(_GZIP)
    try:
        message = inflate.decompress(data, limit + 1)
    except zlib.error as error:
        raise RpcError(Code.INVALID_ARGUMENT, "the compressed message is malformed") from error
    if len(message) > limit:
        raise too_large(limit)
    if not inflate.eof or inflate.unused_data:
        raise RpcError(Code.INVALID_ARGUMENT, "the compressed message is incomplete, or followed by something")
    return message


def too_large(limit: int) -> RpcError:
    """Say that a message is over the limit."""
    return RpcError(Code.RESOURCE_EXHAUSTED, f"the message is larger than {limit} bytes")
