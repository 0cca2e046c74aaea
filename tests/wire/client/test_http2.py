"""The HTTP/2 client machine without sockets."""

from __future__ import annotations

import h2.events
import h2.settings
import hpack
import pytest

from tests.wire.client.peer import ASK, Got, Session, client, taken
from tests.wire.session import frames
from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.client import CONNECTION_GRANT, Http2Client
from wigwag.wire.h2.frames import ErrorCode, frame
from wigwag.wire.h2.hpack import encode_block as block
from wigwag.wire.h2.streams import GRANT
from wigwag.wire.http import Headers
from wigwag.wire.limits import WireLimits

GREETING = f.settings({})
OK = block(200, ())
TRAILERS = block(0, ((b"grpc-status", b"0"),))


def raw(limits: WireLimits | None = None, requests: int = 1) -> tuple[Http2Client, list[Got]]:
    """A machine that was greeted and has asked; the test speaks for the server, byte by byte."""
    machine = client(limits or WireLimits())
    machine.receive(GREETING, 0.0)
    got = [Got() for _ in range(requests)]
    for each in got:
        machine.request(ASK, b"", each)
    taken(machine)
    return machine, got


def ended_with(machine: Http2Client) -> ErrorCode:
    """The code of the GOAWAY that the machine ends with."""
    assert machine.closing
    assert machine.streams == {}
    kind, _, _, payload = frames(taken(machine))[-1]
    assert kind == f.GOAWAY
    return ErrorCode(int.from_bytes(payload[4:8], "big"))


def resets(machine: Http2Client) -> list[tuple[int, ErrorCode]]:
    sent = frames(taken(machine))
    return [(stream, ErrorCode(int.from_bytes(data, "big"))) for kind, _, stream, data in sent if kind == f.RST_STREAM]


def test_a_request_arrives_whole_and_so_does_its_answer() -> None:
    session = Session()
    stream, got = session.ask(b"12345")
    (request,) = session.seen(h2.events.RequestReceived)
    assert request.headers == list(ASK)
    assert b"".join(each.data or b"" for each in session.seen(h2.events.DataReceived)) == b"12345"
    assert session.seen(h2.events.StreamEnded)
    session.answer(stream.id, b"hello", trailers=True)
    assert (got.status, got.headers, bytes(got.body), got.trailers) == (
        200,
        ((b"x", b"y"),),
        b"hello",
        ((b"grpc-status", b"0"),),
    )
    assert session.machine.streams == {}
    assert got.told == 1


def test_a_request_without_a_body_ends_with_its_headers() -> None:
    session = Session()
    session.ask()
    assert session.seen(h2.events.StreamEnded)


def test_a_large_request_waits_for_the_servers_window() -> None:
    session = Session()
    stream, got = session.ask(b"r" * 300_000)
    received = 0
    while not session.seen(h2.events.StreamEnded):
        pieces = session.seen(h2.events.DataReceived)
        assert sum(len(each.data or b"") for each in pieces) - received <= 65_535
        received = sum(len(each.data or b"") for each in pieces)
        assert session.machine.output.blocked or session.machine.output.starved
        session.server.increment_flow_control_window(60_000)
        session.server.increment_flow_control_window(60_000, stream.id)
        session.exchange()
    assert sum(len(each.data or b"") for each in session.seen(h2.events.DataReceived)) == 300_000
    assert not session.machine.output.blocked
    assert not session.machine.output.starved
    session.answer(stream.id)
    assert got.trailers == ()


def test_a_server_that_answers_early_need_not_hear_the_rest() -> None:
    session = Session()
    stream, got = session.ask(b"r" * 300_000)
    session.answer(stream.id)
    assert got.trailers == ()
    assert session.seen(h2.events.StreamReset)
    assert not session.machine.output.blocked


def test_an_answer_of_many_megabytes_gets_its_windows_again_and_again() -> None:
    session = Session()
    stream, got = session.ask()
    session.answer(stream.id, end=False)
    assert session.pour(stream.id, 20 << 20) == 20 << 20
    assert len(got.body) == 20 << 20


def test_a_reader_that_does_not_read_gets_no_more_than_was_granted_and_holds_up_nobody() -> None:
    session = Session()
    lazy, eager = session.ask(), session.ask()
    lazy[1].reads = False
    for stream, _ in (lazy, eager):
        session.answer(stream.id, end=False)
    assert session.pour(lazy[0].id, 20 << 20) == GRANT
    assert session.pour(eager[0].id, 20 << 20) == 20 << 20
    lazy[1].reads = True
    session.machine.grant(lazy[0])
    session.exchange()
    assert session.pour(lazy[0].id, 5 << 20) == 5 << 20


