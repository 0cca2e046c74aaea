"""Values that JSON has no form of its own for and holds as a string: choices of texts, UUIDs, dates and times.

In a file of its own such a value is written as it is; whoever writes it in quotes, as in JSON, is understood, too.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from msgspec import inspect

from wigwag.dflag.values.kinds import ValueKind, wrong
from wigwag.dflag.values.numerals import shown

_WORDS: dict[Any, tuple[str, str]] = {
    inspect.UUIDType: ("uuid", "a UUID"),
    inspect.DateTimeType: ("datetime", "a time such as 2026-01-31T12:30:00Z"),
    inspect.DateType: ("date", "a date such as 2026-01-31"),
    inspect.TimeType: ("time", "a time of the day such as 12:30:00"),
}


def worded_kind(type: Any) -> ValueKind[Any] | None:
    """Return the kind of such a type; None: it is another.

    >>> from typing import Literal
    >>> from uuid import UUID
    >>> worded_kind(Literal["red", "blue"]).parse("red"), worded_kind(UUID).parse("0" * 32)
    ('red', UUID('00000000-0000-0000-0000-000000000000'))
    >>> worded_kind(Literal["red", "blue"]).parse("green")
    Traceback (most recent call last):
    ValueError: 'green' is not one of red, blue
    """
    try:
        info = inspect.type_info(type)
    except TypeError:
        return None
    if isinstance(info, inspect.LiteralType):
        name = f"one of {', '.join(map(str, get_args(type)))}"  # in the order in which they stand there
        return _kind(type, name, name, choice=True) if all(isinstance(each, str) for each in info.values) else None
    words = _WORDS.get(info.__class__)
    return None if words is None else _kind(type, *words, choice=False)


def _kind(type: Any, name: str, wanted: str, *, choice: bool) -> ValueKind[Any]:
    def parse(text: str) -> Any:
        try:
            return msgspec.convert(text, type)
        except msgspec.ValidationError:
            pass
        try:
            return msgspec.json.decode(text, type=type)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            raise ValueError(f"{shown(text)} is not {wanted}") from None

    def take(value: Any) -> Any:
        if isinstance(value, str) and not choice:
            raise wrong(value, name)
        try:
            return msgspec.convert(value, type)
        except msgspec.ValidationError:
            pass
        if choice and isinstance(value, str):
            raise ValueError(f"{shown(value)} is not {wanted}")
        raise wrong(value, name)

    return ValueKind(name, parse, lambda value: str(msgspec.to_builtins(value)), take)
