"""Lists, sets and maps as text: `a,b,c` and `k=v,k=v`, on one line or on several; or as JSON.

Unlike the original, blanks around an item are not part of it, empty items are dropped, and a newline separates items as
a comma does. `keep_empty` splits a text as the original does: at its commas only. With `quoted`, an item may be in
double quotes and contain a comma or a newline, as in CSV.

The hard case is a text that begins with a bracket: it may be JSON, or an address such as `[::1]:80`. If it is valid
JSON, it is JSON. If not, and the first item has an unclosed bracket, it was meant as JSON and is rejected: nobody means
a list whose first item is `["a"`. A formatted value can always be parsed: where commas would not do, it is formatted as
JSON. The values are immutable (see `frozen`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from io import StringIO
from typing import Any, TypeVar

from wigwag.dflag.values.frozen import FrozenDict, FrozenList
from wigwag.dflag.values.kinds import ValueKind, wrong
from wigwag.dflag.values.numerals import shown

T = TypeVar("T")
C = TypeVar("C")


def list_kind(item: ValueKind[T], *, keep_empty: bool = False, quoted: bool = False) -> ValueKind[list[T]]:
    """Return the kind of lists of another kind.

    >>> from wigwag.dflag.values.kinds import INT, STR
    >>> list_kind(INT).parse("1, 2,"), list_kind(STR).parse("a\\nb"), list_kind(STR).parse('["a", "b"]')
    ([1, 2], ['a', 'b'], ['a', 'b'])
    >>> list_kind(STR).parse(""), list_kind(STR, keep_empty=True).parse("")
    ([], [''])
    >>> list_kind(STR, quoted=True).parse('a,"b,c"')
    ['a', 'b,c']
    """
    return _collection("list", FrozenList, (list, tuple), list, item, keep_empty, quoted)


def set_kind(item: ValueKind[T], *, keep_empty: bool = False, quoted: bool = False) -> ValueKind[frozenset[T]]:
    """Return the kind of sets of another kind; formatted in order, so that equal sets have equal texts.

    >>> from wigwag.dflag.values.kinds import STR
    >>> set_kind(STR).format(set_kind(STR).parse("b,a,b"))
    'a,b'
    """
    return _collection("set", frozenset, (AbstractSet, list, tuple), sorted, item, keep_empty, quoted)


def _collection(
    name: str,
    build: Callable[[Iterable[T]], C],
    accepts: tuple[type[Any], ...],
    ordered: Callable[[Iterable[str]], list[str]],
    item: ValueKind[T],
    keep_empty: bool,
    quoted: bool,
) -> ValueKind[C]:
    split, no_commas = _splitter(keep_empty, quoted), keep_empty and not quoted

    def parse(text: str) -> C:
        array = None if keep_empty else _array(text)
        return build(_items(split(text) if array is None else array, item))

    def write(value: Any) -> str:
        parts = ordered(map(item.format, value))
        text = _commas(parts, quoted)
        return text if keep_empty or _reads(lambda: _array(text) is None and split(text), parts) else _json(parts)

    def take(value: Any) -> C:
        if not isinstance(value, accepts):
            raise wrong(value, f"a {name} of {item.name}")
        return build(_single((item.take(each) for each in value), item, no_commas))

    def compose(parts: Any) -> C:
        return build(_single(_items(_texts(parts), item), item, no_commas))

    return ValueKind(f"{name} of {item.name}", parse, write, take, compose=compose)


def mapping_kind(item: ValueKind[T], *, quoted: bool = False) -> ValueKind[Mapping[str, T]]:
    """Return the kind of maps from text to another kind; a JSON object is accepted, too.

    >>> from wigwag.dflag.values.kinds import INT
    >>> mapping_kind(INT).parse("a=1, b=2"), mapping_kind(INT).parse("a=1\\nb=2"), mapping_kind(INT).parse('{"a": 1}')
    ({'a': 1, 'b': 2}, {'a': 1, 'b': 2}, {'a': 1})
    """
    split = _splitter(False, quoted)

    def parse(text: str) -> Mapping[str, T]:
        pairs = _object(text).items() if text.lstrip().startswith("{") else map(_pair, split(text))
        return FrozenDict((key, _item(key, each, item)) for key, each in pairs)

    def take(value: Any) -> Mapping[str, T]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise wrong(value, f"a map from text to {item.name}")
        return FrozenDict((key, item.take(each)) for key, each in value.items())

    def write(value: Mapping[str, T]) -> str:
        pairs = {key: item.format(each) for key, each in sorted(value.items())}
        text = _commas((f"{key}={each}" for key, each in pairs.items()), quoted)
        return text if _reads(lambda: dict(map(_pair, split(text))), pairs) and text[:1] != "{" else _json(pairs)

    def compose(parts: Any) -> Mapping[str, T]:
        if not isinstance(parts, dict):
            raise wrong(parts, f"a map to {item.name}")
        named = zip(parts, _texts([*parts.values()]), strict=True)
        return FrozenDict((key, _item(key, text, item)) for key, text in named)

    return ValueKind(f"map to {item.name}", parse, write, take, compose=compose)


def _splitter(keep_empty: bool, quoted: bool) -> Callable[[str], list[str]]:
    """Return a function that splits a text into items."""

    def split(text: str) -> list[str]:
        parts = _fields(text) if quoted else text.split(",") if keep_empty else re.split("[,\n]", text)
        return parts if keep_empty else [part for part in map(str.strip, parts) if part]

    return split


def _fields(text: str) -> list[str]:
    rows = csv.reader(StringIO(text, newline=""), skipinitialspace=True, strict=True)
    try:
        return [part for row in rows for part in row]
    except csv.Error as error:
        raise ValueError(f"{shown(text)}: {error}") from None


def _array(text: str) -> list[Any] | None:
    """Parse a JSON array; None if the text is not meant as one."""
    if not text.lstrip().startswith("["):
        return None
    import msgspec

    try:
        return msgspec.json.decode(text, type=list[Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        first = re.split("[,\n]", text, maxsplit=1)[0]
        if first.count("[") > first.count("]"):
            raise ValueError(
                f"it begins like a JSON array but is not valid ({error}): write a,b,c, or correct it"
            ) from None
        return None


def _single(values: Iterable[T], item: ValueKind[T], no_commas: bool) -> Iterator[T]:
    """Yield the items; with `no_commas`, raise if one contains a comma, which could not be formatted."""
    for value in values:
        if no_commas and "," in item.format(value):
            raise ValueError("an item with a comma in it would be read as two: define the flag with quoted=True")
        yield value


def _texts(parts: Any) -> list[str]:
    if not isinstance(parts, list):
        raise wrong(parts, "a list")
    if not all(isinstance(part, str) for part in parts):
        raise TypeError("each item must be a single value, and no list or map")
    return parts


def _items(parts: Iterable[Any], item: ValueKind[T]) -> list[T]:
    return [_item(f"item {number}", part, item) for number, part in enumerate(parts, 1)]


def _item(name: str, part: Any, item: ValueKind[T]) -> T:
    """Return the value of an item: of a text, or of JSON with its own type; an error says which item is wrong."""
    try:
        return item.parse(part) if isinstance(part, str) else item.take(part)
    except TypeError:
        raise ValueError(f"{name}: expected {item.name}") from None
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
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(f"not a JSON object: {error}") from None


def _reads(read: Callable[[], Any], wanted: Any) -> bool:
    try:
        return bool(read() == wanted)
    except ValueError:
        return False


def _json(parts: list[str] | dict[str, str]) -> str:
    import json

    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def _commas(parts: Iterable[str], quoted: bool) -> str:
    return ",".join(map(_quoted, parts) if quoted else parts)


def _quoted(part: str) -> str:
    return '"' + part.replace('"', '""') + '"' if set(part) & set(',"\r\n') or part[:1] == "[" else part
