"""A body as it was before it was compressed: gzip and deflate, in pieces of a bounded size.

A small body can become a huge one, so nothing is decompressed ahead of whoever counts it: each piece is made when it is
asked for. A body must be one stream; a chain of members would cost more than it says.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

PIECE = 1 << 16
_ZLIB = 15
_WINDOWS = {"": 0, "identity": 0, "gzip": 31, "x-gzip": 31, "deflate": _ZLIB}
"""How zlib calls each encoding; 0 is no compression at all."""


class BodyDecoder:
    """The decoder of one body. Everything raises `ValueError` if the body is not what it is said to be.

    >>> b"".join(BodyDecoder("deflate").pieces(zlib.compress(b"{}")))
    b'{}'
    """

    def __init__(self, encoding: str) -> None:
        """`encoding` is a `Content-Encoding`."""
        window = _WINDOWS.get(encoding.strip().lower())
        if window is None:
            raise ValueError("the body is compressed in a way that was not asked for; serve it plain or as gzip")
        self._window = window
        self._stream: zlib._Decompress | None = None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield what some bytes become."""
        if not self._window:
            yield data
        elif data:
            yield from self._inflated(data)

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            bare = self._window == _ZLIB and data[0] & 15 != 8  # some servers send deflate without its wrapper
            self._stream = zlib.decompressobj(-_ZLIB if bare else self._window)
        stream, full = self._stream, True
        try:
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
        """Note that there are no more bytes."""
        if self._stream is not None and not self._stream.eof:
            raise ValueError("the compressed body breaks off")
