"""No text from outside makes a pattern try every way to match it, which would take hours and hold up the program.

Each is tried in a process of its own, because a pattern cannot be interrupted.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

LONG = 1 << 20


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("url()", f"'http://' + 'a' * {LONG} + ' '"),
        ("url('https')", f"'https://' + 'a' * {LONG} + ' b'"),
        ("url()", f"'a' * {LONG} + ':/'"),
        ("parse_duration", f"'1' * {LONG}"),
        ("parse_duration", f"' ' * {LONG} + 'x'"),
        ("parse_int", f"'1_' * {LONG}"),
        ("parse_float", f"'0x' + '1' * {LONG}"),
        ("parse_float", f"'1' * {LONG} + 'x'"),
        ("env", f"'export' + ' ' * {LONG} + '-'"),
        ("env", f"'a' + ' ' * {LONG} + 'b'"),
        ("env", f"'a' * {LONG}"),
        ("toml", f"'a = \"' + chr(92) * {LONG} + 'x'"),
        ("toml", f"'a = \"' + (chr(92) + chr(34)) * {LONG}"),
        ("toml", f"'a = ' + chr(34) * 3 + (chr(34) + 'x') * {LONG}"),
        ("toml", f"'a = ' + chr(39) * 3 + (chr(39) + 'x') * {LONG}"),
        ("toml", f"(chr(34) + chr(10)) * {LONG}"),
        ("check_host", f"'a' * {LONG} + ' '"),
        ("check_host", f"'[' + ':' * {LONG}"),
    ],
)
def test_a_long_text_is_refused_before_long(call: str, text: str) -> None:
    code = f"""
from wigwag.dflag import url
from wigwag.dflag.page.access import check_host as host
from wigwag.dflag.page.messages import HttpError
from wigwag.dflag.updating.documents import read_document
from wigwag.dflag.values.numerals import parse_duration
from wigwag.dflag.values.numerals import parse_float, parse_int
from wigwag.errors import DocumentError
env, toml = (lambda text, key=key: read_document(key, text.encode()) for key in ("a.env", "a.toml"))
check_host = lambda text: host(text, ())
try:
    ({call})({text})
except (ValueError, DocumentError, HttpError) as error:
    print("refused")
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (told.stdout, told.stderr) == ("refused\n", "")