def test_it_asks_for_no_more_at_a_time_than_the_server_allows() -> None:
    session = Session()
    assert session.machine.most == 100
    session.server.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2})
    session.exchange()
    first, _ = session.ask()
    assert session.machine.unable() is None
    session.ask()
    assert session.machine.unable() == "the server takes 2 requests at a time on a connection"
    session.answer(first.id)
    assert session.machine.unable() is None


def test_stream_numbers_come_to_an_end() -> None:
    machine, _ = raw(requests=0)
    machine.last = f.MAX_WINDOW
    assert machine.unable() == "the connection has no stream numbers left"


def test_it_obeys_a_smaller_header_table() -> None:
    session = Session()
    session.server.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: 0})
    session.exchange()
    session.ask()
    session.ask()
    assert len(session.seen(h2.events.RequestReceived)) == 2


def test_headers_that_need_several_frames_are_read() -> None:
    session = Session()
    stream, got = session.ask()
    many = [("x-many", f"{n:04d}" * 200) for n in range(40)]
    session.server.send_headers(stream.id, [(":status", "200"), *many], end_stream=True)
    session.exchange()
    assert [(name.decode(), value.decode()) for name, value in got.headers] == many


def test_something_to_read_while_waiting_is_skipped() -> None:
    session = Session()
    stream, got = session.ask()
    session.server.send_headers(stream.id, [(":status", "103"), ("link", "x")])
    session.answer(stream.id)
    assert (got.status, got.headers) == (200, ((b"x", b"y"),))


def test_a_ping_is_answered() -> None:
    session = Session()
    session.server.ping(b"12345678")
    session.exchange()
    assert [each.ping_data for each in session.seen(h2.events.PingAckReceived)] == [b"12345678"]


def test_our_own_ping_shows_every_request_that_the_server_is_there() -> None:
    session = Session()
    (_, first), (_, second) = session.ask(), session.ask()
    session.machine.ping()
    assert (session.machine.pongs, first.beats) == (0, 0)
    session.exchange()
    assert (session.machine.pongs, first.beats, second.beats) == (1, 1, 1)


def test_only_the_answer_to_the_last_ping_counts() -> None:
    machine, (got,) = raw()
    machine.receive(frame(f.PING, f.ACK, 0, bytes(8)), 0.0)
    machine.ping()
    machine.receive(frame(f.PING, f.ACK, 0, b"stranger"), 0.0)
    assert (machine.pongs, got.beats) == (0, 0)
    machine.receive(frame(f.PING, f.ACK, 0, (1).to_bytes(8, "big")) * 2, 0.0)
    assert (machine.pongs, got.beats) == (1, 1)


def test_goaway_breaks_what_the_server_has_not_begun_and_lets_the_rest_finish() -> None:
    session = Session()
    (kept, first), (_, second) = session.ask(), session.ask()
    session.server.close_connection(0, b"bye", last_stream_id=kept.id)
    session.machine.receive(session.server.data_to_send(), 0.0)
    assert second.broken is not None
    assert second.broken.connection
    assert second.broken.reason == "the connection is closed: the server said NO_ERROR (bye)"
    assert session.machine.unable() == second.broken.reason
    assert not session.machine.closing
    session.machine.receive(frame(f.HEADERS, 5, kept.id, OK), 0.0)
    assert first.trailers == ()
    assert session.machine.closing


