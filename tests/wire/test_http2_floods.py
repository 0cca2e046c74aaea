"""Clients that try to wear the HTTP/2 machine out."""

from __future__ import annotations

from collections.abc import ValuesView

import pytest

from tests.wire.session import OK, frames, machine, taken
from tests.wire.test_http2 import BLOCK, GREETING
from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.frames import ErrorCode, frame
from wigwag.wire.h2.server import Http2
from wigwag.wire.h2.streams import Http2Stream
from wigwag.wire.http import Reply
from wigwag.wire.limits import WireLimits

OPEN = f.END_HEADERS
PING = frame(f.PING, 0, 0, bytes(8))


def goodbye(link: Http2) -> tuple[int, bytes] | None:
    """Code and reason of the GOAWAY, if there is one."""
    last = frames(taken(link))[-1]
    return (int.from_bytes(last[3][4:8], "big"), last[3][8:]) if last[0] == f.GOAWAY else None


def flood(pieces: bytes, times: int = 1000, seconds: float = 1.0) -> tuple[Http2, tuple[int, bytes] | None]:
    link = machine()
    link.receive(GREETING, 0.0)
    for n in range(times):
        link.receive(pieces, n * seconds / times)
        if link.closing:
            break
    return link, goodbye(link)


def test_rapid_resets_end_the_connection_before_a_handler_is_called_for_them() -> None:
    link = machine()
    link.receive(GREETING, 0.0)
    pairs = [frame(f.HEADERS, OPEN | f.END_STREAM, n, BLOCK) + f.reset(n, ErrorCode.CANCEL) for n in range(1, 2001, 2)]
    link.receive(b"".join(pairs), 0.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_control_frames")
    assert all(stream.gone for stream in link.ready)
    assert link.streams == {}


def test_mistakes_that_make_us_reset_are_counted_too() -> None:
    link = machine()
    link.receive(GREETING, 0.0)
    for n in range(1, 2001, 2):
        link.receive(frame(f.HEADERS, OPEN, n, BLOCK) + f.window_update(n, 0), 0.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_control_frames")


def test_cancelling_now_and_then_is_fine() -> None:
    link = machine()
    link.receive(GREETING, 0.0)
    for n in range(1, 4001, 2):
        link.receive(frame(f.HEADERS, OPEN, n, BLOCK) + f.reset(n, ErrorCode.CANCEL), n / 20)
        taken(link)
    assert not link.closing


def test_resetting_what_was_answered_already_is_fine() -> None:
    link = machine()
    link.receive(GREETING, 0.0)
    for n in range(1, 4001, 2):
        link.receive(frame(f.HEADERS, OPEN | f.END_STREAM, n, BLOCK), 0.0)
        link.ready.popleft().reply(OK)
        link.receive(f.reset(n, ErrorCode.NO_ERROR), 0.0)
        taken(link)
        link.receive(f.window_update(0, 5), 0.0)
    assert not link.closing


@pytest.mark.parametrize(
    "pieces",
    [
        f.settings({}),
        frame(f.SETTINGS, f.ACK, 0),
        frame(f.PING, f.ACK, 0, bytes(8)),
        frame(f.PRIORITY, 0, 1, bytes(5)),
        frame(200, 0, 0),
    ],
    ids=["settings", "acknowledgements", "ping acknowledgements", "priorities", "unknown frames"],
)
def test_control_frames_are_good_in_small_numbers_only(pieces: bytes) -> None:
    _, end = flood(pieces)
    assert end == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_control_frames")
    link, _ = flood(pieces, seconds=100.0)
    assert not link.closing


def test_empty_data_frames_are_counted() -> None:
    link = machine()
    link.receive(GREETING + frame(f.HEADERS, OPEN, 1, BLOCK), 0.0)
    link.receive(frame(f.DATA, 0, 1) * 501, 0.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_control_frames")


@pytest.mark.parametrize("piece", [b"", b"\0" * 1000])
def test_a_header_block_without_end_is_cut_off(piece: bytes) -> None:
    link = machine()
    link.receive(GREETING + frame(f.HEADERS, 0, 1, BLOCK), 0.0)
    link.receive(frame(f.CONTINUATION, 0, 1, piece) * 600, 0.0)
    found = goodbye(link)
    assert found
    assert found[0] == ErrorCode.ENHANCE_YOUR_CALM


def test_a_header_bomb_is_refused_without_being_unpacked() -> None:
    """One large entry in the table, and then thousands of one-byte references to it."""
    link = machine()
    entry = b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4000
    link.receive(GREETING + frame(f.HEADERS, OPEN | f.END_STREAM, 1, BLOCK + entry + b"\xbe" * 12_000), 0.0)
    assert not link.ready
    assert not link.closing
    assert frames(taken(link))[-2][0] == f.HEADERS


def test_pings_that_come_too_fast_end_the_connection_after_a_few() -> None:
    link = machine()
    link.receive(GREETING, 0.0)
    for n in range(3):
        link.receive(PING, float(n))
    assert not link.closing
    link.receive(PING, 3.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_pings")


def test_pings_every_thirty_seconds_are_fine_for_ever() -> None:
    link, _ = flood(PING, times=1000, seconds=29_990.0)
    assert not link.closing


def test_without_keep_alive_enforcement_a_ping_per_millisecond_is_fine() -> None:
    """What a keep-alive time of 0 means to grpcio."""
    link = machine(WireLimits(ping_seconds=0.0))
    link.receive(GREETING, 0.0)
    for n in range(30_000):
        link.receive(PING, n / 1000)
        taken(link)
    assert not link.closing


def test_without_keep_alive_enforcement_pings_are_limited_by_their_rate() -> None:
    limits = WireLimits(ping_seconds=0.0)
    link = machine(limits)
    link.receive(GREETING, 0.0)
    for n in range(limits.pings):
        link.receive(PING, n / limits.pings)
        taken(link)
    assert not link.closing
    link.receive(PING, 1.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_pings")


def test_without_a_stream_pings_may_be_forbidden() -> None:
    link = machine(WireLimits(ping_without_stream=False))
    link.receive(GREETING, 0.0)
    for n in range(4):
        link.receive(PING, n * 100.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_pings")


def test_bandwidth_probes_after_every_answer_are_fine() -> None:
    """grpc-go pings after every answer it reads, as often as it can."""
    link = machine()
    link.receive(GREETING, 0.0)
    for n in range(1, 4001, 2):
        link.receive(frame(f.HEADERS, OPEN | f.END_STREAM, n, BLOCK), 0.0)
        link.ready.popleft().reply(OK)
        link.receive(PING + f.window_update(0, 5), 0.0)
        taken(link)
    assert not link.closing


def test_bandwidth_probes_after_every_piece_of_a_stream_are_fine() -> None:
    link = machine()
    link.receive(GREETING + frame(f.HEADERS, OPEN | f.END_STREAM, 1, BLOCK), 0.0)
    stream = link.ready.popleft()
    assert stream.begin(200, ())
    for n in range(100):
        stream.send(b"news")
        link.receive(PING, n / 100)
        taken(link)
    assert not link.closing


def test_a_window_opened_byte_by_byte_is_abuse() -> None:
    link = machine()
    link.receive(GREETING + f.settings({f.SettingId.INITIAL_WINDOW_SIZE: 0}), 0.0)
    link.receive(frame(f.HEADERS, OPEN | f.END_STREAM, 1, BLOCK), 0.0)
    link.ready.popleft().reply(Reply(200, (), bytes(10_000)))
    link.receive(f.window_update(1, 1) * 600, 0.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_control_frames")


def answered(requests: int) -> Http2:
    """A connection on which requests have been answered, each in one frame."""
    link = machine()
    link.receive(GREETING + f.window_update(0, 1 << 20), 0.0)
    for n in range(1, 2 * requests, 2):
        link.receive(frame(f.HEADERS, OPEN | f.END_STREAM, n, BLOCK), 0.0)
        link.ready.popleft().reply(OK)
    taken(link)
    return link


@pytest.mark.parametrize("pieces", [f.window_update(0, 100), f.window_update(1, 100), f.reset(1, ErrorCode.CANCEL)])
def test_updates_and_resets_beyond_what_was_answered_are_counted(pieces: bytes) -> None:
    link = answered(requests=1)
    link.receive(pieces * 600, 0.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_control_frames")


def test_updates_and_resets_in_proportion_to_answers_are_free() -> None:
    link = answered(requests=2000)
    for n in range(1, 4001, 2):
        link.receive(f.window_update(0, 5) + f.window_update(n, 5) + f.reset(n, ErrorCode.NO_ERROR), 0.0)
    assert not link.closing


def test_updates_in_proportion_to_the_frames_of_a_stream_are_free() -> None:
    link = machine()
    link.receive(GREETING + frame(f.HEADERS, OPEN | f.END_STREAM, 1, BLOCK), 0.0)
    stream = link.ready.popleft()
    assert stream.begin(200, ())
    for _ in range(2000):
        stream.send(b"news")
        taken(link)
        link.receive(f.window_update(0, 4) + f.window_update(1, 4), 0.0)
    assert not link.closing


def test_what_was_earned_long_ago_does_not_pay_for_a_flood() -> None:
    link = answered(requests=20_000)
    link.receive(f.window_update(0, 100) * 11_000, 0.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_control_frames")


def test_only_the_last_value_of_a_setting_is_applied() -> None:
    class Counting(dict[int, Http2Stream]):
        walks = 0

        def values(self) -> ValuesView[Http2Stream]:  # type: ignore[override]
            self.walks += 1
            return super().values()

    link = machine()
    link.receive(GREETING + frame(f.HEADERS, OPEN | f.END_STREAM, 1, BLOCK), 0.0)
    link.output.streams = streams = Counting(link.streams)
    entries = b"".join(f.SETTING.pack(f.SettingId.INITIAL_WINDOW_SIZE, size) for size in range(60))
    link.receive(frame(f.SETTINGS, 0, 0, entries), 0.0)
    assert not link.closing
    assert link.streams[1].window == 59
    assert streams.walks == 1


def test_settings_with_thousands_of_entries_end_the_connection() -> None:
    link = machine()
    link.receive(GREETING, 0.0)
    link.receive(frame(f.SETTINGS, 0, 0, f.SETTING.pack(f.SettingId.INITIAL_WINDOW_SIZE, 1) * 2000), 0.0)
    assert goodbye(link) == (ErrorCode.ENHANCE_YOUR_CALM, b"SETTINGS with too many entries")
