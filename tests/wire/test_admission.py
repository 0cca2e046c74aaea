"""Which connections are accepted: how many in all, how many from one address, and what happens without descriptors."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.wire.served import LOOPS, connected, http1, run
from tests.wire.test_tls import Authority, authority  # noqa: F401 - a fixture
from wigwag.wire.http import Reply, Request, Response
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.accept import ADDRESS, PORT, Admission, Admitted
from wigwag.wire.server.server import Listener, serve

HERE = [Listener(host="127.0.0.1")]


def hello(_: Request) -> Response:
    return Reply(200, (), b"hello")


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for is another process's or the kernel's
        await asyncio.sleep(0)


def admit(admission: Admission, host: str) -> Admitted:
    admitted = admission.admit(host)
    assert isinstance(admitted, Admitted), admitted
    return admitted


def test_one_address_cannot_take_a_whole_port() -> None:
    admission = Admission(WireLimits(connections=4, connections_per_address=2))
    first = admit(admission, "192.0.2.1")
    admit(admission, "::ffff:192.0.2.1")
    assert admission.admit("192.0.2.1") == ADDRESS
    admit(admission, "192.0.2.2")
    first.release()
    first.release()
    assert admission.open == 2
    admit(admission, "192.0.2.1")
    assert (admission.open, admission.refused[ADDRESS]) == (3, 1)


def test_addresses_of_ipv6_count_by_their_site() -> None:
    admission = Admission(WireLimits(connections_per_address=1))
    admit(admission, "2001:db8:1:2::1")
    assert admission.admit("2001:db8:1:2::ffff") == ADDRESS
    admit(admission, "2001:db8:1:3::1")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.6", "::1", "::ffff:127.0.0.1", "unix"])
def test_clients_of_this_machine_count_for_the_port_only(host: str) -> None:
    """Behind a sidecar of a service mesh all clients come from there."""
    admission = Admission(WireLimits(connections=3, connections_per_address=1))
    for _ in range(3):
        admit(admission, host)
    assert admission.admit(host) == PORT


def test_who_has_left_takes_no_room() -> None:
    admission = Admission(WireLimits(connections_per_address=1))
    for number in range(100):
        admit(admission, f"192.0.2.{number}").release()
    assert not admission._by_network


@pytest.mark.parametrize("loop", LOOPS)
def test_refused_connections_are_counted(loop: str) -> None:
    async def test() -> None:
        async with serve(hello, HERE, WireLimits(connections=1)) as server:
            async with connected(server.addresses[0]), connected(server.addresses[0]) as (second, _):
                assert await second.read() == b""
                assert (server.connections, server.refused[PORT]) == (1, 1)
            await until(lambda: not server.connections)
            assert (await http1(server.addresses[0])).endswith(b"hello")

    run(test, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_handshake_that_never_ends_counts_as_a_connection(authority: Authority, loop: str) -> None:  # noqa: F811
    async def test() -> None:
        limits = WireLimits(connections=2, header_seconds=20)
        async with serve(hello, [authority.listener()], limits) as server:
            address = server.addresses[0]
            async with connected(address), connected(address), connected(address) as (third, _):
                assert await third.read() == b""
                assert server.refused[PORT] == 1
            await until(lambda: not server.connections)
            assert (await http1(address, **authority.client())).endswith(b"hello")

    run(test, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_ends_does_not_wait_for_handshakes(authority: Authority, loop: str) -> None:  # noqa: F811
    async def test() -> None:
        async with serve(hello, [authority.listener()], WireLimits(header_seconds=1000)) as server:
            reader, writer = await asyncio.open_connection(*server.addresses[0].split(":"))
            await until(lambda: server.connections)
        assert not server.connections
        assert await reader.read() == b""
        writer.close()

    run(test, loop)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let the process open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("loop", LOOPS)
def test_without_descriptors_accepting_pauses_and_then_goes_on(loop: str) -> None:
    async def test() -> None:
        async with serve(hello, HERE) as server:
            host, _, port = server.addresses[0].rpartition(":")
            with socket.create_connection((host, int(port))) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                with no_descriptors():
                    await until(lambda: server.refused["accept_error"])
                    for _ in range(1000):
                        await asyncio.sleep(0)
                    assert server.refused["accept_error"] < 5, "it was tried at every turn of the loop"
                client.setblocking(False)
                answer = await asyncio.get_running_loop().sock_recv(client, 1000)
                assert answer.endswith(b"hello")

    run(test, loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_can_be_drained_twice(loop: str) -> None:
    async def test() -> None:
        async with serve(hello, HERE) as server:
            await server.drain(0.0)
            await server.drain(0.0)

    run(test, loop)
