"""What of an object is kept, for kinds that are watched by many: types for `decode`.

A `Raw` part is the very text that the server sent. It is copied, as it would otherwise keep the whole page alive.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import force_setattr


class Metadata(Struct, frozen=True, rename="camel"):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class FlagSpec(Struct, frozen=True, rename="camel"):
    """What a FeatureFlag is about."""

    flag_spec: Raw = Raw(b"")
    """Empty if there is none."""

    def __post_init__(self) -> None:
        force_setattr(self, "flag_spec", self.flag_spec.copy())


class FeatureFlag(Struct, frozen=True):
    """A set of flags.

    >>> text = b'{"metadata": {"name": "a"}, "spec": {"flagSpec": {"flags": {}}}}'
    >>> feature_flag(Raw(text)).document
    b'{"flags": {}}'
    """

    metadata: Metadata
    spec: FlagSpec | None = None

    @property
    def document(self) -> bytes:
        """The flag document, as the server sent it; empty if there is none."""
        return b"" if self.spec is None else bytes(self.spec.flag_spec)


feature_flag = msgspec.json.Decoder(FeatureFlag).decode
"""Decodes a FeatureFlag."""
