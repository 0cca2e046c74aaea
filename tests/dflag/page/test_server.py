"""The built-in server of the page, over real connections."""

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
from tests.real.processes import claim_port
from wigwag import dflag
from wigwag.dflag.page.listener import PageListener, wire_limits
from wigwag.dflag.page.messages import PageLimits
from wigwag.dflag.page.server import PageServer
from wigwag.dflag.page.site import Site
from wigwag.errors import StartError, UsageError
from wigwag.wire.h1.server import Http1
from wigwag.wire.peer import Peer

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
            connection.sendall(b"GET / HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n")
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
    with PageServer(shop(seconds=1.0)[0]) as server:
        assert asked(server, b"PUT /flags/rate HTTP/1.1\r\nHost: localhost\r\n" + tail)[0] == 408


def test_a_client_that_asks_for_nothing_gets_nothing() -> None:
    with PageServer(shop(seconds=0.2)[0]) as server, connected(server) as connection:
        assert rest(connection) == b""


def test_a_byte_now_and_then_buys_no_time() -> None:
    connection = Http1(wire_limits(PageLimits(seconds=10)), Peer(), 0.0)
    connection.receive(b"GET / HTTP/1.1\r\nX: ", 0.0)
    for second in range(1, 10):
        connection.receive(b"x", float(second))
        connection.expire(float(second))
        assert not connection.out
    connection.expire(10.1)
    assert connection.out[0].startswith(b"HTTP/1.1 408 ")


