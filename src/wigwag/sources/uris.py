"""The address of a source, parsed from its URI, and what the parsers of all kinds share.

The name of a source is its URI without a scheme that only says how to read it (`file:`, `grpc://`), as in flagd; the
selector `source=` matches it. It appears in logs, metrics, debug pages and clients, so credentials are moved out of it:
user and password become an `Authorization` header, and the values of query parameters are kept in the address only,
except those that are known to be harmless.
"""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from wigwag.errors import UsageError
from wigwag.wire.client.shown import shown


class UriAddress(NamedTuple):
    """A parsed URI."""

    name: str
    provider: str
    tls: bool = False
    address: str = ""
    """The whole URI with its secrets, if it differs from the name."""
    auth_header: str = ""
    on_delete: str = ""
    """What happens to the flags when the source is deleted, if the URI says so."""


def visible_address(uri: str, provider: str, auth_header: str = "") -> UriAddress:
    """Return an address whose name is the URI without secrets.

    >>> visible_address("redis://cache/flags?token=abc", "redis")[:4]
    ('redis://cache/flags?token=***', 'redis', False, 'redis://cache/flags?token=abc')
    """
    check_printable(uri)
    name = shown(uri)
    return UriAddress(name, provider, address="" if name == uri else uri, auth_header=auth_header)


def without_scheme(uri: str, schemes: tuple[str, ...], form: str) -> str:
    """Remove a scheme that only says how to read the URI; `form` shows how to write it."""
    scheme = next((each for each in schemes if uri.startswith(each)), "")
    if uri == scheme:
        raise UsageError(f"{uri!r} names nothing; write {form}")
    return uri.removeprefix(scheme)


def check_printable(uri: str) -> None:
    """Raise `UsageError` for blanks at the ends and control characters."""
    if not uri.isprintable() or uri != uri.strip():
        raise UsageError("a URI has no blanks at its ends and no control characters in it; take them out")


def split_uri(uri: str) -> SplitResult:
    """Split a URI into its parts; `UsageError` without secrets if it is malformed."""
    check_printable(uri)
    try:
        parts = urlsplit(uri)
        _ = parts.port  # reading it checks it
    except ValueError:  # its text may quote a password
        raise UsageError(f"{shown(uri)!r} is not a URI: its host or port is malformed") from None
    return parts


def without_user(uri: str, parts: SplitResult) -> tuple[str, str]:
    """Return a URI without its user and password, and the `Authorization` header for them."""
    if parts.username is None:
        return uri, ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    header = "Basic " + b64encode(pair.encode()).decode()
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), header
