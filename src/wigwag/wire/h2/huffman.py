"""HPACK's Huffman code (RFC 7541 §5.2), decoded a byte at a time.

What a byte does depends only on the bits left over from the bytes before, so each step is worked out once and kept.
A state is those bits with a one in front of them, so that leading zeros count, and room for the next byte behind them.
The code, like the static table in `hpack`, is not imported from a library: to load one takes a quarter of the time that
the agent starts in.
"""

from __future__ import annotations

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
START = 1 << 8
END_OF_STRING = 256
MOST_STEPS = 8192
"""Steps that are kept: text needs a few hundred, random bytes up to 65,536."""
_PADDING = frozenset((1 << bits + 1) - 1 << 8 for bits in range(8))
"""The states that a string may end in: up to seven ones are left over."""
_steps: dict[int, tuple[bytes, int]] = {}


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


_SYMBOLS = codes()


def decode(data: bytes) -> bytes:
    """Return the text of a Huffman string; `ValueError` if it is broken.

    >>> decode(bytes.fromhex("a8eb10649cbf"))
    b'no-cache'
    """
    state, pieces, known = START, [], _steps.get
    for byte in data:
        symbols, state = known(state | byte) or _step(state | byte)
        pieces.append(symbols)
    if state not in _PADDING:
        raise ValueError("a Huffman string ends within a symbol")
    return b"".join(pieces)


def _step(key: int) -> tuple[bytes, int]:
    """Return the symbols that the last byte of `key` completes after the state before it, and the state after it."""
    state, symbols = key >> 8, bytearray()
    for shift in range(7, -1, -1):
        state = state << 1 | (key >> shift & 1)
        symbol = _SYMBOLS.get(state)
        if symbol is not None:
            if symbol == END_OF_STRING:
                raise ValueError("a Huffman string has the symbol that ends strings")
            symbols.append(symbol)
            state = 1
    if len(_steps) >= MOST_STEPS:
        _steps.clear()
    _steps[key] = bytes(symbols), state << 8
    return _steps[key]
