"""Quantities as the API server stores them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.operator.resources.quantity import canonical_quantity, quantity

SUFFIXES = ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@given(st.decimals(0, 10_000, places=3), st.sampled_from(SUFFIXES))
def test_the_canonical_quantity_is_the_same_quantity_and_canonical(number: object, suffix: str) -> None:
    written = canonical_quantity(f"{number}{suffix}")
    assert quantity(written) == quantity(f"{number}{suffix}")
    assert canonical_quantity(written) == written


@pytest.mark.parametrize("text", ["9" * 40, "9" * 50, "1e3", "1E3", "1.3Ki"])
def test_what_the_server_treats_in_its_own_way_stays(text: str) -> None:
    assert canonical_quantity(text) == text