def test_goaway_on_an_idle_connection_ends_it() -> None:
    machine, _ = raw(requests=0)
    machine.receive(f.goaway(0, ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings"), 0.0)
    assert machine.closing
    assert machine.too_many_pings


@pytest.mark.parametrize(("code", "name"), [(7, "REFUSED_STREAM"), (13, "error 13")])
def test_a_reset_is_told_with_its_code(code: int, name: str) -> None:
    machine, (got, other) = raw(requests=2)
    machine.receive(frame(f.RST_STREAM, 0, 1, code.to_bytes(4, "big")), 0.0)
    assert got.broken == (f"the server reset the stream: {name}", code, False)
    assert other.told == 0


def test_a_lost_connection_is_told_to_everybody() -> None:
    machine, got = raw(requests=3)
    machine.lost("gone")
    assert [each.broken for each in got] == [("gone", 0, True)] * 3
    machine.lost("again")
    machine.fail(ErrorCode.INTERNAL_ERROR, "later")
    assert [each.told for each in got] == [1, 1, 1]
    assert machine.ended == ("gone", 0, True)


def test_what_is_cancelled_is_reset_and_what_still_comes_on_it_only_keeps_the_tables_in_step() -> None:
    machine, (got, other) = raw(requests=2)
    encoder = hpack.Encoder()
    machine.streams[1].cancel()  # type: ignore[attr-defined]
    assert resets(machine) == [(1, ErrorCode.CANCEL)]
    machine.receive(frame(f.HEADERS, 4, 1, encoder.encode([(":status", "200"), ("a", "b")])), 0.0)
    machine.receive(frame(f.DATA, 1, 1, b"late"), 0.0)
    machine.receive(frame(f.RST_STREAM, 0, 1, bytes(4)) + f.window_update(1, 10), 0.0)
    machine.receive(frame(f.HEADERS, 5, 3, encoder.encode([(":status", "200"), ("a", "b")])), 0.0)
    assert (got.status, got.told) == (0, 0)
    assert other.headers == ((b"a", b"b"),)
    assert not machine.closing


@pytest.mark.parametrize("at", ["head", "data"])
def test_an_answer_that_is_not_wanted_is_reset(at: str) -> None:
    machine, (got,) = raw()
    got.wanted = at == "data"
    machine.receive(frame(f.HEADERS, 4, 1, OK), 0.0)
    got.wanted = False
    machine.receive(frame(f.DATA, 0, 1, b"page"), 0.0)
    assert resets(machine) == [(1, ErrorCode.CANCEL)]
    assert got.told == 0
    assert machine.streams == {}


def test_a_header_that_cannot_be_sent_is_refused_before_anything_is_sent() -> None:
    machine, _ = raw(requests=0)
    with pytest.raises(ValueError, match="cannot be sent"):
        machine.request((*ASK, (b"x", b"a\r\nb")), b"", Got())
    assert (machine.out, machine.streams, machine.last) == ([], {}, -1)


STRANGERS = [
    (b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n", "it says 'HTTP/1.1 400 Bad Request'"),
    (b"\x15\x03\x01\x00\x02\x02\x46", "it speaks TLS"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", "it says b'SSH-2.0-OpenSSH_9.6\\r\\n'"),
    (bytes(3) + b"\x06" + bytes(13), "it does not speak HTTP/2"),
]


@pytest.mark.parametrize(("data", "told"), STRANGERS)
def test_whoever_is_not_http2_is_named(data: bytes, told: str) -> None:
    machine = client()
    machine.receive(data, 0.0)
    assert machine.closing
    assert machine.ended is not None
    assert told in machine.ended.reason


def test_a_server_that_leaves_before_it_has_said_enough_is_quoted() -> None:
    machine = client()
    machine.receive(b"\0\0", 0.0)
    assert not machine.closing
    machine.lost("closed")
    assert machine.ended is not None
    assert machine.ended.reason == "closed; it does not speak HTTP/2; it says b'\\x00\\x00'"


HEAD = frame(f.HEADERS, 4, 1, OK)
MALFORMED: dict[str, tuple[bytes, ErrorCode]] = {
    "body first": (frame(f.DATA, 0, 1, b"x"), ErrorCode.PROTOCOL_ERROR),
    "trailers first": (frame(f.HEADERS, 5, 1, TRAILERS), ErrorCode.PROTOCOL_ERROR),
    "two heads": (HEAD + HEAD, ErrorCode.PROTOCOL_ERROR),
    "trailers without end": (HEAD + frame(f.HEADERS, 4, 1, TRAILERS), ErrorCode.PROTOCOL_ERROR),
    "a request": (frame(f.HEADERS, 4, 1, block(0, ASK)), ErrorCode.PROTOCOL_ERROR),
    "connection": (frame(f.HEADERS, 4, 1, OK + b"\0\x0aconnection\x05close"), ErrorCode.PROTOCOL_ERROR),
    "upper case": (frame(f.HEADERS, 4, 1, OK + b"\0\x01X\x01x"), ErrorCode.PROTOCOL_ERROR),
    "status later": (frame(f.HEADERS, 4, 1, b"\0\x01x\x01x" + OK), ErrorCode.PROTOCOL_ERROR),
    "status twice": (frame(f.HEADERS, 4, 1, OK + OK), ErrorCode.PROTOCOL_ERROR),
    "status of letters": (frame(f.HEADERS, 4, 1, b"\x08\x03abc"), ErrorCode.PROTOCOL_ERROR),
    "a window too far": (f.window_update(1, f.MAX_WINDOW), ErrorCode.FLOW_CONTROL_ERROR),
    "a window of nothing": (f.window_update(1, 0), ErrorCode.PROTOCOL_ERROR),
    "too many headers": (frame(f.HEADERS, 4, 1, OK + b"\x90" * 300), ErrorCode.ENHANCE_YOUR_CALM),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_answer_is_reset_and_its_neighbours_go_on(case: str) -> None:
    machine, (got, other) = raw(requests=2)
    data, code = MALFORMED[case]
    machine.receive(data, 0.0)
    assert resets(machine) == [(1, code)]
    assert got.broken is not None
    assert (got.broken.code, got.broken.connection, got.told) == (code, False, 1)
    machine.receive(frame(f.HEADERS, 5, 3, OK), 0.0)
    assert other.trailers == ()


BREACHES: dict[str, tuple[bytes, ErrorCode]] = {
    "push": (frame(f.PUSH_PROMISE, 4, 1, bytes(4) + OK), ErrorCode.PROTOCOL_ERROR),
    "an idle stream": (frame(f.DATA, 0, 3, b"x"), ErrorCode.PROTOCOL_ERROR),
    "a stream of the server's own": (frame(f.HEADERS, 4, 2, OK), ErrorCode.PROTOCOL_ERROR),
    "reset of an idle stream": (frame(f.RST_STREAM, 0, 5, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "too large a frame": (f.HEAD.pack(0x40, 1, f.DATA, 0, 1), ErrorCode.FRAME_SIZE_ERROR),
    "broken compression": (frame(f.HEADERS, 4, 1, b"\xff\xff\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
    "interrupted headers": (frame(f.HEADERS, 0, 1, OK) + frame(f.PING, 0, 0, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "another's continuation": (frame(f.HEADERS, 0, 1, OK) + frame(f.CONTINUATION, 4, 3, b""), ErrorCode.PROTOCOL_ERROR),
    "stray continuation": (frame(f.CONTINUATION, 4, 1, OK), ErrorCode.PROTOCOL_ERROR),
    "endless headers": (
        frame(f.HEADERS, 0, 1, OK) + frame(f.CONTINUATION, 0, 1, b"x" * 16_000) * 5,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "empty continuations": (
        frame(f.HEADERS, 0, 1, OK) + frame(f.CONTINUATION, 0, 1) * 600,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "pings": (frame(f.PING, 0, 0, bytes(8)) * 600, ErrorCode.ENHANCE_YOUR_CALM),
    "empty data": (HEAD + frame(f.DATA, 0, 1) * 600, ErrorCode.ENHANCE_YOUR_CALM),
    "a short ping": (frame(f.PING, 0, 0, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "a cut goaway": (frame(f.GOAWAY, 0, 0, b"1"), ErrorCode.FRAME_SIZE_ERROR),
    "bad padding": (HEAD + frame(f.DATA, 8, 1, b"\x05x"), ErrorCode.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("case", BREACHES)
def test_a_server_that_breaks_the_connections_rules_loses_it(case: str) -> None:
    machine, (got,) = raw(WireLimits(abuse=500))
    data, code = BREACHES[case]
    for at in range(0, len(data), 5000):
        machine.receive(data[at : at + 5000], 0.0)
    assert ended_with(machine) is code
    assert got.broken is not None
    assert (got.broken.connection, got.told) == (True, 1)


def test_more_than_was_granted_is_a_breach() -> None:
    full = frame(f.DATA, 0, 1, bytes(f.MAX_FRAME))
    machine, (got,) = raw()
    got.reads = False
    machine.receive(HEAD + full * (GRANT // f.MAX_FRAME), 0.0)
    assert not machine.closing
    machine.receive(frame(f.DATA, 0, 1, b"x"), 0.0)
    assert ended_with(machine) is ErrorCode.FLOW_CONTROL_ERROR


def test_padding_counts_against_the_window_and_is_no_data() -> None:
    machine, (got,) = raw()
    machine.receive(HEAD + frame(f.DATA, 8 | 1, 1, b"\x03data" + bytes(3)), 0.0)
    assert (bytes(got.body), got.trailers) == (b"data", ())
    assert machine._room == CONNECTION_GRANT - 8


@pytest.mark.parametrize(
    "first", [frame(f.SETTINGS, f.ACK, 0), frame(f.SETTINGS, 0, 1), frame(f.SETTINGS, 0, 0, b"12345")]
)
def test_the_greeting_is_the_servers_own_settings(first: bytes) -> None:
    machine = client()
    machine.receive(first, 0.0)
    assert machine.closing


def test_the_longest_headers_are_not_taken_for_a_status() -> None:
    machine, (got,) = raw(WireLimits(header_bytes=1000))
    block_: Headers = ((b"x", b"v" * 2000),)
    machine.receive(frame(f.HEADERS, 5, 1, block(200, block_)), 0.0)
    assert got.broken is not None
    assert got.broken.reason == "the headers are larger than 1000 bytes"
