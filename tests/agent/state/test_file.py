"""The bytes of a state file: what was written, or an error that says what is wrong."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.agent.state.file import HEAD_BYTES, MOST_ENTRIES, StateEntry, _head, decode, encode
from wigwag.errors import StateError, WigwagError

SMALL = encode([StateEntry("k", "flags.json", b'{"flags":[]}', 12.5), StateEntry("l", "other", b"{}", 13.0)])
entries = st.lists(
    st.builds(StateEntry, st.text(max_size=5), st.text(max_size=5), st.binary(max_size=20), st.floats(0, 1e10)),
    max_size=5,
    unique_by=lambda entry: entry.key,
)


@given(entries)
def test_what_was_written_is_read_and_the_order_does_not_matter(written: list[StateEntry]) -> None:
    assert decode(encode(written)) == tuple(sorted(written, key=lambda entry: entry.key))
    assert encode(written) == encode(reversed(written))


def test_a_state_error_is_bad_input_and_one_of_our_own() -> None:
    assert issubclass(StateError, WigwagError)
    assert issubclass(StateError, ValueError)


def test_no_file_with_a_flipped_bit_is_ever_read() -> None:
    for place in range(len(SMALL)):
        for flipped in (0xFF, *(1 << bit for bit in range(8))):
            damaged = bytearray(SMALL)
            damaged[place] ^= flipped
            with pytest.raises(StateError):
                decode(bytes(damaged))


def test_no_file_that_is_cut_short_or_too_long_is_ever_read() -> None:
    for length in range(len(SMALL)):
        with pytest.raises(StateError):
            decode(SMALL[:length])
    with pytest.raises(StateError, match="longer than it says"):
        decode(SMALL + b"\0")


@given(st.binary(max_size=100))
def test_nothing_else_is_taken_for_a_state_file(data: bytes) -> None:
    with pytest.raises(StateError):
        decode(data)
    with pytest.raises(StateError):
        decode(_head(data) + data[:-1])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no state file"),
        (b'{"flags": {}}', "no state file"),
        (SMALL[:20], "ends after 20 bytes, within its head"),
        (SMALL[:-1], "cut short"),
        (SMALL[:-1] + b"\1", "checksum"),
        (_head(b"\x93") + b"\x93", "makes no sense"),
        (_head(b"\x91\x01") + b"\x91\x01", "makes no sense: Expected `object`"),
    ],
)
def test_the_error_says_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(StateError, match=message):
        decode(data)


@pytest.mark.parametrize("version", [0, 2, 1000])
def test_another_version_is_told_apart_whatever_follows(version: int) -> None:
    for rest in (SMALL[12:], b"", b"something else"):
        with pytest.raises(StateError, match=f"version {version} ") as caught:
            decode(SMALL[:8] + struct.pack(">I", version) + rest)
        assert caught.value.version == version


def test_what_is_beyond_the_limits_is_not_written() -> None:
    one = StateEntry("k", "n", b"x" * 1000, 0.0)
    assert len(encode([one], most=1200)) <= 1200
    for most in (900, 1000 + HEAD_BYTES):
        with pytest.raises(StateError, match=f"more than the {most} that are kept"):
            encode([one], most)
    with pytest.raises(StateError, match="4097 sources"):
        encode(StateEntry(str(number), "n", b"", 0.0) for number in range(MOST_ENTRIES + 1))


@pytest.mark.parametrize("bad", [[StateEntry("k", "n", b"", 0.0)] * 2, [StateEntry("k", "n", b"", float("nan"))]])
def test_what_makes_no_sense_is_not_written(bad: list[StateEntry]) -> None:
    with pytest.raises(StateError, match=r"same key|no time"):
        encode(bad)
