"""The HTTP/2 machine without sockets."""

from __future__ import annotations

from typing import Any, TypeVar

import h2.events
import h2.settings
import pytest

from tests.wire.session import HEADERS, OK, Session, frames, machine, taken
from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.frames import PREFACE, ErrorCode, frame
from wigwag.wire.http import Reply
from wigwag.wire.limits import WireLimits

E = TypeVar("E")
GREETING = PREFACE + f.settings({})


def only(events: list[Any], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def body(events: list[Any], stream: int) -> bytes:
    return b"".join(each.data or b"" for each in only(events, h2.events.DataReceived) if each.stream_id == stream)


def test_a_request_arrives_whole_and_its_answer_with_trailers() -> None:
    session = Session(answer=lambda _: Reply(200, ((b"x", b"y"),), b"hello", ((b"grpc-status", b"0"),)))
    session.request(1, b"12345", [("te", "trailers"), ("a", "1"), ("a", "2")])
    events = session.exchange()
    (request,) = session.requests
    assert (request.method, request.path, request.query, request.body) == (b"POST", b"/a/b", b"c=d", b"12345")
    assert request.headers == ((b"host", b"host"), (b"te", b"trailers"), (b"a", b"1"), (b"a", b"2"))
    assert request.version == 2
    assert only(events, h2.events.ResponseReceived)[0].headers == [(b":status", b"200"), (b"x", b"y")]
    assert body(events, 1) == b"hello"
    assert only(events, h2.events.TrailersReceived)[0].headers == [(b"grpc-status", b"0")]
    assert session.machine.streams == {}


def test_a_path_stays_as_it_was_sent() -> None:
    session = Session()
    session.client.send_headers(1, [*HEADERS[:2], (":path", "/%41?%42?#"), HEADERS[3]], end_stream=True)
    session.exchange()
    assert (session.requests[0].path, session.requests[0].query) == (b"/%41", b"%42?#")


def test_request_trailers_are_accepted_and_dropped() -> None:
    session = Session()
    session.client.send_headers(1, HEADERS)
    session.client.send_data(1, b"body")
    session.client.send_headers(1, [("checksum", "1")], end_stream=True)
    events = session.exchange()
    assert session.requests[0].body == b"body"
    assert only(events, h2.events.StreamEnded)


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_answers_without_a_body_end_with_their_headers(method: str, status: int) -> None:
    session = Session(answer=lambda _: Reply(status, (), b"not sent", ((b"a", b"b"),)))
    session.client.send_headers(1, [(":method", method), *HEADERS[1:]], end_stream=True)
    events = session.exchange()
    assert not only(events, h2.events.DataReceived)
    assert only(events, h2.events.StreamEnded)


def test_a_large_answer_waits_for_both_windows() -> None:
    large = bytes(range(256)) * 1000
    session = Session(answer=lambda _: Reply(200, (), large, ((b"t", b"1"),)))
    session.request(1)
    events = session.exchange()
    assert len(body(events, 1)) == 65_535
    session.client.increment_flow_control_window(100_000)
    assert session.exchange() == []
    session.client.increment_flow_control_window(100_000, 1)
    events += session.exchange()
    assert len(body(events, 1)) == 165_535
    session.client.increment_flow_control_window(1_000_000)
    session.client.increment_flow_control_window(1_000_000, 1)
    events += session.exchange()
    assert body(events, 1) == large
    assert only(events, h2.events.TrailersReceived)
    assert session.machine.output.blocked == {}


def test_streams_that_wait_for_the_connection_take_turns() -> None:
    session = Session(answer=lambda _: Reply(200, (), b"x" * 200_000))
    session.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1_000_000})
    session.request(1)
    session.request(3)
    session.exchange()
    session.client.increment_flow_control_window(65_536)
    streams = [each.stream_id for each in only(session.exchange(), h2.events.DataReceived)]
    assert {1, 3} == set(streams)
    assert abs(streams.count(1) - streams.count(3)) <= 1


def test_a_smaller_initial_window_makes_the_windows_of_open_streams_smaller_below_zero() -> None:
    session = Session(answer=lambda _: Reply(200, (), b"x" * 100_000))
    session.request(1)
    session.exchange()
    session.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    session.client.increment_flow_control_window(1_000_000)
    assert body(session.exchange(), 1) == b""
    assert session.machine.streams[1].window == 10 - 65_535
    session.client.increment_flow_control_window(65_535 - 10 + 7, 1)
    assert body(session.exchange(), 1) == b"x" * 7


