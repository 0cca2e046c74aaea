"""What a change of a FeatureFlag means for those who use it, as warnings that `kubectl apply` prints.

Said is what changes answers: flags that are removed, enabled or disabled, defaults, variants, the share of users that
new weights move. A change that cannot be judged from the document alone, such as another rule, is named as such.
Nothing here refuses a change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import WigwagError
from wigwag.flags.diff.compare import compare
from wigwag.flags.diff.shares import flag_moves
from wigwag.flags.model import child, few
from wigwag.library import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.diff.comparison import MemberChange
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Limits

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
    """Return whom the weights of a flag move."""
    for place, moved in flag_moves(old.flag(key), new.flag(key)).items():
        yield f"{place.removeprefix('$.')}: {few([str(each) for each in moved])}"
