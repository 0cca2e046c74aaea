"""HPACK's Huffman code (RFC 7541 §5.2), decoded a byte at a time.

What a byte does depends only on the bits left over from the bytes before, so each step is worked out once and kept.
A state is those bits with a one in front of them, so that leading zeros count, and room for the next byte behind them.
"""

from __future__ import annotations

from wigwag.wire.h2.tables import codes

START = 1 << 8
END_OF_STRING = 256
MOST_STEPS = 8192
"""Steps that are kept: text needs a few hundred, random bytes up to 65,536."""
_SYMBOLS = codes()
_PADDING = frozenset((1 << bits + 1) - 1 << 8 for bits in range(8))
"""The states that a string may end in: up to seven ones are left over."""
_steps: dict[int, tuple[bytes, int]] = {}


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
