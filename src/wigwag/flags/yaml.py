"""Flag documents that are written in YAML; how YAML is read is in `wigwag.yaml`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import DocumentError
from wigwag.flags.rules.coerce import kind_of
from wigwag.yaml import Bounds, load

if TYPE_CHECKING:
    from wigwag.flags.model import Json, Limits


def parse_yaml(text: bytes, limits: Limits) -> dict[str, Json]:
    """Return the one document in the text; an empty one has no flags."""
    value = parse_value(text, limits)
    if not isinstance(value, dict):
        hint = "; this looks like the name of a file, and what is wanted is its text" if _like_a_path(value) else ""
        raise DocumentError(f"$: the document must be a mapping with `flags`, not {kind_of(value)}{hint}")
    return value


def parse_value(text: bytes, limits: Limits) -> Json:
    """Return whatever value the text is."""
    return load(text, Bounds(limits.document_bytes, limits.depth, " (raise Limits.{})"))


def _like_a_path(value: Json) -> bool:
    return isinstance(value, str) and "\n" not in value and value.lower().endswith((".json", ".yaml", ".yml"))
