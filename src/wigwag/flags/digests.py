"""The digest of a set of flags, put together from the digests of the flags, so that one change costs one change.

    digest of each flag ─▶ buckets by its first bits, sorted ─▶ digest of each bucket ─▶ digest of all buckets

It depends on nothing but the flags: which bucket a flag is in follows from its content, and buckets are sorted. So two
agents with the same flags come to the same digest, whatever happened to them before.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from wigwag.flags.flag import Flag

_SIZE, _MASK = 16, 0x3FF


class Digests:
    """The digests of flags, each of which is there once: a key, and the flag set, are part of it."""

    __slots__ = ("_buckets", "_sums")

    def __init__(self, buckets: dict[int, tuple[bytes, ...]], sums: dict[int, bytes]) -> None:
        self._buckets, self._sums = buckets, sums

    @classmethod
    def of(cls, flags: Iterable[Flag]) -> Digests:
        """Collect the digests of flags."""
        buckets: dict[int, list[bytes]] = {}
        for flag in flags:
            digest = flag.digest
            buckets.setdefault(_bucket(digest), []).append(digest)
        found = {number: tuple(sorted(digests)) for number, digests in buckets.items()}
        return cls(found, {number: _sum(digests) for number, digests in found.items()})

    def after(self, changes: Collection[tuple[Flag | None, Flag | None]]) -> Digests:
        """Return the digests after changes, each a pair of before and after."""
        touched: dict[int, set[bytes]] = {}
        for before, _ in changes:
            if before is not None:
                self._touch(touched, before.digest).discard(before.digest)
        for _, now in changes:
            if now is not None:
                self._touch(touched, now.digest).add(now.digest)
        buckets, sums = self._buckets.copy(), self._sums.copy()
        for number, digests in touched.items():
            if digests:
                buckets[number] = tuple(sorted(digests))
                sums[number] = _sum(buckets[number])
            else:
                buckets.pop(number, None)
                sums.pop(number, None)
        return Digests(buckets, sums)

    def _touch(self, touched: dict[int, set[bytes]], digest: bytes) -> set[bytes]:
        number = _bucket(digest)
        if number not in touched:
            touched[number] = set(self._buckets.get(number, ()))
        return touched[number]

    def all(self, head: bytes) -> str:
        """Return the digest of all flags, and of what else they are told with."""
        sums = self._sums
        digest = blake2b(head, digest_size=_SIZE)
        digest.update(b"".join([sums[number] for number in sorted(sums)]))
        return digest.hexdigest()


def _bucket(digest: bytes) -> int:
    return (digest[0] << 8 | digest[1]) & _MASK


def _sum(digests: tuple[bytes, ...]) -> bytes:
    return blake2b(b"".join(digests), digest_size=_SIZE).digest()
