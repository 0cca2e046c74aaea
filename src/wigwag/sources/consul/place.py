"""What a `consul://` address means, together with the variables that Consul's own tools read.

    consul://HOST:PORT/KEY?dc=…&token-file=…      consuls:// for TLS; without HOST:PORT, that of CONSUL_HTTP_ADDR

What the address says goes before what the environment says. Of a token and a file with one, the file is taken, first
those of the address, then those of the environment: the order that Consul's tools have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from wigwag.errors import UsageError
from wigwag.options import boolean, duration
from wigwag.sources.consul.access import ConsulAccess
from wigwag.suggest import closest
from wigwag.wire.client.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SCHEMES = ("consul", "consuls")
_OPTIONS = {
    "dc": "datacenter",
    "ns": "namespace",
    "partition": "partition",
    "token": "token",
    "token-file": "token_file",
    "ca-file": "ca_path",
    "client-cert": "cert_path",
    "client-key": "key_path",
    "consistency": "consistency",
    "wait": "wait",
}
_VARIABLES = {
    "CONSUL_NAMESPACE": "namespace",
    "CONSUL_PARTITION": "partition",
    "CONSUL_CACERT": "ca_path",
    "CONSUL_CLIENT_CERT": "cert_path",
    "CONSUL_CLIENT_KEY": "key_path",
}
_PORTS = {False: 8500, True: 8501}
_FORM = "write consul://HOST:PORT/KEY"


class ConsulAddress(NamedTuple):
    """Something in a Consul."""

    access: ConsulAccess
    name: str
    """What comes after the host: a key, or the name of a service."""


def locate(address: str, environment: Mapping[str, str], **settled: Any) -> ConsulAddress:
    """Read an address; `settled` has what was said elsewhere, and goes before everything.

    >>> place = locate("consul://10.0.0.5/flags/shop.json?dc=east", {"CONSUL_NAMESPACE": "team"})
    >>> place.name, place.access.address, place.access.datacenter, place.access.namespace
    ('flags/shop.json', '10.0.0.5:8500', 'east', 'team')
    """
    parts = urlsplit(address)
    if parts.scheme not in SCHEMES or parts.fragment:
        raise UsageError(f"this is no address of Consul; {_FORM}, with % for what is special in addresses")
    user, _, given = parts.netloc.rpartition("@")
    host, tls = _host(given, environment)
    tls = tls or parts.scheme == "consuls" or _true("CONSUL_HTTP_SSL", environment)
    told: dict[str, Any] = dict(_from_environment(environment)) | _from_query(parts.query)
    told |= {"auth_header": _basic(user)} if user else {}
    told |= {name: value for name, value in settled.items() if value}
    tls = tls or bool(told.pop("tls", False))
    return ConsulAddress(
        ConsulAccess(address=_with_port(host, tls), tls=tls, **_one_token(told)), unquote(parts.path.lstrip("/"))
    )


def unused(access: ConsulAccess, environment: Mapping[str, str]) -> Iterator[str]:
    """Return what is said about TLS in the environment and has no effect here."""
    if not access.tls:
        return
    if "CONSUL_HTTP_SSL_VERIFY" in environment and not _true("CONSUL_HTTP_SSL_VERIFY", environment):
        yield "CONSUL_HTTP_SSL_VERIFY has no effect: certificates are always checked; name their authority"
    for name in ("CONSUL_CAPATH", "CONSUL_TLS_SERVER_NAME"):
        if environment.get(name):
            yield f"{name} has no effect; use CONSUL_CACERT, and a name that the certificate is for"


def _host(given: str, environment: Mapping[str, str]) -> tuple[str, bool]:
    """Return the address, and whether it says that TLS is spoken there."""
    host = given or environment.get("CONSUL_HTTP_ADDR", "") or "127.0.0.1"
    scheme, separator, rest = host.partition("://")
    if not separator:
        return host, False
    if scheme not in ("http", "https", "unix"):
        raise UsageError("CONSUL_HTTP_ADDR is no address; write HOST:PORT, http://…, https://… or unix://PATH")
    return rest if scheme == "unix" else rest.rstrip("/"), scheme == "https"


def _with_port(host: str, tls: bool) -> str:
    if host.startswith("/"):
        return host
    parts = urlsplit(f"//{host}")
    try:
        port = parts.port
        parse_url(f"http://{host}")
    except (ValueError, UsageError):
        raise UsageError(f"the host or port is malformed; {_FORM}") from None
    return host if port is not None else f"{host.rstrip(':')}:{_PORTS[tls]}"


def _from_query(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            close = closest(name, _OPTIONS)
            meant = f"did you mean {close}?" if close else f"there are {', '.join(_OPTIONS)}"
            raise UsageError(f"{name[:40]!r} is no option of a consul address; {meant}")
        found[_OPTIONS[name]] = _seconds(value) if name == "wait" else value
    return found


def _seconds(value: str) -> float:
    try:
        return duration(value)
    except ValueError as error:
        raise UsageError(f"wait: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable, name in _VARIABLES.items():
        if environment.get(variable):
            yield name, environment[variable]
    if environment.get("CONSUL_HTTP_AUTH"):
        yield "auth_header", _basic(environment["CONSUL_HTTP_AUTH"])
    yield "env_token", environment.get("CONSUL_HTTP_TOKEN", "")
    yield "env_token_file", environment.get("CONSUL_HTTP_TOKEN_FILE", "")


def _basic(user: str) -> str:
    return parse_url(f"http://{user}@localhost").basic


def _one_token(told: dict[str, Any]) -> dict[str, Any]:
    """Leave one of the four ways to give a token."""
    ways = [(name, told.pop(name, "")) for name in ("token_file", "token", "env_token_file", "env_token")]
    name, value = next(((name, value) for name, value in ways if value), ("token", ""))
    return told | {name.removeprefix("env_"): value}


def _true(name: str, environment: Mapping[str, str]) -> bool:
    try:
        return bool(environment.get(name)) and boolean(environment[name])
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
