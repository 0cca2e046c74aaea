"""Who is at the other end of a connection: the address, and the identity that a client certificate proves.

An address says whether a client is on this machine, and which network it counts under. An identity is a kind and a
name: an authority that lets a team choose its DNS names may check nothing but that they are its own, and a DNS name
that reads `CN=other-team` or `spiffe://…` must not be taken for what it looks like. So kinds are compared, and not only
text.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import asyncio
    import ssl

UNIX = "unix"
"""The address of a client that came over a unix socket."""
_SITE_BITS = 64
Kind = Literal["URI", "DNS", "email", "CN"]
_ALTERNATIVES: tuple[Kind, ...] = ("URI", "DNS", "email")


class Identity(NamedTuple):
    """A verified name."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}{'=' if self.kind == 'CN' else ':'}{self.name}"

    @classmethod
    def of(cls, certificate: dict[str, Any]) -> Identity | None:
        """Return whom a certificate names, as `getpeercert` tells it.

        That is the first URI (SPIFFE), else the first DNS name, else the first mailbox, else the common name.
        """
        alternatives = dict(reversed(certificate.get("subjectAltName", ())))
        for kind in _ALTERNATIVES:
            if name := alternatives.get(kind):
                return cls(kind, name)
        common = {key: value for part in certificate.get("subject", ()) for key, value in part}.get("commonName")
        return cls("CN", common) if common else None

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Read an identity from a rule: marked with its kind, or of the kind that it looks like.

        >>> [Identity.parse(text).kind for text in ("spiffe://a/b", "urn:a", "a.example.org", "a@example.org", "CN=a")]
        ['URI', 'URI', 'DNS', 'email', 'CN']
        >>> str(Identity.parse("DNS:CN=a")), str(Identity.parse("CN=a"))
        ('DNS:CN=a', 'CN=a')
        """
        if text.startswith("CN="):
            return cls("CN", text.removeprefix("CN="))
        for kind in _ALTERNATIVES:
            if text.startswith(f"{kind}:"):
                return cls(kind, text.removeprefix(f"{kind}:"))
        return cls("URI" if ":" in text else "email" if "@" in text else "DNS", text)


class Peer:
    """The other end of one connection."""

    __slots__ = ("address", "certificate", "scheme")

    def __init__(self, address: str = "", scheme: str = "http", certificate: Identity | None = None) -> None:
        self.address, self.scheme, self.certificate = address, scheme, certificate

    @classmethod
    def of(cls, transport: asyncio.BaseTransport) -> Peer:
        """Return who is at the other end of a transport."""
        name: Any = transport.get_extra_info("peername")
        address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else UNIX
        secure: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        return cls(address, "https", Identity.of(secure.getpeercert() or {})) if secure else cls(address)


def host_of(address: str) -> str:
    """Return the host of an address and port, without brackets and zone.

    >>> host_of("192.0.2.7:4000"), host_of("[2001:db8::1]:80"), host_of("fe80::1%eth0:80"), host_of("unix")
    ('192.0.2.7', '2001:db8::1', 'fe80::1', 'unix')
    """
    host, _, port = address.rpartition(":")
    return (host if port else address).strip("[]").partition("%")[0] or address


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Return whether a client is on this machine; an IPv4 address may be written as an IPv6 one.

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
