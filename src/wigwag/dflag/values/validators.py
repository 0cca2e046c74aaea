"""Validators: which values a flag accepts.

Any function of the value is a validator: it rejects a value by raising `ValueError` or by returning something false;
one that returns None accepts. The rules made here also describe what they accept, for the help text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Sized
from typing import Any, Generic, Protocol, TypeVar

from wigwag.errors import UsageError

T_contra = TypeVar("T_contra", contravariant=True)
T = TypeVar("T")


class Ordered(Protocol):
    """A value that can be compared with others of its type."""

    def __lt__(self, other: Any, /) -> bool: ...


O_contra = TypeVar("O_contra", bound=Ordered, contravariant=True)


class Rule(Generic[T_contra]):
    """A test, and its description.

    >>> rule = Rule("even", lambda number: number % 2 == 0)
    >>> rule(2)
    >>> rule(3)
    Traceback (most recent call last):
    ValueError: must be even, got 3
    """

    __slots__ = ("_test", "wants")

    def __init__(self, wants: str, test: Callable[[T_contra], bool]) -> None:
        self.wants, self._test = wants, test

    def __call__(self, value: T_contra) -> None:
        if not self._test(value):
            shown = repr(value)
            raise ValueError(f"must be {self.wants}, got {shown if len(shown) <= 80 else shown[:80] + '…'}")

    def __repr__(self) -> str:
        return f"<{self.wants}>"


def in_range(low: O_contra | None, high: O_contra | None) -> Rule[O_contra]:
    """Accept what lies between two bounds or is one of them; None leaves that side open.

    >>> in_range(0, 100)(101)
    Traceback (most recent call last):
    ValueError: must be from 0 to 100, got 101
    """
    if low is None or high is None:
        wants = f"at most {high}" if high is not None else "anything" if low is None else f"at least {low}"
    else:
        wants = f"from {low} to {high}"
        if high < low:
            raise ValueError(f"nothing lies from {low} to {high}: the lower bound comes first")

    def test(value: O_contra) -> bool:
        return _ordered(low, value) and _ordered(value, high)

    return Rule(wants, test)


def _ordered(first: Any, second: Any) -> bool:
    """Tell whether one is at most the other; None is no bound, and NaN is never within one."""
    return first is None or second is None or first < second or first == second


def one_of(*choices: T) -> Rule[T]:
    """Accept only these.

    >>> one_of("red", "blue")("green")
    Traceback (most recent call last):
    ValueError: must be one of 'red', 'blue', got 'green'
    """
    return Rule(f"one of {', '.join(map(repr, choices))}", lambda value: value in choices)


def matches(pattern: str | re.Pattern[str]) -> Rule[str]:
    """Accept a text in which a regular expression is found; anchor it (`^…$`) to mean the whole text.

    >>> matches("^[a-z]+$")("A1")
    Traceback (most recent call last):
    ValueError: must be matched by ^[a-z]+$, got 'A1'
    """
    compiled = re.compile(pattern)
    return Rule(f"matched by {compiled.pattern}", lambda value: compiled.search(value) is not None)


def length(least: int = 0, most: int | None = None) -> Rule[Sized]:
    """Accept a text, list, set, map or bytes of so many items.

    >>> length(1)([])
    Traceback (most recent call last):
    ValueError: must be of length 1 or more, got []
    """
    wants = f"{least} or more" if most is None else f"{least} to {most}" if least != most else str(least)
    return Rule(f"of length {wants}", lambda value: least <= len(value) and (most is None or len(value) <= most))


def not_blank(value: str) -> None:
    """Accept a text with something other than white space in it.

    >>> not_blank(" ")
    Traceback (most recent call last):
    ValueError: must not be blank
    """
    if not value.strip():
        raise ValueError("must not be blank")


def url(*schemes: str) -> Rule[str]:
    """Accept an absolute URL, of any scheme or of these.

    >>> url("https")("http://example.org")
    Traceback (most recent call last):
    ValueError: must be an https URL, got 'http://example.org'
    """
    chosen = "|".join(map(re.escape, schemes)) or r"[a-zA-Z][a-zA-Z0-9+.-]*"
    pattern = re.compile(rf"(?:{chosen})://[^\s/?#]\S*", re.IGNORECASE)
    return Rule(f"an {' or '.join(schemes) or 'absolute'} URL", lambda value: pattern.fullmatch(value) is not None)


def each(*validators: Callable[[T], object]) -> Rule[Iterable[T]]:
    """Accept a list or set each of whose items all of these accept.

    >>> each(in_range(0, 9))
    <such that each item is from 0 to 9>
    >>> each(in_range(0, 9))([1, 10])
    Traceback (most recent call last):
    ValueError: item 2: must be from 0 to 9, got 10
    """
    refuse_async(validators)
    wants = " and ".join(wishes(validators))

    def test(values: Iterable[T]) -> bool:
        for number, value in enumerate(values, 1):
            try:
                run(validators, value)
            except ValueError as error:
                raise ValueError(f"item {number}: {error}") from None
        return True

    return Rule(f"such that each item is {wants}" if wants else "", test)


def run(validators: Iterable[Callable[[T], object]], value: T) -> None:
    """Call all of them; raise for the first that rejects the value."""
    for validator in validators:
        answer = validator(value)
        if inspect.iscoroutine(answer):
            answer.close()
            raise ValueError(_awaited(validator))
        if answer is not None and not answer:
            raise ValueError(f"refused by {name_of(validator)}")


def refuse_async(validators: Iterable[Callable[..., object]]) -> None:
    """Raise if one of them is a coroutine function: without an await it would accept every value."""
    for validator in validators:
        if inspect.iscoroutinefunction(validator) or inspect.iscoroutinefunction(type(validator).__call__):
            raise UsageError(_awaited(validator))


def _awaited(validator: Callable[..., object]) -> str:
    return f"a validator is asked and not awaited: {name_of(validator)} is a coroutine function"


def name_of(validator: Callable[..., object]) -> str:
    """Return the name of a validator."""
    return getattr(validator, "wants", None) or getattr(validator, "__name__", None) or type(validator).__name__


def wishes(validators: Collection[Callable[..., object]]) -> list[str]:
    """Return what the rules accept, for a help text."""
    return [rule.wants for rule in validators if isinstance(rule, Rule) and rule.wants]
