"""Where a request goes: an http(s) URL, taken apart once, and shown without what is secret in it.

Credentials before the host, and values of the query, in which signed URLs carry theirs, are never shown: neither by
`str` nor by `repr` nor by an error about a URL that cannot be read.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass, replace
from urllib.parse import SplitResult, quote, unquote_to_bytes, urljoin, urlsplit

from wigwag.errors import UsageError
from wigwag.wire.client.shown import shown

PORTS = {"http": 80, "https": 443}
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")
_HOST = re.compile(r"[a-z0-9._-]+")
_SAFE = "!#$%&'()*+,/:;=?@[]~"


@dataclass(frozen=True, slots=True, repr=False)
class Url:
    """An http(s) URL.

    >>> url = parse_url("https://me:secret@Flags.example/a%20b/flags.json?sig=secret#top")
    >>> url, url.host, url.port, url.target
    (https://flags.example/a%20b/flags.json?sig=***, 'flags.example', 443, '/a%20b/flags.json?sig=secret')
    """

    scheme: str
    host: str
    port: int
    target: str
    userinfo: str = ""

    def __str__(self) -> str:
        return shown(f"{self.scheme}://{self.authority}{self.target}")

    __repr__ = __str__

    @property
    def origin(self) -> tuple[str, str, int]:
        """What a credential is for."""
        return self.scheme, self.host, self.port

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def authority(self) -> str:
        """The host, and the port if it is not the usual one, as in a `Host` header."""
        return _bracketed(self.host) if self.port == PORTS[self.scheme] else self.endpoint

    @property
    def endpoint(self) -> str:
        """The host and the port."""
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def basic(self) -> str:
        """The `Authorization` that its credentials stand for, or nothing."""
        if not self.userinfo:
            return ""
        user, _, password = self.userinfo.partition(":")
        return "Basic " + base64.b64encode(unquote_to_bytes(user) + b":" + unquote_to_bytes(password)).decode()

    def join(self, location: str) -> Url:
        """Return where a `Location` leads from here. Credentials in it are a server's idea, and are left out."""
        whole = f"{self.scheme}://{self.endpoint}{self.target}"
        try:
            joined = urljoin(whole, location)
        except ValueError as error:
            raise UsageError("the location is no URL") from error
        return replace(parse_url(joined), userinfo="")


def parse_url(text: str) -> Url:
    """Take a URL apart; a `UsageError` says what is wrong with it, without quoting it."""
    if _UNSAFE.search(text):
        raise UsageError("the URL holds spaces or control characters; percent-encode them")
    try:
        parts = urlsplit(text)
        port = parts.port
        host = _ascii(parts)
    except ValueError as error:
        raise UsageError("the URL's host or port is malformed; write https://HOST:PORT/PATH") from error
    if parts.scheme not in PORTS:
        raise UsageError("the URL is not of the scheme http or https; write https://HOST/PATH")
    if not host:
        raise UsageError("the URL has no host; write https://HOST/PATH")
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    return Url(
        parts.scheme, host, PORTS[parts.scheme] if port is None else port, target, parts.netloc.rpartition("@")[0]
    )


def _ascii(parts: SplitResult) -> str:
    """Return the host in lower case, an international one as it is asked for in DNS."""
    host = parts.hostname or ""
    if ":" in host:
        return str(ipaddress.ip_address(host))
    name = host if host.isascii() else host.encode("idna").decode().lower()
    if name and not _HOST.fullmatch(name):  # the encoding may bring forth what was not there before, even spaces
        raise ValueError("the host holds what no name holds")
    return name


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
