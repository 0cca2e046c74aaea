"""The server that comes with the page, over real connections."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import until
from tests.dflag.page.asking import OPEN
from wigwag import dflag
from wigwag.dflag.page.messages import HttpError, PageLimits
from wigwag.dflag.page.serving.conversation import GoneError, Inbox, converse
from wigwag.dflag.page.serving.listener import Listener
from wigwag.dflag.page.serving.server import PageServer
from wigwag.dflag.page.site import Site
from wigwag.errors import StartError, UsageError

PATIENCE = 30.0


def shop(**limits: Any) -> tuple[Site, dflag.FlagSet]:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10)
    flags.str("text", "")
    return Site(flags, access=OPEN, limits=PageLimits(**{"seconds": PATIENCE, **limits})), flags


@contextmanager
def connected(server: PageServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
        yield connection


def rest(connection: socket.socket) -> bytes:
    """Read until the other side ends."""
    data = bytearray()
    while piece := connection.recv(65536):
        data += piece
    return bytes(data)


def asked(server: PageServer, data: bytes) -> tuple[int, bytes]:
    with connected(server) as connection:
        connection.sendall(data)
        return split(rest(connection))


def split(answer: bytes) -> tuple[int, bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    assert b"Connection: close" in head
    return int(head.split()[1]), body


def request(server: PageServer, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_flags_are_listed_and_set() -> None:
    site, flags = shop()
    with PageServer(site) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/"
        status, told = request(server, "GET", "/?type=dynamic")
        assert (status, [flag["name"] for flag in told["flags"]]) == (200, ["rate", "text"])
        assert request(server, "PUT", "/flags/rate", '{"value": 20}')[0] == 200
        assert flags["rate"].get() == 20
        assert request(server, "GET", "/nothing")[0] == 404


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_it_listens_on_loopback_only_unless_told_otherwise() -> None:
    assert PageServer(shop()[0]).host == "127.0.0.1"
    with PageServer(shop()[0], "0.0.0.0") as server:
        assert server.url == f"http://127.0.0.1:{server.port}/"


def test_it_knows_the_new_addresses() -> None:
    server = PageServer(shop()[0], "::1")
    if not has_ipv6():
        with pytest.raises(StartError, match="cannot listen at ::1"):
            server.start()
        return
    with server:
        assert server.url == f"http://[::1]:{server.port}/"
        with socket.create_connection(("::1", server.port), PATIENCE) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n")
            assert split(rest(connection))[0] == 200


def test_it_can_be_stopped_twice_and_started_again() -> None:
    server = PageServer(shop()[0])
    before = threading.active_count()
    for _ in range(2):
        server.start()
        with pytest.raises(UsageError, match="served already"):
            server.start()
        assert request(server, "GET", "/")[0] == 200
        server.stop()
        server.stop()
        assert not server.running
        with pytest.raises(UsageError, match="no port"):
            server.port  # noqa: B018
    until(lambda: threading.active_count() <= before)


def test_a_port_in_use_is_said_to_be_so() -> None:
    with PageServer(shop()[0]) as server:
        other = PageServer(shop()[0], port=server.port)
        with pytest.raises(StartError, match=f"cannot listen at 127.0.0.1 port {server.port}: "):
            other.start()
        assert not other.running


def test_nothing_is_left_open() -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    with PageServer(shop()[0]) as server:
        for _ in range(20):
            request(server, "GET", "/flags/rate")
    until(lambda: count() <= before)


@pytest.mark.parametrize("tail", [b"", b"Content-Length: 100\r\n\r\n{"], ids=["in the head", "in the body"])
def test_a_slow_client_is_told_that_it_was_too_slow(tail: bytes) -> None:
    site, _ = shop(seconds=0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"PUT /flags/rate HTTP/1.1\r\nHost: localhost\r\n" + tail)
        serving = threading.Thread(target=converse, args=(site, ours, "", lambda: 0.0))
        serving.start()
        assert split(rest(theirs))[0] == 408
        theirs.close()
        serving.join(PATIENCE)
        assert not serving.is_alive()


def test_a_client_that_asks_for_nothing_gets_nothing() -> None:
    with PageServer(shop(seconds=0.2)[0]) as server, connected(server) as connection:
        assert rest(connection) == b""


class Drip:
    """A client that sends a byte every second."""

    def __init__(self) -> None:
        self.now, self.sent, self.timeouts = 0.0, 0, list[float]()

    def settimeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)

    def recv(self, size: int) -> bytes:
        self.now += 1.0
        self.sent += 1
        return b"x"


def test_a_byte_now_and_then_buys_no_time() -> None:
    drip = Drip()
    inbox = Inbox(drip, PageLimits(seconds=10), lambda: drip.now)  # type: ignore[arg-type]
    with pytest.raises(HttpError) as caught:
        inbox.head()
    assert (caught.value.status, drip.sent, drip.timeouts[0], drip.timeouts[-1]) == (408, 10, 10.0, 1.0)


class Silent(Drip):
    def recv(self, size: int) -> bytes:
        raise TimeoutError


def test_one_who_never_said_anything_needs_no_answer() -> None:
    with pytest.raises(GoneError):
        Inbox(Silent(), PageLimits(), lambda: 0.0).head()  # type: ignore[arg-type]


@pytest.mark.parametrize("ended", [True, False])
def test_a_huge_head_is_refused(ended: bool) -> None:
    with PageServer(shop()[0]) as server:
        data = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (200 << 10) + (b"\r\n\r\n" if ended else b"")
        with connected(server) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            status, body = split(rest(connection))
        assert (status, "at most 16384 bytes" in json.loads(body)["detail"]) == (431, True)


def test_a_huge_body_is_refused_and_its_sender_gets_to_know() -> None:
    site, flags = shop(body=1000)
    with PageServer(site) as server:
        status, told = request(server, "PUT", "/flags/rate", "x" * (4 << 20))
        assert (status, told["detail"]) == (413, "a body has at most 1000 bytes")
        assert flags.generation == 0


def test_a_body_that_would_be_too_long_is_not_waited_for() -> None:
    with PageServer(shop()[0]) as server, connected(server) as connection:
        connection.sendall(b"PUT /flags/rate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n")
        assert split(rest(connection))[0] == 413


def test_a_large_value_in_pieces_arrives_whole() -> None:
    site, flags = shop()
    with PageServer(site) as server:
        assert request(server, "PUT", "/flags/text", json.dumps({"value": "x" * (1 << 20)}))[0] == 200
        assert len(flags["text"].get()) == 1 << 20


def test_a_client_that_waits_for_a_word_gets_it() -> None:
    site, flags = shop()
    body = b'{"value": 20}'
    with PageServer(site) as server, connected(server) as connection:
        connection.sendall(
            b"PUT /flags/rate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        word = b""
        while not word.endswith(b"\r\n\r\n"):
            word += connection.recv(1)
        assert word == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert split(rest(connection))[0] == 200
    assert flags["rate"].get() == 20


def test_what_is_no_http_is_refused() -> None:
    with PageServer(shop()[0]) as server:
        assert asked(server, b"\x16\x03\x01\x02\x00\x01\r\n\r\n")[0] == 400
        assert asked(server, b"GET / HTTP/1.1\r\n\r\n")[0] == 400
        assert asked(server, b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")[0] == 421


def test_one_connection_too_many_is_turned_away_and_room_comes_back() -> None:
    with PageServer(shop(connections=1)[0]) as server:
        with connected(server) as first:
            first.sendall(b"GET / HTTP/1.1\r\n")
            with connected(server) as second:
                assert split(rest(second))[0] == 503
            first.sendall(b"Host: localhost\r\n\r\n")
            assert split(rest(first))[0] == 200
        until(lambda: asked(server, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")[0] == 200)


class Gate:
    """A notifier that is held up until the test lets it go on."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, old: Any, new: Any) -> None:
        self.entered.set()
        assert self.go.wait(PATIENCE)


