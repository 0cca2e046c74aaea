"""Frames as bytes."""

from __future__ import annotations

import pytest
from hyperframe.frame import Frame
from hypothesis import given
from hypothesis import strategies as st

from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.frames import ErrorCode, Http2ConnectionError


def parsed(data: bytes) -> Frame:
    frame, size = Frame.parse_frame_header(memoryview(data[:9]))
    assert size == len(data) - 9
    frame.parse_body(memoryview(data[9:]))
    return frame


@given(st.integers(1, f.MAX_WINDOW), st.sampled_from(ErrorCode))
def test_another_library_reads_our_frames(number: int, code: ErrorCode) -> None:
    assert parsed(f.reset(number, code)).error_code == code  # type: ignore[attr-defined]
    assert parsed(f.window_update(0, number)).window_increment == number  # type: ignore[attr-defined]
    goaway = parsed(f.goaway(number, code, "reason"))
    assert (goaway.last_stream_id, goaway.error_code, goaway.additional_data) == (number, code, b"reason")  # type: ignore[attr-defined]
    assert parsed(f.settings({f.SettingId.MAX_FRAME_SIZE: 20_000})).settings == {5: 20_000}  # type: ignore[attr-defined]


@given(st.binary(max_size=100), st.integers(1, 40))
def test_a_header_block_is_the_same_however_it_is_cut(block: bytes, size: int) -> None:
    data, found, flags, at = f.header_frames(1, block, f.END_STREAM, size), b"", [], 0
    while at < len(data):
        frame, length = Frame.parse_frame_header(memoryview(data[at : at + 9]))
        found += data[at + 9 : at + 9 + length]
        flags.append(set(frame.flags) | {data[at + 4] & f.END_HEADERS and "END"})
        at += 9 + length
    assert found == block
    assert ["END" in each for each in flags] == [False] * (len(flags) - 1) + [True]


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x05abcd"])
def test_padding_cannot_be_longer_than_its_frame(payload: bytes) -> None:
    with pytest.raises(Http2ConnectionError):
        f.unpad(payload)


@given(st.binary(max_size=50), st.integers(0, 255))
def test_padding_comes_off(body: bytes, size: int) -> None:
    assert f.unpad(bytes((size,)) + body + bytes(size)) == body
