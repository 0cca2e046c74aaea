"""`+ - * / % abs max min`. Whole numbers stay exact in 64 bits; beyond, and for fractions, doubles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wigwag.errors import RuleError
from wigwag.flags.rules.coerce import settle, to_double, to_number

if TYPE_CHECKING:
    from wigwag.flags.model import Json

    Number = int | float


def add(values: Json) -> Number:
    """`+`: the sum; of a single operand, that operand as a number."""
    if values.__class__ is not list:
        return to_number(values)
    total: Number = 0
    for value in values:
        total = _plus(total, to_number(value))
    return total


def subtract(values: Json) -> Number:
    """`-`: the first less all others; of a single operand, its negative."""
    numbers = _numbers(values)
    if len(numbers) == 1:
        return settle(-numbers[0])
    total: Number = numbers[0] if numbers else 0
    for number in numbers[1:]:
        total = _plus(total, -number)
    return total


def multiply(values: Json) -> Number:
    """`*`: the product."""
    total: Number = 1
    for number in _numbers(values):
        if total.__class__ is int and number.__class__ is int:
            total = settle(total * number)
        else:
            total = to_double(total) * to_double(number)
    return total


def divide(values: Json) -> Number:
    """`/`: the first divided by all others; by zero it is infinite or no number, as in IEEE 754."""
    numbers = _numbers(values)
    total: Number = numbers[0] if numbers else 0
    for number in numbers[1:]:
        total = _quotient(to_double(total), to_double(number))
    return total


def modulo(values: Json) -> Number:
    """`%`: the remainder, with the sign of the dividend."""
    if values.__class__ is not list or len(values) < 2:
        raise RuleError("`%` needs two operands")
    a, b = to_number(values[0]), to_number(values[1])
    if a.__class__ is int and b.__class__ is int and b:
        return abs(a) % abs(b) if a >= 0 else -(abs(a) % abs(b))
    a, b = to_double(a), to_double(b)
    return math.fmod(a, b) if b and math.isfinite(a) else math.nan


def absolute(values: Json) -> Number:
    """`abs`: the size of the first operand."""
    if values.__class__ is list:
        if not values:
            raise RuleError("`abs` needs an operand")
        values = values[0]
    return abs(to_number(values))


def largest(values: Json) -> Number | None:
    """`max`: the largest operand, null of none."""
    return max(_numbers(values), default=None)


def smallest(values: Json) -> Number | None:
    """`min`: the smallest operand, null of none."""
    return min(_numbers(values), default=None)


def _numbers(values: Json) -> list[Number]:
    if values.__class__ is not list:
        raise RuleError("this operator needs an array of operands")
    return [to_number(value) for value in values]


def _plus(a: Number, b: Number) -> Number:
    if a.__class__ is int and b.__class__ is int:
        return settle(a + b)
    return to_double(a) + to_double(b)


def _quotient(a: float, b: float) -> Number:
    if b:
        return a / b
    if math.isnan(a) or not a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)
