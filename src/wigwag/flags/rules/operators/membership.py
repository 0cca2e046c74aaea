"""`in merge contains_all contains_any contains_none`: the operators on whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import RuleError
from wigwag.flags.rules.coerce import describe, kind_of, same, to_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.flags.model import Json


_CONTAINERS: frozenset[type] = frozenset((list, dict))


def contained(values: Json) -> bool:
    """`in`: `[needle, haystack]`: part of a text, element of an array, or within a nested `[from, to]`."""
    if values.__class__ is not list or not values:
        raise RuleError("`in` needs a value and where to look for it")
    needle, haystack = values[0], values[1] if len(values) > 1 else None
    if haystack.__class__ is str:
        if needle.__class__ is not str:
            raise RuleError(f"{describe(needle)} cannot be part of a text; give the attribute a default")
        return needle in haystack
    if haystack.__class__ is not list:
        return False
    if needle.__class__ is str and list not in map(type, haystack):
        return needle in haystack  # a text equals nothing but the same text, in Python, too
    return any(_matches(needle, element) for element in haystack)


def _matches(needle: Json, element: Json) -> bool:
    if element.__class__ is list:
        if len(element) < 2:
            raise RuleError("a range inside `in` needs a start and an end")
        return bool(to_number(element[0]) <= to_number(needle) <= to_number(element[1]))
    if needle.__class__ in (int, float):
        return to_number(element) == needle
    return same(needle, element)


def merge(values: Json) -> list[Json]:
    """`merge`: one flat array of all operands, arrays opened once."""
    if values.__class__ in (bool, int, float, str):
        return [values]
    if values.__class__ is not list:
        raise RuleError(f"{describe(values)} cannot be merged")
    merged: list[Json] = []
    for value in values:
        merged += value if value.__class__ is list else [value]
    return merged


def comparison(decide: Callable[[Iterable[bool]], bool], *, otherwise: bool) -> Callable[[Json], bool]:
    """Make an operator that asks of each wanted element whether the array has it."""

    def operator(values: Json) -> bool:
        if values.__class__ is not list or len(values) != 2 or any(value.__class__ is not list for value in values):
            return otherwise
        array, wanted = values
        scalars = {(kind_of(item), item) for item in array if item.__class__ not in _CONTAINERS}
        kinds = {} if _CONTAINERS.isdisjoint(map(type, wanted)) else {kind_of(item): item for item in array}
        return decide(
            (kind_of(want), want) in scalars if want.__class__ not in _CONTAINERS else _among(want, kinds)
            for want in wanted
        )

    return operator


def _among(want: Json, kinds: dict[str, Json]) -> bool:
    """A container cannot be compared with another of its kind, whichever that is, and is unlike everything else."""
    return kind_of(want) in kinds and same(want, kinds[kind_of(want)])


contains_all = comparison(all, otherwise=False)
contains_any = comparison(any, otherwise=False)
contains_none = comparison(lambda present: not any(present), otherwise=True)
