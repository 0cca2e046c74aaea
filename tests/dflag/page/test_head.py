"""Reading the head of a request: what is understood, and what is refused because it could be read in two ways."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.dflag.page.messages import HttpError
from wigwag.dflag.page.serving.head import parse_head

GOOD = b"PUT /flags/gr%C3%B6%C3%9Fe?validate_only=1 HTTP/1.1\r\nHost: a\r\nX: 1\r\nx:  2 \r\nContent-Length: 12"


def test_a_good_one_is_understood() -> None:
    head = parse_head(GOOD)
    assert (head.method, head.path, head.query, head.length) == ("PUT", "/flags/größe", "validate_only=1", 12)
    assert head.headers == {"host": "a", "x": "1, 2", "content-length": "12"}


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"GET /", 400),
        (b"GET / HTTP/2.0", 400),
        (b"get / HTTP/1.1", 400),
        (b"GET  / HTTP/1.1", 400),
        (b"GET / HTTP/1.1 ", 400),
        (b"GET http://localhost/ HTTP/1.1", 400),
        (b"OPTIONS * HTTP/1.1", 400),
        (b"GET /\xff HTTP/1.1", 400),
        (b"GET /%ff HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nHost", 400),
        (b"GET / HTTP/1.1\r\nHost : a", 400),
        (b"GET / HTTP/1.1\r\n: a", 400),
        (b"GET / HTTP/1.1\r\nX: a\r\n folded", 400),
        (b"GET / HTTP/1.1\r\nX: a\nY: b", 400),
        (b"GET / HTTP/1.1\r\nX: a\x00b", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nhost: a", 400),
        (b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1", 400),
        (b"PUT / HTTP/1.1\r\nContent-Length: +1", 400),
        (b"PUT / HTTP/1.1\r\nContent-Length: 1_0", 400),
        (b"PUT / HTTP/1.1\r\nContent-Length: ", 400),
        (b"PUT / HTTP/1.1\r\nContent-Length: " + b"9" * 20, 400),
        (b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
        (b"PUT / HTTP/1.1\r\nTransfer-Encoding: identity\r\nContent-Length: 5", 411),
        (b"GET / HTTP/1.1\r\n" + b"\r\n".join([b"X: 1"] * 101), 431),
    ],
)
def test_a_bad_one_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(HttpError) as caught:
        parse_head(data)
    assert caught.value.status == status


def test_blanks_cost_no_more_than_their_number() -> None:
    """In a process of its own, because a pattern that tries every way cannot be interrupted."""
    code = """
from wigwag.dflag.page.serving.head import parse_head
from wigwag.dflag.page.messages import HttpError
for blank in (b" ", b"\\t", b" \\t"):
    many = blank * (16384 // len(blank))
    assert parse_head(b"GET / HTTP/1.1\\r\\nX:" + many + b"a b" + many).headers == {"x": "a b"}
    for line in (many, b"X:" + many + b"\\1", b"X" + many + b": a", b"X: a" + many + b"\\1", b"X" * 16384):
        try:
            parse_head(b"GET / HTTP/1.1\\r\\n" + line)
        except HttpError as refusal:
            print(refusal.status)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (told.stdout.split(), told.stderr) == (["400"] * 15, "")


@given(st.binary(max_size=200) | st.lists(st.sampled_from([GOOD, b"\r\n", b" ", b":", b"%", b"\0"])).map(b"".join))
def test_whatever_comes_it_is_understood_or_refused(data: bytes) -> None:
    try:
        parse_head(data)
    except HttpError as error:
        assert error.status in (400, 411, 431)
