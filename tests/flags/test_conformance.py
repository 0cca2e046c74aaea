"""The vectors that every flagd implementation shares, kept in `data/conformance` as plain facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import wigwag
from wigwag.flags.rules.compile import compile_rule
from wigwag.flags.rules.scope import ElementScope

DATA = Path(__file__).parent / "data" / "conformance"
EXPECTED = ("value", "reason", "variant", "error", "metadata")


def read(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def evaluations(suite: str) -> list[Any]:
    """One row per case and hashing version. Left out: v1 hashing, and what an older protocol version answered."""
    rows = []
    for number, case in enumerate(read(suite)):
        version = case.get("fractional")
        if version == "v1" or case.get("deprecated"):
            continue
        rows += [
            pytest.param(suite, hashing, case, id=f"{suite}-{number}-{case['flag']}-{hashing}")
            for hashing in ([version] if version else ["v2", "v3"])
        ]
    return rows


@pytest.fixture(scope="module")
def flagsets() -> dict[tuple[str, str], wigwag.FlagSet]:
    return {
        (suite, version): wigwag.load(read(f"{suite}-flags"), fractional=version)
        for suite in ("evaluator", "provider")
        for version in ("v2", "v3")
    }


def test_all_vectors_are_here() -> None:
    assert len(read("evaluator")) == 140
    assert len([case for case in read("provider") if case.get("fractional") == "v3"]) == 74


@pytest.mark.parametrize(("suite", "version", "case"), evaluations("evaluator") + evaluations("provider"))
def test_an_evaluation_gives_what_every_implementation_gives(
    flagsets: dict[tuple[str, str], wigwag.FlagSet], suite: str, version: str, case: dict[str, Any]
) -> None:
    found = flagsets[suite, version].resolve(case["flag"], case["type"], case["fallback"], case["context"])
    expected = {name: case[name] for name in EXPECTED if name in case}
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(("rule", "data", "expected"), read("jsonlogic"))
def test_a_jsonlogic_rule_gives_the_standard_answer(rule: Any, data: Any, expected: Any) -> None:
    """All of them: flagd answers none of these differently."""
    program = compile_rule(rule, "key", scope=ElementScope())
    assert program.decide(data, program.run(0, lambda: 0)) == expected


def as_document(row: dict[str, Any]) -> dict[str, Any]:
    """A rule stands alone in the targeting vectors; its flag knows every evaluator that it names."""
    if row["schema"] != "targeting":
        return row["document"]  # type: ignore[no-any-return]
    flag = {"state": "ENABLED", "variants": {"on": True}, "targeting": row["document"]}
    return {"flags": {"x": flag}, "$evaluators": {"some-ref": {"==": [1, 1]}}}


@pytest.mark.parametrize("row", read("schema"), ids=lambda row: f"{row['schema']}-{row['sign']}-{row['name']}")
def test_valid_documents_have_no_problem_and_invalid_ones_are_reported(row: dict[str, Any]) -> None:
    problems = wigwag.load(as_document(row)).problems
    if row["schema"] == "targeting":  # a rule alone: which variants its flag has is not in the vector
        problems = tuple(problem for problem in problems if problem.code != "variant-unknown")
    if row["sign"] == "positive":
        assert problems == ()
    else:
        assert problems
        assert {problem.path for problem in problems} <= {finding.path for finding in wigwag.lint(as_document(row))}
