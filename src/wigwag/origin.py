"""Who sends a request: a page of a foreign site, a proxy, or a client with a bearer token.

DNS rebinding: a foreign page points a name of its own at our address and reads our responses. So the `Host` of a
request must be an address, `localhost`, or an allowed host. Cross-site requests: a foreign page sends a form to us. So
if a browser sends an `Origin`, it must be ours: the same host and port, because another port may be another service.

A reverse proxy on this machine makes every client look local. The headers that proxies add give it away.
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
    """The origin of a page, as browsers define it."""

    scheme: str
    name: str
    port: int


def host_name(host: str) -> str | None:
    """Return the name or address in a `Host` header, in lower case; None if it is malformed.

    >>> host_name("LOCALHOST:8080"), host_name("[::1]:80"), host_name("a,b")
    ('localhost', '[::1]', None)
    """
    match = _HOST.fullmatch(host)
    return None if match is None else match[1].lower().removesuffix(".")


def is_own_name(name: str, allowed: Collection[str] = ()) -> bool:
    """Tell whether no foreign site can have pointed this name at us: an address, `localhost`, or an allowed name.

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
    """Tell whether a request comes from a page of ours, or not from a browser, which sends no origin.

    >>> is_same_origin({"host": "localhost:80", "origin": "http://localhost:80", "sec-fetch-site": "same-origin"})
    True
    >>> is_same_origin({"host": "localhost:80", "origin": "https://evil.example"})
    False
    """
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    return site in ("", "same-origin", "none") and (origin == "" or _ours(origin, headers.get("host", ""), allowed))


def is_forwarded(names: Iterable[str]) -> bool:
    """Tell by the names of its headers, in lower case, whether a proxy has forwarded a request.

    >>> is_forwarded(["host", "x-forwarded-for"]), is_forwarded(["host", "accept"])
    (True, False)
    """
    return any(name in FORWARDING or name.startswith(_FORWARDED) for name in names)


def read_origin(text: str) -> RequestOrigin | None:
    """Read an origin; None if it is malformed or of another scheme than HTTP."""
    scheme, _, rest = text.partition("://")
    match = _HOST.fullmatch(rest)
    if scheme.lower() not in _PORTS or match is None:
        return None
    return RequestOrigin(scheme.lower(), match[1].lower().removesuffix("."), int(match[2] or _PORTS[scheme.lower()]))


def _ours(origin: str, host: str, allowed: Collection[str]) -> bool:
    """Tell whether an origin is ours. `Host` has no scheme, so either will do; an allowed origin has one."""
    given = read_origin(origin)
    if given is None:
        return False
    return given == read_origin(f"{given.scheme}://{host}") or given in map(read_origin, allowed)


def bearer_token(header: bytes | None) -> bytes | None:
    """Return the token of an `Authorization: Bearer TOKEN` header; None without one, and for other schemes.

    >>> bearer_token(b"bearer abc"), bearer_token(b"Basic abc"), bearer_token(b"Bearer "), bearer_token(None)
    (b'abc', None, None, None)
    """
    if header is None or header[:7].lower() != b"bearer ":
        return None
    return header[7:].strip() or None
