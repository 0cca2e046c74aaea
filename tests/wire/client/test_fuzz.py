"""Bytes that no server would send: the client machine neither crashes nor hangs, and keeps nothing for ever."""

from __future__ import annotations

import hpack
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.client.peer import ASK, Got, client, taken
from wigwag.wire.client.grpc_response import ResponseReader
from wigwag.wire.h2 import frames as f
from wigwag.wire.h2.client import CONNECTION_GRANT, Http2Client, Receiver
from wigwag.wire.h2.frames import frame
from wigwag.wire.h2.hpack import encode_block as block
from wigwag.wire.h2.streams import GRANT
from wigwag.wire.rpcs.envelope import wrap

GREETING = f.settings({})
HEAD = block(200, ((b"content-type", b"application/grpc"),))
END = block(0, ((b"grpc-status", b"0"),))
LIMIT = 1000

ids = st.sampled_from([0, 1, 2, 3, 5, 7, 9, 101, f.MAX_WINDOW])
flags = st.sampled_from([0, 1, 4, 5, 8, 9, 12, 13, 0x20, 0x25, 0x2D, 0xFF])
payloads = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([HEAD, END, wrap(b"x" * 30), wrap(b"y" * 5000)]),
    st.integers(0, 2**32 - 1).map(lambda n: n.to_bytes(4, "big")),
    st.integers(0, 9).map(lambda n: n.to_bytes(8, "big")),
)
wild = st.builds(frame, st.integers(0, 11), flags, ids, payloads)
tame = st.sampled_from(
    [frame(f.HEADERS, 4, n, HEAD) for n in (1, 3, 5)]
    + [frame(f.DATA, 0, n, wrap(b"data")) for n in (1, 3, 5)]
    + [frame(f.HEADERS, 5, n, END) for n in (1, 3, 5)]
    + [frame(f.PING, 1, 0, (1).to_bytes(8, "big")), f.window_update(0, 1000), f.window_update(3, 1000)]
    + [
        f.settings({f.SettingId.INITIAL_WINDOW_SIZE: 3, f.SettingId.MAX_CONCURRENT_STREAMS: 4}),
        f.goaway(3, f.ErrorCode(0)),
    ]
)
sessions = st.lists(st.one_of(tame, tame, wild), max_size=60).map(b"".join)


class Asking:
    """A machine with requests under way, of both kinds of receivers."""

    def __init__(self) -> None:
        self.machine = client()
        self.got = [Got() for _ in range(3)]
        self.receptions = [ResponseReader(LIMIT, lambda: 0.0) for _ in range(3)]

    def ask(self) -> None:
        receivers: list[Receiver] = [each for pair in zip(self.got, self.receptions, strict=True) for each in pair]
        for receiver in receivers:
            self.machine.request(ASK, b"q" * 50_000, receiver)

    def feed(self, data: bytes, size: int) -> None:
        self.ask()
        self.machine.ping()
        for at in range(0, len(data), size):
            self.machine.receive(data[at : at + size], at / 1000)
            self.check()
        self.machine.lost("over")
        self.check()
        assert all(each.told == 1 for each in self.got)
        assert all(each.over for each in self.receptions)

    def check(self) -> None:
        """Whatever arrived, what is kept is bounded and consistent."""
        machine = self.machine
        assert len(machine.frames.buffer) <= f.MAX_FRAME + 9
        assert 0 <= machine._room <= CONNECTION_GRANT
        assert set(machine.output.blocked) <= set(machine.streams)
        assert len(machine.frames.block[2]) <= machine.limits.header_bytes + f.MAX_FRAME
        assert all(0 <= stream.allowed <= GRANT and not stream.gone for stream in machine.streams.values())
        assert all(each.told <= 1 for each in self.got)
        assert all(each.partial <= LIMIT + 5 + f.MAX_FRAME for each in self.receptions)
        assert sum(map(len, machine.out)) < 1 << 20
        if machine.closing:
            assert machine.streams == {}


@given(st.binary(max_size=2000), st.integers(1, 500))
@settings(deadline=None)
def test_random_bytes(data: bytes, size: int) -> None:
    Asking().feed(data, size)
    Asking().feed(GREETING + data, size)


@given(sessions, st.integers(1, 500))
@settings(deadline=None, max_examples=500)
def test_frames_in_any_order(data: bytes, size: int) -> None:
    Asking().feed(GREETING + data, size)


def recorded() -> bytes:
    """What a server says to six requests, with a dynamic table, padding, pings and continuations."""
    encoder = hpack.Encoder()
    said = [f.settings({f.SettingId.MAX_CONCURRENT_STREAMS: 100}), frame(f.SETTINGS, f.ACK, 0)]
    for stream in range(1, 12, 2):
        head = encoder.encode([(":status", "200"), ("content-type", "application/grpc"), ("x", str(stream))])
        said += [frame(f.HEADERS, 0, stream, head[:3]), frame(f.CONTINUATION, 4, stream, head[3:])]
        said += [frame(f.DATA, 8, stream, b"\x04" + wrap(b"message" * stream) + bytes(4)), f.window_update(stream, 9)]
        said += [frame(f.PING, 0, 0, bytes(8)), frame(f.PING, 1, 0, (1).to_bytes(8, "big"))]
        said += [frame(f.HEADERS, 5, stream, encoder.encode([("grpc-status", "0")]))]
    return b"".join(said) + f.goaway(11, f.ErrorCode(0), "bye")


RECORDED = recorded()
changes = st.lists(st.tuples(st.integers(0, len(RECORDED) - 1), st.integers(0, 255)), max_size=8)


def test_the_recorded_session_is_a_good_one() -> None:
    asking = Asking()
    asking.ask()
    for at in range(len(RECORDED)):
        asking.machine.receive(RECORDED[at : at + 1], 0.0)
    assert [each.trailers for each in asking.got] == [((b"grpc-status", b"0"),)] * 3
    assert [(each.over, each.error, len(each.messages)) for each in asking.receptions] == [(True, None, 1)] * 3
    assert asking.machine.closing


@given(changes, st.integers(0, len(RECORDED)), st.integers(1, 500))
@settings(deadline=None, max_examples=500)
def test_a_real_session_with_bytes_changed_and_cut(changes: list[tuple[int, int]], end: int, size: int) -> None:
    data = bytearray(RECORDED)
    for at, value in changes:
        data[at] = value
    Asking().feed(bytes(data[:end]), size)


def replayed(size: int) -> tuple[Http2Client, bytes, list[object]]:
    asking = Asking()
    asking.ask()
    sent = b""
    for at in range(0, len(RECORDED), size):
        asking.machine.receive(RECORDED[at : at + size], 0.0)
        sent += taken(asking.machine)
    return asking.machine, sent, [(each.status, each.headers, each.body, each.trailers) for each in asking.got]


@given(st.integers(1, len(RECORDED)))
@settings(deadline=None)
def test_how_bytes_are_cut_changes_nothing(size: int) -> None:
    _, sent, got = replayed(size)
    _, sent_whole, got_whole = replayed(len(RECORDED))
    assert got == got_whole
    assert sent == sent_whole
