"""Digests of the names and values of flags, to compare processes.

Ours puts the length before each part, so that different flags never become the same bytes; the value of a secret flag
is hashed first. That of the original is FNV-1a of 32 bits over names and values without separators, for comparison with
programs that use the original.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias

from wigwag.golang import fnv1a32

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag

Which: TypeAlias = Literal["all", "dynamic", "static"]
_ESCAPED = {ord(each): f"\\u{ord(each):04x}" for each in "&<>\u2028\u2029"}
"""What Go's JSON escapes, for HTML."""


def checksum(values: Iterable[tuple[AnyFlag, str]], which: Which = "all", *, legacy: bool = False) -> str:
    """Return the digest of flags and the texts of their values, in the order of the names, as hexadecimal digits."""
    chosen = [(flag, text) for flag, text in values if which == "all" or flag.dynamic == (which == "dynamic")]
    if not legacy:
        return digest(part for flag, text in chosen for part in (flag.name.encode(), _hidden(flag, text)))
    escaped = [(flag, text.translate(_ESCAPED) if flag.kind.is_json else text) for flag, text in chosen]
    named = sorted((name, text) for flag, text in escaped for name in flag.names)  # also the aliases
    return f"{fnv1a32(part for pair in named for part in pair):08x}"


def digest(parts: Iterable[bytes]) -> str:
    """Return the digest of parts with their lengths."""
    hashed = sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big") + part)
    return hashed.hexdigest()


def _hidden(flag: AnyFlag, text: str) -> bytes:
    encoded = text.encode(errors="surrogatepass")
    return sha256(encoded).digest() if flag.secret else encoded
