"""`fractional`: which share of a population a value falls into.

    bucket = murmur3_32(seed) * total weight >> 32;  the first share with bucket < cumulative weight wins

Two ways to make the seed, which put users in different buckets:

    v2   the UTF-8 text of the bucketing value; shorthand: flag key and targeting key, joined (flagd daemon, JavaScript)
    v3   the deterministic CBOR of any bucketing value; shorthand: of [flag key, targeting key] (Python in-process core)

Whatever is wrong with the operands gives null, so that the default variant applies.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from mmh3 import hash as murmur3

from wigwag.flags.rules.cbor import encode, encode_text
from wigwag.flags.rules.cost import hash_cost
from wigwag.flags.rules.scope import FLAGD, affordable, charge
from wigwag.flags.rules.site import listing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.flags.model import Fractional, Json
    from wigwag.flags.rules.scope import Fn, Run, Scope, ScopeView
    from wigwag.flags.rules.site import Expr, RuleSite

    Hash = Callable[[Json, Run | None], int | None]

MAX_WEIGHT = 2_147_483_647
_MIN_WEIGHT = -(1 << 63)
TARGETING_KEY = "targetingKey"
_SHORT = 256
"""Characters that are hashed for free."""
_FEW_SHARES = 500
"""Steps to add up shares that need no accounting in an evaluation without a budget."""


class Shares(NamedTuple):
    """Variants and the cumulative weights at which each ends."""

    variants: tuple[Json, ...]
    bounds: tuple[int, ...]

    def picker(self) -> Callable[[int], Json]:
        """Return a function from a 32-bit hash to the variant."""
        variants, bounds, total = self.variants, self.bounds, self.bounds[-1]
        return lambda hashed: variants[bisect_right(bounds, hashed * total >> 32)]

    def operands(self) -> list[Json]:
        """Return the shares as they stand in a rule."""
        starts = (0, *self.bounds)
        return [[v, end - start] for v, start, end in zip(self.variants, starts, self.bounds, strict=False)]


class Bucket(NamedTuple):
    """How a `fractional` came to its answer, for people."""

    hash: int | None
    position: int | None
    bounds: tuple[int, ...]
    variant: Json


def split(site: RuleSite, argument: Json) -> Fn:
    """`fractional`: fixed shares are added up while compiling, the rest at every evaluation."""
    version, scope = site.compilation.fractional, site.scope
    site.compilation.metered += 1
    items = site.items(argument) if argument.__class__ is list else ()
    explicit = bool(items) and argument[0].__class__ is not list
    if site.scope.is_root:
        fixed = all(item.constant for item in items[explicit:])
        shares = to_shares([item.value for item in items[explicit:]]) if fixed else None
        if shares is not None:
            return _explicit(site, items[0].fn, shares) if explicit else _shorthand(site, shares)
        if explicit:
            return _computed(site, items[0].fn, items[1:])
    values = listing(items) if items else site.expr(argument).fn

    return lambda data, run: examine(scope, values(data, run), data, run, version).variant


def examine(scope: Scope, values: Json, data: Json, run: Run | None, version: Fractional) -> Bucket:
    """Decide from evaluated operands, as seen from a scope; an element that is not an object has no buckets."""
    inner, item = scope.innermost(data)
    if not inner.is_root and item.__class__ is not dict:
        return Bucket(None, None, (), None)
    by_text = values.__class__ is list and values and values[0].__class__ is str
    names = None if by_text else shorthand(inner, item, run)
    charge(run, _cost(values, names, affordable(run)))
    return bucket(values, names, version)


def _cost(values: Json, shorthand: tuple[str, str] | None, most: int) -> int:
    """Hashing the bucketing value, whichever it is, and adding up the shares."""
    first = values[0] if values.__class__ is list and values else values
    shares = _shares_cost(len(values)) if values.__class__ is list else 0
    total = shares + hash_cost(first, most)
    return total + sum([hash_cost(name, most) for name in shorthand]) if shorthand else total


def _shares_cost(operands: int) -> int:
    return 4 + 2 * operands


def bucket(values: Json, shorthand: tuple[str, str] | None, version: Fractional) -> Bucket:
    """Decide from evaluated operands; `shorthand` is (flag key, targeting key), if there are any."""
    if values.__class__ is not list or not values:
        return Bucket(None, None, (), None)
    hashed, rest = seed(values, shorthand, version)
    shares = to_shares(rest)
    if hashed is None or shares is None:
        return Bucket(hashed, None, shares.bounds if shares else (), None)
    position = hashed * shares.bounds[-1] >> 32
    return Bucket(hashed, position, shares.bounds, shares.variants[bisect_right(shares.bounds, position)])


def seed(values: list[Json], shorthand: tuple[str, str] | None, version: Fractional) -> tuple[int | None, list[Json]]:
    """Return the hash of the bucketing value, and the operands that are shares."""
    first = values[0]
    if version == "v3":
        if first.__class__ is list:
            return (hash_v3(list(shorthand)) if shorthand else None), values
        return hash_v3(first), values[1:]
    if first.__class__ is str:
        return hash_v2(first), values[1:]
    rest = values[1:] if first is None else values
    return (hash_v2("".join(shorthand)) if shorthand else None), rest


def hash_v2(value: Json) -> int | None:
    """Hash a text; nothing else is a bucketing value."""
    return _text_hash_v2(value) if value.__class__ is str else None


def hash_v3(value: Json) -> int | None:
    """Hash any value but null."""
    return murmur3(encode(value), signed=False) if value is not None else None


def _text_hash_v2(text: str) -> int:
    """Hash a text. Only ASCII goes to the C function as it is: a lone surrogate would crash the process there."""
    return murmur3(text if text.isascii() else _utf8(text), 0, False)


def _text_hash_v3(text: str) -> int:
    return murmur3(encode_text(text), signed=False)


def shorthand(scope: ScopeView, data: Json, run: Run | None) -> tuple[str, str] | None:
    """Return (flag key, targeting key) as seen from here, or None without a targeting key."""
    key = scope.read(data, run, TARGETING_KEY, None)
    if key.__class__ is not str or not key:
        return None
    flag_key = scope.read(data, run, f"{FLAGD}.flagKey", "")
    return (flag_key if flag_key.__class__ is str else ""), key


def to_shares(operands: Sequence[Json]) -> Shares | None:
    """Read `[variant, weight?]` pairs; None if any of them, or their sum, cannot be."""
    variants, weights = [], []
    for operand in operands:
        weight = _weight(operand)
        if weight is None:
            return None
        variants.append(operand[0])
        weights.append(weight)
    bounds = tuple(accumulate(weights))
    return Shares(tuple(variants), bounds) if bounds and 0 < bounds[-1] <= MAX_WEIGHT else None


def _weight(operand: Json) -> int | None:
    if operand.__class__ is not list or not operand or operand[0].__class__ in (list, dict):
        return None
    weight = whole_weight(operand)
    return None if weight is None or not _MIN_WEIGHT <= weight <= MAX_WEIGHT else max(0, weight)


def whole_weight(share: list[Json]) -> int | None:
    """Return the weight of a share if it is a whole number; left out or null, it is 1."""
    weight = share[1] if len(share) > 1 else None
    if weight is None:
        return 1
    if weight.__class__ is float and weight.is_integer():
        return int(weight)
    return weight if weight.__class__ is int else None


def _shorthand(site: RuleSite, shares: Shares) -> Fn:
    by_key, pick = _by_targeting_key(site), shares.picker()

    def fn(data: Json, run: Run | None) -> Json:
        hashed = by_key(data, run)
        return None if hashed is None else pick(hashed)

    return fn


def _explicit(site: RuleSite, by: Fn, shares: Shares) -> Fn:
    scope, version, pick = site.scope, site.compilation.fractional, shares.picker()
    variants, bounds, total = shares.variants, shares.bounds, shares.bounds[-1]
    hashed: Callable[[Json], int | None] = hash_v3 if version == "v3" else hash_v2
    text_hash: Callable[[str], int] = _text_hash_v3 if version == "v3" else _text_hash_v2
    # Only v2 falls back from a null bucketing value to the shorthand.
    fallback: Hash = _by_targeting_key(site) if version == "v2" else (lambda data, run: None)

    def fn(data: Json, run: Run | None) -> Json:
        value = by(data, run)
        if value.__class__ is str and len(value) <= _SHORT:
            return variants[bisect_right(bounds, text_hash(value) * total >> 32)]  # as `pick` does, without a call
        if value.__class__ is list:  # a computed share, not a bucketing value
            return examine(scope, [value, *shares.operands()], data, run, version).variant
        charge(run, hash_cost(value, affordable(run)))
        number = fallback(data, run) if value is None else hashed(value)
        return None if number is None else pick(number)

    return fn


def _computed(site: RuleSite, by: Fn, shares: Sequence[Expr]) -> Fn:
    """Shares that are added up at every evaluation, with a text as the bucketing value."""
    scope, version, operands = site.scope, site.compilation.fractional, listing(shares)
    text_hash: Callable[[str], int] = _text_hash_v3 if version == "v3" else _text_hash_v2
    cost = _shares_cost(1 + len(shares))
    few = cost <= _FEW_SHARES

    def fn(data: Json, run: Run | None) -> Json:
        value = by(data, run)
        evaluated = operands(data, run)
        if value.__class__ is not str or len(value) > _SHORT:
            return examine(scope, [value, *evaluated], data, run, version).variant
        if run is not None or not few:
            charge(run, cost + hash_cost(value, 0))
        return _choose(evaluated, text_hash(value))

    return fn


def _choose(operands: list[Json], hashed: int) -> Json:
    """Return the variant of `[variant, weight?]` pairs that a hash falls into, or None if any of them cannot be."""
    total, bounds = 0, []
    for operand in operands:
        if operand.__class__ is list and len(operand) == 2 and operand[0].__class__ is str:  # as most are
            weight = operand[1]
            if weight.__class__ is not int or not 0 <= weight <= MAX_WEIGHT:
                weight = _weight(operand)
        else:
            weight = _weight(operand)
        if weight is None:
            return None
        total += weight
        bounds.append(total)
    return operands[bisect_right(bounds, hashed * total >> 32)][0] if 0 < total <= MAX_WEIGHT else None


def _by_targeting_key(site: RuleSite) -> Hash:
    flag_key, v3 = site.compilation.flag_key, site.compilation.fractional == "v3"
    prefix = encode([flag_key, ""])[:-1] if v3 else _utf8(flag_key)
    encoded: Callable[[str], bytes] = encode_text if v3 else _utf8

    def hashed(data: Json, run: Run | None) -> int | None:
        key = data.get(TARGETING_KEY)
        if key.__class__ is not str or not key:
            return None
        if len(key) > _SHORT:
            charge(run, hash_cost(key, affordable(run)))
        return murmur3(prefix + encoded(key), signed=False)

    return hashed


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
