"""What an address says about a client: whether it is on this machine, and which network it counts under."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

UNIX = "unix"
"""The address of a client that came over a unix socket."""
_SITE_BITS = 64


def host_of(address: str) -> str:
    """Return the host of an address and port, without brackets and zone.

    >>> host_of("192.0.2.7:4000"), host_of("[2001:db8::1]:80"), host_of("fe80::1%eth0:80"), host_of("unix")
    ('192.0.2.7', '2001:db8::1', 'fe80::1', 'unix')
    """
    host, _, port = address.rpartition(":")
    return (host if port else address).strip("[]").partition("%")[0] or address


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Tell whether a client is on this machine; an IPv4 address may be written as an IPv6 one.

    >>> is_loopback("127.0.0.6"), is_loopback("::ffff:127.0.0.1"), is_loopback("unix"), is_loopback("192.0.2.7")
    (True, True, True, False)
    """
    if host == UNIX:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@lru_cache(maxsize=1024)
def network_of(host: str) -> str:
    """Return what a client counts under: its IPv4 address, or the /64 that one site of IPv6 is given.

    >>> network_of("192.0.2.7"), network_of("::ffff:192.0.2.7"), network_of("2001:db8:1:2:3::4"), network_of("unix")
    ('192.0.2.7', '192.0.2.7', '2001:db8:1:2::/64', 'unix')
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, _SITE_BITS), strict=False))
