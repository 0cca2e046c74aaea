"""Bytes that no client would send: nothing crashes, nothing hangs, nothing is kept."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.wire.session import HEADERS, Session, machine
from tests.wire.test_http1 import GET, POST, Client
from tests.wire.test_http2 import BLOCK, GREETING
from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.frames import frame
from wigwag.wire.h2.server import Http2
from wigwag.wire.http import Reply, Request

kinds = st.integers(0, 11)
ids = st.sampled_from([0, 1, 2, 3, 5, 7, 9, 101, f.MAX_WINDOW])
flags = st.sampled_from([0, 1, 4, 5, 8, 9, 12, 13, 0x20, 0x25, 0x2D, 0xFF])
payloads = st.one_of(
    st.binary(max_size=40), st.just(BLOCK), st.integers(0, 2**32 - 1).map(lambda n: n.to_bytes(4, "big"))
)
wild = st.builds(frame, kinds, flags, ids, payloads)
tame = st.sampled_from(
    [frame(f.HEADERS, 4, n, BLOCK) for n in (1, 3, 5)]
    + [frame(f.DATA, flag, n, b"data") for n in (1, 3, 5) for flag in (0, 1)]
    + [f.window_update(0, 1000), f.window_update(1, 1000), f.settings({f.SettingId.INITIAL_WINDOW_SIZE: 3})]
)
sessions = st.lists(st.one_of(tame, tame, wild), max_size=60).map(b"".join)


def serve(link: Http2) -> None:
    """Answer some requests at once, begin some, leave some."""
    while link.ready:
        stream = link.ready.popleft()
        if stream.gone or stream.id % 4 == 3:
            continue
        if stream.id % 8 == 1 and stream.begin(200, ()):
            stream.send(b"x" * 1000)
        else:
            stream.reply(Reply(200, (), b"y" * 1000, ((b"t", b"1"),)))


def feed(link: Http2, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        link.receive(data[at : at + size], at / 1000)
        serve(link)
        check(link)
    link.expire(1_000.0)
    link.drain()
    check(link)


def check(link: Http2) -> None:
    """Whatever arrived, what is kept is bounded and consistent."""
    assert len(link.frames.buffer) <= f.MAX_FRAME + 9
    assert len(link.streams) <= link.limits.streams
    assert set(link.output.blocked) <= set(link.streams)
    assert link._held == sum(len(each.body) for each in link.streams.values() if not each.ended)
    assert len(link.frames.block[2]) <= link.limits.header_bytes + f.MAX_FRAME
    assert len(link._forgiven) <= 256
    if link.closing:
        assert link.streams == {}


@given(st.binary(max_size=2000), st.integers(1, 500))
@settings(deadline=None)
def test_random_bytes(data: bytes, size: int) -> None:
    feed(machine(), GREETING + data, size)
    feed(machine(), data, size)


@given(sessions, st.integers(1, 500))
@settings(deadline=None, max_examples=400)
@example(frame(f.HEADERS, 4, 1, BLOCK) + f.window_update(0, f.MAX_WINDOW), 500)
def test_frames_in_any_order(data: bytes, size: int) -> None:
    feed(machine(), GREETING + data, size)


def recorded() -> bytes:
    session = Session()
    for stream in range(1, 20, 2):
        session.request(stream, b"body" * stream, [("x", str(stream)), ("te", "trailers")])
    session.client.send_headers(21, HEADERS)
    session.client.send_data(21, b"body", pad_length=9)
    session.client.send_headers(21, [("trailer", "x")], end_stream=True)
    session.client.ping(bytes(8))
    return session.client.data_to_send()


RECORDED = recorded()
changes = st.lists(st.tuples(st.integers(0, len(RECORDED) - 1), st.integers(0, 255)), max_size=8)


@given(changes, st.integers(0, len(RECORDED)), st.integers(1, 500))
@settings(deadline=None, max_examples=400)
def test_a_real_session_with_bytes_changed_and_cut(changes: list[tuple[int, int]], end: int, size: int) -> None:
    data = bytearray(RECORDED)
    for at, value in changes:
        data[at] = value
    feed(machine(), bytes(data[:end]), size)


CHUNKED = (
    b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
)
UPGRADE = b"GET /u HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
TALK = GET + POST + CHUNKED + GET + UPGRADE + GET
mutations = st.lists(st.tuples(st.integers(0, len(TALK) - 1), st.integers(0, 255)), max_size=6)


@given(mutations, st.integers(1, 300), st.binary(max_size=50))
@settings(deadline=None, max_examples=400)
def test_http1_with_bytes_changed(changes: list[tuple[int, int]], size: int, tail: bytes) -> None:
    data = bytearray(TALK)
    for at, value in changes:
        data[at] = value
    client, whole = Client(), bytes(data) + tail
    for at in range(0, len(whole), size):
        client.send(whole[at : at + size])
        assert len(client.machine._fields) <= 257
    client.machine.expire(1_000.0)
    client.serve()
    client.machine.drain()
    assert client.machine.closing


def facts(request: Request) -> tuple[object, ...]:
    return request.method, request.path, request.headers, request.body


@given(st.lists(st.sampled_from([GET, POST, UPGRADE, CHUNKED]), max_size=10))
@settings(deadline=None)
def test_a_remembered_head_never_changes_what_is_read(messages: list[bytes]) -> None:
    """The same messages, each alone (so that heads are learned) and all in one read (so that none is)."""
    apart, together = Client(), Client()
    for message in messages * 3:
        apart.send(message)
    together.send(b"".join(messages * 3))
    assert [facts(each) for each in apart.requests] == [facts(each) for each in together.requests]
