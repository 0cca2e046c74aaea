"""HPACK (RFC 7541): header blocks, decoded and encoded as few times as possible.

Coming in, a block means the same as long as the dynamic table stays the same, so whole decoded blocks are remembered
until a block changes the table: grpcio repeats three blocks for ever and never gets past the dictionary. grpc-go adds a
new `grpc-timeout` to the table with most calls, so its blocks differ although they say the same but for that value.
They are decoded again, a table reference at the cost of one look-up, but their head is copied from one that differs in
the timeout only: the timeout decides nothing about the rest. Going out, the dynamic table is not used, so one encoding
is right for every connection and is remembered for good: responses repeat a handful of header lists.

The hard cases: a bad field must poison its block but stay in the table, since the other end keeps counting from it. A
block of one-byte references to one large entry decodes to megabytes (the HPACK bomb): references share their entry
here, and the size is checked before anybody joins them. Decoding stops at the limit on fields: what follows is only
followed as far as it changes the table, and a block that costs too much even so ends the connection. A handler that
puts a line break into a header is refused before anything of it is sent.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from wigwag.wire.h2.frames import END_HEADERS, END_STREAM, HEADERS, ErrorCode, Http2ConnectionError, prefix
from wigwag.wire.h2.heads import HOP_BY_HOP, NAMED, OVERHEAD, POISON, Field, Head, request_head
from wigwag.wire.h2.huffman import decode as decode_huffman
from wigwag.wire.http import Headers
from wigwag.wire.limits import WireLimits

_FIELDS = """
:authority | :method GET | :method POST | :path / | :path /index.html | :scheme http | :scheme https
:status 200 | :status 204 | :status 206 | :status 304 | :status 400 | :status 404 | :status 500 | accept-charset
accept-encoding gzip, deflate | accept-language | accept-ranges | accept | access-control-allow-origin | age
allow | authorization | cache-control | content-disposition | content-encoding | content-language
content-length | content-location | content-range | content-type | cookie | date | etag | expect | expires
from | host | if-match | if-modified-since | if-none-match | if-range | if-unmodified-since | last-modified
link | location | max-forwards | proxy-authenticate | proxy-authorization | range | referer | refresh
retry-after | server | set-cookie | strict-transport-security | transfer-encoding | user-agent | vary | via
www-authenticate
"""
_PARTED = (field.strip().partition(b" ") for field in _FIELDS.strip().replace("\n", "|").encode().split(b"|"))
STATIC: tuple[Field, ...] = tuple((name, value) for name, _, value in _PARTED)
"""The static table, from index 1 on."""
TABLE: tuple[Field, ...] = (POISON, *STATIC)
CAPACITY = 4096
REMEMBERED = 64
"""Blocks that are remembered at a time…"""
REMEMBERED_SIZE = 1024
"""…each of at most so many bytes."""
TIMEOUT = b"grpc-timeout"
SHAPES = 16
"""Heads that are remembered without their timeout…"""
SHAPE_SIZE = 4096
"""…each of at most so many bytes of fields."""
NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
BLANKS = b" \t"
MOST_FIELDS = 16_384
"""Fields that are followed beyond the limit, for the sake of the table…"""
LITERAL = 8
"""…of which one that is written out counts as so many references."""
MOST_HUFFMAN = 32 * 1024
"""Bytes of Huffman strings in one block: each costs half a microsecond."""
SENT_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
SENT_INDEX = {name: index for index, (name, _) in reversed(list(enumerate(STATIC, 1)))}
SENT_FIELDS = {field: index for index, field in enumerate(STATIC, 1)}
SENT_REMEMBERED = 512
SENT_LARGEST = 16_384
"""Bytes of a block that is remembered, and fits in one frame."""


def out_of_step(reason: str) -> Http2ConnectionError:
    """Return the fault after which the two tables can no longer be the same."""
    return Http2ConnectionError(ErrorCode.COMPRESSION_ERROR, reason)


def integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return the integer whose prefix is at `at`, and where it ends (RFC 7541 §5.1)."""
    value = block[at] & mask
    at += 1
    if value < mask:
        return value, at
    for shift in (0, 7, 14, 21):
        byte = block[at]
        at += 1
        value += (byte & 127) << shift
        if byte < 128:
            return value, at
    raise out_of_step("an integer is too long")


def skip(block: bytes, at: int) -> int:
    """Return where the string at `at` ends."""
    size, start = integer(block, at, 127)
    if start + size > len(block):
        raise out_of_step("a string is cut off")
    return start + size


