"""What makes a flag impossible to load: no key, a value beyond the limits, an unknown default variant.

This runs for every flag that is loaded, so the common case is quick: most variants are scalars, which have no depth.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from wigwag.flags.document import reason
from wigwag.flags.model import few
from wigwag.suggest import suggest

if TYPE_CHECKING:
    from wigwag.flags.document import Definition
    from wigwag.flags.model import Json, Limits


class Fault(NamedTuple):
    """Why a flag cannot be loaded, or must not replace the one in force."""

    code: str
    path: str
    """Within the flag, or from the root."""
    message: str
    hint: str = ""


KEYLESS = Fault("flag-key-missing", ".key", "a flag needs a key that is not empty")
_WRONG_TYPE = re.compile(r"expected `(\w+)(?: \| null)?`, got `(\w+)`")
_NAMES = {"str": "text", "bool": "a boolean", "int": "a number", "float": "a number", "object": "an object"}
_NAMES |= {"array": "an array"}
FLAT = frozenset((bool, int, float, str, type(None)))
"""What has no depth."""


def impossible(definition: Definition, limits: Limits) -> Fault | None:
    """Return what makes a flag impossible to load, if anything does."""
    variants, default = definition.variants or {}, definition.defaultVariant
    for member, value in ("variants", definition.variants), ("metadata", definition.metadata):
        message = beyond(value, limits)
        if message is not None:
            return Fault("limit", f".{member}", message)
    if default and default not in variants:
        known = few(variants)
        message = f"the default variant {default!r} is not one of the variants: {known}"
        return Fault("default-variant-unknown", ".defaultVariant", message, suggest(default, variants))
    return None


def beyond(value: Json, limits: Limits) -> str | None:
    """Return what is too much about a value: its nesting, or the length of a string in it."""
    level = [value]
    for _ in range(limits.depth + 1):
        if any(item.__class__ is str and len(item) > limits.string_length for item in level):
            return _too_long(limits)
        level = [inner for item in level for inner in _members(item)]
        if not level:
            return None
    return f"nested more than {limits.depth} deep (raise Limits.depth)"


def _too_long(limits: Limits) -> str:
    return f"a string has more than {limits.string_length} characters (raise Limits.string_length)"


def _members(value: Json) -> list[Json]:
    if value.__class__ is dict:
        return list(value.values())
    return value if value.__class__ is list else []


def misshapen(path: str, error: Exception) -> Fault:
    """Return why a flag cannot be decoded, in words: which member has the wrong type."""
    _, _, where = str(error).partition(" - at `$")
    message = reason(error)
    message = message.partition(" at ")[0] if where else message
    wrong = _WRONG_TYPE.fullmatch(message)
    hint = ""
    if wrong:
        wanted, given = wrong.groups()
        message = f"must be {_NAMES.get(wanted, wanted)}, not {_NAMES.get(given, given)}"
        hint = "put it in quotes" if wanted == "str" and given in ("bool", "int", "float") else ""
    return Fault("flag-shape", path + where.rstrip("`").replace("[...]", ""), message, hint)