def test_a_client_may_upload_as_much_as_the_limit_allows() -> None:
    session = Session(WireLimits(body_bytes=3_000_000))
    sent = bytes(3_000_000)
    session.client.send_headers(1, HEADERS)
    left = sent
    while left:
        size = min(len(left), session.client.local_flow_control_window(1), 16_384)
        session.client.send_data(1, left[:size], end_stream=size == len(left))
        left = left[size:]
        session.exchange()
    assert session.requests[0].body == sent
    assert session.machine._held == 0


@pytest.mark.parametrize("told", [True, False])
def test_a_body_over_the_limit_is_refused_and_its_stream_reset(told: bool) -> None:
    session = Session(WireLimits(body_bytes=10))
    session.client.send_headers(1, HEADERS + ([("content-length", "11")] if told else []))
    if not told:
        session.client.send_data(1, b"x" * 11)
    events = session.exchange()
    assert dict(only(events, h2.events.ResponseReceived)[0].headers)[b":status"] == b"413"
    assert only(events, h2.events.StreamReset)[0].error_code == ErrorCode.NO_ERROR
    assert session.requests == []
    assert session.machine._held == 0
    session.request(3, b"small")
    session.exchange()
    assert session.requests[0].body == b"small"


def test_a_grpc_client_reads_a_refusal_as_a_status() -> None:
    session = Session(WireLimits(body_bytes=10))
    session.request(1, b"x" * 11, [("content-type", "application/grpc+proto")])
    headers = dict(only(session.exchange(), h2.events.ResponseReceived)[0].headers)
    assert (headers[b":status"], headers[b"grpc-status"]) == (b"200", b"8")


def test_all_bodies_of_a_connection_together_are_bounded() -> None:
    session = Session(WireLimits(body_bytes=10_000))
    refused = 0
    for stream in range(1, 21, 2):
        session.client.send_headers(stream, HEADERS)
        session.client.send_data(stream, bytes(9_000))
        refused += len(only(session.exchange(), h2.events.ResponseReceived))
        assert session.machine._held <= 40_000
    assert refused == 6


@pytest.mark.parametrize("limits", [WireLimits(header_bytes=2000), WireLimits(header_count=20)])
def test_too_many_headers_are_refused_and_the_connection_goes_on(limits: WireLimits) -> None:
    session = Session(limits)
    session.request(1, headers=[(f"name-{n}", "v" * 100) for n in range(20)])
    assert dict(only(session.exchange(), h2.events.ResponseReceived)[0].headers)[b":status"] == b"431"
    session.request(3)
    session.exchange()
    assert len(session.requests) == 1


def test_more_streams_than_allowed_are_refused_and_may_be_retried() -> None:
    link = machine(WireLimits(streams=2))
    link.receive(GREETING + b"".join(frame(f.HEADERS, f.END_HEADERS, n, BLOCK) for n in (1, 3, 5)), 0.0)
    assert frames(taken(link))[-1] == (f.RST_STREAM, 0, 5, ErrorCode.REFUSED_STREAM.to_bytes(4, "big"))
    assert list(link.streams) == [1, 3]


def test_what_a_client_sends_before_it_knows_of_a_reset_is_forgiven() -> None:
    link = machine(WireLimits(streams=1))
    link.receive(GREETING + b"".join(frame(f.HEADERS, f.END_HEADERS, n, BLOCK) for n in (1, 3)), 0.0)
    taken(link)
    link.receive(frame(f.DATA, 0, 3, b"x") + f.window_update(3, 5) + frame(f.DATA, f.END_STREAM, 3, b"x"), 0.0)
    assert taken(link) == b""
    assert not link.closing


BLOCK = b"\x83\x86\x84"
"""POST, http, /"""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_bytes_may_arrive_in_any_pieces(size: int) -> None:
    session = Session()
    session.request(1, b"12345")
    session.request(3, b"x" * 16_000)
    data = session.client.data_to_send()
    for at in range(0, len(data), size):
        session.machine.receive(data[at : at + size], 0.0)
    session.serve()
    assert [request.body for request in session.requests] == [b"12345", b"x" * 16_000]


def test_settings_are_not_acknowledged_before_they_are_sent() -> None:
    link = machine()
    link.receive(PREFACE + frame(f.SETTINGS, f.ACK, 0), 0.0)
    assert link.closing
    kind, _, _, payload = frames(taken(link))[-1]
    assert (kind, payload[4:8]) == (f.GOAWAY, f.ErrorCode.PROTOCOL_ERROR.to_bytes(4, "big"))


