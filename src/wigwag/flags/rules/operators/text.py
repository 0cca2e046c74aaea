"""`cat substr starts_with ends_with`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.errors import RuleError
from wigwag.flags.rules.coerce import SPACE, to_index, to_number, to_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.flags.model import Json


def concatenate(limit: int) -> Callable[[Json], str]:
    """Make `cat`: all operands as one text. Two or more are trimmed at both ends, as flagd does."""

    def operator(values: Json) -> str:
        if values.__class__ is str:
            return values
        if values.__class__ is not list:
            raise RuleError("`cat` needs an array of operands, or one text")
        parts = [to_text(value) for value in values]
        if sum(map(len, parts)) > limit:
            raise RuleError(f"`cat` builds more than {limit} characters (raise Limits.string_length)")
        joined = "".join(parts)
        return joined.strip(SPACE) if len(parts) > 1 else joined

    return operator


def substring(values: Json) -> str:
    """`substr`: `[text, start, length?]`; negative numbers count from the end; a start outside gives the whole text."""
    if values.__class__ is not list or len(values) < 2:
        raise RuleError("`substr` needs a text and a start")
    text = to_text(values[0])
    size = len(text)
    start = to_index(to_number(values[1]))
    start = size + start if start < 0 else start
    if not 0 <= start <= size:
        return text
    length = to_index(to_number(values[2])) if len(values) == 3 else size
    end = min(size + length if length < 0 else start + length, size)
    if end < start:
        raise RuleError("`substr` ends before it starts")
    return text[start:end]


def starts_with(values: Json) -> bool | None:
    """`starts_with`: `[value, text]`; anything but two texts is null, so that the default variant applies."""
    return values[0].startswith(values[1]) if _two_texts(values) else None


def ends_with(values: Json) -> bool | None:
    """`ends_with`: `[value, text]`; anything but two texts is null, so that the default variant applies."""
    return values[0].endswith(values[1]) if _two_texts(values) else None


def _two_texts(values: Json) -> bool:
    return values.__class__ is list and len(values) == 2 and values[0].__class__ is str and values[1].__class__ is str
