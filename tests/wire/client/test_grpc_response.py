"""Answers of gRPC, piece by piece, without a connection."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.wire.client.decode import PIECE
from wigwag.wire.client.grpc_response import TRICKLE_SECONDS, ResponseReader
from wigwag.wire.h2.client import Broken
from wigwag.wire.h2.streams import GRANT
from wigwag.wire.http import Headers
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs.envelope import wrap
from wigwag.wire.rpcs.grpc import percent_encode

GRPC: Headers = ((b"content-type", b"application/grpc+proto"),)
GZIP: Headers = (*GRPC, (b"grpc-encoding", b"gzip"))
OK: Headers = ((b"grpc-status", b"0"),)
LIMIT = 10_000


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def begun(headers: Headers = GRPC, limit: int = LIMIT) -> ResponseReader:
    reception = ResponseReader(limit, Time())
    assert reception.on_head(200, headers)
    return reception


def failed(reception: ResponseReader, code: Code) -> str:
    assert reception.over
    assert reception.error is not None
    assert reception.error.code is code
    return reception.error.message


def taken(reception: ResponseReader) -> bytes:
    return b"".join(reception.pieces())


def messages(reception: ResponseReader) -> list[bytes]:
    return [taken(reception) for _ in range(len(reception.messages))]


@given(st.lists(st.tuples(st.binary(max_size=300), st.booleans()), max_size=8), st.integers(1, 400))
def test_messages_are_the_same_however_they_are_cut(sent: list[tuple[bytes, bool]], size: int) -> None:
    reception = begun(GZIP)
    data = b"".join(wrap(gzip.compress(message), 1) if zipped else wrap(message) for message, zipped in sent)
    for at in range(0, len(data), size):
        assert reception.on_data(data[at : at + size])
    reception.on_end(OK)
    assert (reception.over, reception.error, reception.partial) == (True, None, 0)
    assert messages(reception) == [message for message, _ in sent]
    assert reception._unread == 0


@given(st.lists(st.binary(max_size=60), max_size=6), st.booleans())
def test_garbage_is_messages_or_an_error(pieces: list[bytes], zipped: bool) -> None:
    reception = begun(GZIP if zipped else GRPC, 40)
    for piece in pieces:
        if not reception.on_data(piece):
            break
        assert reception.partial <= 60 + 45
    reception.on_end(OK)
    assert reception.over
    try:
        assert all(len(message) <= 40 for message in messages(reception))
    except RpcError as error:
        assert zipped
        assert reception.error is error


def test_a_message_over_the_limit_is_refused_by_its_prefix() -> None:
    reception = begun()
    assert not reception.on_data(wrap(bytes(LIMIT + 1))[:5])
    assert failed(reception, Code.RESOURCE_EXHAUSTED) == f"the message is larger than {LIMIT} bytes"
    assert not reception.on_data(b"more")


def test_a_message_stays_compressed_until_it_is_read() -> None:
    reception = begun(GZIP, limit=1 << 20)
    data = wrap(gzip.compress(bytes(1 << 20)), 1)
    tracemalloc.start()
    try:
        for _ in range(50):
            assert reception.on_data(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert reception.wants_more()
    assert len(taken(reception)) == 1 << 20
    assert len(reception.messages) == 49


def test_what_a_message_becomes_is_made_piece_by_piece_and_the_message_taken_with_the_last() -> None:
    reception = begun(GZIP, limit=1 << 20)
    reception.on_data(wrap(gzip.compress(bytes(1 << 20)), 1))
    next(reception.pieces())
    assert len(reception.messages) == 1
    assert max(map(len, reception.pieces())) <= PIECE
    assert not reception.messages


def test_what_does_not_become_smaller_comes_back_too() -> None:
    noise = Random(1).randbytes(10 * PIECE + 1)
    reception = begun(GZIP, limit=20 * PIECE)
    reception.on_data(wrap(gzip.compress(noise), 1))
    assert taken(reception) == noise
    assert reception._unread == 0


def test_what_becomes_nothing_is_read_in_pieces_too() -> None:
    packer = zlib.compressobj(wbits=31)
    start, empty = packer.compress(b"x") + packer.flush(zlib.Z_FULL_FLUSH), b"\0\0\0\xff\xff"
    reception = begun(GZIP, limit=8 * PIECE)
    reception.on_data(wrap(start + empty * PIECE + packer.flush(), 1))
    pieces = list(reception.pieces())
    assert b"".join(pieces) == b"x"
    assert len(pieces) >= len(empty)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (gzip.compress(bytes(100 * LIMIT)), Code.RESOURCE_EXHAUSTED),
        (gzip.compress(bytes(LIMIT + 1)), Code.RESOURCE_EXHAUSTED),
        (b"not gzip", Code.INTERNAL),
        (gzip.compress(b"x")[:-1], Code.INTERNAL),
        (gzip.compress(b"x") + b"y", Code.INTERNAL),
    ],
    ids=["bomb", "large", "broken", "short", "long"],
)
@pytest.mark.parametrize("ended", [False, True], ids=["open", "ended"])
def test_a_message_that_cannot_be_decompressed_ends_the_answer_where_it_is(
    data: bytes, code: Code, ended: bool
) -> None:
    reception = begun(GZIP)
    reception.on_data(wrap(b"before") + wrap(data, 1) + wrap(b"after"))
    if ended:
        reception.on_end(OK)
    assert taken(reception) == b"before"
    with pytest.raises(RpcError):
        taken(reception)
    failed(reception, code)
    assert not reception.messages
    assert not reception.on_data(wrap(b"more"))


@pytest.mark.parametrize(
    ("headers", "data"),
    [(GRPC, wrap(gzip.compress(b"x"), 1)), (GRPC, wrap(b"x", 2))],
    ids=["unannounced", "flags"],
)
def test_a_message_that_cannot_be_read_is_the_servers_fault(headers: Headers, data: bytes) -> None:
    reception = begun(headers)
    assert not reception.on_data(data)
    failed(reception, Code.INTERNAL)
    assert not reception.messages


def test_a_compression_that_we_never_took_is_an_error_that_does_not_mean_unimplemented() -> None:
    reception = ResponseReader(LIMIT, Time())
    assert not reception.on_head(200, (*GRPC, (b"grpc-encoding", b"br")))
    assert "'br'" in failed(reception, Code.INTERNAL)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.INTERNAL),
        (401, Code.UNAUTHENTICATED),
        (403, Code.PERMISSION_DENIED),
        (404, Code.UNIMPLEMENTED),
        (429, Code.UNAVAILABLE),
        (502, Code.UNAVAILABLE),
        (503, Code.UNAVAILABLE),
        (504, Code.UNAVAILABLE),
        (500, Code.UNKNOWN),
        (200, Code.UNKNOWN),
        (302, Code.UNKNOWN),
    ],
)
def test_a_page_is_not_an_answer(status: int, code: Code) -> None:
    reception = ResponseReader(LIMIT, Time())
    assert not reception.on_head(status, ((b"content-type", b"text/html"),))
    assert f"not gRPC but HTTP {status} (text/html)" in failed(reception, code)


def test_an_answer_may_be_nothing_but_its_status() -> None:
    for status in (200, 503):
        reception = ResponseReader(LIMIT, Time())
        assert reception.on_head(status, (*GRPC, (b"grpc-status", b"7"), (b"grpc-message", b"go away")))
        reception.on_end(())
        assert failed(reception, Code.PERMISSION_DENIED) == "go away"


@given(st.text(max_size=100))
def test_the_servers_words_arrive_fit_for_one_line(said: str) -> None:
    reception = begun()
    reception.on_end(((b"grpc-status", b"5"), (b"grpc-message", percent_encode(said))))
    told = failed(reception, Code.NOT_FOUND)
    assert told.isprintable()
    if said and said.isprintable():
        assert told == said


def test_the_servers_words_are_cut() -> None:
    reception = begun()
    reception.on_end(((b"grpc-status", b"2"), (b"grpc-message", b"x" * 20_000)))
    assert len(failed(reception, Code.UNKNOWN)) == 501


@pytest.mark.parametrize("told", [b"17", b"-1", b"x", b"", b"999999999999"])
def test_a_status_that_does_not_exist_is_unknown(told: bytes) -> None:
    reception = begun()
    reception.on_end(((b"grpc-status", told),))
    failed(reception, Code.UNKNOWN)


def test_an_answer_without_a_status_is_an_error() -> None:
    for trailers in ((), ((b"x", b"y"),)):
        reception = begun()
        reception.on_data(wrap(b"message"))
        reception.on_end(trailers)
        failed(reception, Code.UNKNOWN)
        assert messages(reception) == [b"message"]


def test_an_answer_that_ends_within_a_message_is_an_error() -> None:
    reception = begun()
    reception.on_data(wrap(b"message")[:-1])
    reception.on_end(OK)
    failed(reception, Code.INTERNAL)


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (Broken("gone", 0, connection=True), Code.UNAVAILABLE),
        (Broken("refused", 7), Code.UNAVAILABLE),
        (Broken("cancelled", 8), Code.CANCELLED),
        (Broken("calm", 11), Code.RESOURCE_EXHAUSTED),
        (Broken("broken", 2), Code.INTERNAL),
        (Broken("unheard of", 99), Code.INTERNAL),
    ],
)
def test_what_breaks_off_has_a_status_too(broken: Broken, code: Code) -> None:
    reception = begun()
    reception.on_broken(broken)
    assert failed(reception, code) == broken.reason


def test_the_first_end_is_the_end() -> None:
    reception = begun()
    reception.fail(RpcError(Code.CANCELLED, "mine"))
    reception.on_broken(Broken("theirs", 8))
    reception.on_end(OK)
    assert failed(reception, Code.CANCELLED) == "mine"


def test_a_message_that_trickles_in_is_given_up() -> None:
    time = Time()
    reception = ResponseReader(LIMIT, time)
    reception.on_head(200, GRPC)
    reception.on_data(wrap(b"whole") + wrap(b"message")[:7])
    time.now = TRICKLE_SECONDS
    reception.on_alive()
    assert not reception.over
    reception.on_data(b"s")
    time.now += 1
    reception.on_alive()
    assert "8 bytes of it came" in failed(reception, Code.DEADLINE_EXCEEDED)
    assert messages(reception) == [b"whole"]


def test_silence_between_messages_is_no_trickle() -> None:
    time = Time()
    reception = ResponseReader(LIMIT, time)
    reception.on_head(200, GRPC)
    reception.on_data(wrap(b"whole"))
    time.now = 1e6
    reception.on_data(wrap(b"message")[:7])
    reception.on_alive()
    assert reception.alive
    assert not reception.over


def test_it_is_hungry_until_what_nobody_read_is_as_much_as_was_granted() -> None:
    reception = begun(limit=GRANT)
    assert reception.wants_more()
    reception.on_data(wrap(bytes(GRANT - 5)))
    assert not reception.wants_more()
    taken(reception)
    assert reception.wants_more()


def test_every_news_wakes_who_waits() -> None:
    woken: list[int] = []
    reception = begun()
    reception.wake = lambda: woken.append(1)
    reception.on_data(wrap(b"message")[:7])
    assert len(woken) == 0
    reception.on_data(wrap(b"message")[7:])
    reception.on_alive()
    reception.on_end(OK)
    assert len(woken) == 3
