"""Who may set flags: clients with a token, everybody if that is configured explicitly, or nobody.

A browser may send a request on behalf of another site, so Host and Origin are checked, too: see `wigwag.origin`.
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
_DISABLED = "setting flags over HTTP is disabled: configure a token, or unauthenticated access"


@dataclass(frozen=True, slots=True)
class Access:
    """Who may set flags over HTTP; without an argument, nobody.

    >>> Access(token="example", unauthenticated=True)
    Traceback (most recent call last):
    wigwag.errors.UsageError: give one of token, token_file and unauthenticated=True
    """

    token: str | None = field(default=None, repr=False)
    token_file: str | os.PathLike[str] | None = None
    """A file with the token, read for each request. Each line is a token, so that an old and a new one may be valid."""
    unauthenticated: bool = False
    """Whether everybody who can reach the page may set flags."""
    allowed_hosts: Collection[str] = ()
    """Host names of the page, besides `localhost` and addresses; "*" for any."""
    allowed_origins: Collection[str] = ()
    """Origins of the page in browsers, if a proxy changes the host: `https://flags.example.org`."""

    def __post_init__(self) -> None:
        if (self.token is not None) + (self.token_file is not None) + self.unauthenticated > 1:
            raise UsageError("give one of token, token_file and unauthenticated=True")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise UsageError("the token must be 1 to 4096 visible ASCII characters, without white space")
        if isinstance(self.allowed_hosts, str):
            raise UsageError(f"allowed_hosts is a list of names: write [{self.allowed_hosts!r}]")
        if isinstance(self.allowed_origins, str):
            raise UsageError(f"allowed_origins is a list of origins: write [{self.allowed_origins!r}]")
        for origin in self.allowed_origins:
            if read_origin(origin) is None:
                raise UsageError(f"an allowed origin is of the form https://host or http://host:port, got {origin!r}")

    @property
    def enabled(self) -> bool:
        """Whether anybody may set a flag."""
        return self.by_token or self.unauthenticated

    @property
    def by_token(self) -> bool:
        """Whether a token is required."""
        return self.token is not None or self.token_file is not None

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise `HttpError` unless a request with these headers may set flags."""
        if not self.enabled:
            raise HttpError(403, _DISABLED)
        if self.unauthenticated:
            return
        token = bearer_token(headers.get("authorization", "").encode(errors="surrogatepass"))
        if token is None:
            raise HttpError(401, "setting a flag requires a token: send Authorization: Bearer TOKEN", _CHALLENGE)
        if not _known(token, self._tokens()):
            raise HttpError(401, "the token is wrong", _CHALLENGE)

    def _tokens(self) -> list[str]:
        if self.token_file is None:
            return [self.token] if self.token is not None else []
        try:
            with Path(self.token_file).open("rb") as file:
                text = file.read(_LARGEST_FILE).decode("ascii", "replace")
        except OSError as error:
            log.warning("the token file of the flags page cannot be read: %s: %s", self.token_file, error.strerror)
            raise HttpError(503, "the token file cannot be read; see the log of the program") from error
        tokens = [line for line in map(str.strip, text.splitlines()) if _TOKEN.fullmatch(line)]
        if not tokens:
            raise HttpError(503, "the token file holds no token")
        return tokens


def _known(token: bytes, accepted: Iterable[str]) -> bool:
    """Return whether this is one of the tokens, in a time that does not depend on them."""
    digest = sha256(token).digest()
    return any([hmac.compare_digest(digest, sha256(each.encode()).digest()) for each in accepted])  # noqa: C419 - all are compared


def check_host(host: str, allowed: Collection[str]) -> None:
    """Refuse a request for a host that is not ours (DNS rebinding).

    >>> check_host("127.0.0.1:8080", ())
    >>> check_host("flags.example.org", ["flags.example.org"])
    >>> check_host("evil.example", ())
    Traceback (most recent call last):
    wigwag.dflag.page.messages.HttpError: the host 'evil.example' is not in allowed_hosts: add it, or use an address
    """
    name = host_name(host)
    if name is None:
        raise HttpError(400, "the request must have one Host header")
    if not is_own_name(name, allowed):
        raise HttpError(421, f"the host {name[:253]!r} is not in allowed_hosts: add it, or use an address")


def check_origin(headers: Mapping[str, str], allowed: Collection[str]) -> None:
    """Refuse a change that a browser sends for another site (CSRF). Other clients send no Origin.

    >>> check_origin({"host": "localhost:80", "origin": "http://localhost:80", "sec-fetch-site": "same-origin"}, ())
    >>> check_origin({"host": "localhost:80", "origin": "https://evil.example"}, ())
    Traceback (most recent call last):
    wigwag.dflag.page.messages.HttpError: a page of another site may not set flags
    """
    if not is_same_origin(headers, allowed):
        raise HttpError(403, "a page of another site may not set flags")
