"""What a URI names: a kind of source and its name, with the secrets taken out. Here is what the kinds share.

The name is what `source=` selects by: the URI as configured, without a scheme that only says how to read it (`file:`,
`grpc://`), as in flagd. It is seen by many (logs, metrics, debug pages, clients), so what proves who we are is moved
out of it: user and password become the `Authorization` header they stand for, and the values of query parameters are
kept in the address only, but for those that are known to be harmless.
"""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from wigwag.errors import UsageError
from wigwag.wire.client.shown import shown


class UriAddress(NamedTuple):
    """Where a source is."""

    name: str
    provider: str
    tls: bool = False
    address: str = ""
    """The way there, if the name does not tell: it has secrets in it."""
    auth_header: str = ""
    on_delete: str = ""
    """What its flags become when it is gone, if the address says so."""


def visible_place(uri: str, provider: str, auth_header: str = "") -> UriAddress:
    """Return a place with the URI without secrets as its name; the address is kept apart if it is not the same.

    >>> visible_place("redis://cache/flags?token=abc", "redis")[:4]
    ('redis://cache/flags?token=***', 'redis', False, 'redis://cache/flags?token=abc')
    """
    check_printable(uri)
    name = shown(uri)
    return UriAddress(name, provider, address="" if name == uri else uri, auth_header=auth_header)


def without_scheme(uri: str, schemes: tuple[str, ...], form: str) -> str:
    """Take off a scheme that only says how to read; `form` is how the URI should be written."""
    scheme = next((each for each in schemes if uri.startswith(each)), "")
    if uri == scheme:
        raise UsageError(f"{uri!r} names nothing; write {form}")
    return uri.removeprefix(scheme)


def check_printable(uri: str) -> None:
    """Refuse blanks at the ends and control characters."""
    if not uri.isprintable() or uri != uri.strip():
        raise UsageError("an address has no blanks at its ends and no control characters in it; take them out")


def split_uri(uri: str) -> SplitResult:
    """Split a URI into its parts; `UsageError` without secrets if it is malformed."""
    check_printable(uri)
    try:
        parts = urlsplit(uri)
        _ = parts.port  # reading it checks it
    except ValueError:  # its words quote what may be a password
        raise UsageError(f"{shown(uri)!r} is no address: its host or port is malformed") from None
    return parts


def without_user(uri: str, parts: SplitResult) -> tuple[str, str]:
    """Return a URI without its user and password, and the `Authorization` header that they stand for."""
    if parts.username is None:
        return uri, ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    header = "Basic " + b64encode(pair.encode()).decode()
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), header
