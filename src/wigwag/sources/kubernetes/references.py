"""What annotations of a pod or workload name: FeatureFlags, as `NAME` or `NAMESPACE/NAME`, separated by commas.

Agents read the annotations of their own pod by this grammar, and the operator those of workloads, so both agree. Of
several names, a malformed one does not hurt the others. Quotes around a name are dropped: the first proposal has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from wigwag.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Names: TypeAlias = tuple[str, ...]
    """Names of FeatureFlags, each with its namespace; later ones win."""

ANNOTATION = "openfeature.dev/featureflag"
ORDER = "openfeature.agent/standing-orders-resource"
ORDERS = ("openfeature.io/standingorder", ORDER)
"""The names of the first proposal, which the operator reads, too."""
ANNOTATIONS = (ANNOTATION, *ORDERS)
"""The first that a pod has counts."""
OPERATORS = "openfeature.dev/featureflagsource"
MOST = 50
"""References; each is a watch."""
_SHOWN = 100


class References(NamedTuple):
    """What annotations name, and what is wrong with them."""

    names: Names
    problem: str = ""

    def after(self, before: Names) -> Names:
        """Return what to follow, after this: if something is malformed, also what was named before."""
        kept = tuple(name for name in before if name not in self.names) if self.problem else ()
        return kept + self.names


def references(
    annotations: Mapping[str, str], namespace: str, among: Sequence[str] = ANNOTATIONS, owner: str = "this pod"
) -> References:
    """Return what annotations name; `UsageError` if that is nothing. `owner` has them, for messages.

    >>> references({"openfeature.dev/featureflag": "base, team-b/shop"}, "team-a").names
    ('team-a/base', 'team-b/shop')
    >>> references({ORDER: 'flags"', ORDER + "-namespace": "ops"}, "team-a").names
    ('ops/flags',)
    >>> references({ORDER: "a/b/c, flags"}, "ops").problem
    "the annotation openfeature.agent/standing-orders-resource of this pod has 'a/b/c'; write NAME or NAMESPACE/NAME"
    """
    for annotation in among:
        if annotation in annotations:
            home = annotations.get(f"{annotation}-namespace", "").strip(' "') or namespace
            return _references(f"the annotation {annotation} of {owner}", annotations[annotation], home)
    hint = f" ({OPERATORS} is for the operator)" if OPERATORS in annotations else ""
    raise UsageError(f"{owner} has no annotation {among[0]}{hint}; write the name of a FeatureFlag into it")


def _references(where: str, value: str, home: str) -> References:
    names = (each.strip(' "') for each in value.split(","))
    whole = dict.fromkeys(name if "/" in name else f"{home}/{name}" for name in names if name)
    bad = [name for name in whole if not _is_name(name)]
    good = tuple(name for name in whole if name not in bad)
    problem = ""
    if bad:
        said = ", ".join(repr(name[:_SHOWN]) for name in bad[:3]) + (", …" if len(bad) > 3 else "")
        problem = f"{where} has {said}; write NAME or NAMESPACE/NAME"
    if len(good) > MOST or not whole:
        raise UsageError(f"{where} names {len(good)} FeatureFlags; name 1 to {MOST}")
    if not good:
        raise UsageError(problem)
    return References(good, problem)


def _is_name(name: str) -> bool:
    from wigwag.sources.kubernetes.address import read_address

    try:
        return not read_address(name).labels and "?" not in name
    except UsageError:
        return False
