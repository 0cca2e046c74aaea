"""Immutable lists and maps.

The value of a flag is shared by all threads. Code that appended to the list would change the flag for everyone, without
validators, generation or notifiers. So the value of a flag is a list, or a map, that raises on any change; a copy of it
(`list(x)`, `dict(x)`, `copy.copy`) is an ordinary one.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
K = TypeVar("K")


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    kind = "list" if isinstance(self, list) else "map"
    raise TypeError(f"this {kind} is the value of a flag, which everybody reads: copy it before you change it")


class FrozenList(list[T]):
    """A list that cannot be changed.

    >>> FrozenList([1]) == [1], FrozenList([1]) + [2]
    (True, [1, 2])
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:  # for pickle, and for copies
        return list, (list(self),)


class FrozenDict(dict[K, T]):
    """A map that cannot be changed.

    >>> FrozenDict(a=1) == {"a": 1}, FrozenDict(a=1) | {"b": 2}
    (True, {'a': 1, 'b': 2})
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


_CHANGES = {
    FrozenList: "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse sort",
    FrozenDict: "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update",
}
for _class, _names in _CHANGES.items():
    for _name in _names.split():
        setattr(_class, _name, _refuse)


def freeze(value: Any, *, tuples: bool = True) -> Any:
    """Return immutable copies of lists and maps, at all levels; without `tuples`, tuples become lists.

    >>> freeze({"a": [1]})["a"].append(2)
    Traceback (most recent call last):
    TypeError: this list is the value of a flag, which everybody reads: copy it before you change it
    """
    if isinstance(value, dict):
        return FrozenDict((key, freeze(item, tuples=tuples)) for key, item in value.items())
    if tuples and isinstance(value, tuple):
        return tuple(map(freeze, value)) if type(value) is tuple else value  # a named tuple is a class of the user
    if isinstance(value, list | tuple):
        return FrozenList(freeze(item, tuples=tuples) for item in value)
    return value