def checked(name: bytes, value: bytes) -> Field:
    """Return the field of a name that may be, or a poisoned one, which makes every block with it malformed.

    A poisoned field has no name, and its name as its value: later literals may refer to that.

    Blanks around a value are not allowed either (RFC 9113 §8.2.1), but clients send them and Go's server takes them:
    they are cut off, except around pseudo-header fields.
    """
    padded = bool(value) and (value[0] in BLANKS or value[-1] in BLANKS)
    if not name or bad(value) or (padded and name in NAMED):
        return b"", name
    return name, value.strip(BLANKS) if padded else value


def bad(value: bytes) -> bool:
    """Return whether a value has what no value may have: line breaks or zeros (RFC 9113 §8.2.1)."""
    return b"\n" in value or b"\r" in value or b"\0" in value


def too_costly(reason: str) -> Http2ConnectionError:
    """Return the fault of a block that would take too long to decode."""
    return Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, reason)


class HeaderDecoder:
    """The decoding end of one connection."""

    __slots__ = (
        "_capacity",
        "_changed",
        "_huffman",
        "_known",
        "_limits",
        "_read",
        "_shapes",
        "_size",
        "_sizes",
        "_table",
        "_timeout_at",
    )

    def __init__(self, limits: WireLimits, read: Callable[[list[Field], WireLimits, int], Head] = request_head) -> None:
        self._limits, self._read = limits, read
        self._known: dict[bytes, Head] = {}
        self._shapes: deque[tuple[list[Field], Head, int]] = deque(maxlen=SHAPES)
        self._timeout_at = 0
        self._table = list(TABLE)
        """The static table, then the dynamic one."""
        self._sizes: deque[int] = deque()
        self._size, self._capacity, self._changed, self._huffman = 0, CAPACITY, False, MOST_HUFFMAN

    def decode(self, block: bytes) -> Head:
        """Return what a block says; raise if the table is out of step with the other end's."""
        return self._known.get(block) or self._learn(block)

    def _learn(self, block: bytes) -> Head:
        self._changed = False
        try:
            fields = self._fields(block)
        except IndexError:
            raise out_of_step("a header block is cut off") from None
        except ValueError as error:
            raise out_of_step("a Huffman string is broken") from error
        known = self._head(fields, len(block))
        if self._changed or len(self._known) >= REMEMBERED:
            self._known.clear()
        if not self._changed and len(block) <= REMEMBERED_SIZE:
            self._known[block] = known
        return known

    def _head(self, fields: list[Field], size: int) -> Head:
        """Return what the fields say: a copy of a known head, if they differ from its fields in the timeout only."""
        at = self._timeout_at
        if at < len(fields) and fields[at][0] == TIMEOUT and size <= REMEMBERED_SIZE:
            timeout, fields[at] = fields[at], POISON
            for shape, head, place in self._shapes:
                if shape == fields:
                    return head.with_value(place, timeout)
            fields[at] = timeout
        head = self._read(fields, self._limits, size)
        if not head.status and TIMEOUT in head.fields:
            self._remember(fields, head)
        return head

    def _remember(self, fields: list[Field], head: Head) -> None:
        """Remember a head by its fields but for the timeout, if it has one timeout and is small."""
        names, used = [name for name, _ in fields], sum(len(name) + len(value) + OVERHEAD for name, value in fields)
        if names.count(TIMEOUT) != 1 or used > SHAPE_SIZE or used + 2 * REMEMBERED_SIZE > self._limits.header_bytes:
            return
        self._timeout_at = at = names.index(TIMEOUT)
        self._shapes.appendleft(([*fields[:at], POISON, *fields[at + 1 :]], head, head.headers.index(fields[at])))

    def _fields(self, block: bytes) -> list[Field]:
        """Return the fields, at most one more than the limit."""
        fields: list[Field] = []
        at, end, table = 0, len(block), self._table
        self._huffman = MOST_HUFFMAN
        for _ in range(self._limits.header_count + 1):
            if at >= end:
                return fields
            byte = block[at]
            if byte > 128:
                at += 1
                if byte == 255:  # two bytes are enough for every entry of the table
                    byte += block[at]
                    at += 1
                    if byte > 382:
                        raise out_of_step("an index is too large")
                fields.append(table[byte - 128])
            elif byte == 128:
                raise out_of_step("index 0 is nothing")
            elif byte & 0xE0 == 0x20:
                at = self._resize(block, at, at_start=not fields)
            else:
                field, at = self._literal(block, at, byte)
                fields.append(field)
        self._follow(block, at)
        return fields

    def _follow(self, block: bytes, at: int) -> None:
        """Keep the table in step with what is beyond the limit."""
        end, left = len(block), MOST_FIELDS
        while at < end:
            byte = block[at]
            left -= 1 if byte >= 128 else LITERAL
            if left < 0:
                raise too_costly("a header block has too many fields")
            if byte >= 128:
                index, at = integer(block, at, 127)
                if not index:
                    raise out_of_step("index 0 is nothing")
                self._table[index]  # `IndexError` if there is none
            elif byte & 64:
                _, at = self._literal(block, at, byte)
            elif byte & 32:
                raise out_of_step("a table size update is too late")
            else:
                index, at = integer(block, at, 15)
                at = skip(block, at if index else skip(block, at))

    def _literal(self, block: bytes, at: int, byte: int) -> tuple[Field, int]:
        indexed = byte & 64
        index, at = integer(block, at, 63 if indexed else 15)
        if index and self._table[index][0]:
            name, allowed = self._table[index][0], True  # it was checked when it came
        else:
            name, at = (self._table[index][1], at) if index else self._text(block, at)
            allowed = name in NAMED or NAME.fullmatch(name) is not None
        value, at = self._text(block, at)
        field = checked(name, value) if allowed else (b"", name)
        if indexed:
            self._insert(field, len(name) + len(value) + OVERHEAD)
        return field, at

    def _text(self, block: bytes, at: int) -> tuple[bytes, int]:
        """Return the string at `at`, and where it ends."""
        first, start = block[at], at + 1
        size = first & 127
        if size == 127:
            size, start = integer(block, at, 127)
        end = start + size
        if end > len(block):
            raise out_of_step("a string is cut off")
        if first < 128:
            return block[start:end], end
        if len(block) > MOST_HUFFMAN:  # a smaller one cannot hold too much
            self._huffman -= size
            if self._huffman < 0:
                raise too_costly("a header block has too much in Huffman code")
        return decode_huffman(block[start:end]), end

    def _insert(self, field: Field, size: int) -> None:
        self._changed = True
        self._size += size
        self._table.insert(len(TABLE), field)
        self._sizes.appendleft(size)
        if self._size > self._capacity:
            self._evict()

    def _resize(self, block: bytes, at: int, *, at_start: bool) -> int:
        size, at = integer(block, at, 31)
        if size > CAPACITY or not at_start:
            raise out_of_step("a table size update is too large or too late")
        self._capacity, self._changed = size, True
        self._evict()
        return at

    def _evict(self) -> None:
        while self._size > self._capacity:
            self._size -= self._sizes.pop()
            self._table.pop()


