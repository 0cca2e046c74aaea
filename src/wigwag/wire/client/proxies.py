"""Whether a request goes by a proxy: what HTTP_PROXY, HTTPS_PROXY and NO_PROXY say, as Go programs read them.

This machine itself (localhost, loopback addresses) is never asked by a proxy. NO_PROXY is a list of hosts, which stand
for their subdomains too (with a leading dot or `*.` for those alone), addresses and networks, each with a port or
without; `*` is everything. Under CGI, HTTP_PROXY may be a client's `Proxy:` header in disguise, and is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.wire.client.url import Url, parse_url

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies of each scheme, and what is asked without them.

    >>> proxies = Proxies.of({"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": "corp.example,10.0.0.0/8"})
    >>> proxies.choose(parse_url("https://flags.example/"))
    http://proxy.example:3128/
    >>> proxies.choose(parse_url("https://10.1.2.3/")), proxies.choose(parse_url("https://flags.corp.example/"))
    (None, None)
    """

    http: str = field(default="", repr=False)
    https: str = field(default="", repr=False)
    without: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Proxies:
        """Read an environment."""

        def read(name: str) -> str:
            return environment.get(name) or environment.get(name.lower()) or ""

        without = tuple(rule.strip().lower() for rule in read("NO_PROXY").split(",") if rule.strip())
        http = environment.get("http_proxy", "") if "REQUEST_METHOD" in environment else read("HTTP_PROXY")
        return cls(http, read("HTTPS_PROXY"), without)

    def choose(self, url: Url) -> Url | None:
        """Return the proxy that a request goes by; None: by none."""
        text = self.https if url.scheme == "https" else self.http
        if not text or _here(url.host) or any(_matches(rule, url) for rule in self.without):
            return None
        return _proxy(text, f"{url.scheme.upper()}_PROXY")


def _proxy(text: str, name: str) -> Url:
    scheme = text.partition("://")[0] if "://" in text else "http"
    if scheme != "http":
        raise UsageError(f"{name}: only proxies that are asked by http:// are supported; write http://HOST:PORT")
    try:
        return parse_url(text if "://" in text else f"http://{text}")
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _matches(rule: str, url: Url) -> bool:
    if rule == "*":
        return True
    name, colon, port = rule.rpartition(":")
    if colon and port.isdigit() and (":" not in name or name.startswith("[")):
        return int(port) == url.port and _matches(name, url)
    try:
        return ip_address(url.host) in ip_network(rule.strip("[]"), strict=False)
    except ValueError:
        name = rule.removeprefix("*")
        return url.host.endswith(name if name.startswith(".") else f".{name}") or url.host == name
