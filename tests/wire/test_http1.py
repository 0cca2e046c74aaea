"""The HTTP/1.1 machine without sockets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wigwag.wire.h1.response import Http1Exchange
from wigwag.wire.h1.server import Http1
from wigwag.wire.http import Reply, Request
from wigwag.wire.limits import WireLimits
from wigwag.wire.peer import Peer

OK = Reply(200, ((b"a", b"b"),), b"hello")
GET = b"GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"


class Client:
    """Sends bytes to a machine and answers whatever is ready."""

    def __init__(self, limits: WireLimits | None = None, reply: Reply | None = OK) -> None:
        self.machine = Http1(limits or WireLimits(), Peer(), 0.0)
        self.reply = reply
        self.requests: list[Request] = []
        self.waiting: list[Http1Exchange] = []

    def send(self, data: bytes, now: float = 0.0) -> bytes:
        self.machine.receive(data, now)
        return self.serve()

    def serve(self) -> bytes:
        while self.machine.ready:
            exchange = self.machine.ready.popleft()
            self.requests.append(exchange.request)
            if self.reply:
                exchange.reply(self.reply)
            else:
                self.waiting.append(exchange)
        return self.taken()

    def taken(self) -> bytes:
        data = b"".join(self.machine.out)
        self.machine.out.clear()
        return data


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def test_a_request_and_its_answer() -> None:
    client = Client()
    assert client.send(GET) == b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 5\r\n\r\nhello"
    (request,) = client.requests
    assert (request.method, request.path, request.query) == (b"GET", b"/a", b"b=c")
    assert (request.headers, request.body, request.version) == (((b"host", b"h"),), b"", 1)
    assert not client.machine.closing


def test_names_are_lower_case_values_trimmed_and_the_path_raw() -> None:
    client = Client()
    client.send(b"GET /%41%2f HTTP/1.1\r\nHOST: h\r\nX-A:  1 2 \t\r\nx-a:\r\n\r\n")
    assert client.requests[0].headers == ((b"host", b"h"), (b"x-a", b"1 2"), (b"x-a", b""))
    assert client.requests[0].path == b"/%41%2f"


def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    client = Client(reply=None)
    assert client.send(GET + POST + GET) == b""
    assert len(client.waiting) == 1
    assert client.machine.crowded()
    for n in range(3):
        client.waiting[n].reply(Reply(200, (), b"%d" % n))
        assert client.serve().endswith(b"\r\n\r\n%d" % n)
    assert [request.body for request in client.requests] == [b"", b"body", b""]
    assert not client.machine.crowded()


def test_repeated_heads_are_not_parsed_again_and_mean_the_same() -> None:
    client = Client()
    for body in (b"body", b"b0dy", b"b1dy", b"b2dy"):
        client.send(POST.replace(b"body", body))
    first, *rest = client.requests
    assert [request.body for request in client.requests] == [b"body", b"b0dy", b"b1dy", b"b2dy"]
    assert all(request.headers == first.headers for request in rest)
    assert rest[1].headers is rest[2].headers


def test_a_known_head_with_less_or_more_than_its_body_is_parsed() -> None:
    client = Client()
    for _ in range(3):
        client.send(POST)
    client.send(POST[:-2])
    assert len(client.requests) == 3
    client.send(POST[-2:] + GET)
    client.send(POST + POST)
    assert [request.body for request in client.requests[3:]] == [b"body", b"", b"body", b"body"]


@given(st.lists(st.sampled_from([GET, POST, b"\r\n"]), max_size=8), st.lists(st.integers(1, 60), min_size=1))
@settings(deadline=None)
def test_bytes_may_arrive_in_any_pieces(messages: list[bytes], sizes: list[int]) -> None:
    client, data, at = Client(), b"".join(messages), 0
    while data:
        size = sizes[at % len(sizes)]
        client.send(data[:size])
        data, at = data[size:], at + 1
    expected = [each for each in messages if each != b"\r\n"]
    assert [request.method for request in client.requests] == [each.split(b" ")[0] for each in expected]
    assert [request.body for request in client.requests] == [b"body" if each == POST else b"" for each in expected]


def test_a_chunked_body_and_its_trailers() -> None:
    client = Client()
    client.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n")
    client.send(b"0\r\nTrailer: x\r\n\r\n")
    assert client.requests[0].body == b"abc"
    assert all(name != b"trailer" for name, _ in client.requests[0].headers)


def test_a_client_that_expects_to_be_told_to_go_on_is_told() -> None:
    client = Client()
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    assert client.send(head) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert status(client.send(b"body")) == 200
    assert status(Client().send(head.replace(b"100-continue", b"miracles"))) == 417
    small = Client(WireLimits(body_bytes=3))
    assert status(small.send(head)) == 413


def test_going_on_waits_for_the_answer_before() -> None:
    client = Client(reply=None)
    client.send(GET + b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    client.waiting[0].reply(OK)
    assert client.taken().endswith(b"helloHTTP/1.1 100 Continue\r\n\r\n")


def test_head_has_the_length_and_not_the_body() -> None:
    client = Client()
    assert client.send(GET.replace(b"GET", b"HEAD")).endswith(b"content-length: 5\r\n\r\n")
    client.reply = Reply(200, ((b"content-length", b"77"),))
    answer = client.send(GET.replace(b"GET", b"HEAD"))
    assert answer.count(b"content-length") == 1
    assert b"content-length: 77" in answer


def test_a_handler_cannot_contradict_the_length_of_its_body() -> None:
    answer = Client(reply=Reply(200, ((b"content-length", b"77"), (b"connection", b"x")), b"four")).send(GET)
    assert answer == b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfour"


@pytest.mark.parametrize("code", [204, 304])
def test_some_answers_have_no_body(code: int) -> None:
    answer = Client(reply=Reply(code, (), b"none")).send(GET)
    assert answer.endswith(b"\r\n\r\n")
    assert b"content-length" not in answer


def test_a_client_that_closes_is_closed_after_its_answer() -> None:
    client = Client()
    answer = client.send(GET.replace(b"Host", b"Connection: close\r\nHost") + GET)
    assert b"connection: close\r\n" in answer
    assert client.machine.closing
    assert len(client.requests) == 1


def test_http_1_0_closes_unless_asked_to_stay() -> None:
    old = Client()
    assert b"connection: close" in old.send(b"GET / HTTP/1.0\r\n\r\n")
    assert old.machine.closing
    kept = Client()
    for _ in range(3):
        assert b"connection: keep-alive" in kept.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert not kept.machine.closing


BAD = {
    b"GET / HTTP/1.1\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": 400,
    b"GET a HTTP/1.1\r\nHost: a\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost : a\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n": 400,
    b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n": 501,
    b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n": 501,
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n": 505,
}


@pytest.mark.parametrize(("data", "expected"), BAD.items(), ids=repr)
def test_a_bad_request_is_refused_and_the_connection_closed(data: bytes, expected: int) -> None:
    client = Client()
    client.send(GET)
    answer = client.send(data)
    assert status(answer) == expected
    assert b"connection: close\r\n" in answer
    assert client.machine.closing
    assert len(client.requests) == 1
    assert client.send(GET) == b""


def test_who_does_not_speak_http_is_not_answered() -> None:
    client = Client()
    assert client.send(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03") == b""
    assert client.machine.closing


def test_a_bad_request_is_refused_after_the_answers_before() -> None:
    client = Client(reply=None)
    client.send(GET + b"GET a HTTP/1.1\r\nHost: h\r\n\r\n")
    assert client.taken() == b""
    client.waiting[0].reply(OK)
    answer = client.taken()
    assert answer.index(b"hello") < answer.index(b"400 Bad Request")
    assert client.machine.closing


def test_a_proxy_may_send_the_whole_address() -> None:
    client = Client()
    client.send(b"GET HTTP://h/p?q HTTP/1.1\r\nHost: h\r\n\r\n")
    client.send(b"GET http://h HTTP/1.1\r\nHost: h\r\n\r\n")
    client.send(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
    assert [(request.path, request.query) for request in client.requests] == [(b"/p", b"q"), (b"/", b""), (b"*", b"")]


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_an_offer_to_upgrade_is_declined_by_answering(size: int) -> None:
    client, answers = Client(), b""
    head = (
        b"POST /u HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
    )
    data = head + b"Content-Length: 4\r\n\r\nbody" + GET
    for at in range(0, len(data), size):
        answers += client.send(data[at : at + size])
    assert [(request.path, request.body) for request in client.requests] == [(b"/u", b"body"), (b"/a", b"")]
    assert answers.count(b"200 OK") == 2


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 300,
        b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"x" * 70_000,
        b"GET /" + b"x" * 70_000,
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 40_000,
    ],
    ids=["many", "long value", "long path", "trailers"],
)
def test_too_much_head_is_refused(data: bytes) -> None:
    client, answer = Client(), b""
    for at in range(0, len(data), 1000):
        answer += client.send(data[at : at + 1000])
    assert status(answer) == 431
    assert client.machine.closing


def test_much_pipelining_is_not_too_much_head() -> None:
    client = Client()
    client.send(GET)
    client.send(GET * 5000 + GET[:-1])
    client.send(GET[-1:])
    assert len(client.requests) == 5002


def test_too_much_body_is_refused_told_or_not() -> None:
    limits = WireLimits(body_bytes=3)
    assert status(Client(limits).send(POST)) == 413
    chunked = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    client = Client(limits)
    assert client.send(chunked + b"2\r\nab\r\n") == b""
    assert status(client.send(b"2\r\nab\r\n")) == 413


def exchange(head: bytes = GET) -> tuple[Client, Http1Exchange]:
    client = Client(reply=None)
    client.send(head)
    return client, client.waiting[0]


def test_a_stream_is_chunked() -> None:
    client, stream = exchange()
    assert stream.begin(200, ((b"a", b"b"),))
    stream.send(b"x" * 17)
    stream.send(b"")
    stream.end(((b"t", b"1"),))
    chunks = b"11\r\n" + b"x" * 17 + b"\r\n0\r\n\r\n"
    assert client.taken() == b"HTTP/1.1 200 OK\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n" + chunks
    assert not client.machine.closing


def test_a_stream_to_an_old_client_ends_with_the_connection() -> None:
    client, stream = exchange(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    stream.begin(200, ())
    stream.send(b"x")
    stream.end(())
    assert client.taken() == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nx"
    assert client.machine.closing


def test_a_stream_that_tells_its_length_needs_no_chunks() -> None:
    client, stream = exchange()
    stream.begin(200, ((b"content-length", b"1"),))
    stream.send(b"x")
    stream.end(())
    assert client.taken() == b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"
    assert not client.machine.closing


def test_trailers_go_to_clients_that_asked_for_them() -> None:
    wanting = GET.replace(b"Host", b"TE: trailers\r\nHost")
    client, stream = exchange(wanting)
    stream.begin(200, ())
    stream.end(((b"t", b"1"),))
    assert client.taken().endswith(b"0\r\nt: 1\r\n\r\n")
    reply = Reply(200, (), b"x", ((b"t", b"1"),))
    assert Client(reply=reply).send(wanting).endswith(b"chunked\r\n\r\n1\r\nx\r\n0\r\nt: 1\r\n\r\n")
    assert Client(reply=reply).send(GET).endswith(b"content-length: 1\r\n\r\nx")


def test_a_stream_that_breaks_off_is_not_taken_for_whole() -> None:
    client, stream = exchange()
    stream.begin(200, ())
    stream.send(b"x")
    stream.abort()
    assert client.taken().endswith(b"1\r\nx\r\n")
    assert client.machine.closing


def test_a_header_with_a_line_break_is_refused_before_anything_is_sent() -> None:
    client, stream = exchange()
    with pytest.raises(ValueError, match="cannot be sent"):
        stream.reply(Reply(200, ((b"a", b"b\r\nc: d"),)))
    assert client.taken() == b""


def test_draining_closes_an_idle_connection_at_once_and_a_busy_one_after_its_answer() -> None:
    idle = Client()
    idle.send(GET)
    idle.machine.drain()
    assert idle.machine.closing
    busy, stream = exchange()
    busy.machine.drain()
    assert not busy.machine.closing
    stream.reply(OK)
    assert b"connection: close\r\n" in busy.taken()
    assert busy.machine.closing


def test_a_client_that_is_asked_to_leave_is_answered_once_more() -> None:
    idle = Client()
    idle.send(GET)
    idle.taken()
    idle.machine.announce()
    assert not idle.machine.closing
    assert idle.taken() == b""
    assert b"connection: close\r\n" in idle.send(GET)
    assert idle.machine.closing


def test_a_client_that_will_send_nothing_more_still_gets_its_answer() -> None:
    client, stream = exchange()
    client.machine.half_closed()
    assert not client.machine.closing
    stream.reply(OK)
    assert client.machine.closing


def test_what_takes_too_long_is_given_up() -> None:
    client = Client()
    client.send(GET[:-1], 0.0)
    client.machine.expire(5.1)
    assert status(client.taken()) == 408
    client = Client()
    client.send(POST[:-1], 0.0)
    client.machine.expire(29.0)
    assert client.taken() == b""
    client.machine.expire(31.0)
    assert status(client.taken()) == 408
    client = Client()
    client.send(GET, 100.0)
    closing = []
    for now in (399.0, 401.0):
        client.machine.expire(now)
        closing.append(client.machine.closing)
    assert closing == [False, True]
    assert client.taken() == b""


def test_a_slow_answer_is_not_idleness() -> None:
    client, stream = exchange()
    client.machine.expire(1_000.0)
    stream.reply(OK)
    client.machine.expire(1_100.0)
    assert not client.machine.closing


def test_many_offers_to_upgrade_in_one_read_are_all_declined() -> None:
    client = Client()
    offer = b"GET /u HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    answers = client.send(offer * 2000)
    assert len(client.requests) == 2000
    assert answers.count(b"200 OK") == 2000
