"""Digests of the names and values of flags, to compare processes.

Ours puts the length before each part, so that different flags never become the same bytes; the value of a secret flag
is hashed first. That of the original is FNV-1a of 32 bits over names and values without separators, for comparison with
programs that use the original.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from wigwag.golang import fnv1a32

if TYPE_CHECKING:
    from wigwag.dflag.values.kinds import ValueKind

Which: TypeAlias = Literal["all", "dynamic", "static"]
_ESCAPED: dict[str, str | int | None] = {
    "&": "\\u0026",
    "<": "\\u003c",
    ">": "\\u003e",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
"""What Go's JSON escapes, for HTML."""


class Digestible(Protocol):
    """A flag, or its state at some moment."""

    @property
    def name(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def kind(self) -> ValueKind[Any]: ...
    @property
    def dynamic(self) -> bool: ...
    @property
    def secret(self) -> bool: ...
    @property
    def text(self) -> str: ...


def checksum(flags: Iterable[Digestible], which: Which = "all", *, legacy: bool = False) -> str:
    """Return the digest of flags in the order of their names, as hexadecimal digits."""
    chosen = [flag for flag in flags if which == "all" or flag.dynamic == (which == "dynamic")]
    return _legacy(chosen) if legacy else _ours(chosen)


def _ours(flags: Iterable[Digestible]) -> str:
    digest = sha256()
    for flag in flags:
        text = flag.text.encode(errors="surrogatepass")
        for part in (flag.name.encode(), sha256(text).digest() if flag.secret else text):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _legacy(flags: Iterable[Digestible]) -> str:
    """The original has a flag once for each of its names."""
    named = sorted((name, _go_text(flag)) for flag in flags for name in flag.names)
    return f"{fnv1a32(part for pair in named for part in pair):08x}"


def _go_text(flag: Digestible) -> str:
    return flag.text.translate(str.maketrans(_ESCAPED)) if flag.kind.is_json else flag.text
