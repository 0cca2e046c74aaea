"""How much of a proxy one namespace may hold: half of its streams and half of its targets, so that others have room.

Limits of the proxy are for everybody together. Where callers are known by their namespace, none of them can use up all.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from wigwag.wire.rpc import Code, RpcError

if TYPE_CHECKING:
    from wigwag.sources.source import Source

FULL = "this namespace has half of the {} that the proxy allows to all; close some, or try again later"


class NamespaceShares:
    """What each namespace holds.

    >>> shares = NamespaceShares(streams=2, targets=2)
    >>> shares.streams, shares.targets
    (1, 1)
    """

    def __init__(self, streams: int, targets: int) -> None:
        """Of so many in all."""
        self.streams, self.targets = max(1, streams // 2), max(1, targets // 2)
        self._held: dict[str, Counter[Source]] = {}

    def check(self, namespace: str, source: Source) -> None:
        """Raise `RpcError` if a namespace cannot have another stream of a source."""
        held = self._held.get(namespace, Counter())
        if held.total() >= self.streams:
            raise RpcError(Code.RESOURCE_EXHAUSTED, FULL.format("streams"))
        if source not in held and len(held) >= self.targets:
            raise RpcError(Code.RESOURCE_EXHAUSTED, FULL.format("targets"))

    def add(self, namespace: str, source: Source) -> None:
        """Count a stream."""
        self._held.setdefault(namespace, Counter())[source] += 1

    def remove(self, namespace: str, source: Source) -> None:
        """Count one less."""
        held = self._held[namespace]
        held[source] -= 1
        if not held[source]:
            del held[source]
        if not held:
            del self._held[namespace]
