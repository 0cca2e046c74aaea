"""A file that may be compressed: flags that are too large for a ConfigMap are in it as gzip.

It is recognised by its first bytes, which no text has. A small file can become a huge one, so no more is decompressed
than a file may have.
"""

from __future__ import annotations

import errno
import zlib

from wigwag.sources.disk.read import too_large

MAGIC = b"\x1f\x8b"
_WINDOW = 31
"""How zlib calls gzip."""


def decompressed(content: bytes, path: str, most: int) -> bytes:
    """Return what a file holds; `OSError` if it is broken, or larger than `most`. `path` is for errors."""
    if not content.startswith(MAGIC):
        return content
    stream = zlib.decompressobj(_WINDOW)
    try:
        plain = stream.decompress(content, most + 1)
    except zlib.error as error:
        raise OSError(errno.EINVAL, f"it begins like gzip, but cannot be decompressed ({error})", path) from error
    if len(plain) > most:
        raise too_large(path, most)
    if not stream.eof or stream.unused_data:
        raise OSError(errno.EINVAL, "it is not one whole gzip stream; compress it again", path)
    return plain
