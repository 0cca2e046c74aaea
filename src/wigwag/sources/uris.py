"""What a URI names: a kind of source and its name, with the secrets taken out.

The name is what `source=` selects by: the URI as configured, without a scheme that only says how to read it (`file:`,
`grpc://`), as in flagd. It is seen by many (logs, metrics, debug pages, clients), so what proves who we are is moved
out of it: user and password become the `Authorization` header they stand for, and the values of query parameters are
kept in the address only, but for those that are known to be harmless.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from wigwag.errors import UsageError
from wigwag.wire.client.shown import shown

BLOBS = {"gcs": "gs://", "azblob": "azblob://", "s3": "s3://"}
FILE_PROVIDERS = ("file", "fsnotify", "fileinfo")
PROVIDERS = (*FILE_PROVIDERS, "http", "grpc", *BLOBS, "consul", "kubernetes", "configmap")
FLAGS, CONFIG = "core.openfeature.dev/", "configmap/"
SELF = "kubernetes-self"
"""The kind of `core.openfeature.dev/` without a name: what the annotations of the agent's own pod name."""
POLICIES = ("keep", "remove")
_CUSTOM_RESOLVER = re.compile(r"(envoy|dns|uds|unix|unix-abstract|ipv4|ipv6|passthrough|xds):")
_GRPC_SECRET = re.compile(r"(?!(?:unix|unix-abstract|uds):)(?:(?:\w+:/{0,3})?[^/]*@|[^?#]*[?#])")
_WAYS = (
    "file:PATH, https://…, grpc://HOST:PORT, grpcs://…, s3://BUCKET/OBJECT, gs://…, azblob://…"
    ", consul://HOST:PORT/KEY, core.openfeature.dev/NAMESPACE/NAME or configmap/NAMESPACE/NAME"
)


class Place(NamedTuple):
    """Where a source is."""

    name: str
    provider: str
    tls: bool = False
    address: str = ""
    """The way there, if the name does not tell: it has secrets in it."""
    auth_header: str = ""
    on_delete: str = ""
    """What its flags become when it is gone, if the address says so."""


def read_uri(uri: str) -> Place:
    """Read a `--uri`, which says by its beginning what it is."""
    provider = provider_of(uri)
    if not provider:
        raise UsageError(f"cannot tell what {shown(uri)!r} is; write {_WAYS}")
    return place(uri, provider)


def provider_of(uri: str) -> str:
    """Return the kind of source that a URI names by its beginning; nothing, if it names none.

    >>> provider_of("unix:/run/flags.sock"), provider_of("s3://bucket/flags.json"), provider_of("flags.json")
    ('grpc', 's3', '')
    """
    if _CUSTOM_RESOLVER.match(uri):
        return "grpc"
    if uri.startswith((FLAGS, CONFIG)):
        return "kubernetes" if uri.startswith(FLAGS) else "configmap"
    scheme, colon, _ = uri.partition(":")
    return _SCHEMES.get(scheme, "") if colon else ""


_SCHEMES = {
    "file": "file", "http": "http", "https": "http", "grpc": "grpc", "grpcs": "grpc",
    "gs": "gcs", "azblob": "azblob", "s3": "s3", "consul": "consul", "consuls": "consul",
}  # fmt: skip


def place(uri: str, provider: str) -> Place:
    """Read the URI of a source whose kind is known."""
    if provider in FILE_PROVIDERS:
        return Place(_bare(uri, ("file:",), "file:PATH"), "file")
    if not uri.isprintable() or uri != uri.strip():
        raise UsageError("an address has no blanks at its ends and no control characters in it; take them out")
    if provider == "grpc":
        bare = _bare(uri, ("grpc://", "grpcs://"), "grpc://HOST:PORT")
        if _GRPC_SECRET.match(bare):
            raise UsageError("has credentials or a query in it, which gRPC does not know; send them in headers")
        return Place(bare, "grpc", tls=uri.startswith("grpcs://"))
    if provider == "http":
        return _web(uri)
    if provider == "consul":
        return _consul(uri)
    if provider in ("kubernetes", "configmap"):
        return _kubernetes(uri, provider)
    return _blob(uri, provider)