PUT = (
    b"PUT /flags/rate HTTP/1.1\r\nHost: localhost\r\n"
    b'Content-Type: application/json\r\nContent-Length: 13\r\n\r\n{"value": 20}'
)


def test_what_is_being_answered_is_answered_before_the_end() -> None:
    site, flags = shop()
    gate = Gate()
    flags["rate"].on_change(gate, "sync")
    server = PageServer(site)
    server.start()
    with connected(server) as idle, connected(server) as busy:  # who comes first is taken first
        busy.sendall(PUT)
        assert gate.entered.wait(PATIENCE)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert rest(idle) == b""
        gate.go.set()
        assert split(rest(busy))[0] == 200
        stopping.join(PATIENCE)
    assert not stopping.is_alive()


def test_a_request_that_never_ends_does_not_keep_the_server_from_stopping(caplog: pytest.LogCaptureFixture) -> None:
    site, flags = shop()
    gate = Gate()
    flags["rate"].on_change(gate, "sync")
    before = threading.active_count()
    listener = Listener(site, "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as connection:
        connection.sendall(PUT)
        assert gate.entered.wait(PATIENCE)
        listener.stop(grace=0.05)
        assert "1 requests to the flags page have not ended" in caplog.text
        gate.go.set()
        assert rest(connection) == b""
    until(lambda: threading.active_count() <= before)


def test_whoever_stops_it_second_waits_for_the_first() -> None:
    site, flags = shop()
    gate = Gate()
    flags["rate"].on_change(gate, "sync")
    listener = Listener(site, "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as connection:
        connection.sendall(PUT)
        assert gate.entered.wait(PATIENCE)
        stopping = [threading.Thread(target=listener.stop, args=(PATIENCE,)) for _ in range(2)]
        for thread in stopping:
            thread.start()
        stopping[1].join(0.2)
        assert [thread.is_alive() for thread in stopping] == [True, True]
        gate.go.set()
        assert split(rest(connection))[0] == 200
        for thread in stopping:
            thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in stopping)


def test_a_server_that_is_being_stopped_can_be_started_by_whoever_has_waited() -> None:
    site, flags = shop()
    gate = Gate()
    flags["rate"].on_change(gate, "sync")
    server = PageServer(site)
    server.start()
    port, done = server.port, threading.Event()
    with connected(server) as connection:
        connection.sendall(PUT)
        assert gate.entered.wait(PATIENCE)
        first = threading.Thread(target=server.stop)
        first.start()
        until(lambda: not server.running)

        def stop_and_tell() -> None:
            server.stop()
            done.set()

        second = threading.Thread(target=stop_and_tell)
        second.start()
        assert not done.wait(0.05)
        gate.go.set()
        assert split(rest(connection))[0] == 200
        assert done.wait(PATIENCE)
        first.join(PATIENCE)
        second.join(PATIENCE)
    again = PageServer(site, port=port)
    again.start()
    again.stop()


def test_a_request_does_not_wait_for_whoever_waits_for_it() -> None:
    site, flags = shop()
    gate = Gate()
    listener = Listener(site, "127.0.0.1", 0)
    address = ("127.0.0.1", listener.port)

    def stop(old: Any, new: Any) -> None:
        gate(old, new)
        listener.stop(grace=PATIENCE)

    flags["rate"].on_change(stop, "sync")
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(PUT)
        assert gate.entered.wait(PATIENCE)
        first = threading.Thread(target=listener.stop, args=(PATIENCE,))
        first.start()
        until(lambda: refused(address))
        gate.go.set()
        assert split(rest(connection))[0] == 200
        first.join(PATIENCE)
    assert not first.is_alive()


def refused(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, PATIENCE).close()
    except ConnectionError as error:
        return isinstance(error, ConnectionRefusedError)  # one that waited to be taken is reset
    return False


def test_a_request_may_stop_the_server() -> None:
    site, flags = shop()
    server = PageServer(site)
    flags["rate"].on_change(lambda old, new: server.stop(), "sync")
    server.start()
    with connected(server) as connection:
        connection.sendall(PUT)
        assert split(rest(connection))[0] == 200
    assert not server.running


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_does_not_serve_and_the_parent_goes_on() -> None:
    site, _ = shop()
    with PageServer(site) as server, connected(server) as waiting:
        waiting.sendall(b"GET / HTTP/1.1\r\n")
        assert request(server, "GET", "/")[0] == 200
        pid = os.fork()
        if not pid:
            code = 1
            try:
                port = server.port if server.running else 0
                server.start()
                code = 0 if port == 0 and request(server, "GET", "/")[0] == 200 else 2
                server.stop()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert request(server, "GET", "/")[0] == 200
        waiting.sendall(b"Host: localhost\r\n\r\n")
        assert split(rest(waiting))[0] == 200


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_does_not_keep_the_port() -> None:
    server = PageServer(shop()[0])
    server.start()
    port = server.port
    (done, end), (ready, say) = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        os.close(end)
        os.write(say, b"!")
        os.read(done, 1)
        os._exit(0)
    os.close(done)
    assert os.read(ready, 1) == b"!"  # what is done after a fork has been done
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    for each in (end, ready, say):
        os.close(each)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_program_that_ends_answers_what_was_asked() -> None:
    code = """
import atexit, socket, threading
from wigwag import dflag
entered, go, client = threading.Event(), threading.Event(), socket.socket()
flags = dflag.FlagSet("x")
flags.int("rate", 10).on_change(lambda old, new: (entered.set(), go.wait(30)), "sync")
server = dflag.PageServer(dflag.Site(flags, access=dflag.Access(unauthenticated=True)))
atexit.register(lambda: (client.settimeout(0), print(client.recv(12)), client.close()))  # the last of these three
server.start()
atexit.register(go.set)  # the first
client.settimeout(30)
client.connect(("127.0.0.1", server.port))
client.sendall(%r)
entered.wait(30)
"""
    told = subprocess.run([sys.executable, "-c", code % PUT], capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout, told.stderr) == (0, "b'HTTP/1.1 200'\n", "")


def test_a_program_that_forgets_to_stop_it_ends_all_the_same() -> None:
    code = """
import atexit, socket
from wigwag import dflag
server = dflag.PageServer(dflag.Site(dflag.FlagSet("x")))
held = socket.socket()
atexit.register(held.close)  # after the server, which was registered later
server.start()
held.connect(("127.0.0.1", server.port))
held.sendall(b"GET / HTTP/1.1")
print("end")
"""
    told = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout, told.stderr) == (0, "end\n", "")
