"""What changed between two sets of flags, and their digests: both cost what changed, not what there is.

    digest of each flag ─▶ buckets by its first bits, sorted ─▶ digest of each bucket ─▶ digest of all buckets

The digest depends on nothing but the flags: which bucket a flag is in follows from its content, and buckets are sorted.
So two agents with the same flags come to the same digest, whatever happened to them before.

That digest depends on where flags came from, too. `document_digest` is of what a document says and nothing else: who
wrote a document and who got it, by whatever way, come to the same.

An unchanged flag is the same object in all sets that were made one from the other. So `changed` compares references and
opens no flag: it takes a millisecond for 25,000 flags.
"""

from __future__ import annotations

from hashlib import blake2b, sha256
from itertools import compress
from operator import is_not
from typing import TYPE_CHECKING, TypeAlias

from wigwag.flags.model import canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from wigwag.flags.flag import Flag
    from wigwag.flags.model import Json

    Sets: TypeAlias = Mapping[str, dict[str, Flag]]
    """Flags by flag set and key."""
    Pairs: TypeAlias = list[tuple[Flag | None, Flag | None]]
    """Flags before and after; None: not there."""

DIGITS = 16
"""Of the digest of a document, in hexadecimal."""
_SIZE, _MASK = 16, 0x3FF
_NONE: dict[str, Flag] = {}


def document_digest(document: Json) -> str:
    """Return the digest of a whole document: the same wherever it was read, however it was written.

    A FeatureFlag says null where it has no flags, other documents an empty object.

    >>> document_digest({"flags": {}, "metadata": {}}) == document_digest({"metadata": {}, "flags": None})
    True
    """
    if isinstance(document, dict) and document.get("flags") is None:
        document = {**document, "flags": {}}
    return sha256(canonical(document)).hexdigest()[:DIGITS]


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
        ordered = {number: tuple(sorted(digests)) for number, digests in buckets.items()}
        return cls(ordered, {number: _sum(digests) for number, digests in ordered.items()})

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
        """Return the digest of all flags, and of `head`."""
        sums = self._sums
        digest = blake2b(head, digest_size=_SIZE)
        digest.update(b"".join([sums[number] for number in sorted(sums)]))
        return digest.hexdigest()


def changed(old: Sets, new: Sets) -> Pairs:
    """Return the flags that are not the same object in both."""
    pairs: Pairs = []
    for set_id, flags in new.items():
        pairs += _differing(old.get(set_id, _NONE), flags)
    for set_id, flags in old.items():
        if set_id not in new:
            pairs += [(flag, None) for flag in flags.values()]
    return pairs


def _differing(old: dict[str, Flag], new: dict[str, Flag]) -> Iterator[tuple[Flag | None, Flag | None]]:
    if old is new:
        return
    get, kept = old.get, len(new)
    if list(old) == list(new):  # as nearly always: then no key is looked up
        keys = list(compress(new, map(is_not, old.values(), new.values())))
    else:
        keys = [key for key, flag in new.items() if get(key) is not flag]
    for key in keys:
        before = get(key)
        kept -= before is None
        yield before, new[key]
    if kept < len(old):
        yield from ((old[key], None) for key in old.keys() - new.keys())


def _bucket(digest: bytes) -> int:
    return (digest[0] << 8 | digest[1]) & _MASK


def _sum(digests: tuple[bytes, ...]) -> bytes:
    return blake2b(b"".join(digests), digest_size=_SIZE).digest()