def encode_integer(value: int, mask: int, high: int) -> bytes:
    """Return an integer with a prefix as wide as `mask`, below the bits `high` (RFC 7541 §5.1)."""
    if value < mask:
        return bytes((high | value,))
    encoded = [high | mask]
    value -= mask
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes((*encoded, value))


def encode_field(name: bytes, value: bytes) -> bytes:
    """Return one field, from the static table or as a literal that is not to be indexed."""
    if not SENT_NAME.fullmatch(name) or bad(value):
        raise ValueError(f"a header cannot be sent: {name!r}")
    if index := SENT_FIELDS.get((name, value)):
        return encode_integer(index, 127, 128)
    index = SENT_INDEX.get(name, 0)
    named = encode_integer(index, 15, 0) if index else b"\0" + encode_integer(len(name), 127, 0) + name
    return named + encode_integer(len(value), 127, 0) + value


def encode_block(status: int, headers: Headers) -> bytes:
    """Return the block of a response, or of trailers if there is no status."""
    fields = ((b":status", b"%d" % status), *headers) if status else headers
    return b"".join(encode_field(name, value) for name, value in fields if name not in HOP_BY_HOP)


class HeaderEncoder:
    """Remembers the blocks of responses, with the part of their HEADERS frame that is before the stream.

    It is shared by all connections of a server: what it holds depends on no connection.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, Headers, bool], tuple[bytes, bytes]] = {}

    def encode(self, status: int, headers: Headers, end: bool) -> tuple[bytes, bytes]:
        """Return the first five bytes of the HEADERS frame, or nothing if one is not enough, and the block."""
        key = (status, headers, end)
        return self._known.get(key) or self._learn(key)

    def _learn(self, key: tuple[int, Headers, bool]) -> tuple[bytes, bytes]:
        encoded = encode_block(key[0], key[1])
        if len(encoded) > SENT_LARGEST:
            return b"", encoded
        if len(self._known) >= SENT_REMEMBERED:
            self._known.clear()
        flags = END_HEADERS | END_STREAM if key[2] else END_HEADERS
        self._known[key] = known = prefix(HEADERS, flags, len(encoded)), encoded
        return known
