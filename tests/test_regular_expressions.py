"""No regular expression may take more than linear time: texts come from clients, servers and files.

Every pattern in the source is parsed, and all ways through it are looked at. Two unbounded repeats that can match the
same characters, with nothing fixed between them, make a match quadratic: when the end does not fit, the matcher tries
every way to divide the text between them. A search adds a repeat in front, because it starts at every character.
Possessive repeats (`++`, `*+`) never give back what they matched, so they are safe.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

import wigwag
from wigwag.flags.rules.coerce import parse_number, to_comparable
from wigwag.flags.rules.operators.semver import version_of

SOURCE = Path(wigwag.__file__).parent
CHARACTERS = [*map(chr, range(256)), "\u2028", "日", "\ud800"]
SEARCHING = {"search", "sub", "subn", "split", "findall", "finditer"}
MATCHING = {"match", "fullmatch", "compile"}
MANY = 1_000
KNOWN: dict[tuple[str, int, bool], frozenset[str]] = {}

ALLOWED = {
    "wire.grpcweb: [^=]+=*|=+": "no way can fail once it has begun, so nothing is tried twice",
    "dflag.updating.documents._UNSEEN": "no way can fail once it has begun, so nothing is tried twice",
    "flags.checks.positions._TOKEN": "no way can fail once it has begun, so nothing is tried twice",
    "dflag.environment._SERVICE": "names in the environment of the process, set by those who start it",
    "sources.kubernetes.place._SELECTOR": "an option, set by those who start the process",
}
"""Patterns that the check takes for quadratic, and why that is no danger."""

BUILT = {
    "dflag.values.validators": "`matches` is the program's own pattern; URL schemes have one repeat, which is the last",
    "serve.access.cors": "an origin has at most one wildcard",
}
"""Modules that build patterns while they run, and why those are linear."""


class Atom(NamedTuple):
    """One piece of a way through a pattern: which characters it matches, and how often."""

    characters: frozenset[str]
    required: bool
    unbounded: bool = False
    possessive: bool = False


def characters(item: Any, pattern: re.Pattern[Any]) -> frozenset[str]:
    known = str(item), pattern.flags, isinstance(pattern.pattern, bytes)
    if known not in KNOWN:
        state = parser.State()
        state.flags, state.str = pattern.flags, pattern.pattern
        single = compiler.compile(parser.SubPattern(state, [item]), pattern.flags)
        texts = [c.encode("latin-1") for c in CHARACTERS[:256]] if known[2] else CHARACTERS
        KNOWN[known] = frozenset(c for c, text in zip(CHARACTERS, texts, strict=False) if single.fullmatch(text))
    return KNOWN[known]


def ways(items: Any, pattern: re.Pattern[Any]) -> list[list[Atom]]:
    """Return all ways through a sequence, each as a flat list of pieces."""
    options = [list(ways_of(item, pattern)) for item in items]
    return [[atom for part in way for atom in part] for way in product(*options)]


def ways_of(item: Any, pattern: re.Pattern[Any]) -> Iterator[list[Atom]]:
    code, argument = item
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        low, high, body = argument
        yield from ways_of_repeat(code, low, high, body, pattern)
    elif code is codes.BRANCH:
        for branch in argument[1]:
            yield from ways(branch, pattern)
    elif code is codes.SUBPATTERN:
        yield from ways(argument[-1], pattern)
    elif code is codes.ATOMIC_GROUP:
        yield from ([atom._replace(possessive=True) for atom in way] for way in ways(argument, pattern))
    elif code in (codes.AT, codes.ASSERT, codes.ASSERT_NOT):
        yield [Atom(frozenset(), required=True)] if argument is codes.AT_BEGINNING else []
    else:
        yield [Atom(characters(item, pattern), required=True)]


def ways_of_repeat(code: Any, low: int, high: int, body: Any, pattern: re.Pattern[Any]) -> Iterator[list[Atom]]:
    unbounded, possessive = high is codes.MAXREPEAT or high > MANY, code is codes.POSSESSIVE_REPEAT
    if len(body) == 1 and body[0][0] in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN):
        yield [Atom(characters(body[0], pattern), low > 0, unbounded, possessive)]
        return
    if low == 0:
        yield []
    for way in ways(body, pattern):
        yield way
        if unbounded:
            yield way + way
            yield from repeated(way, low > 0, possessive)


def repeated(way: list[Atom], required: bool, possessive: bool) -> Iterator[list[Atom]]:
    """Return a repeated group as a repeat of the characters with which every piece that it needs is content."""
    needed = [atom.characters for atom in way if atom.required]
    common = frozenset.intersection(*needed) if needed else frozenset()
    if common:
        yield [Atom(common, required, unbounded=True, possessive=possessive)]


def quadratic(pattern: re.Pattern[Any], *, searched: bool = False) -> bool:
    """Tell whether two unbounded repeats of any way through the pattern compete for the same characters."""
    anywhere = Atom(frozenset(CHARACTERS), required=False, unbounded=True)
    for way in ways(parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG), pattern):
        atoms = [anywhere, *way] if searched else way
        repeats = [place for place, atom in enumerate(atoms) if atom.unbounded]
        for first, second in ((i, j) for i in repeats for j in repeats if i < j):
            a, b = atoms[first], atoms[second]
            fixed = any(
                atom.required and (not atom.characters & a.characters or not atom.characters & b.characters)
                for atom in atoms[first + 1 : second]
            )
            if a.characters & b.characters and not a.possessive and not fixed:
                return True
    return False


def modules() -> Iterator[tuple[str, ast.Module]]:
    for module in pkgutil.walk_packages([str(SOURCE)], "wigwag."):
        path = SOURCE.joinpath(*module.name.split(".")[1:])
        file = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
        if "proto" not in file.parts and file.name != "__main__.py":
            yield module.name, ast.parse(file.read_text())


def called(tree: ast.Module) -> Iterator[tuple[ast.expr, str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.value, node.func.attr, node


def found() -> Iterator[tuple[str, re.Pattern[Any], bool]]:
    """Return every pattern with where it is, and whether it is searched for: those of modules, and those of calls."""
    for name, tree in modules():
        short = name.removeprefix("wigwag.")
        searched = {on.id for on, method, _ in called(tree) if isinstance(on, ast.Name) and method in SEARCHING}
        for variable, value in vars(importlib.import_module(name)).items():
            if isinstance(value, re.Pattern):
                yield f"{short}.{variable}", value, variable in searched
        for on, method, call in called(tree):
            if isinstance(on, ast.Name) and on.id == "re" and method in SEARCHING | MATCHING:
                if isinstance(call.args[0], ast.Constant) and indented(tree, call):
                    pattern: re.Pattern[Any] = re.compile(ast.literal_eval(call.args[0]))
                    yield f"{short}: {shown(pattern)}", pattern, method in SEARCHING
                elif indented(tree, call):
                    assert short in BUILT, f"{short}:{call.lineno} builds a pattern: say in BUILT why it is linear"


def shown(pattern: re.Pattern[Any]) -> str:
    return pattern.pattern.decode() if isinstance(pattern.pattern, bytes) else str(pattern.pattern)


def indented(tree: ast.Module, call: ast.Call) -> bool:
    """Tell whether a call is inside a function, so that its pattern is not one of the module's."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return any(node.lineno <= call.lineno <= (node.end_lineno or 0) for node in functions)


