"""An address as anybody may see it: in names of sources, logs, metrics, errors and debug pages.

What proves who we are is left out: who logs in, the fragment, and values of the query, in which signed URLs carry
theirs. Nobody can list the names that secrets go by (`token`, `sig`, `jwt`, `sas`, …), so the values that are shown are
those of a few parameters known to be harmless, as long as they look it. The rest stays letter for letter as it was
written, because names are made of it that others select by. To show what is shown changes nothing.

The hard case is a password that is not encoded, with a slash or a hash in it: the address falls apart in the middle of
it. Of one whose port is no number, nothing but the scheme is shown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN = "***"
"""What stands for a secret."""
HARMLESS = frozenset({
    "alt", "branch", "commit", "env", "environment", "format", "raw", "ref", "rev", "stage", "tag", "v",
    "version", "versionid", "region", "endpoint", "prefix", "anonymous", "profile", "disable_https",
    "disablessl", "use_path_style", "s3forcepathstyle", "fips", "dualstack", "accelerate", "hostname_immutable",
    "use_legacy_list", "awssdk", "universe_domain", "storage_account", "domain", "protocol", "cdn", "localemu",
    "dc", "ns", "partition", "consistency", "wait", "ca-file", "client-cert",
})  # fmt: skip
"""Parameters whose values are shown, in lower case: options of our own addresses, and common ways to name a version."""
_SECRET = re.compile(r"token$|(?:^|[-_.])(?:sig|signature|credential|secret|passw(?:or)?d|pwd|(?:api)?key|code)$")
_USER = re.compile(r"//[^/]*@")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_PLAIN = re.compile(r"[\w.,:/+\[\] -]{0,100}")
_HOST = re.compile(r"(\[.*\]|[^:]*)(:[0-9]*)?", re.DOTALL)


def shown(address: str) -> str:
    """Return an address without its secrets. One without a scheme is a host, or no address at all.

    >>> shown("https://me:secret@flags.example/a.json?v=2&api_key=secret#secret")
    'https://flags.example/a.json?v=2&api_key=***#***'
    >>> shown("me:secret@collector:4317"), shown("flags.json"), shown("https://me:sec/ret@flags.example/")
    ('collector:4317', 'flags.json', 'https://…')
    """
    return _without(address, lambda name, value: name not in HARMLESS or not _PLAIN.fullmatch(value))


def unsigned(address: str) -> str:
    """Return an address without what surely is a secret, and may be another one tomorrow: not who asks, but for what.

    It tells one document from another, and is not for people.

    >>> unsigned("https://flags.example/a.json?team=blue&api_key=secret")
    'https://flags.example/a.json?team=blue&api_key=***'
    """
    return _without(address, lambda name, value: bool(_SECRET.search(name) or _USER.search(value)))


def _without(address: str, secret: Callable[[str, str], bool]) -> str:
    if "://" not in address:
        address = address.rpartition("@")[2]
    rest, fragment, _ = address.partition("#")
    rest, mark, query = rest.partition("?")
    parts = re.split("([&;])", query)  # a server may take either
    suffix = mark + "".join(part if part in "&;" else _parameter(part, secret) for part in parts)
    suffix += fragment and f"#{HIDDEN}"
    scheme, separator, place = rest.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return rest.rpartition("@")[2] + suffix
    host, slash, path = place.partition("/")
    host = host.rpartition("@")[2]
    return f"{scheme}://{host}{slash}{path}{suffix}" if _HOST.fullmatch(host) else f"{scheme}://…"


def _parameter(text: str, secret: Callable[[str, str], bool]) -> str:
    """A value without a name is hidden as a whole; so is what only looks like a name, such as base64 with its `=`."""
    name, _, value = text.partition("=")
    if not secret(unquote_plus(name).lower(), unquote_plus(value)):
        return text
    return f"{name}={HIDDEN}" if value.strip("=") else HIDDEN
