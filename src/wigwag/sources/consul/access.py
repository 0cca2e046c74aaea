"""How to reach a Consul agent: address, credentials, TLS; from a `consul://` URI and the variables of Consul's tools.

    consul://HOST:PORT/KEY?dc=…&token-file=…      consuls:// for TLS; without HOST:PORT, that of CONSUL_HTTP_ADDR

The URI takes precedence over the environment. Of a token and a token file, the file is used; first those of the URI,
then those of the environment, as in Consul's tools. A token file is read for every request, because it may be replaced.
Responses of Consul are never quoted in an error, because they may name tokens and rules: known ones have a text here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from wigwag.errors import UsageError, WigwagError
from wigwag.options import boolean, duration
from wigwag.sources.credentials import HEADERS, TLS_FILES, TOKEN
from wigwag.sources.secret import read_token
from wigwag.suggest import closest
from wigwag.version import __version__
from wigwag.wire.client.tls import Trust
from wigwag.wire.client.url import Url, parse_url
from wigwag.wire.h1.client import Fields, check_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from wigwag.sources.credentials import CredentialsFolder
    from wigwag.wire.client.client import ClientResponse

T = TypeVar("T")
WAIT = 60.0
"""The default wait of a blocking query. Consul's is 5 minutes, but this is how old flags look while nothing changes,
and how long a dead connection goes unnoticed."""
LONGEST_WAIT = 600.0
Consistency = Literal["default", "stale", "consistent"]
CONSISTENCIES = ("default", "stale", "consistent")
STALEST = 60.0
"""Seconds since its last contact with a leader after which a server's stale response is refused."""
_FILTERED = "x-consul-results-filtered-by-acls"
_KNOWN = (
    (b"No cluster leader", "Consul has no leader; check that most of its servers are up"),
    (b"No path to datacenter", "Consul cannot reach that datacenter; check its name"),
    (b"ACL not found", "Consul does not know the token, or it was revoked; use another"),
    (b"Permission denied", "the token may not read this; extend its policy, or use another token"),
    (b"boolean expression", "the filter is not an expression of Consul; correct it"),
    (b"Enterprise feature", "this Consul has no namespaces and partitions; leave them out"),
)
_REMEDIES = {
    401: "check the credentials",
    403: "check the token and its policy",
    404: "check that this is Consul",
    429: "too many requests or connections for its limits; raise limits.http_max_conns_per_client of the agent",
}
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


class ConsulRefusedError(WigwagError):
    """Consul refused a request, or its response cannot be used."""

    def __init__(self, message: str, *, forget: bool = True) -> None:
        super().__init__(message)
        self.forget = forget
        """Whether the index may have lost its meaning, so that the next query starts from the beginning."""


class ConsulBusyError(ConsulRefusedError):
    """Consul has too many requests or connections of this client."""


