"""The bytes of a state file: the last good flags of every source, each for itself.

    magic  version  length  checksum  payload (msgpack: a list of entries)

The head follows from the payload and is compared whole, so a file is either what was written, to the last bit, or an
error that says what is wrong with it. Only magic and version stand still between versions of the format: a file of
another version can be told from a damaged one, but not read.
"""

from __future__ import annotations

import math
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from wigwag.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
MOST_BYTES = 256 << 20
"""The largest file that is written or read."""
MOST_ENTRIES = 4096
_MAGIC = b"wigwag\x00\xf5"
_START = struct.Struct(">8sI")
"""Magic and version: what every version of the format begins with."""
_HEAD = struct.Struct(">8sIQ32s")
HEAD_BYTES = _HEAD.size


class StateEntry(Struct, frozen=True):
    """The last good flags of one source."""

    key: str
    """Identifies the source; opaque."""
    name: str
    """The source, for people."""
    document: bytes
    """A flag document with all flags that are in force, see `state.document`."""
    saved: float
    """When the flags were last known to hold, in Unix seconds."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StateEntry]).decode


def encode(entries: Iterable[StateEntry], most: int = MOST_BYTES) -> bytes:
    """Return the bytes of a state file; equal entries, in whatever order, make equal bytes.

    >>> decode(encode([StateEntry("k", "flags.json", b'{"flags": []}', 12.5)]))
    (StateEntry(key='k', name='flags.json', document=b'{"flags": []}', saved=12.5),)
    """
    listed = sorted(entries, key=lambda entry: entry.key)
    _check(listed)
    if (size := sum(len(entry.document) for entry in listed)) > most:
        raise _too_large(size, most)
    payload = _encode(listed)
    if (size := len(payload) + HEAD_BYTES) > most:
        raise _too_large(size, most)
    return _head(payload) + payload


def decode(data: bytes) -> tuple[StateEntry, ...]:
    """Return the entries of a state file, or raise `StateError`."""
    check_version(data)
    if len(data) < HEAD_BYTES:
        raise StateError(f"the file is cut short: it ends after {len(data)} bytes, within its head")
    length, payload = _HEAD.unpack_from(data)[2], memoryview(data)[HEAD_BYTES:]
    if length != len(payload):
        what = "is cut short" if len(payload) < length else "is longer than it says"
        raise StateError(f"the file {what}: {len(payload)} bytes where there should be {length}")
    if data[:HEAD_BYTES] != _head(payload):
        raise StateError("the file is damaged: its checksum is not that of its content")
    try:
        entries = _decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(f"the file makes no sense: {error}") from error
    _check(entries)
    return tuple(entries)


def check_version(data: bytes) -> None:
    """Raise `StateError` if this is not the beginning of a state file of our version."""
    if data[: len(_MAGIC)] != _MAGIC or len(data) < _START.size:
        raise StateError("this is no state file, or its beginning is damaged")
    version = _START.unpack_from(data)[1]
    if version != VERSION:
        raise StateError(
            f"the file has version {version} of the format, and this is a wigwag that reads {VERSION}", version
        )


def _head(payload: bytes | memoryview) -> bytes:
    return _HEAD.pack(_MAGIC, VERSION, len(payload), blake2b(payload, digest_size=32).digest())


def _check(entries: list[StateEntry]) -> None:
    if len(entries) > MOST_ENTRIES:
        raise StateError(f"{len(entries)} sources are more than the {MOST_ENTRIES} that a state file holds")
    if len({entry.key for entry in entries}) < len(entries):
        raise StateError("two entries have the same key")
    if not all(math.isfinite(entry.saved) for entry in entries):
        raise StateError("the time of an entry is no time")


def _too_large(size: int, most: int) -> StateError:
    return StateError(f"the flags of all sources take {size} bytes, more than the {most} that are kept on disk")
