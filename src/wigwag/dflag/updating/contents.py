"""The contents of a place: bytes by key, or why a key cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Instead of a key's content: why it cannot be read."""

    reason: str


Contents: TypeAlias = Mapping[str, bytes | Unreadable]
"""The contents of a place by key; of a directory, by path beneath it."""
MOST_KEYS = 100_000
"""How many keys a place may have."""
