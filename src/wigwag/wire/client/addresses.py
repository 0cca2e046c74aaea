"""From a name to a connected socket: what the name resolves to is what is judged, and then connected to.

A name that is looked up once to be judged and again to be connected to can change in between (DNS rebinding); here the
judged address itself is dialled. The families take turns, and no address may use up the time of the next.

A connection whose other end is gone without a word (a node without power, a firewall that forgot it) is given up by the
kernel, because of `keep_alive`. It does not find a proxy or a load balancer that is alive while the server behind it is
not: a caller that needs to know that has to ask the server.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import chain, zip_longest
from typing import NamedTuple, TypeAlias, cast

_LINK_LOCAL = (ip_network("169.254.0.0/16"), ip_network("fe80::/10"), ip_network("fd00:ec2::254/128"))
_EMBEDDING = (ip_network("::/96"), ip_network("64:ff9b::/96"))
_LEAST = 1.0
IDLE, INTERVAL, PROBES = 10, 5, 2
"""Seconds of silence before the first keep-alive probe and between probes, and how many may stay unanswered."""
DEAD = IDLE + INTERVAL * PROBES
"""Seconds after which a connection is given up, if nothing of what is sent is acknowledged."""


class Address(NamedTuple):
    """One address of a host, as the system's resolver gave it."""

    family: int
    socket: tuple[str | int, ...] | str
    """As the system's calls take it; of a unix socket, its path."""

    @property
    def ip(self) -> str:
        """The address as text, without an interface."""
        return str(self.socket[0]).partition("%")[0]


Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]


async def resolve(host: str, port: int) -> Sequence[Address]:
    """Ask the system; raise `OSError` if it knows nothing."""
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [Address(family, cast("tuple[str | int, ...]", address)) for family, _, _, _, address in answers]


def anywhere(_ip: str) -> bool:
    """Allow every address."""
    return True


def link_local(ip: str) -> bool:
    """Return whether an address reaches this link only, or is where clouds hand out credentials, in any disguise.

    >>> [link_local(ip) for ip in ("169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe")]
    [True, True, True, True]
    >>> [link_local(ip) for ip in ("127.0.0.1", "10.0.0.1", "2001:db8::1")]
    [False, False, False]
    """
    address = ip_address(ip)
    return any(each in network for each in (address, *_embedded(address)) for network in _LINK_LOCAL)


def _embedded(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address stands for."""
    if isinstance(address, IPv4Address):
        return []
    last = [IPv4Address(int(address) & 0xFFFFFFFF)] if any(address in network for network in _EMBEDDING) else []
    return [each for each in (address.ipv4_mapped, address.sixtofour, *last) if each is not None]


async def dial(addresses: Iterable[Address], seconds: float) -> tuple[socket.socket, str]:
    """Connect to the first address that answers, and return which; raise the last `OSError` if none does."""
    left = in_turns(addresses)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    problem: OSError = OSError("there is no address to connect to")
    while left:
        address = left.pop(0)
        share = max((end - loop.time()) / (len(left) + 1), _LEAST)
        try:
            async with asyncio.timeout(share):
                return await connect(address), address.ip
        except TimeoutError:
            problem = TimeoutError(f"{address.ip} does not answer")
        except OSError as error:
            problem = error
    raise problem


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel find out within `DEAD` seconds that the other end of a TCP connection is gone.

    Keep-alive probes do that for a connection on which nothing is sent, and the user timeout for one on which something
    is. A system that has no such option keeps its own timing.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = (
        ("TCP_KEEPIDLE", IDLE),
        ("TCP_KEEPALIVE", IDLE),  # what macOS calls it
        ("TCP_KEEPINTVL", INTERVAL),
        ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", DEAD * 1000),
    )
    for name, value in options:
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def connect(address: Address) -> socket.socket:
    """Return a connected socket, ready for the loop."""
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        if address.family != socket.AF_UNIX:
            keep_alive(sock)
        await asyncio.get_running_loop().sock_connect(sock, address.socket)
    except BaseException:
        sock.close()
        raise
    return sock


def in_turns(addresses: Iterable[Address]) -> list[Address]:
    """Let the families alternate, the system's favourite first.

    >>> four, six = Address(2, ("10.0.0.1", 1)), Address(10, ("::1", 1, 0, 0))
    >>> [address.ip for address in in_turns([six, six, four])]
    ['::1', '10.0.0.1', '::1']
    """
    families: dict[int, list[Address]] = {}
    for address in addresses:
        families.setdefault(address.family, []).append(address)
    return [address for address in chain(*zip_longest(*families.values())) if address is not None]
