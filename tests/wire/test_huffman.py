from __future__ import annotations

import pytest
from hpack.exceptions import HPACKDecodingError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable
from hypothesis import given
from hypothesis import strategies as st

from wigwag.wire.h2 import huffman
from wigwag.wire.h2.hpack import STATIC

ENCODER = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


@given(st.binary(max_size=64))
def test_what_was_encoded_is_decoded(text: bytes) -> None:
    assert huffman.decode(ENCODER.encode(text)) == text


@given(st.binary(max_size=16))
def test_any_bytes_decode_as_the_library_decodes_them(data: bytes) -> None:
    try:
        expected = bytes(decode_huffman(data))
    except HPACKDecodingError:
        with pytest.raises(ValueError, match="Huffman"):
            huffman.decode(data)
    else:
        assert huffman.decode(data) == expected


def test_the_steps_that_are_kept_are_bounded() -> None:
    for state in range(1, 64):
        for byte in range(256):
            huffman._step(state << 8 | byte)
    assert len(huffman._steps) <= huffman.MOST_STEPS


def test_the_tables_are_those_of_the_library() -> None:
    assert HeaderTable.STATIC_TABLE == STATIC
    codes = enumerate(zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True))
    assert {1 << length | code: symbol for symbol, (code, length) in codes} == huffman.codes()
