"""A body as it was before it was compressed: gzip and deflate, in pieces of a bounded size.

A small body can become a huge one, so nothing is decompressed ahead of whoever counts it: each piece is made when it is
asked for. A body must be one stream; a chain of members would cost more than it says.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

PIECE = 1 << 16
_GZIP, _ZLIB, _RAW = 31, 15, -15


class Decoder(Protocol):
    """One body's decoder. Both raise `ValueError` if the body is not what it is said to be."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Return what some bytes become."""
        ...

    def end(self) -> None:
        """Note that there are no more."""


class Plain:
    """A body that is not compressed."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield data

    def end(self) -> None:
        pass


class Inflate:
    """A compressed body."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._stream: zlib._Decompress | None = None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if not data:
            return
        stream = self._stream = self._stream or self._begin(data)
        try:
            full = True
            while not stream.eof and (data or full):  # a full piece may leave something behind that needs no more input
                piece = stream.decompress(data, PIECE)
                data, full = stream.unconsumed_tail, len(piece) == PIECE
                if piece:
                    yield piece
        except zlib.error as error:
            raise ValueError("the body cannot be decompressed") from error
        if data or stream.unused_data:
            raise ValueError("something follows the compressed body")

    def end(self) -> None:
        if self._stream is not None and not self._stream.eof:
            raise ValueError("the compressed body breaks off")

    def _begin(self, data: bytes) -> zlib._Decompress:
        """Tell deflate in its wrapper from bare deflate, which some servers send, by its first byte."""
        return zlib.decompressobj(_GZIP if self._gzip else _ZLIB if data[0] & 15 == 8 else _RAW)


def decoder(encoding: str) -> Decoder:
    """Return the decoder of a `Content-Encoding`.

    >>> b"".join(decoder("deflate").pieces(zlib.compress(b"{}")))
    b'{}'
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return Plain()
    if name in ("gzip", "x-gzip", "deflate"):
        return Inflate(gzip=name != "deflate")
    raise ValueError("the body is compressed in a way that was not asked for; serve it plain or as gzip")