def test_a_header_block_may_come_in_pieces_and_with_padding_and_priority() -> None:
    link = machine()
    first = bytes((3,)) + bytes(5) + BLOCK[:1] + bytes(3)
    link.receive(GREETING + frame(f.HEADERS, f.PADDED | f.PRIORITISED | f.END_STREAM, 1, first), 0.0)
    link.receive(frame(f.CONTINUATION, 0, 1, BLOCK[1:2]) + frame(f.CONTINUATION, f.END_HEADERS, 1, BLOCK[2:]), 0.0)
    assert link.ready[0].request.path == b"/"


def test_padding_counts_against_the_window_but_not_in_the_body() -> None:
    link = machine()
    link.receive(GREETING + frame(f.HEADERS, f.END_HEADERS, 1, BLOCK), 0.0)
    link.receive(frame(f.DATA, f.PADDED | f.END_STREAM, 1, b"\x04body" + bytes(4)), 0.0)
    assert link.ready[0].request.body == b"body"
    assert link._received == 9


def test_a_reset_stream_needs_no_answer() -> None:
    session = Session(answer=lambda _: None)  # type: ignore[arg-type,return-value]
    session.request(1)
    session.exchange()
    session.client.reset_stream(1)
    session.exchange()
    (stream,) = session.streams
    assert session.machine.cancelled == [stream]
    stream.send(b"late")
    stream.end(())
    stream.reply(OK)
    assert not session.machine.out


def test_a_stream_sends_chunks_as_windows_allow_and_then_trailers() -> None:
    session = Session(answer=lambda _: None)  # type: ignore[arg-type,return-value]
    session.request(1)
    session.exchange()
    (stream,) = session.streams
    assert stream.begin(200, ())
    stream.send(b"a")
    stream.send(b"")
    assert stream.writable()
    stream.send(b"b" * 70_000)
    assert not stream.writable()
    stream.end(((b"t", b"1"),))
    events = session.exchange()
    session.client.increment_flow_control_window(100_000)
    session.client.increment_flow_control_window(100_000, 1)
    events += session.exchange()
    assert body(events, 1) == b"a" + b"b" * 70_000
    assert only(events, h2.events.TrailersReceived)


def test_an_answer_that_breaks_off_is_not_taken_for_whole() -> None:
    session = Session(answer=lambda _: None)  # type: ignore[arg-type,return-value]
    session.request(1)
    session.exchange()
    session.streams[0].begin(200, ())
    session.streams[0].abort()
    assert only(session.exchange(), h2.events.StreamReset)[0].error_code == ErrorCode.INTERNAL_ERROR


def test_a_header_with_a_line_break_is_refused_before_anything_is_sent() -> None:
    session = Session(answer=lambda _: None)  # type: ignore[arg-type,return-value]
    session.request(1)
    session.exchange()
    with pytest.raises(ValueError, match="cannot be sent"):
        session.streams[0].reply(Reply(200, ((b"a", b"b\r\nc: d"),)))
    with pytest.raises(ValueError, match="cannot be sent"):
        session.streams[0].reply(Reply(200, (), b"x", ((b"A", b"b"),)))
    assert not session.machine.out


def test_draining_says_goodbye_finishes_what_is_there_and_ignores_what_is_new() -> None:
    session = Session(answer=lambda _: None)  # type: ignore[arg-type,return-value]
    session.request(1)
    session.exchange()
    session.request(3, b"too late")
    late = session.client.data_to_send()
    session.machine.drain()
    session.machine.drain()
    goodbyes = [payload for kind, _, _, payload in frames(taken(session.machine)) if kind == f.GOAWAY]
    assert goodbyes == [f.PAIR.pack(1, ErrorCode.NO_ERROR)]
    session.machine.receive(late, 0.0)
    assert not session.machine.ready
    assert not session.machine.closing
    session.streams[0].reply(OK)
    assert session.machine.closing


