"""What the headers of a request say about its sender: a page of another site, a proxy, or who has a token.

Browsers carry requests of strangers. A page elsewhere may point a name of its own at our address and so read our
answers (DNS rebinding); hence a request must name us by an address, as `localhost`, or as a host that was allowed. And
a page elsewhere may send a form to us; hence a browser that tells the origin of a request must tell our own: the same
host and port, because on another port there may be somebody else.

A reverse proxy on this machine makes everybody local. It is recognised by the headers that proxies add.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

ANY = "*"
FORWARDING = frozenset({"forwarded", "via", "x-real-ip", "true-client-ip", "cf-connecting-ip"})
_FORWARDED = "x-forwarded-"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s,/@]+)(?::([0-9]{1,5}))?")
_PORTS = {"http": 80, "https": 443}


class RequestOrigin(NamedTuple):
    """What a browser calls the origin of a page."""

    scheme: str
    name: str
    port: int


def host_name(host: str) -> str | None:
    """Return the name or address in a `Host` header, in lower case; None if it is none.

    >>> host_name("LOCALHOST:8080"), host_name("[::1]:80"), host_name("a,b")
    ('localhost', '[::1]', None)
    """
    found = _HOST.fullmatch(host)
    return None if found is None else found[1].lower().removesuffix(".")


def is_own_name(name: str, allowed: Collection[str] = ()) -> bool:
    """Tell whether nobody else can have pointed this name at us: an address, `localhost`, or one that was allowed.

    >>> is_own_name("127.0.0.1"), is_own_name("localhost"), is_own_name("evil.example")
    (True, True, False)
    """
    if ANY in allowed or name == "localhost" or name.endswith(".localhost") or name in map(str.lower, allowed):
        return True
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_same_origin(headers: Mapping[str, str], allowed: Collection[str] = ()) -> bool:
    """Tell whether a request comes from a page of ours, or from no page at all: what is no browser tells no origin.

    >>> is_same_origin({"host": "localhost:80", "origin": "http://localhost:80", "sec-fetch-site": "same-origin"})
    True
    >>> is_same_origin({"host": "localhost:80", "origin": "https://evil.example"})
    False
    """
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    return site in ("", "same-origin", "none") and (origin == "" or _ours(origin, headers.get("host", ""), allowed))


def is_forwarded(names: Iterable[str]) -> bool:
    """Tell by the names of its headers, in lower case, whether a proxy has passed a request on.

    >>> is_forwarded(["host", "x-forwarded-for"]), is_forwarded(["host", "accept"])
    (True, False)
    """
    return any(name in FORWARDING or name.startswith(_FORWARDED) for name in names)


def read_origin(text: str) -> RequestOrigin | None:
    """Read an origin; None if it is none that we could be."""
    scheme, _, rest = text.partition("://")
    found = _HOST.fullmatch(rest)
    if scheme.lower() not in _PORTS or found is None:
        return None
    return RequestOrigin(scheme.lower(), found[1].lower().removesuffix("."), int(found[2] or _PORTS[scheme.lower()]))


def _ours(origin: str, host: str, allowed: Collection[str]) -> bool:
    """The host that was asked for does not tell the scheme, so either will do; an allowed origin does."""
    found = read_origin(origin)
    if found is None:
        return False
    return found == read_origin(f"{found.scheme}://{host}") or found in map(read_origin, allowed)


def bearer_token(header: bytes | None) -> bytes | None:
    """Return the token of an `Authorization: Bearer TOKEN` header; None without one, and for other schemes.

    >>> bearer_token(b"bearer abc"), bearer_token(b"Basic abc"), bearer_token(b"Bearer "), bearer_token(None)
    (b'abc', None, None, None)
    """
    if header is None or header[:7].lower() != b"bearer ":
        return None
    return header[7:].strip() or None