def test_no_pattern_in_the_source_can_be_made_slow() -> None:
    patterns = list(found())
    assert len(patterns) > 60
    checked = [
        (where, p) for where, p, searched in patterns if where not in ALLOWED and quadratic(p, searched=searched)
    ]
    assert checked == []
    assert set(ALLOWED) <= {where for where, _, _ in patterns}


@pytest.mark.parametrize(
    "pattern",
    [
        r"[0-9]+\.?[0-9]*x",
        r"(?:[0-9]+)*x",
        r"\w+\d*x",
        r"\s*a*\s*x",
        r"(?:a+b?)*x",
        r"[0-9](?:_?[0-9])*\.?(?:_?[0-9])*x",
        r"[0-9]+1[0-9]+x",
        r".*:.*:",
    ],
)
def test_the_check_knows_quadratic_patterns(pattern: str) -> None:
    assert quadratic(re.compile(pattern))


@pytest.mark.parametrize(
    "pattern",
    [r"[0-9]++\.?[0-9]*x", r"[0-9]+(?:_[0-9]+)*x", r"\w+ \d*x", r"a*b*x", r"(?:[^\"]|\\.)*x", r"[a-z]{1,64}[a-z]*x"],
)
def test_the_check_lets_linear_patterns_pass(pattern: str) -> None:
    assert not quadratic(re.compile(pattern))


def test_the_check_knows_what_a_search_adds() -> None:
    assert quadratic(re.compile(r"\S+://"), searched=True)
    assert not quadratic(re.compile(r"\S+://"))
    assert not quadratic(re.compile(r"//[^/]*@"), searched=True)
    assert not quadratic(re.compile(r"^\S+://"), searched=True)


SIZE = 100_000
TEXTS = [
    "1" * SIZE + "x",
    "1_" * (SIZE // 2) + "x",
    "1" * SIZE + "." + "1" * SIZE + "x",
    "0x" + "a" * SIZE,
    "0x" + "a_" * (SIZE // 2) + "p",
    "1e" + "1" * SIZE + "x",
    " " * SIZE + "x",
    "-" * SIZE,
    "1.0.0-" + "a." * (SIZE // 2),
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_long_text_is_read_at_once(text: str) -> None:
    """Generously: these take a few milliseconds, and took minutes when the patterns went back over the digits."""
    start = time.process_time()
    parse_number(text), to_comparable(text), version_of(text)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1" * 5000, float("inf")),
        ("0." + "1" * 5000, 0.1111111111111111),
        ("1" * 5000 + "e-4999", 1.1111111111111112),
        ("1_000.5", 1000.5),
        ("0x" + "f" * 5000 + "p-19996", 16.0),
        ("9" * 299, int("9" * 299)),
    ],
)
def test_a_long_number_is_still_a_number(text: str, number: float) -> None:
    assert parse_number(text) == number


def test_a_long_text_that_is_no_version_is_not_kept() -> None:
    from wigwag.flags.rules.operators.semver import parse

    before = parse.cache_info().currsize
    assert all(version_of(f"{n}" + "9" * SIZE) is None for n in range(10))
    assert parse.cache_info().currsize == before
