"""How much of a population moves when the weights of a `fractional` change: computed from the weights, not sampled.

    before   on ████████████████░░░░░░░░░░░░░░░░ off        50 : 50
    after    on ████████████████████████░░░░░░░░ off        75 : 25   ─▶ 25 % move from off to on

A bucket is a number between 0 and 1 that does not depend on the weights, so both sides can be laid over each other. Who
moves is the part where they differ. The hard case is a variant that is inserted in the middle: all that come after it
move, though their weights are the same; that is what the sum shows.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from wigwag.errors import WigwagError
from wigwag.flags.model import canonical, child
from wigwag.flags.rules.operators.fractional import to_shares
from wigwag.flags.rules.refs import reachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.flag import Flag
    from wigwag.flags.model import Json
    from wigwag.flags.rules.operators.fractional import Shares


class MovedShare(NamedTuple):
    """A part of the population that gets another variant."""

    before: str
    after: str
    share: Fraction
    """Of all, between 0 and 1."""

    def __str__(self) -> str:
        return f"{percent(self.share)} move from {self.before} to {self.after}"


def percent(share: Fraction) -> str:
    """Return a share for people.

    >>> percent(Fraction(1, 3)), percent(Fraction(1, 4)), percent(Fraction(1, 10_000))
    ('33.3 %', '25 %', 'less than 0.1 %')
    """
    rounded = round(float(share) * 100, 1)
    return f"{rounded:g} %" if rounded else "less than 0.1 %"


def moved_shares(before: Shares, after: Shares) -> list[MovedShare]:
    """Return who moves, the largest share first.

    >>> half, most = to_shares([["on", 50], ["off", 50]]), to_shares([["on", 75], ["off", 25]])
    >>> [str(each) for each in moved_shares(half, most)]
    ['25 % move from off to on']
    """
    moves: dict[tuple[str, str], Fraction] = {}
    start = Fraction(0)
    for end in sorted({*_bounds(before), *_bounds(after)}):
        variants = _variant_at(before, start), _variant_at(after, start)
        if variants[0] != variants[1]:
            moves[variants] = moves.get(variants, Fraction(0)) + end - start
        start = end
    ordered = sorted(moves.items(), key=lambda move: (-move[1], move[0]))
    return [MovedShare(*variants, share) for variants, share in ordered]


def _bounds(shares: Shares) -> list[Fraction]:
    return [Fraction(bound, shares.bounds[-1]) for bound in shares.bounds if bound]


def _variant_at(shares: Shares, position: Fraction) -> str:
    """Return the variant of the bucket that begins at a position."""
    index = next(number for number, bound in enumerate(shares.bounds) if Fraction(bound, shares.bounds[-1]) > position)
    return str(shares.variants[index])


def fractionals(rule: Json, path: str = "$") -> Iterator[tuple[str, Json, Shares]]:
    """Yield each `fractional` of a rule that has fixed weights: where it is, its bucketing value, and its shares."""
    if isinstance(rule, list):
        for number, each in enumerate(rule):
            yield from fractionals(each, child(path, number))
    elif isinstance(rule, dict):
        for name, argument in rule.items():
            place = child(path, name)
            if name == "fractional" and isinstance(argument, list) and argument:
                explicit = not isinstance(argument[0], list)
                shares = to_shares(argument[explicit:])
                if shares is not None:
                    yield place, argument[0] if explicit else None, shares
            yield from fractionals(argument, place)


def flag_moves(before: Flag | None, after: Flag | None) -> dict[str, list[MovedShare]]:
    """Return whom other weights of a flag move, by place: of each `fractional` that hashed the same value before."""
    earlier, moves = _weights(before), {}
    for place, (value, shares) in _weights(after).items():
        if place in earlier and canonical(earlier[place][0]) == canonical(value):
            moved = moved_shares(earlier[place][1], shares)
            if moved:
                moves[place] = moved
    return moves


def _weights(flag: Flag | None) -> dict[str, tuple[Json, Shares]]:
    """Return the fixed weights of a flag and of the shared rules that it reaches, by place, with what is hashed."""
    if flag is None or not flag.targeted:
        return {}
    try:
        rules = {"targeting": flag.rule, "$evaluators": reachable(flag.rule, flag.setting.evaluators)}
    except WigwagError:  # a rule that cannot be decoded
        return {}
    return {place: (value, shares) for place, value, shares in fractionals(rules)}
