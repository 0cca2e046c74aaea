"""gRPC targets, as flagd and gRPC write them: the addresses to connect to, and the authority. Pure.

    host:port  [::1]:port  dns:host:port  dns:///host:port  passthrough:///host:port    a name, resolved by the system
    ipv4:1.2.3.4:5,6.7.8.9:5   ipv6:[::1]:5                                             addresses, tried in order
    unix:path  unix:///path  unix-abstract:name  uds:path                               a unix socket
    envoy://proxy:port/service                                                          a service behind an Envoy

Without a port, it is 443, as in gRPC. The authority (`:authority`, and the name that the certificate must have) is the
target as written; `localhost` for a unix socket; the service for an Envoy. The DNS server in `dns://server/host` is
ignored in favour of the system's resolver. `xds:` needs a control plane, and is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from wigwag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.wire.client.http2 import Place

DEFAULT_PORT = 443
_ADDRESS = re.compile(r"(?:\[(?P<six>[\w:.%\-]+)\]|(?P<host>[\w.\-]*))(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_BARE_SIX = re.compile(r"[0-9A-Fa-f]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(%[\w\-]+)?", re.ASCII)
_AUTHORITY = re.compile(r"[A-Za-z0-9\-._~%!$&'()*+,;=:\[\]]+")


class GrpcTarget(NamedTuple):
    """A parsed target."""

    places: tuple[Place, ...]
    authority: str


def parse_target(text: str) -> GrpcTarget:
    """Parse a target; `UsageError` if it is malformed.

    >>> parse_target("flags:8015")
    GrpcTarget(places=(('flags', 8015),), authority='flags:8015')
    >>> parse_target("unix:///run/flags.sock")
    GrpcTarget(places=('/run/flags.sock',), authority='localhost')
    >>> parse_target("envoy://localhost:9211/flags.service")
    GrpcTarget(places=(('localhost', 9211),), authority='flags.service')
    """
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower() if colon else ""
    if scheme in _SCHEMES:
        return _SCHEMES[scheme](text, rest)
    if scheme in ("grpc", "grpcs"):
        raise UsageError(f"gRPC target {text!r}: write it without its prefix, as {rest.removeprefix('//')!r}")
    if scheme == "xds":
        raise UsageError(
            f"gRPC target {text!r}: xDS is not supported; name the server itself (dns:HOST:PORT), "
            "or an Envoy that knows it (envoy://PROXY:PORT/SERVICE)"
        )
    if "://" in text:
        known = ", ".join(f"{name}:" for name in _SCHEMES)
        raise UsageError(f"gRPC target {text!r}: unknown scheme; write host:port, or one of {known}")
    return _name(text, text)


def check_authority(text: str) -> None:
    """Raise `UsageError` for a malformed authority."""
    if not _AUTHORITY.fullmatch(text):
        raise UsageError(f"{text!r} cannot be the authority of a server; write host or host:port")


def _name(target: str, rest: str) -> GrpcTarget:
    place = _place(target, rest, DEFAULT_PORT)
    return GrpcTarget((place,), f"localhost{rest}" if rest[:1] == ":" and rest[1:].isdigit() else _bracketed(rest))


def _passthrough(target: str, rest: str) -> GrpcTarget:
    endpoint = _endpoint(rest)
    return GrpcTarget((_place(target, endpoint, None),), endpoint)


def _endpoint(rest: str) -> str:
    return rest[2:].partition("/")[2] if rest.startswith("//") else rest


def _addresses(target: str, rest: str) -> GrpcTarget:
    parts = rest.split(",")
    return GrpcTarget(tuple(_place(target, part, DEFAULT_PORT) for part in parts), _bracketed(parts[0]))


def _unix(target: str, rest: str) -> GrpcTarget:
    path = rest.removeprefix("//")
    if not path or "\0" in path:
        raise UsageError(f"gRPC target {target!r}: which socket? Write unix:PATH or unix:///ABSOLUTE/PATH")
    return GrpcTarget((path,), "localhost")


def _strictly_unix(target: str, rest: str) -> GrpcTarget:
    if rest.startswith("//") and not rest.startswith("///"):
        raise UsageError(f"gRPC target {target!r}: a path after unix:// is absolute; write unix:///PATH or unix:PATH")
    return _unix(target, rest)


def _abstract(target: str, rest: str) -> GrpcTarget:
    return GrpcTarget(("\0" + _unix(target, rest).places[0],), "localhost")  # type: ignore[operator]


def _envoy(target: str, rest: str) -> GrpcTarget:
    proxy, _, service = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not proxy or not _AUTHORITY.fullmatch(service):
        raise UsageError(f"gRPC target {target!r}: write envoy://PROXY:PORT/SERVICE")
    return GrpcTarget((_place(target, proxy, None),), service)


def _place(target: str, text: str, default: int | None) -> tuple[str, int]:
    """Return host and port of an address; the default host is localhost."""
    parts = _ADDRESS.fullmatch(_bracketed(text))
    if parts is None or not text:
        raise UsageError(f"gRPC target {target!r}: {text!r} is not an address; write HOST:PORT or [IPV6]:PORT")
    port = int(parts["port"]) if parts["port"] else default
    if port is None or not 0 < port < 1 << 16:
        raise UsageError(f"gRPC target {target!r}: the port of {text!r} must be a number from 1 to 65535")
    return parts["six"] or parts["host"] or "localhost", port


def _bracketed(text: str) -> str:
    return f"[{text}]" if _BARE_SIX.fullmatch(text) else text


_SCHEMES: dict[str, Callable[[str, str], GrpcTarget]] = {
    "dns": lambda target, rest: _name(target, _endpoint(rest)),
    "passthrough": _passthrough,
    "ipv4": _addresses,
    "ipv6": _addresses,
    "unix": _strictly_unix,
    "unix-abstract": _abstract,
    "uds": _unix,
    "envoy": _envoy,
}