def check_provider(provider: str) -> None:
    """Refuse a kind of source that is not known."""
    if provider not in PROVIDERS:
        raise UsageError(f"unknown provider {provider!r}; known are {', '.join(PROVIDERS)}")


def _bare(uri: str, schemes: tuple[str, ...], form: str) -> str:
    """Take off a scheme that only says how to read."""
    scheme = next((each for each in schemes if uri.startswith(each)), "")
    if uri == scheme:
        raise UsageError(f"{uri!r} names nothing; write {form}")
    return uri.removeprefix(scheme)


def _web(uri: str) -> Place:
    """A web address; credentials in it are sent as a browser would send them."""
    parts = _split(uri)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{shown(uri)!r} is no web address; write https://HOST/PATH")
    bare, header = _without_user(parts)
    return _apart(bare if header else uri, "http", header)


def _consul(uri: str) -> Place:
    """A key of Consul; what else it says is looked at by the source itself."""
    parts = _split(uri)
    if parts.scheme not in ("consul", "consuls") or not parts.path.strip("/"):
        raise UsageError(f"{shown(uri)!r} names no key of Consul; write consul://HOST:PORT/KEY, or KEY/ for all below")
    bare, header = _without_user(parts)
    return _apart(bare if header else uri, "consul", header)


def _kubernetes(uri: str, provider: str) -> Place:
    """Objects of an API server; what their name says is looked at by the source itself.

    FeatureFlags are called as in flagd, without the beginning; ConfigMaps with it, so that the two can be told apart.
    """
    prefix = FLAGS if provider == "kubernetes" else CONFIG
    path, _, query = uri.removeprefix(prefix).partition("?")
    options = [each.partition("=") for each in query.split("&") if each]
    policies = [value for name, _, value in options if name == "onDelete"]
    for policy in policies:
        if policy not in POLICIES:
            raise UsageError(f"onDelete is {' or '.join(POLICIES)}, not {policy[:40]!r}")
    rest = "&".join("".join(each) for each in options if each[0] != "onDelete")
    name, policy = f"{path}?{rest}" if rest else path, "".join(policies[-1:])
    if not name and provider == "kubernetes":
        return Place(prefix, SELF, on_delete=policy)
    return Place(name if provider == "kubernetes" else prefix + name, provider, on_delete=policy)


def _without_user(parts: SplitResult) -> tuple[str, str]:
    """Return an address without its user and password, and the header that these stand for."""
    if parts.username is None:
        return urlunsplit(parts), ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    header = "Basic " + b64encode(pair.encode()).decode()
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), header


def _blob(uri: str, provider: str) -> Place:
    form = f"{BLOBS[provider]}{'CONTAINER' if provider == 'azblob' else 'BUCKET'}/OBJECT"
    parts = _split(uri)
    if f"{parts.scheme}://" != BLOBS[provider] or not parts.netloc or not parts.path.strip("/"):
        raise UsageError(f"{shown(uri)!r} does not name an object of a store; write {form}")
    if "@" in parts.netloc:
        raise UsageError(f"has credentials in it; write {form}, and let the environment tell who you are")
    return _apart(uri, provider)


def _apart(uri: str, provider: str, header: str = "") -> Place:
    """Give a place a name that may be seen, and keep the address apart if that is not the same."""
    name = shown(uri)
    return Place(name, provider, address="" if name == uri else uri, auth_header=header)


def _split(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        _ = parts.port  # reading it checks it
    except ValueError:  # its words quote what may be a password
        raise UsageError(f"{shown(uri)!r} is no address: its host or port is malformed") from None
    return parts
