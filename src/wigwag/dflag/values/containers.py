"""Lists, sets and maps as text: `a,b,c` and `k=v,k=v`, on one line or on several; or as JSON.

Unlike the original, blanks around an item are not part of it, an item without text is none, and a line ends an item as
a comma does. `keep_empty` takes a text as the original does: apart at its commas, and nothing else. With `quoted`, an
item may stand in double quotes and hold a comma or the end of a line, as in CSV.

The hard case is a text that begins with a bracket: it may be JSON, or an address such as `[::1]:80`. It is JSON if it
can be read as that. If not, and its first item has a bracket that is still open, it was meant to be JSON and is
refused: nobody means a list whose first item is `["a"`. What is written can always be read: where commas would not do,
it is written as JSON. What a flag hands out cannot be changed (see `frozen`).
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
    read, join, apart = _reader(item, keep_empty, quoted), _joiner(keep_empty, quoted), keep_empty and not quoted

    def take(value: Any) -> list[T]:
        if not isinstance(value, list | tuple):
            raise wrong(value, f"a list of {item.name}")
        return FrozenList(_single((item.take(each) for each in value), item, apart))

    return ValueKind(
        f"list of {item.name}",
        lambda text: FrozenList(read(text)),
        lambda value: join([*map(item.format, value)]),
        take,
        compose=lambda parts: FrozenList(_single(items(_texts(parts), item), item, apart)),
    )


def set_kind(item: ValueKind[T], *, keep_empty: bool = False, quoted: bool = False) -> ValueKind[frozenset[T]]:
    """Return the kind of sets of another kind; written in order, so that equal sets are equal texts.

    >>> from wigwag.dflag.values.kinds import STR
    >>> set_kind(STR).format(set_kind(STR).parse("b,a,b"))
    'a,b'
    """
    read, join, apart = _reader(item, keep_empty, quoted), _joiner(keep_empty, quoted), keep_empty and not quoted

    def take(value: Any) -> frozenset[T]:
        if not isinstance(value, AbstractSet | list | tuple):
            raise wrong(value, f"a set of {item.name}")
        return frozenset(_single((item.take(each) for each in value), item, apart))

    return ValueKind(
        f"set of {item.name}",
        lambda text: frozenset(read(text)),
        lambda value: join(sorted(map(item.format, value))),
        take,
        compose=lambda parts: frozenset(_single(items(_texts(parts), item), item, apart)),
    )


def mapping_kind(item: ValueKind[T], *, quoted: bool = False) -> ValueKind[Mapping[str, T]]:
    """Return the kind of maps from text to another kind; a JSON object is understood, too.

    >>> from wigwag.dflag.values.kinds import INT
    >>> mapping_kind(INT).parse("a=1, b=2"), mapping_kind(INT).parse("a=1\\nb=2"), mapping_kind(INT).parse('{"a": 1}')
    ({'a': 1, 'b': 2}, {'a': 1, 'b': 2}, {'a': 1})
    """
    split = splitter(False, quoted)

    def parse(text: str) -> Mapping[str, T]:
        if text.lstrip().startswith("{"):
            return FrozenDict((key, _value(key, each, item)) for key, each in _object(text).items())
        return FrozenDict((key, _named(key, each, item)) for key, each in map(_pair, split(text)))

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
        return FrozenDict((key, _named(key, text, item)) for key, text in named)

    return ValueKind(f"map to {item.name}", parse, write, take, compose=compose)


def _reader(item: ValueKind[T], keep_empty: bool, quoted: bool) -> Callable[[str], list[T]]:
    """Return what reads the items of a list or set."""
    split = splitter(keep_empty, quoted)

    def read(text: str) -> list[T]:
        array = None if keep_empty else _array(text)
        if array is None:
            return items(split(text), item)
        return [_value(f"item {number}", each, item) for number, each in enumerate(array, 1)]

    return read


def _joiner(keep_empty: bool, quoted: bool) -> Callable[[list[str]], str]:
    """Return what writes the items of a list or set; the opposite of `_reader`."""
    split = splitter(keep_empty, quoted)

    def join(parts: list[str]) -> str:
        text = _commas(parts, quoted)
        return text if keep_empty or _reads(lambda: _array(text) is None and split(text), parts) else _json(parts)

    return join


def splitter(keep_empty: bool, quoted: bool) -> Callable[[str], list[str]]:
    """Return what takes a text apart at its commas and ends of lines."""

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
    """Read a JSON array; None: it is none, and is not meant to be one."""
    if not text.lstrip().startswith("["):
        return None
    import msgspec

    try:
        return msgspec.json.decode(text, type=list[Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        first = re.split("[,\n]", text, maxsplit=1)[0]
        if first.count("[") > first.count("]"):
            raise ValueError(
                f"it begins as a JSON array does, and is none ({error}): write a,b,c, or mend it"
            ) from None
        return None


def _single(values: Iterable[T], item: ValueKind[T], apart: bool) -> Iterator[T]:
    """Yield the items; `apart`, refuse one that has a comma in it, where there is no way to write that."""
    for value in values:
        if apart and "," in item.format(value):
            raise ValueError("an item with a comma in it would be read as two: define the flag with quoted=True")
        yield value


def _texts(parts: Any) -> list[str]:
    if not isinstance(parts, list):
        raise wrong(parts, "a list")
    if not all(isinstance(part, str) for part in parts):
        raise TypeError("each item must be a single value, and no list or map")
    return parts


def items(parts: Iterable[str], item: ValueKind[T]) -> list[T]:
    """Read each item, and tell which of them is wrong."""
    return [_named(f"item {number}", part, item) for number, part in enumerate(parts, 1)]


def _named(name: str, text: str, item: ValueKind[T]) -> T:
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
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(f"not a JSON object: {error}") from None


def _value(key: str, value: Any, item: ValueKind[T]) -> T:
    """Take a JSON value as it is; a text, as the one that stands for a value."""
    if isinstance(value, str):
        return _named(key, value, item)
    try:
        return item.take(value)
    except TypeError:
        raise ValueError(f"{key}: expected {item.name}") from None
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None


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
