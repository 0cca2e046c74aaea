"""The values of the engine: resolutions, findings, limits and JSON paths. All of them are immutable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # a type variable with a default: Python itself has that since 3.13

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""

FlagType: TypeAlias = Literal["boolean", "string", "integer", "float", "object"]
Fractional: TypeAlias = Literal["v2", "v3"]
Numbers: TypeAlias = Literal["truncate", "lossless"]
Severity: TypeAlias = Literal["error", "warning", "info"]

STATIC = "STATIC"
TARGETING_MATCH = "TARGETING_MATCH"
DEFAULT = "DEFAULT"
DISABLED = "DISABLED"
STALE = "STALE"
"""Only from a server, for flags whose source is stale."""
ERROR = "ERROR"

FLAG_NOT_FOUND = "FLAG_NOT_FOUND"
PARSE_ERROR = "PARSE_ERROR"
TYPE_MISMATCH = "TYPE_MISMATCH"
GENERAL = "GENERAL"

canonical = msgspec.json.Encoder(order="deterministic").encode
"""Returns a text that is equal for equal content: the order of members does not count, and true is not 1."""


class Resolution(Struct, Generic[T_co], frozen=True, gc=False):
    """The result of one evaluation; for a type checker `Resolution[bool]`, if a boolean was requested.

    Resolutions and the values in them are shared between calls: read them, do not change them.

    >>> import wigwag
    >>> new_ui = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
    >>> flags = wigwag.load({"flags": {"new-ui": new_ui}})
    >>> flags.resolve("new-ui", "boolean", False)
    Resolution(value=True, variant='on', reason='STATIC', error=None, metadata={}, message='')
    """

    value: T_co
    """The variant's value, or the caller's default where no variant applies."""
    variant: str | None
    reason: str
    """STATIC, TARGETING_MATCH, DEFAULT, DISABLED or ERROR."""
    error: str | None = None
    """None, or the OpenFeature error code as text."""
    metadata: dict[str, Json] = {}
    message: str = ""
    """For an error: what is wrong."""


class Finding(Struct, frozen=True):
    """One thing that is wrong, or looks wrong, with a document: what, where, how bad, and what to do.

    >>> import wigwag
    >>> flag = {"state": "ENABLED", "variants": {"on": 1}, "defaultVariant": "on", "targeting": {"iff": []}}
    >>> finding, = wigwag.lint({"flags": {"a": flag}})
    >>> print(finding)
    $.flags.a.targeting.iff: error: unknown operator `iff` (operator-unknown)
    >>> finding.hint
    'did you mean `if`?'
    """

    code: str
    path: str
    severity: Severity
    message: str
    hint: str = ""
    source: str = ""
    line: int = 0
    """Where it is in the text, counted from 1; 0 if unknown."""
    column: int = 0

    def __str__(self) -> str:
        where = f"{self.place}: {self.path}" if self.place else self.path
        return f"{where}: {self.severity}: {self.message} ({self.code})"

    @property
    def place(self) -> str:
        """The source, and line and column where they are known."""
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source

    def of(self, source: str) -> Finding:
        """Return the finding as one about a source."""
        return self if self.source or not source else replace(self, source=source)

    def to_dict(self) -> dict[str, str | int]:
        """Return the finding as plain JSON; line and column only where they are known."""
        known = self.__struct_fields__ if self.line else self.__struct_fields__[:-2]
        return {name: getattr(self, name) for name in known}


class Limits(Struct, frozen=True, kw_only=True):
    """How much a document or a rule may ask for. Each guards time or memory against hostile input.

    >>> import wigwag
    >>> wigwag.load('{"flags": {}}', limits=wigwag.Limits(document_bytes=5))
    Traceback (most recent call last):
    ...
    wigwag.errors.DocumentError: the document has 13 bytes, more than the limit of 5 (raise Limits.document_bytes)
    """

    document_bytes: int = 64 * 1024 * 1024
    """Size of a document's text, and of a YAML document once its aliases are expanded."""
    depth: int = 200
    """Nesting of objects and arrays, in documents and in rules."""
    rule_nodes: int = 20_000
    """Values in one targeting rule after its `$ref`s are followed."""
    string_length: int = 1024 * 1024
    """Characters in one string of a variant or of metadata, or built by a rule."""
    steps: int = 100_000
    """Work that one evaluation may do. A step is about a quarter of a microsecond: an array element, for each value of
    the rule that looks at it, or 32 to 64 characters of text that are read or built."""


Where: TypeAlias = "str | tuple[Any, str | int]"
"""A JSON path that is rendered only when it is needed: a path, or (path of the parent, step)."""


def render(where: Where) -> str:
    """Return the JSON path of a place.

    >>> render((("$.flags", "x"), 0))
    '$.flags.x[0]'
    """
    steps: list[str | int] = []
    while not isinstance(where, str):
        where, step = where
        steps.append(step)
    for step in reversed(steps):
        where = child(where, step)
    return where


def few(names: Iterable[str], most: int = 8) -> str:
    """Return names for a message, the first few of them.

    >>> few("abc"), few([]), few(map(str, range(20)), 3)
    ('a, b, c', 'none', '0, 1, 2 and 17 more')
    """
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return (", ".join(listed[:most]) or "none") + more


def child(path: str, key: str | int) -> str:
    """Return the JSON path of a member: `$.flags.x`, `$.flags["a b"]`, `$.flags[0]`.

    >>> child("$.flags", "x"), child("$.flags", "a.b"), child("$.flags", 0)
    ('$.flags.x', '$.flags["a.b"]', '$.flags[0]')
    """
    if isinstance(key, int):
        return f"{path}[{key}]"
    if key and all(c.isalnum() or c in "_-$" for c in key):
        return f"{path}.{key}"
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'{path}["{quoted}"]'