def test_a_client_that_is_asked_to_leave_is_served_until_it_is_told_which_stream_was_the_last() -> None:
    session = Session()
    session.request(1)
    session.exchange()
    session.machine.announce()
    session.request(3)
    late = session.client.data_to_send()
    goodbyes = [payload for kind, _, _, payload in frames(taken(session.machine)) if kind == f.GOAWAY]
    assert goodbyes == [f.PAIR.pack(f.MAX_WINDOW, ErrorCode.NO_ERROR)]
    assert not session.machine.closing
    session.machine.receive(late, 0.0)
    assert len(session.machine.ready) == 1
    session.machine.ready.popleft().reply(OK)
    session.machine.drain()
    session.machine.announce()
    goodbyes = [payload for kind, _, _, payload in frames(taken(session.machine)) if kind == f.GOAWAY]
    assert goodbyes == [f.PAIR.pack(3, ErrorCode.NO_ERROR)]
    assert session.machine.closing


def test_a_table_made_smaller_is_acknowledged_in_the_next_block() -> None:
    session = Session()
    session.client.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: 0})
    session.request(1)
    session.request(3)
    assert len(only(session.exchange(), h2.events.StreamEnded)) == 2


def test_answers_with_more_headers_than_a_frame_holds_are_continued() -> None:
    headers = tuple((b"name-%d" % n, b"v" * 1000) for n in range(40))
    session = Session(answer=lambda _: Reply(200, headers, b"x"))
    session.request(1)
    events = session.exchange()
    assert only(events, h2.events.ResponseReceived)[0].headers[1:] == list(headers)
    assert only(events, h2.events.StreamEnded)


GRPC = [("te", "trailers"), ("content-type", "application/grpc")]


def test_what_takes_too_long_is_given_up() -> None:
    link = machine()
    link.expire(5.1)
    assert link.closing
    link = machine()
    link.receive(GREETING + frame(f.HEADERS, 0, 1, BLOCK), 1.0)
    link.expire(5.9)
    assert not link.closing
    link.expire(6.1)
    assert link.closing


def test_a_body_that_never_ends_is_given_up_but_not_its_neighbours() -> None:
    link = machine()
    link.receive(GREETING + frame(f.HEADERS, f.END_HEADERS, 1, BLOCK), 0.0)
    link.receive(frame(f.HEADERS, f.END_HEADERS | f.END_STREAM, 3, BLOCK), 0.0)
    link.expire(31.0)
    assert list(link.streams) == [3]


def test_a_connection_without_requests_is_closed_and_one_with_them_is_not() -> None:
    session = Session(answer=lambda _: None)  # type: ignore[arg-type,return-value]
    session.request(1)
    session.exchange()
    session.machine.expire(400.0)
    session.machine.expire(800.0)
    assert not session.machine.closing
    session.streams[0].reply(OK)
    session.machine.expire(1_000.0)
    assert not session.machine.closing
    session.machine.expire(1_101.0)
    assert session.machine.closing


def test_an_answer_that_nobody_takes_is_given_up() -> None:
    session = Session(answer=lambda _: Reply(200, (), bytes(300_000)))
    session.request(1)
    session.exchange()
    session.machine.expire(10.0)
    session.client.increment_flow_control_window(70_000)
    session.client.increment_flow_control_window(70_000, 1)
    session.exchange()
    session.machine.expire(65.0)
    session.machine.expire(120.0)
    assert session.machine.streams
    session.machine.expire(126.0)
    assert not session.machine.streams
    assert session.machine.cancelled


@pytest.mark.parametrize("which", ["connection", "stream"])
def test_a_little_now_and_then_is_no_progress(which: str) -> None:
    session = Session(answer=lambda _: Reply(200, (), bytes(300_000)))
    session.request(1)
    session.exchange()
    session.client.increment_flow_control_window(100_000, *([1] if which == "connection" else []))
    for now in range(0, 60, 10):
        session.machine.expire(float(now))
        session.client.increment_flow_control_window(1000, *([] if which == "connection" else [1]))
        session.exchange()
    assert session.machine.streams
    session.machine.expire(61.0)
    assert not session.machine.streams
    assert session.machine.output.retained.size == 0


def test_streams_that_wait_for_their_own_windows_divide_the_rate() -> None:
    """A slow client with many large answers is not cut off as long as it takes enough in all."""
    session = Session(answer=lambda _: Reply(200, (), bytes(300_000)))
    session.client.increment_flow_control_window(1 << 24)
    for stream in range(1, 41, 2):
        session.request(stream)
    session.exchange()
    for now in range(0, 300, 30):
        session.machine.expire(float(now))
        for stream in range(1, 41, 2):
            session.client.increment_flow_control_window(3_500, stream)
        session.exchange()
    assert len(session.machine.streams) == 20
