"""A resolution as people and programs want to see it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wigwag.cli.terminal import styled

if TYPE_CHECKING:
    from wigwag.flags.model import Resolution


def as_json(key: str, found: Resolution) -> dict[str, Any]:
    """Return a resolution as one JSON object."""
    told = {"key": key, "value": found.value, "variant": found.variant, "reason": found.reason}
    if found.error:
        told |= {"error": found.error, "message": found.message}
    return told | {"metadata": found.metadata}


def in_words(found: Resolution) -> str:
    """Return a resolution as one line."""
    if found.variant is None:
        return f"no value: the caller's default applies   {styled(found.reason, 'dim')}"
    value = json.dumps(found.value, ensure_ascii=False)
    return f"{styled(value, 'bold')}   {styled(f'variant {found.variant}, {found.reason}', 'dim')}"
