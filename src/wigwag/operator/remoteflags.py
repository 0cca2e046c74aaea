"""The `remoteFlagProvider` of a FeatureFlag: what is wrong with it, and the element of `--sources` that it becomes.

    RemoteFlagProvider ─▶ element ─▶ the agent's own parser ─▶ Source ─▶ its hosts ─▶ problems

What the agent's parser accepts is accepted, so an object that passes is one that the agent can use. Beyond that, an
address must not hold secrets, because everybody sees it who may read the object; and it must not be one of a cloud's
metadata service. Names are not resolved here: what a pod may reach is for a NetworkPolicy to say.

The hard case is a flag of another namespace. Its owner may decide which flags our pods get. They may not decide where
our Secrets are sent, nor have the agent ask something on the pod's own loopback. So such a remote is not used.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, ip_address
from typing import TYPE_CHECKING, Any, TypeAlias
from unicodedata import normalize
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import Struct

from wigwag.errors import UsageError
from wigwag.operator.names import CREDENTIALS
from wigwag.operator.resources.remoteflagprovider import TYPES, RemoteFlagProvider
from wigwag.sources.kinds import kind_of, parse_sources
from wigwag.sources.remote.targets import parse_target
from wigwag.sources.uris import split_uri
from wigwag.suggest import closest
from wigwag.wire.client.shown import unsigned

if TYPE_CHECKING:
    from ipaddress import IPv6Address

    from wigwag.sources.source import Source

Json: TypeAlias = Any
ROOT = "spec.remoteFlagProvider"
METADATA = ("metadata.google.internal", "metadata.azure.internal", "fd00:ec2::254", "100.100.100.200")
"""Metadata services of clouds that are not link-local."""
_decode = msgspec.json.Decoder(RemoteFlagProvider | None).decode
_PLAIN = re.compile(r"[A-Za-z0-9_.,:/+\[\] -]*")
_OPTIONS = {"storage_account": re.compile("[a-z0-9]{3,24}"), "region": re.compile("[a-z0-9-]*")}
"""What options of stores may be."""
_NUMBERS = re.compile(r"((0[0-7]*|[1-9][0-9]*|0[xX][0-9a-fA-F]+)(\.(?!$)|$)){1,4}")
_PLACE = "--sources: $.sources[0]"
_IN_CLEAR = (
    "which everybody can read who may read the object; put them into a Secret, and name it in credentials.secret"
)


def element(remote: RemoteFlagProvider) -> dict[str, Json]:
    """Return the element of `--sources`; what is empty is left out.

    >>> from wigwag.operator.resources.remoteflagprovider import RemoteFlagProvider
    >>> element(RemoteFlagProvider(type="http", uri="https://flags.example/a.json", interval=30))
    {'uri': 'https://flags.example/a.json', 'provider': 'http', 'interval': 30, 'optional': True}
    """
    members = {
        "uri": remote.uri,
        "provider": remote.type,
        "tls": remote.tls,
        "providerID": remote.provider_id,
        "selector": remote.selector,
        "interval": remote.interval,
        "optional": not remote.required,
        "credentialsFolder": credentials_directory(remote),
    }
    return {name: value for name, value in members.items() if value}


def credentials_directory(remote: RemoteFlagProvider) -> str:
    """Return where the Secret of a remote is mounted; empty if it has none."""
    return f"{CREDENTIALS}/{remote.credentials.secret}" if remote.credentials else ""


def remote_problems(remote: RemoteFlagProvider) -> list[str]:
    """Return why a remote cannot be used, each with the path in the object.

    >>> from wigwag.operator.resources.remoteflagprovider import RemoteFlagProvider
    >>> [each.replace("azblob, s3", "…") for each in remote_problems(RemoteFlagProvider(type="htp", uri="https://x.test"))]
    ["spec.remoteFlagProvider.type: there is no kind 'htp'; did you mean http? Use one of http, grpc, consul, gcs, …"]
    """
    if remote.type not in TYPES:
        close = closest(remote.type, TYPES)
        hint = f"did you mean {close}? Use" if close else "use"
        return [f"{ROOT}.type: there is no kind {remote.type!r}; {hint} one of {', '.join(TYPES)}"]
    try:
        source = _source(remote, [])
        reason = _address_problem(remote, source)
    except UsageError as error:
        place, separator, reason = str(error).removeprefix(_PLACE).partition(": ")
        return [f"{ROOT}{place}: {reason}" if separator and place[:1] == "." else f"{ROOT}.uri: {error}"]
    return [f"{ROOT}.uri: {reason}"] if reason else []


def remote_warnings(remote: RemoteFlagProvider) -> list[str]:
    """Return what is odd about a remote without problems."""
    warnings: list[str] = []
    source = _source(remote, warnings)
    if remote.credentials and _is_plain(source):
        warnings.append(f"{_PLACE}.uri: the credentials are sent without encryption; use TLS")
    return [f"{ROOT}{each.removeprefix(_PLACE)}" for each in warnings]


class WrittenRemote(Struct, frozen=True):
    """The remote of an object: usable, or with what is wrong."""

    usable: RemoteFlagProvider | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether the object has one."""
        return self.usable is not None or bool(self.problems)