@dataclass(frozen=True, slots=True, repr=False)
class ConsulAccess:
    """A Consul agent, and how to connect to it. `repr` shows no secrets."""

    address: str = "127.0.0.1:8500"
    """HOST:PORT, or the path of a unix socket."""
    tls: bool = False
    datacenter: str = ""
    namespace: str = ""
    partition: str = ""
    token: str = ""
    token_file: str = ""
    """The file with the token, instead."""
    auth_header: str = ""
    """The whole `Authorization` header, for a proxy before Consul."""
    ca_path: str = ""
    """The CA bundle; empty: that of the system."""
    cert_path: str = ""
    key_path: str = ""
    consistency: Consistency = "default"
    wait: float = WAIT
    """The longest wait of a blocking query, in seconds."""
    credentials: CredentialsFolder | None = None
    """A directory with the token and the header, instead; read for every request."""

    def __post_init__(self) -> None:
        self.url("/v1/status/leader", {})
        check_fields(self._credentials(self.token, self.auth_header))
        if self.consistency not in CONSISTENCIES:
            raise UsageError(f"{self.consistency!r} is not a consistency mode; use one of {', '.join(CONSISTENCIES)}")
        if not 0 < self.wait <= LONGEST_WAIT:
            raise UsageError(f"wait must be more than 0 and at most {LONGEST_WAIT:.0f} seconds")

    @property
    def socket(self) -> str:
        """The path of its unix socket; empty if it has none."""
        return self.address if self.address.startswith("/") else ""

    @property
    def trust(self) -> Trust:
        """The TLS settings: CA, client certificate and key."""
        return Trust(self.ca_path, self.cert_path, self.key_path)

    @property
    def server(self) -> tuple[str, bool, Trust]:
        """What a connection depends on. Those with an equal one can share connections, whatever their tokens."""
        return self.address, self.tls, self.trust

    @property
    def heartbeat(self) -> float:
        """The longest time of a query, in seconds: Consul adds up to a sixteenth as jitter."""
        return self.wait * 17 / 16

    def __str__(self) -> str:
        return f"consul://{self.address}"

    __repr__ = __str__

    def url(self, path: str, query: Mapping[str, str]) -> Url:
        """Return the URL of a query."""
        scope = {"dc": self.datacenter, "ns": self.namespace, "partition": self.partition}
        parameters = {**query, **{name: value for name, value in scope.items() if value}}
        if self.consistency != "default":
            parameters[self.consistency] = ""
        host = "localhost" if self.socket else self.address
        origin = _origin(f"{'https' if self.tls else 'http'}://{host}/")
        target = quote(path) + (f"?{urlencode(parameters)}" if parameters else "")
        return Url(origin.scheme, origin.host, origin.port, target, origin.userinfo)

    def fields(self) -> Fields:
        """Return the headers of a request, with the current token."""
        token = read_token(self.token_file, "it must hold the token for Consul") if self.token_file else self.token
        header, folder = self.auth_header, self.credentials
        if folder is not None:
            present = folder.present((*HEADERS, *TLS_FILES))
            token, header = folder.token() if TOKEN in present else token, folder.header(present) or header
        common = (("Accept-Encoding", "gzip"), ("User-Agent", f"wigwag/{__version__}"))
        return (*common, *self._credentials(token, header))

    def _credentials(self, token: str, header: str) -> Fields:
        headers = (("X-Consul-Token", token), ("Authorization", header))
        return tuple((name, value) for name, value in headers if value)

    def check(self, response: ClientResponse, where: object) -> None:
        """Raise `ConsulRefusedError` for an error, and for a response that ACLs have filtered or that is too old."""
        missing = response.status == 404 and response.field("x-consul-index")
        if response.status != 200 and not missing:
            raise refusal(response, where)
        if response.field(_FILTERED).lower() == "true":
            raise ConsulRefusedError(
                f"{where}: the token may not read all of it, and a part is not used; extend its policy"
            )
        contact = response.field("x-consul-lastcontact")
        if self.consistency == "stale" and contact.isdigit() and int(contact) > STALEST * 1000:
            reason = f"the server that answered has had no contact with a leader for {int(contact) // 1000} s"
            raise ConsulRefusedError(f"{where}: {reason}; check that most of its servers are up", forget=False)


@lru_cache(maxsize=64)
def _origin(text: str) -> Url:
    """Parse an address, once: with a thousand watches that take turns, there are hundreds of queries per second."""
    return parse_url(text)


def refusal(response: ClientResponse, where: object) -> ConsulRefusedError:
    """Return the error for a status."""
    status = response.status
    known = next((text for phrase, text in _KNOWN if phrase in response.body), "")
    remedy = known or _REMEDIES.get(status, "look at Consul" if status >= 500 else "check that this is Consul")
    kind = ConsulBusyError if status == 429 else ConsulRefusedError
    return kind(f"{where}: answered {status}: {remedy}", forget=status < 500 and status != 429)


def index_of(response: ClientResponse) -> int:
    """Return the index of a response; 0 if it has none."""
    text = response.field("x-consul-index")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


class ConsulAddress(NamedTuple):
    """A key or a service of a Consul agent."""

    access: ConsulAccess
    name: str
    """The path: a key, or the name of a service."""


