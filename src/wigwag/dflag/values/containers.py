"""Lists, sets and maps as text: `a,b,c` and `k=v,k=v`.

Unlike the original, blanks around an item are not part of it, and no text is no item: there, an empty text is a list
of one empty item. `keep_empty` brings both back. With `quoted`, an item may stand in double quotes and hold a comma,
as in CSV. What a flag hands out cannot be changed (see `frozen`).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from wigwag.dflag.values.frozen import FrozenDict, FrozenList
from wigwag.dflag.values.kinds import Kind, wrong
from wigwag.dflag.values.numerals import shown

T = TypeVar("T")


def list_kind(item: Kind[T], *, keep_empty: bool = False, quoted: bool = False) -> Kind[list[T]]:
    """Return the kind of lists of another kind.

    >>> from wigwag.dflag.values.kinds import INT, STR
    >>> list_kind(INT).parse("1, 2"), list_kind(STR).parse(""), list_kind(STR, keep_empty=True).parse("")
    ([1, 2], [], [''])
    >>> list_kind(STR, quoted=True).parse('a,"b,c"')
    ['a', 'b,c']
    """
    split = splitter(keep_empty, quoted)

    def parse(text: str) -> list[T]:
        return FrozenList(items(split(text), item))

    def take(value: Any) -> list[T]:
        if not isinstance(value, list | tuple):
            raise wrong(value, f"a list of {item.name}")
        return FrozenList(item.take(each) for each in value)

    def compose(parts: Any) -> list[T]:
        return FrozenList(items(_texts(parts), item))

    def write(value: list[T]) -> str:
        return _joined(map(item.format, value), quoted)

    return Kind(f"list of {item.name}", parse, write, take, compose=compose)


def set_kind(item: Kind[T], *, keep_empty: bool = False, quoted: bool = False) -> Kind[frozenset[T]]:
    """Return the kind of sets of another kind; written in order, so that equal sets are equal texts.

    >>> from wigwag.dflag.values.kinds import STR
    >>> set_kind(STR).format(set_kind(STR).parse("b,a,b"))
    'a,b'
    """
    split = splitter(keep_empty, quoted)

    def parse(text: str) -> frozenset[T]:
        return frozenset(items(split(text), item))

    def take(value: Any) -> frozenset[T]:
        if not isinstance(value, AbstractSet | list | tuple):
            raise wrong(value, f"a set of {item.name}")
        return frozenset(item.take(each) for each in value)

    def compose(parts: Any) -> frozenset[T]:
        return frozenset(items(_texts(parts), item))

    def write(value: frozenset[T]) -> str:
        return _joined(sorted(map(item.format, value)), quoted)

    return Kind(f"set of {item.name}", parse, write, take, compose=compose)


def mapping_kind(item: Kind[T], *, quoted: bool = False) -> Kind[Mapping[str, T]]:
    """Return the kind of maps from text to another kind; a JSON object is understood, too.

    >>> from wigwag.dflag.values.kinds import INT
    >>> mapping_kind(INT).parse("a=1, b=2"), mapping_kind(INT).parse('{"a": 1}')
    ({'a': 1, 'b': 2}, {'a': 1})
    """
    split = splitter(False, quoted)

    def parse(text: str) -> Mapping[str, T]:
        if text.startswith("{"):
            return FrozenDict((key, _value(key, each, item)) for key, each in _object(text).items())
        return FrozenDict((key, _named(key, each, item)) for key, each in map(_pair, split(text)))

    def take(value: Any) -> Mapping[str, T]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise wrong(value, f"a map from text to {item.name}")
        return FrozenDict((key, item.take(each)) for key, each in value.items())

    def write(value: Mapping[str, T]) -> str:
        return _joined((f"{key}={item.format(each)}" for key, each in sorted(value.items())), quoted)

    def compose(parts: Any) -> Mapping[str, T]:
        if not isinstance(parts, dict):
            raise wrong(parts, f"a map to {item.name}")
        named = zip(parts, _texts([*parts.values()]), strict=True)
        return FrozenDict((key, _named(key, text, item)) for key, text in named)

    return Kind(f"map to {item.name}", parse, write, take, compose=compose)


def splitter(keep_empty: bool, quoted: bool) -> Callable[[str], list[str]]:
    """Return what takes a text apart at its commas."""

    def split(text: str) -> list[str]:
        if not keep_empty and not text.strip():
            return []
        parts = next(csv.reader([text], skipinitialspace=True, strict=True), []) if quoted else text.split(",")
        return parts if keep_empty else [part.strip() for part in parts]

    return _telling(split) if quoted else split


def _telling(split: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    def attempt(text: str) -> list[str]:
        try:
            return split(text.replace("\n", " "))
        except csv.Error as error:
            raise ValueError(f"{shown(text)}: {error}") from None

    return attempt


def _texts(parts: Any) -> list[str]:
    if not isinstance(parts, list):
        raise wrong(parts, "a list")
    if not all(isinstance(part, str) for part in parts):
        raise TypeError("each item must be a single value, and no list or map")
    return parts


def items(parts: Iterable[str], item: Kind[T]) -> list[T]:
    """Read each item, and tell which of them is wrong."""
    return [_named(f"item {number}", part, item) for number, part in enumerate(parts, 1)]


def _named(name: str, text: str, item: Kind[T]) -> T:
    try:
        return item.parse(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"{shown(text)} is not of the form key=value")
    return key.strip(), value.strip()


def _object(text: str) -> dict[str, Any]:
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a JSON object: {error}") from None


def _value(key: str, value: Any, item: Kind[T]) -> T:
    """Take a JSON value as it is, or as the text that stands for it."""
    try:
        return item.take(value)
    except TypeError:
        if isinstance(value, str):
            return _named(key, value, item)
        raise ValueError(f"{key}: expected {item.name}") from None


def _joined(parts: Iterable[str], quoted: bool) -> str:
    return ",".join(_quoted(part) if quoted else part for part in parts)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if set(part) & set(',"\n') or part != part.strip() else part
