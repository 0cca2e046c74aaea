"""Reading a bearer token from an `Authorization` header."""

from __future__ import annotations

import pytest

from wigwag.origin import bearer_token


@pytest.mark.parametrize("header", [b"Bearer abc", b"bearer  abc ", b"BEARER abc"])
def test_the_scheme_is_case_insensitive_and_blanks_around_the_token_are_dropped(header: bytes) -> None:
    assert bearer_token(header) == b"abc"


@pytest.mark.parametrize("header", [None, b"", b"Bearer", b"Bearer ", b"Bearer   ", b"Basic abc", b"Bearerabc", b"abc"])
def test_anything_else_has_no_token(header: bytes | None) -> None:
    assert bearer_token(header) is None