def locate(address: str, environment: Mapping[str, str], **settled: Any) -> ConsulAddress:
    """Read a URI; `settled` are settings from elsewhere, which take precedence.

    >>> place = locate("consul://10.0.0.5/flags/shop.json?dc=east", {"CONSUL_NAMESPACE": "team"})
    >>> place.name, place.access.address, place.access.datacenter, place.access.namespace
    ('flags/shop.json', '10.0.0.5:8500', 'east', 'team')
    """
    parts = urlsplit(address)
    if parts.scheme not in SCHEMES or parts.fragment:
        raise UsageError(f"this is not a URI of Consul; {_FORM}, with special characters %-encoded")
    user, _, given = parts.netloc.rpartition("@")
    host, tls = _host(given, environment)
    tls = tls or parts.scheme == "consuls" or _true("CONSUL_HTTP_SSL", environment)
    settings: dict[str, Any] = dict(_from_environment(environment)) | _from_query(parts.query)
    settings |= {"auth_header": _basic(user)} if user else {}
    settings |= {name: value for name, value in settled.items() if value}
    tls = tls or bool(settings.pop("tls", False))
    return ConsulAddress(
        ConsulAccess(address=_with_port(host, tls), tls=tls, **_one_token(settings)), unquote(parts.path.lstrip("/"))
    )


def unused(access: ConsulAccess, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the TLS variables of the environment that have no effect."""
    if not access.tls:
        return
    if "CONSUL_HTTP_SSL_VERIFY" in environment and not _true("CONSUL_HTTP_SSL_VERIFY", environment):
        yield "CONSUL_HTTP_SSL_VERIFY has no effect: certificates are always verified; name their CA"
    for name in ("CONSUL_CAPATH", "CONSUL_TLS_SERVER_NAME"):
        if environment.get(name):
            yield f"{name} has no effect; use CONSUL_CACERT, and a host name that the certificate is for"


def _host(given: str, environment: Mapping[str, str]) -> tuple[str, bool]:
    """Return the address, and whether it requires TLS."""
    host = given or environment.get("CONSUL_HTTP_ADDR", "") or "127.0.0.1"
    scheme, separator, rest = host.partition("://")
    if not separator:
        return host, False
    if scheme not in ("http", "https", "unix"):
        raise UsageError("CONSUL_HTTP_ADDR is not an address; write HOST:PORT, http://…, https://… or unix://PATH")
    return rest if scheme == "unix" else rest.rstrip("/"), scheme == "https"


def _with_port(host: str, tls: bool) -> str:
    if host.startswith("/"):
        return host
    if "@" in host:  # that of a URI is taken off before
        raise UsageError("CONSUL_HTTP_ADDR has a name and a password; write them into CONSUL_HTTP_AUTH")
    parts = urlsplit(f"//{host}")
    try:
        port = parts.port
        parse_url(f"http://{host}")
    except (ValueError, UsageError):
        raise UsageError(f"the host or port is malformed; {_FORM}") from None
    return host if port is not None else f"{host.rstrip(':')}:{_PORTS[tls]}"


def _from_query(query: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            close = closest(name, _OPTIONS)
            hint = f"did you mean {close}?" if close else f"there are {', '.join(_OPTIONS)}"
            raise UsageError(f"{name[:40]!r} is not an option of a consul URI; {hint}")
        settings[_OPTIONS[name]] = _parsed(duration, name, value) if name == "wait" else value
    return settings


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


def _one_token(settings: dict[str, Any]) -> dict[str, Any]:
    """Keep the first of the four ways to give a token."""
    ways = [(name, settings.pop(name, "")) for name in ("token_file", "token", "env_token_file", "env_token")]
    name, value = next(((name, value) for name, value in ways if value), ("token", ""))
    return settings | {name.removeprefix("env_"): value}


def _true(name: str, environment: Mapping[str, str]) -> bool:
    return bool(environment.get(name)) and _parsed(boolean, name, environment[name])


def _parsed(parse: Callable[[str], T], name: str, value: str) -> T:
    try:
        return parse(value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
