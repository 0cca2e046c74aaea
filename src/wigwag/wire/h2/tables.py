"""The tables of HPACK (RFC 7541, appendices A and B): the static header fields, and the Huffman code.

They are here and not imported from a library because loading one takes a quarter of the time that the agent starts in.
"""

from __future__ import annotations

Field = tuple[bytes, bytes]

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

_LENGTHS = """
13 23 28 28 28 28 28 28 28 24 30 28 28 30 28 28 28 28 28 28 28 28 30 28 28 28 28 28 28 28 28 28
6 10 10 12 13 6 8 11 10 10 8 11 8 6 6 6 5 5 5 6 6 6 6 6 6 6 7 8 15 6 12 10
13 6 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 8 7 8 13 19 13 14 6
15 5 6 5 6 5 6 6 6 5 7 7 6 6 6 5 6 7 6 5 5 6 7 7 7 7 7 15 11 14 13 28
20 22 20 20 22 22 22 23 22 23 23 23 23 23 24 23 24 24 22 23 24 23 23 23 23 21 22 23 22 23 23 24
22 21 20 22 22 23 23 21 23 22 22 24 21 22 23 23 21 21 22 21 23 22 23 23 20 22 22 22 23 22 22 23
26 26 20 19 22 23 22 25 26 26 26 27 27 26 24 25 19 21 26 27 27 26 27 24 21 21 26 26 28 27 27 27
20 24 20 21 22 21 21 23 22 22 25 25 24 24 26 23 26 27 26 26 27 27 27 27 27 28 27 27 27 27 27 26
30
"""
LENGTHS = tuple(map(int, _LENGTHS.split()))
"""The bits of the code of each byte, and of the end of a string."""


def codes() -> dict[int, int]:
    """Return the symbol of each code, with a one in front of its bits.

    The code is canonical: codes of one length follow each other in the order of their symbols.
    """
    symbols, code, last = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(LENGTHS)):
        code <<= length - last
        symbols[1 << length | code] = symbol
        code, last = code + 1, length
    return symbols
