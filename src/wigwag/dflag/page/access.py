"""Who may set a flag: who has the token, everybody if that was said in so many words, or nobody.

Browsers, which carry the requests of strangers, have to pass two more checks: see `wigwag.origin`.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from wigwag.dflag.page.messages import HttpError
from wigwag.errors import UsageError
from wigwag.origin import bearer_token, host_name, is_own_name, is_same_origin, read_origin

log = logging.getLogger("wigwag.dflag.page")
_LARGEST_FILE = 64 << 10
_TOKEN = re.compile(r"[!-~]{1,4096}")
_CHALLENGE = ("WWW-Authenticate", 'Bearer realm="flags"')
_DISABLED = "setting flags over HTTP is disabled here: give the page a token, or say that it needs none"


@dataclass(frozen=True, slots=True)
class Access:
    """Who may set flags over HTTP; without an argument, nobody.

    >>> Access(token="example", unauthenticated=True)
    Traceback (most recent call last):
    wigwag.errors.UsageError: give one of token, token_file and unauthenticated=True
    """

    token: str | None = field(default=None, repr=False)
    token_file: str | os.PathLike[str] | None = None
    """A file with the token, read each time; more lines are more tokens, so that an old and a new one may both hold."""
    unauthenticated: bool = False
    """Whether everybody may who can reach the page."""
    allowed_hosts: Collection[str] = ()
    """Names that the page is reached by, besides `localhost` and addresses; "*" for any."""
    allowed_origins: Collection[str] = ()
    """Where the page is seen by browsers, if a proxy asks us for another host: `https://flags.example.org`."""

    def __post_init__(self) -> None:
        if (self.token is not None) + (self.token_file is not None) + self.unauthenticated > 1:
            raise UsageError("give one of token, token_file and unauthenticated=True")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise UsageError("the token must be 1 to 4096 visible ASCII characters, without white space")
        if isinstance(self.allowed_hosts, str):
            raise UsageError(f"allowed_hosts is a list of names: write [{self.allowed_hosts!r}]")
        if isinstance(self.allowed_origins, str):
            raise UsageError(f"allowed_origins is a list of addresses: write [{self.allowed_origins!r}]")
        for origin in self.allowed_origins:
            if read_origin(origin) is None:
                raise UsageError(f"an allowed origin is of the form https://host or http://host:port, got {origin!r}")

    @property
    def enabled(self) -> bool:
        """Whether anybody may set a flag."""
        return self.by_token or self.unauthenticated

    @property
    def by_token(self) -> bool:
        """Whether it takes a token."""
        return self.token is not None or self.token_file is not None

    def check(self, headers: Mapping[str, str]) -> None:
        """Refuse who may not set flags."""
        if not self.enabled:
            raise HttpError(403, _DISABLED)
        if self.unauthenticated:
            return
        token = bearer_token(headers.get("authorization", "").encode(errors="surrogatepass"))
        if token is None:
            raise HttpError(401, "setting a flag takes a token: send Authorization: Bearer TOKEN", _CHALLENGE)
        if not _known(token, self._tokens()):
            raise HttpError(401, "this is not the token that sets flags", _CHALLENGE)

    def _tokens(self) -> list[str]:
        if self.token_file is None:
            return [self.token] if self.token is not None else []
        try:
            with Path(self.token_file).open("rb") as file:
                text = file.read(_LARGEST_FILE).decode("ascii", "replace")
        except OSError as error:
            log.warning("the token that sets flags cannot be read: %s: %s", self.token_file, error.strerror)
            raise HttpError(503, "the file with the token cannot be read; the log of the program says why") from error
        tokens = [line for line in map(str.strip, text.splitlines()) if _TOKEN.fullmatch(line)]
        if not tokens:
            raise HttpError(503, "there is no token in the file that should have it")
        return tokens


def _known(token: bytes, accepted: Iterable[str]) -> bool:
    """Return whether this is one of the tokens, in a time that does not depend on them."""
    digest = sha256(token).digest()
    return any([hmac.compare_digest(digest, sha256(each.encode()).digest()) for each in accepted])  # noqa: C419 - all are compared


def check_host(host: str, allowed: Collection[str]) -> None:
    """Refuse a request that calls us by a name that may be a stranger's.

    >>> check_host("127.0.0.1:8080", ())
    >>> check_host("flags.example.org", ["flags.example.org"])
    >>> check_host("evil.example", ())
    Traceback (most recent call last):
    wigwag.dflag.page.messages.HttpError: this page is not known as 'evil.example': allow that host, or use an address
    """
    name = host_name(host)
    if name is None:
        raise HttpError(400, "the request must say which host it is for, in one header Host")
    if not is_own_name(name, allowed):
        raise HttpError(421, f"this page is not known as {name[:253]!r}: allow that host, or use an address")


def check_origin(headers: Mapping[str, str], allowed: Collection[str]) -> None:
    """Refuse a change that a browser sends for another site. What is no browser says nothing of where it is.

    >>> check_origin({"host": "localhost:80", "origin": "http://localhost:80", "sec-fetch-site": "same-origin"}, ())
    >>> check_origin({"host": "localhost:80", "origin": "https://evil.example"}, ())
    Traceback (most recent call last):
    wigwag.dflag.page.messages.HttpError: flags are not set from pages of other sites
    """
    if not is_same_origin(headers, allowed):
        raise HttpError(403, "flags are not set from pages of other sites")
