"""Rules and contexts made to take long: the worst of each operator, and the worst that a random search has found.

Each is a targeting rule with a context that fits into the largest request body of the agent by default. Before work was
accounted for, the worst of them took minutes or gigabytes. `CASES` is read by tests, which count steps, and can be
timed: none may take longer than the evaluation time that docs/guides/operations.md states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MOST_BYTES = 1_000_000
"""The agent's default for `--max-request-body`."""


class Case(NamedTuple):
    """A rule, the context that makes it slow, and how bucketing values are hashed."""

    name: str
    rule: Any
    context: dict[str, Any]
    fractional: str = "v2"


def _var(name: str) -> dict[str, str]:
    return {"var": name}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _each(body: Any, over: str = "xs") -> dict[str, Any]:
    return {"none": [_var(over), body]}


_INTS = list(range(14_000))
_NUMBER, _HEXADECIMAL = "1_" * 240_000 + "1", "0x" + "1_" * 240_000 + "1p1"
_VERSIONS = ["1.0.0-" + ".".join(["a"] * 100) + str(n) for n in range(3_000)]
_SEARCHED = "a" * 50 + "b" + "a" * 49
_DOUBLED = {"cat": [_var("accumulator"), _var("accumulator")]}
_USERS: list[Any] = [{"k": "x", "targetingKey": "u"}] * 3_400
_MEMBERS = {str(n): n for n in range(60_000)}

CASES = (
    # texts read as numbers, searched, cut and joined
    Case("no number", {">=": [_var("t"), 18]}, {"t": "1" * 900_000 + "x"}),
    Case("long number", {">=": [_var("t"), 18]}, {"t": _NUMBER}),
    Case("between", {"<=": [1, _var("t"), 5]}, {"t": _HEXADECIMAL}),
    Case("white space", {"==": [_var("t"), 1]}, {"t": " " * 900_000}),
    Case("number in a loop", _each({"==": [_var("t"), 1]}), {"xs": _INTS[:1000], "t": _NUMBER}),
    Case("many numbers", {"or": [{">": [_var("t"), n]} for n in range(4_000)]}, {"t": "1" * 900_000 + "x"}),
    Case("sum of texts", {"+": _var("xs")}, {"xs": ["0x_1_1_1_1_1_1_1_1_1_1_1p-1"] * 19_000}),
    Case("text in text", {"in": [_SEARCHED, _var("t")]}, {"t": "a" * 900_000}),
    Case("text in text, in a loop", _each({"in": [_SEARCHED, _var("t")]}), {"xs": _INTS, "t": "a" * 900_000}),
    Case(
        "many texts in text",
        {"or": [{"in": [f"{_SEARCHED}{n}", _var("t")]} for n in range(4_000)]},
        {"t": "a" * 900_000},
    ),
    Case("trimming", _each({"cat": [_var("t"), _var("t")]}), {"xs": _INTS, "t": " " * 60_000}),
    Case("fractions as text", {"cat": _var("xs")}, {"xs": [1e308] * 11_000}),
    Case("fractions cut", {"map": [_var("xs"), {"substr": [_var(""), 0]}]}, {"xs": [1e308] * 6_000}),
    # arrays
    Case("in a list, in a loop", _each({"in": [_var(""), _var("ys")]}), {"xs": _INTS[:4000], "ys": _INTS[4000:8000]}),
    Case("in a list of ranges", {"in": ["1_1", _var("xs")]}, {"xs": [["2_2", "3_3"]] * 8_000}),
    Case("in a long list", {"in": [_var("n"), _var("xs")]}, {"n": -1, "xs": [1] * 490_000}),
    Case("contains lists", {"contains_any": [_var("xs"), _var("ys")]}, {"xs": [[]] * 16_000, "ys": [{}] * 16_000}),
    Case("contains", {"contains_any": [_var("xs"), _var("ys")]}, {"xs": _INTS, "ys": [-n for n in _INTS]}),
    Case("nested loops", _each(_each(_each({"==": [_var(""), -1]}))), {"xs": _INTS[:2000]}),
    Case("long body", {"map": [_var("xs"), {"if": [False, 1] * 9_000}]}, {"xs": _INTS}),
    Case("reduce", {"reduce": [_var("xs"), "1_1", 0]}, {"xs": _INTS[:9_000]}),
    Case("sums", {"or": [{"+": _var("xs")}] * 4_000}, {"xs": [0.0] * 1_000}),
    # what is looked up, copied and hashed
    Case("whole context", {"or": [{"var": None}] * 9_000}, _MEMBERS),
    Case("set", _each({"!": [{"set": [_var("d"), "a", 1]}]}), {"xs": _INTS, "d": _MEMBERS}),
    Case("missing", {"missing": _var("xs")}, {"xs": ["a.0.0.0.0.0"] * 6_500, "a": [[[[[[1]]]]]]}),
    Case("names from data", _each({"var": {"cat": ["a", ""]}}), {"xs": _INTS[:8_000]}),
    Case("deep paths", {"or": [{"!": [_var("a" + ".0" * 190)]}] * 6_000}, {"a": _nested(190)}),
    Case("versions", _each({"sem_ver": [_var(""), "=", "1.0.0"]}), {"xs": _VERSIONS}),
    Case("fractional in a loop", {"map": [_var("xs"), {"fractional": [_var("k"), ["a", 1]]}]}, {"xs": _USERS}),
    Case("long key", {"or": [{"!": [{"fractional": [["a", 1]]}]}] * 3_000}, {"targetingKey": "k" * 900_000}),
    Case("object as a key", {"fractional": [_var("d"), ["a", 1]]}, {"d": _MEMBERS}, "v3"),
    # what is built
    Case("text doubled", {"reduce": [[0] * 60, _DOUBLED, "ab"]}, {}),
    Case("texts kept", {"map": [_var("xs"), {"cat": [_var(""), "y" * 200_000]}]}, {"xs": ["x"] * 10_000}),
    Case("arrays merged", {"merge": [_var("xs")] * 9_000}, {"xs": _INTS}),
    Case("arrays kept", {"map": [_var("xs"), {"merge": [_var("ys"), _var("ys")]}]}, {"xs": _INTS, "ys": _INTS}),
    Case("large answer", {"filter": [_var("xs"), True]}, {"xs": _INTS}),
    Case("answer that repeats itself", {"map": [_var("xs"), [_var("")] * 50]}, {"xs": [list(range(900))] * 200}),
)
