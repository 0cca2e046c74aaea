"""What a URI names: a kind of source and its name, with the secrets taken out.

The name is what `source=` selects by: the URI as configured, without a scheme that only says how to read it (`file:`,
`grpc://`), as in flagd. It is seen by many (logs, metrics, debug pages, clients), so what proves who we are is moved
out of it: user and password become the `Authorization` header they stand for, and the value of a query parameter that
looks like a secret is kept in the address only.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from wigwag.errors import UsageError

BLOBS = {"gcs": "gs://", "azblob": "azblob://", "s3": "s3://"}
FILE_PROVIDERS = ("file", "fsnotify", "fileinfo")
PROVIDERS = (*FILE_PROVIDERS, "http", "grpc", *BLOBS, "consul")
NOT_YET = ("kubernetes",)
HIDDEN = "***"
"""What stands in a name instead of a secret."""
_CUSTOM_RESOLVER = re.compile(r"(envoy|dns|uds|unix|unix-abstract|ipv4|ipv6|passthrough|xds):")
_SECRET = re.compile(
    r"(?:^|[-_.])(?:sig|signature|credential|(?:\w*token)|secret|passw(?:or)?d|pwd|(?:api)?key|code)$", re.IGNORECASE
)
_USER = re.compile(r"//[^/]*@")
_GRPC_USER = re.compile(r"(?!unix|uds)(?:\w+:/{0,3})?[^/]*@")
_WAYS = (
    "file:PATH, https://…, grpc://HOST:PORT, grpcs://…, s3://BUCKET/OBJECT, gs://…, azblob://…"
    " or consul://HOST:PORT/KEY"
)


class Place(NamedTuple):
    """Where a source is."""

    name: str
    provider: str
    tls: bool = False
    address: str = ""
    """The way there, if the name does not tell: it has secrets in it."""
    auth_header: str = ""


def read_uri(uri: str) -> Place:
    """Read a `--uri`, which says by its beginning what it is."""
    if _CUSTOM_RESOLVER.match(uri):
        return place(uri, "grpc")
    scheme, colon, _ = uri.partition(":")
    if uri.startswith("core.openfeature.dev/"):
        check_provider("kubernetes")
    if not colon or scheme not in _SCHEMES:
        raise UsageError(f"cannot tell what {shown(uri)!r} is; write {_WAYS}")
    return place(uri, _SCHEMES[scheme])


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
        if _GRPC_USER.match(bare):
            raise UsageError("has credentials in it, which gRPC does not know; send them in headers")
        return Place(bare, "grpc", tls=uri.startswith("grpcs://"))
    if provider == "http":
        return _web(uri)
    if provider == "consul":
        return _consul(uri)
    return _blob(uri, provider)


def check_provider(provider: str) -> None:
    """Refuse a kind of source that is not known, or not yet."""
    if provider in NOT_YET:
        raise UsageError(f"the provider {provider!r} is not available yet; use a file, http, grpc or a blob store")
    if provider not in PROVIDERS:
        raise UsageError(f"unknown provider {provider!r}; known are {', '.join((*PROVIDERS, *NOT_YET))}")


def shown(uri: str) -> str:
    """Return a URI without its secrets, for people.

    >>> shown("https://me:secret@flags.example/a.json?v=2&api_key=abc")
    'https://flags.example/a.json?v=2&api_key=***'
    >>> shown("flags.json")
    'flags.json'
    """
    if "://" not in uri:
        return uri
    try:
        told = urlunsplit(_cleared(urlsplit(uri)))
        return told if "://" in told else told.replace(":", "://", 1)  # which is left out where there is no host
    except ValueError:
        return uri.partition("://")[0] + "://…"


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
    except ValueError as error:
        raise UsageError(f"{shown(uri)!r} is no address: {error}") from None
    return parts


def _cleared(parts: SplitResult) -> SplitResult:
    """Take out what proves who we are; whatever has nothing to hide stays as it was written."""
    pairs = parts.query.split("&")
    kept = [_shown_pair(pair) for pair in pairs]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="&".join(kept))


def _shown_pair(pair: str) -> str:
    name, _, value = pair.partition("=")
    return f"{name}={HIDDEN}" if _SECRET.search(name) or _USER.search(unquote(value)) else pair