def read_remote(raw: bytes) -> WrittenRemote:
    """Read `remoteFlagProvider` of an object, given as JSON; empty or null: there is none."""
    try:
        remote = _decode(raw) if raw else None
    except (msgspec.DecodeError, RecursionError) as error:
        return WrittenRemote(problems=(f"{ROOT}: {error}",))
    if remote is None:
        return WrittenRemote()
    if problems := remote_problems(remote):
        return WrittenRemote(problems=tuple(problems))
    return WrittenRemote(remote, warnings=tuple(remote_warnings(remote)))


def borrowed_problem(remote: RemoteFlagProvider) -> str:
    """Return why pods of another namespace than the flag's cannot use its remote; empty if they can."""
    if remote.credentials:
        return "it would have the agent send a Secret of the pod's namespace to an address of another's choice"
    if any(map(_is_loopback, _hosts(_source(remote, [])))):
        return "its address is the pod itself"
    return ""


def _source(remote: RemoteFlagProvider, warnings: list[str]) -> Source:
    """Parse it as the agent does."""
    (source,) = parse_sources((), [element(remote)], warnings.append)
    return source


def _address_problem(remote: RemoteFlagProvider, source: Source) -> str:
    if source.settings.auth_header or unsigned(remote.uri) != remote.uri:
        return f"has credentials in it, {_IN_CLEAR}"
    for host in _hosts(source):
        if _is_metadata(host):
            return f"{host} is where clouds hand out credentials of the machine; name the server that has the flags"
    return ""


def _hosts(source: Source) -> list[str]:
    """Return the hosts that a source names; `UsageError` if it can never work, or is no other machine."""
    if source.provider == "grpc":
        places = parse_target(source.address).places
        if any(isinstance(place, str) for place in places):
            raise UsageError("is a Unix socket in the agent's container; name another machine")
        return [place[0] for place in places if not isinstance(place, str)]
    parts = urlsplit(source.address)
    if source.provider in ("consul", "http"):
        kind_of(source.provider).prepare(source, lambda _: None, {})
        if not parts.hostname:
            raise UsageError("names no host; write one")
        return [parts.hostname]
    return [host for name, value in parse_qsl(parts.query) if (host := _option_host(name.lower(), value))]


def _option_host(name: str, value: str) -> str:
    """Return the host that an option of a store names, if it is for one. Others become parts of an address, too."""
    if not _OPTIONS.get(name, _PLAIN).fullmatch(value):
        raise UsageError(f"has an option {name} that cannot be right; correct it")
    if name not in ("endpoint", "domain"):
        return ""
    return split_uri(value if "://" in value else f"//{value}").hostname or ""


def _is_plain(source: Source) -> bool:
    if source.provider in ("grpc", "consul"):
        return not source.settings.tls and not source.address.startswith("consuls:")
    return source.address.startswith("http:")


def _is_metadata(host: str) -> bool:
    """Tell whether a host is a metadata service, however its address is written.

    >>> [_is_metadata(each) for each in ("169.254.169.254", "2852039166", "::ffff:169.254.1.1", "fe80::1", "10.0.0.1")]
    [True, True, True, True, False]
    """
    address = _address(host.rstrip("."))
    return host.lower().rstrip(".") in METADATA or (address is not None and address.is_link_local)


def _is_loopback(host: str) -> bool:
    address = _address(host.rstrip("."))
    if address is None:
        return host.lower().rstrip(".").endswith("localhost")
    return address.is_loopback or address.is_unspecified


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is; None if it is a name."""
    host = normalize("NFKC", host)  # as resolvers do with digits of other scripts
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return _old_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def _old_address(host: str) -> IPv4Address | None:
    """Read an address as `inet_aton` does, and so resolvers: up to four numbers, the last of which fills the rest.

    >>> [str(_old_address(each)) for each in ("0x7f.1", "017700000001", "1.2.3", "flags.example", "1.2.3.4.5")]
    ['127.0.0.1', '127.0.0.1', '1.2.0.3', 'None', 'None']
    """
    numbers = _NUMBERS.fullmatch(host)
    if numbers is None:
        return None
    *first, last = (int(each, 8 if each[0] == "0" and each[1:].isdigit() else 0) for each in host.split("."))
    if max(first, default=0) > 255 or last >= 256 ** (4 - len(first)):
        return None
    return IPv4Address(sum(each << 8 * (3 - place) for place, each in enumerate(first)) + last)