def test_a_connection_serves_several_requests_and_is_closed_when_idle() -> None:
    with PageServer(shop(seconds=2.0)[0]) as server, connected(server) as connection:
        for _ in range(2):
            connection.sendall(b"GET /flags/rate HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
            while not connection.recv(65536).endswith(b"}\n"):
                pass
        assert rest(connection) == b""


@pytest.mark.parametrize("ended", [True, False])
def test_a_huge_head_is_refused(ended: bool) -> None:
    with PageServer(shop()[0]) as server:
        data = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (200 << 10) + (b"\r\n\r\n" if ended else b"")
        with connected(server) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            assert split(rest(connection))[0] == 431


def test_a_huge_body_is_refused_and_its_sender_gets_to_know() -> None:
    site, flags = shop(body=1000)
    with PageServer(site) as server:
        data = b"PUT /flags/rate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (4 << 20)
        assert asked(server, data + b"x" * (4 << 20))[0] == 413
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
            b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        word = b""
        while not word.endswith(b"\r\n\r\n"):
            word += connection.recv(1)
        assert word == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert split(rest(connection))[0] == 200
    assert flags["rate"].get() == 20


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /", 400),
        (b"GET / HTTP/2.0", 400),
        (b"get / HTTP/1.1", 501),
        (b"GET  / HTTP/1.1", 400),
        (b"GET / HTTP/1.1 ", 400),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/1.0", 400),
        (b"GET / HTTP/1.1\r\nHost: evil.example", 421),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost", 400),
        (b"GET /%ff HTTP/1.1\r\nHost: localhost", 400),
        (b"GET / HTTP/1.1\r\nHost", 400),
        (b"GET / HTTP/1.1\r\nHost : localhost", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n: a", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n folded", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\nY: b", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nhost: localhost", 400),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 1", 400),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +1", 400),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1_0", 400),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: ", 400),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 20, 400),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\nContent-Length: 5", 400),
        (b"PUT / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n".join([b"X: 1"] * 101), 431),
    ],
)
def test_a_malformed_request_is_refused(data: bytes, status: int) -> None:
    with PageServer(shop()[0]) as server, connected(server) as connection:
        connection.sendall(data + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert split(rest(connection))[0] == status


def test_who_speaks_no_http_gets_nothing() -> None:
    with PageServer(shop()[0]) as server, connected(server) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\r\n\r\n")
        assert rest(connection) == b""


def test_a_path_and_headers_are_decoded() -> None:
    site, flags = shop()
    flags.int("größe", 1)
    with PageServer(site) as server:
        assert request(server, "PUT", "/flags/gr%C3%B6%C3%9Fe?validate_only=1", '{"value": 20}')[0] == 200
        assert (flags["größe"].get(), request(server, "GET", "/flags/gr%C3%B6%C3%9Fe")[1]["name"]) == (1, "größe")


def test_a_body_in_chunks_is_accepted() -> None:
    site, flags = shop()
    with PageServer(site) as server:
        head = b"PUT /flags/rate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        body = b'7\r\n{"value\r\n6\r\n": 20}\r\n0\r\n\r\n'
        assert asked(server, head + b"Transfer-Encoding: chunked\r\n\r\n" + body)[0] == 200
    assert flags["rate"].get() == 20


def test_one_connection_too_many_is_closed_and_room_comes_back() -> None:
    with PageServer(shop(connections=1)[0]) as server:
        with connected(server) as first:
            first.sendall(b"GET / HTTP/1.1\r\n")
            with connected(server) as second:
                assert rest(second) == b""
            first.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
            assert split(rest(first))[0] == 200
        until(lambda: attempt(server) == 200)


def attempt(server: PageServer) -> int:
    """Return the status of a request; 0 if the connection is closed or reset."""
    try:
        return asked(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")[0]
    except (AssertionError, ConnectionError):
        return 0


class Gate:
    """A notifier that is held up until the test lets it go on."""

    def __init__(self) -> None:
        self.entered, self.go = threading.Event(), threading.Event()

    def __call__(self, old: Any, new: Any) -> None:
        self.entered.set()
        assert self.go.wait(PATIENCE)


PUT = (
    b"PUT /flags/rate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
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
        busy.close()
        stopping.join(PATIENCE)
    assert not stopping.is_alive()


def test_a_request_that_never_ends_does_not_keep_the_server_from_stopping(caplog: pytest.LogCaptureFixture) -> None:
    site, flags = shop()
    gate = Gate()
    flags["rate"].on_change(gate, "sync")
    before = threading.active_count()
    listener = PageListener(site, "127.0.0.1", 0, grace=0.05)
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as connection:
        connection.sendall(PUT)
        assert gate.entered.wait(PATIENCE)
        listener.stop()
        assert "requests that are still running: 1" in caplog.text
        gate.go.set()
        assert rest(connection) == b""
    until(lambda: threading.active_count() <= before)


def test_whoever_stops_it_second_waits_for_the_first() -> None:
    site, flags = shop()
    gate = Gate()
    flags["rate"].on_change(gate, "sync")
    listener = PageListener(site, "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", listener.port), PATIENCE) as connection:
        connection.sendall(PUT)
        assert gate.entered.wait(PATIENCE)
        stopping = [threading.Thread(target=listener.stop) for _ in range(2)]
        for thread in stopping:
            thread.start()
        stopping[1].join(0.2)
        assert [thread.is_alive() for thread in stopping] == [True, True]
        gate.go.set()
        assert split(rest(connection))[0] == 200
        connection.close()
        for thread in stopping:
            thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in stopping)


def test_a_server_that_is_being_stopped_can_be_started_by_whoever_has_waited() -> None:
    site, flags = shop()
    gate = Gate()
    flags["rate"].on_change(gate, "sync")
    port, done = claim_port(), threading.Event()
    server = PageServer(site, port=port)
    server.start()
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
        connection.close()
        assert done.wait(PATIENCE)
        first.join(PATIENCE)
        second.join(PATIENCE)
    again = PageServer(site, port=port)
    again.start()
    again.stop()


def test_a_request_does_not_wait_for_whoever_waits_for_it() -> None:
    site, flags = shop()
    gate = Gate()
    listener = PageListener(site, "127.0.0.1", 0)
    address = ("127.0.0.1", listener.port)

    def stop(old: Any, new: Any) -> None:
        gate(old, new)
        listener.stop()

    flags["rate"].on_change(stop, "sync")
    with socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(PUT)
        assert gate.entered.wait(PATIENCE)
        first = threading.Thread(target=listener.stop)
        first.start()
        until(lambda: refused(address))
        gate.go.set()
        assert split(rest(connection))[0] == 200
        connection.close()
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
        waiting.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
        assert split(rest(waiting))[0] == 200


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_keeps_neither_the_port_nor_a_connection() -> None:
    server = PageServer(shop()[0])
    server.start()
    port = server.port
    open_connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    open_connection.sendall(b"GET / HTTP/1.1\r\n")
    assert request(server, "GET", "/")[0] == 200  # so the one before is accepted
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
    with open_connection:
        assert rest(open_connection) == b""
    for each in (end, ready, say):
        os.close(each)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_notifier_may_fork_and_only_the_parent_answers() -> None:
    """In a process of its own: a thread that some library starts again in the child would keep the child alive."""
    code = """
import json, os, urllib.request
from wigwag import dflag
flags, children = dflag.FlagSet("x"), []
flags.int("rate", 10).on_change(lambda old, new: children.append(os.fork()), "sync")

def ask(**more):
    url = f"http://127.0.0.1:{server.port}/flags/rate"
    request = urllib.request.Request(url, headers={"Content-Type": "application/json"}, **more)
    return json.load(urllib.request.urlopen(request, timeout=30))

with dflag.PageServer(dflag.Site(flags, access=dflag.Access(unauthenticated=True))) as server:
    ask(method="PUT", data=b'{"value": 20}')
    print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]), ask()["current_value"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0 20\n"), done.stderr


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
