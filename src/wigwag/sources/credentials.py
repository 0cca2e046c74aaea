"""Credentials in a directory with one file per key, such as a mounted Secret. Each source reads the keys of its kind.

| key | what it is |
|---|---|
| `token` | a bearer token; for Consul, an ACL token |
| `authorization` | the whole `Authorization` header |
| `username`, `password` | for the header `Authorization: Basic …` |
| `ca.crt` | the authorities that sign the server's certificate |
| `tls.crt`, `tls.key` | the client's own certificate |
| `uri` | the address that the others are for, and no other |

Nothing is cached: a Secret is replaced while a process runs, and the next request has the new one. Its content is in no
error and in no log. The hard case is a Secret that does not exist (yet): the directory is empty, and a request without
credentials would be refused, or worse, answered for somebody else. So nothing is sent, and the error says what is
missing.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from wigwag.errors import UsageError
from wigwag.sources.secret import read_secret, read_token
from wigwag.wire.client.tls import Trust

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKEN, AUTHORIZATION, USERNAME, PASSWORD = "token", "authorization", "username", "password"
AUTHORITY, CERTIFICATE, KEY, ADDRESS = "ca.crt", "tls.crt", "tls.key", "uri"
HEADERS = (TOKEN, AUTHORIZATION, USERNAME)
TLS_FILES = (AUTHORITY, CERTIFICATE)


@dataclass(frozen=True, slots=True)
class CredentialsFolder:
    """A directory with credentials, for a source."""

    path: str
    address: str = field(repr=False)
    """The URI of the source. It may hold secrets."""

    def authorization(self) -> str:
        """Return the `Authorization` header; empty if the directory holds only files for TLS."""
        present = self.present((*HEADERS, *TLS_FILES))
        return f"Bearer {self.token()}" if TOKEN in present else self.header(present)

    def token(self) -> str:
        """Return the token."""
        return read_token(self.file(TOKEN), f"{TOKEN} must hold one token")

    def header(self, present: Iterable[str]) -> str:
        """Return the `Authorization` header that is no bearer token; empty if none of the keys is for one."""
        if AUTHORIZATION in present:
            return self.value(AUTHORIZATION)
        if USERNAME not in present:
            return ""
        pair = f"{self.value(USERNAME)}:{self.value(PASSWORD)}"
        return f"Basic {b64encode(pair.encode()).decode()}"

    def trust(self, authority: str = "") -> Trust:
        """Return the files for TLS; `authority` is used if there is none here."""
        own = (self.file(CERTIFICATE), self.file(KEY)) if self._has(CERTIFICATE) else ("", "")
        return Trust(self.file(AUTHORITY) if self._has(AUTHORITY) else authority, *own)

    def present(self, keys: Iterable[str]) -> list[str]:
        """Return the keys that there are; `UsageError` if there are none, or if they are for another address."""
        wanted = tuple(keys)
        present = [key for key in wanted if self._has(key)]
        if not present:
            name = Path(self.path).name
            reason = f"{self.path}: has none of the files {', '.join(wanted)}, so nothing is sent"
            raise UsageError(f"{reason}; create the Secret {name} with one of these keys, if it is mounted from one")
        if self._has(ADDRESS):
            bound = self.value(ADDRESS)
            if not is_below(self.address, bound):
                reason = f"{self.file(ADDRESS)}: these credentials are for another address, so nothing is sent"
                raise UsageError(f"{reason}; correct the URI of the source, or this file")
        return present

    def secret(self, key: str) -> str:
        """Return the content of a file."""
        return read_secret(self.file(key), f"{key} must hold text")

    def value(self, key: str) -> str:
        """Return the content of a file, which fits into a header."""
        value = self.secret(key)
        if not value.isprintable():
            raise UsageError(f"{self.file(key)}: has a line break or a control character in it; take it out")
        return value

    def file(self, key: str) -> str:
        """Return the path of a file."""
        return str(Path(self.path, key))

    def _has(self, key: str) -> bool:
        return Path(self.path, key).exists()


def credentials_of(path: str, address: str) -> CredentialsFolder | None:
    """Return the directory of a source; None if it has none."""
    return CredentialsFolder(path, address) if path else None


def is_below(uri: str, base: str) -> bool:
    """Tell whether a URI is at an address or below it: the same server, the same query, and its path or one below.

    >>> is_below("https://flags.example/team-a/x.json", "https://flags.example/team-a")
    True
    >>> [is_below(each, "https://flags.example/team-a") for each in (
    ...     "http://flags.example/team-a", "https://flags.example.evil/team-a", "https://flags.example/team-ab",
    ...     "https://flags.example/team-a/../b", "https://flags.example/team-a/x?endpoint=evil")]
    [False, False, False, False, False]
    """
    ours, theirs = urlsplit(uri), urlsplit(base)
    if (ours.scheme, ours.netloc.lower(), ours.query) != (theirs.scheme, theirs.netloc.lower(), theirs.query):
        return False
    if ".." in unquote(ours.path).split("/"):
        return False
    return f"{ours.path.rstrip('/')}/".startswith(f"{theirs.path.rstrip('/')}/")
