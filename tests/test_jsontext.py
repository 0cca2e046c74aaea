"""JSON from outside: numbers that take msgspec long are read in another way, with the same result."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from wigwag.jsontext import MANY, MOST, SMALL, decoder, exponents

HARD = b"[" + b",".join([b"1e308"] * (2 * MANY)) + b"]"


@pytest.mark.parametrize("form", [bytes, bytes.decode, Raw], ids=["bytes", "str", "Raw"])
def test_a_text_with_many_hard_numbers_is_decoded_to_the_same(form: Any) -> None:
    assert len(HARD) > SMALL
    assert exponents(HARD) == 2 * MANY
    assert decoder()(form(HARD)) == [1e308] * (2 * MANY)


@pytest.mark.parametrize(
    "text",
    [b"1e308", b"[1.5]" * 1, b"9" * 500_000, b"[" + b'"e",' * 100_000 + b"1]", b"[" + b"0.5," * 100_000 + b"1]"],
    ids=["short", "plain", "digits", "letters", "fractions"],
)
def test_other_texts_are_decoded_quickly(text: bytes) -> None:
    assert len(text) <= SMALL or exponents(text) <= MANY


def test_hard_numbers_are_read_by_python() -> None:
    """Counted, not timed: each goes through the hook, so none through the slow path."""
    seen: list[str] = []

    def read(text: str) -> float:
        seen.append(text)
        return float(text)

    decoder(read_float=read)(HARD)
    assert len(seen) == 2 * MANY


def test_a_request_may_have_only_so_many() -> None:
    text = b"[" + b",".join([b"1e30"] * (MOST + 1)) + b"]"
    with pytest.raises(msgspec.ValidationError, match="more than 50000 numbers with exponents"):
        decoder(most=MOST)(text)
    assert len(decoder()(text)) == MOST + 1


@pytest.mark.parametrize("number", [b"1e999", b"-1e999"])
def test_a_number_out_of_range_is_refused_either_way(number: bytes) -> None:
    for text in (b"[" + number + b"]", HARD[:-1] + b"," + number + b"]"):
        with pytest.raises(msgspec.ValidationError, match="out of range"):
            decoder()(text)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(), max_size=20))
def test_both_ways_read_the_same_values(values: list[Any]) -> None:
    text = json.dumps(values).encode()
    padded = text[:-1] + (b"," if values else b"") + HARD[1:]
    assert decoder()(padded)[: len(values)] == msgspec.json.decode(text)
