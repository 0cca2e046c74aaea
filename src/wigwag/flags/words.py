"""A targeting rule in words, for people who do not read JsonLogic.

    {"if": [{"ends_with": [{"var": "email"}, "@example.com"]}, "on", {"fractional": [["on", 10], ["off", 90]]}]}

    if email ends with "@example.com"
      on
    otherwise
      10 % on, 90 % off, by targetingKey

Each phrase has the path of the piece of the rule that it stands for, the same as in an explanation, so what was
evaluated can be marked in it. A piece that has no words of its own is shown as JSON: words never say something else
than the rule does. The size is bounded, whatever the rule is.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from wigwag.flags.diff.shares import percent
from wigwag.flags.model import child
from wigwag.flags.rules.operators.fractional import TARGETING_KEY, to_shares
from wigwag.flags.rules.refs import REF, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from wigwag.flags.model import Json

PhraseKind: TypeAlias = Literal["if", "otherwise", "all", "any", "condition", "answer", "split", "share"]
MOST_PHRASES = 2_000
_IN_ONE_LINE = 100
NO_BRANCH = "#otherwise"
"""After the path of an `if` without an else: stands for the branch that is not written."""
_DEEPEST = 40
_LONGEST = 200
_MOST_SHARES = 200
_DEFAULT = "the default variant"
_BETWEEN = {
    "==": "equals",
    "===": "is exactly",
    "!=": "is not",
    "!==": "is not exactly",
    "<": "<",
    "<=": "≤",
    ">": ">",
    ">=": "≥",
    "starts_with": "starts with",
    "ends_with": "ends with",
    "contains_all": "contains all of",
    "contains_any": "contains any of",
    "contains_none": "contains none of",
    "+": "+",
    "-": "-",
    "*": "times",
    "/": "divided by",
    "%": "modulo",
}
_VERSION = {
    "=": "is version",
    "!=": "is not version",
    "<": "is a version before",
    "<=": "is at most version",
    ">": "is a version after",
    ">=": "is at least version",
    "^": "has the same major version as",
    "~": "has the same minor version as",
}
_LISTED = {"all": "every element of", "some": "some element of", "none": "no element of"}


class Phrase(Struct, eq=False):
    """A piece of a rule in words, with the phrases under it."""

    kind: PhraseKind
    text: str
    path: str
    children: list[Phrase] = []
    share: float = 0.0
    """Of a share: between 0 and 1."""

    def lines(self, indent: str = "") -> Iterator[str]:
        """Return the phrase as text, line by line."""
        yield indent + self.text
        for phrase in self.children:
            if phrase.kind != "share":
                yield from phrase.lines(indent + "  ")


def describe_rule(rule: Json, path: str, evaluators: Mapping[str, Json]) -> list[Phrase]:
    r"""Return what a rule does, in the order in which it is tried.

    >>> rule = {"if": [{"in": [{"var": "tier"}, ["gold", "platinum"]]}, "on", None]}
    >>> print("\n".join(line for phrase in describe_rule(rule, "$", {}) for line in phrase.lines()))
    if tier is one of "gold", "platinum"
      on
    otherwise
      the default variant
    """
    return _Describing(evaluators).outcome(rule, path, _DEEPEST)


def summarize_rule(rule: Json, evaluators: Mapping[str, Json]) -> str:
    """Return a rule in one line.

    >>> summarize_rule({"if": [{"var": "beta"}, "on", {"fractional": [["on", 1], ["off", 3]]}]}, {})
    'if beta → on; otherwise 25 % on, 75 % off, by targetingKey'
    """
    parts = (_one_line(phrase) for phrase in _Describing(evaluators, _IN_ONE_LINE).outcome(rule, "$", _DEEPEST))
    return _short("; ".join(parts), 4 * _LONGEST)


def _one_line(phrase: Phrase) -> str:
    below = [_one_line(each) for each in phrase.children if each.kind not in ("share", "condition", "all", "any")]
    arrow = " " if phrase.kind == "otherwise" else " → "
    return phrase.text + (arrow + "; ".join(below) if below else "")


class _Describing:
    """One rule; counts its phrases."""

    def __init__(self, evaluators: Mapping[str, Json], most: int = MOST_PHRASES) -> None:
        self._evaluators = evaluators
        self._left = most
        self._open: list[str] = []
        """The shared rules that are being described."""

    def outcome(self, node: Json, path: str, depth: int, names: tuple[str, ...] = ()) -> list[Phrase]:
        """Return what a piece gives, as alternatives."""
        operator, argument = _operation(node)
        if (name := reference(node)) in self._evaluators and name not in names and depth:
            return self.outcome(self._evaluators[str(name)], f"$.$evaluators.{name}", depth - 1, (*names, str(name)))
        if not depth or self._left <= 0:
            return self._phrases("answer", _json(node), path)
        if operator in ("if", "?:") and isinstance(argument, list) and len(argument) > 1:
            return list(self._branches(argument, child(path, operator), depth - 1, names))
        if operator == "fractional" and (split := self._split(argument, path)) is not None:
            return [split]
        if operator is None and not isinstance(node, dict | list):
            return self._phrases("answer", _answer(node), path)
        return self._phrases("answer", f"the variant named by {self._text(node, depth)}", path)

    def _branches(self, operands: list[Json], path: str, depth: int, names: tuple[str, ...]) -> Iterator[Phrase]:
        for index in range(0, len(operands) - 1, 2):
            if self._left <= 0:
                yield self._phrase("otherwise", f"… and {(len(operands) - index) // 2} more conditions", path)
                return
            condition, place = operands[index], child(path, index)
            phrase = self._phrase("if", f"if {self._text(condition, depth)}", place)
            phrase.children = [
                *self._conditions(condition, place, depth),
                *self.outcome(operands[index + 1], child(path, index + 1), depth, names),
            ]
            yield phrase
        otherwise = self._phrase("otherwise", "otherwise", path)
        if len(operands) % 2:
            otherwise.path = child(path, len(operands) - 1)
            otherwise.children = self.outcome(operands[-1], otherwise.path, depth, names)
        else:
            otherwise.path = path.rpartition(".")[0] + NO_BRANCH
            otherwise.children = self._phrases("answer", _DEFAULT, otherwise.path)
        yield otherwise

    def _conditions(self, node: Json, path: str, depth: int) -> list[Phrase]:
        """Return the parts of a condition that has several, so that each can be marked."""
        operator, argument = _operation(node)
        if operator not in ("and", "or") or not isinstance(argument, list) or not depth or self._left <= 0:
            return []
        phrases = []
        for index, part in enumerate(argument[: max(1, self._left)]):
            place = child(child(path, operator), index)
            phrase = self._phrase("condition", self._text(part, depth), place)
            phrase.children = self._conditions(part, place, depth - 1)
            phrases.append(phrase)
        group = self._phrase("all" if operator == "and" else "any", "all of" if operator == "and" else "any of", path)
        group.children = phrases
        return [group]

    def _split(self, argument: Json, path: str) -> Phrase | None:
        """Return fixed shares, or None if they are computed."""
        if not isinstance(argument, list) or not argument:
            return None
        explicit = not isinstance(argument[0], list)
        shares = to_shares(argument[explicit:])
        if shares is None or len(shares.variants) > _MOST_SHARES:
            return None
        by = self._text(argument[0], _DEEPEST) if explicit else TARGETING_KEY
        place, starts, total = child(path, "fractional"), (0, *shares.bounds), shares.bounds[-1]
        parts = []
        for index, (variant, start, end) in enumerate(zip(shares.variants, starts, shares.bounds, strict=False)):
            share = Fraction(end - start, total)
            text = f"{percent(share) if share else '0 %'} {_answer(variant)}"
            part = self._phrase("share", text, child(place, index + explicit))
            part.share = float(share)
            parts.append(part)
        split = self._phrase("split", _short(", ".join(part.text for part in parts)) + f", by {by}", path)
        split.children = parts
        return split

    def _text(self, node: Json, depth: int) -> str:
        """Return an expression in words, in one line."""
        self._left -= 1
        operator, argument = _operation(node)
        if not depth or self._left <= 0:
            return _json(node)
        if (name := reference(node)) is not None:
            return self._shared(name, depth)
        if operator is None:
            return _json(node)
        operands = argument if isinstance(argument, list) else [argument]
        words = _WORDS.get(operator)
        said = words(lambda each: self._text(each, depth - 1), operands) if words else None
        return _short(_json(node) if said is None else said)

    def _shared(self, name: str, depth: int) -> str:
        """Return the name of a shared rule, and what it says unless it is being said already."""
        if name not in self._evaluators or name in self._open:
            return name
        self._open.append(name)
        said = self._text(self._evaluators[name], depth - 1)
        self._open.pop()
        return f"{name} ({said})"

    def _phrase(self, kind: PhraseKind, text: str, path: str) -> Phrase:
        self._left -= 1
        return Phrase(kind, _short(text), path, [])

    def _phrases(self, kind: PhraseKind, text: str, path: str) -> list[Phrase]:
        return [self._phrase(kind, text, path)]


Say: TypeAlias = "Callable[[Json], str]"


def _between(word: str) -> Callable[[Say, list[Json]], str | None]:
    def words(say: Say, operands: list[Json]) -> str | None:
        if len(operands) == 3 and word in ("<", "≤"):
            return f"{say(operands[0])} {word} {say(operands[1])} {word} {say(operands[2])}"
        if len(operands) < 2 or (len(operands) > 2 and word not in ("+", "times")):
            return None
        return f" {word} ".join(_grouped(say, each) for each in operands)

    return words


def _membership(say: Say, operands: list[Json]) -> str | None:
    if len(operands) != 2:
        return None
    item, group = operands
    if isinstance(group, list):
        return f"{say(item)} is one of {', '.join(map(say, group))}"
    return f"{_grouped(say, group)} contains {say(item)}"


def _variable(say: Say, operands: list[Json]) -> str | None:
    if not operands or not isinstance(operands[0], str | int):
        return None
    name = str(operands[0]) or "the whole context"
    return name + (f" (or {say(operands[1])} if missing)" if len(operands) > 1 else "")


def _version(say: Say, operands: list[Json]) -> str | None:
    if len(operands) != 3 or not isinstance(operands[1], str) or operands[1] not in _VERSION:
        return None
    wanted = operands[2] if isinstance(operands[2], str) else say(operands[2])
    return f"{say(operands[0])} {_VERSION[operands[1]]} {wanted}"


def _joined(word: str) -> Callable[[Say, list[Json]], str | None]:
    return lambda say, operands: f" {word} ".join(_grouped(say, each) for each in operands) if operands else None


def _negated(say: Say, operands: list[Json]) -> str | None:
    return f"not ({say(operands[0])})" if len(operands) == 1 else None


def _elements(which: str) -> Callable[[Say, list[Json]], str | None]:
    def words(say: Say, operands: list[Json]) -> str | None:
        return f"{which} {say(operands[0])} has: {say(operands[1])}" if len(operands) == 2 else None

    return words


_WORDS: dict[str, Callable[[Say, list[Json]], str | None]] = {
    **{name: _between(word) for name, word in _BETWEEN.items()},
    **{name: _elements(which) for name, which in _LISTED.items()},
    "in": _membership,
    "var": _variable,
    "sem_ver": _version,
    "and": _joined("and"),
    "or": _joined("or"),
    "!": _negated,
    "!!": lambda say, operands: f"{say(operands[0])} is set" if len(operands) == 1 else None,
    "cat": lambda say, operands: " & ".join(map(say, operands)) if operands else None,
    "missing": lambda say, operands: f"missing of {', '.join(map(say, operands))}",
    "min": lambda say, operands: f"the smallest of {', '.join(map(say, operands))}",
    "max": lambda say, operands: f"the largest of {', '.join(map(say, operands))}",
    "abs": lambda say, operands: f"|{say(operands[0])}|" if len(operands) == 1 else None,
}


def _grouped(say: Say, node: Json) -> str:
    """Return an operand, in parentheses where the order would not be clear without."""
    operator = _operation(node)[0]
    return f"({say(node)})" if operator is not None and operator not in ("var", "cat", REF, "!", "abs") else say(node)


def _operation(node: Json) -> tuple[str | None, Json]:
    """Return the operator and its argument; no operator for plain data."""
    if isinstance(node, dict) and len(node) == 1:
        return next(iter(node.items()))
    return None, None


def _answer(value: Json) -> str:
    """Return the variant that a constant names."""
    if value is None:
        return _DEFAULT
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else _json(value)


def _json(value: Json) -> str:
    return _short(json.dumps(value, ensure_ascii=False, default=str))


def _short(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
