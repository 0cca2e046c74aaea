"""What a change of a FeatureFlag means for those who use it, as warnings that `kubectl apply` prints.

Said is what changes answers: flags that are removed, enabled or disabled, defaults, variants, the share of users that
new weights move. A change that cannot be judged from the document alone, such as another rule, is named as such.
Nothing here refuses a change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import WigwagError
from wigwag.flags.diff.compare import compare
from wigwag.flags.diff.shares import fractionals, moved_shares
from wigwag.flags.model import canonical, child, few
from wigwag.flags.rules import refs
from wigwag.library import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.diff.comparison import MemberChange
    from wigwag.flags.flag import Flag
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Json, Limits
    from wigwag.flags.rules.operators.fractional import Shares

ROOT = "spec.flagSpec.flags"


def impact(before: bytes, after: bytes, limits: Limits, root: str = ROOT) -> list[str]:
    """Return what changes between two flag documents, at `root`; nothing, if there was none before.

    >>> from wigwag.flags.model import Limits

    >>> flag = '{"flags": {"ui": {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "%s"}}}'
    >>> impact((flag % "off").encode(), (flag % "on").encode(), Limits())
    ['spec.flagSpec.flags.ui: defaultVariant off → on']
    """
    if not before or before == after:
        return []
    try:
        return list(_lines(load(before, limits=limits), load(after, limits=limits), root))
    except WigwagError:  # what cannot be read has no impact to speak of, and is refused or reported elsewhere
        return []


def _lines(old: FlagSet, new: FlagSet, root: str) -> Iterator[str]:
    comparison = compare(old, new, sources=False)
    if comparison.removed:
        names = few([name.key for name in comparison.removed])
        yield f"{root}: removed: {names}; clients get the defaults in their code"
    for change in comparison.changed:
        key = change.name.key
        moves = list(_moves(old, new, key))
        members = [_member(each) for each in change.members if each.name != "metadata"]
        said = [each for each in members if not (moves and each == "targeting changed")] + moves
        if said:
            yield f"{child(root, key)}: {'; '.join(said)}"


def _member(change: MemberChange) -> str:
    if change.name == "variants" and change.removed:
        return f"{change} (clients that compare with {few(change.removed)} will not see it again)"
    return str(change)


def _moves(old: FlagSet, new: FlagSet, key: str) -> Iterator[str]:
    """Return whom the weights of a flag move: those of each `fractional` that was at the same place before."""
    before = _weights(old.flag(key))
    for place, (value, shares) in _weights(new.flag(key)).items():
        if place in before and canonical(before[place][0]) == canonical(value):
            moved = moved_shares(before[place][1], shares)
            if moved:
                yield f"{place.removeprefix('$.')}: {few([str(each) for each in moved])}"


def _weights(flag: Flag | None) -> dict[str, tuple[Json, Shares]]:
    """Return the fixed weights of a flag and of the shared rules that it reaches, by place, with what is hashed."""
    if flag is None or not flag.targeted:
        return {}
    try:
        rules = {"targeting": flag.rule, "$evaluators": refs.reachable(flag.rule, flag.setting.evaluators)}
    except WigwagError:  # a rule that cannot be decoded
        return {}
    return {place: (value, shares) for place, value, shares in fractionals(rules)}
