"""Findings in the formats that people, editors and pipelines read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wigwag.cli.findings import FORMATS
from wigwag.cli.main import main
from wigwag.flags.checks.catalogue import finding

DOCUMENT = """\
flags:
  banner:
    state: ENABLED
    variants: {"on": true, "off": false}
    defaultVariant: "off"
    targeting: {if: [{var: beta}, onn]}
  search:
    state: enabled
    variants: {a: 1}
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "f.yaml").write_text(DOCUMENT)
    return str(tmp_path / "f.yaml")


def lint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["lint", *arguments]) == 1
    return capsys.readouterr().out


def test_text_is_a_line_that_editors_understand(capsys: Any, path: str) -> None:
    first, hint, second, _ = lint(capsys, path).splitlines()
    assert first.startswith(f"{path}:6:35: error: $.flags.banner.targeting.if[1]: the rule can answer 'onn'")
    assert first.endswith("(variant-unknown)")
    assert hint == "    did you mean `on`?"
    assert second.startswith(f"{path}:8:5: warning: $.flags.search.state: ")


def test_json_has_line_and_column(capsys: Any, path: str) -> None:
    found = json.loads(lint(capsys, "-o", "json", path))
    assert [(each["source"], each["line"], each["column"]) for each in found] == [(path, 6, 35), (path, 8, 5)]


def test_annotations_of_github(capsys: Any, path: str) -> None:
    first, second = lint(capsys, "-o", "github", path).splitlines()
    assert first.startswith(f"::error file={path},line=6,col=35,title=variant-unknown::$.flags.banner")
    assert second.startswith(f"::warning file={path},line=8,col=5,title=state-unknown::")


def test_annotations_escape_what_would_end_them() -> None:
    odd = finding("limit", "$", "100%\nand more: a, b", source="a,b:c%.json")
    assert FORMATS["github"]([odd]) == (
        "::error file=a%2Cb%3Ac%25.json,title=limit::$: 100%25%0Aand more: a, b"
    )  # fmt: skip


def test_sarif_has_what_the_standard_requires(capsys: Any, path: str) -> None:
    log = json.loads(lint(capsys, "-o", "sarif", path))
    assert (log["version"], log["$schema"].endswith("sarif-2.1.0.json"), set(log)) == (
        "2.1.0", True, {"version", "$schema", "runs"},
    )  # fmt: skip
    (run,) = log["runs"]
    assert set(run) <= {"tool", "results", "columnKind"}
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "wigwag"
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert (result["level"] in ("error", "warning", "note"), bool(result["message"]["text"])) == (True, True)
        (location,) = result["locations"]
        region = location["physicalLocation"]["region"]
        assert min(region["startLine"], region["startColumn"]) >= 1
        assert location["physicalLocation"]["artifactLocation"]["uri"] == path
        assert location["logicalLocations"][0]["fullyQualifiedName"].startswith("$.flags")
    assert [result["ruleId"] for result in run["results"]] == ["variant-unknown", "state-unknown"]


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_without_findings_each_format_is_still_valid(capsys: Any, form: str) -> None:
    assert main(["lint", "demo", "-o", form]) == 0
    out = capsys.readouterr().out
    assert out.strip() == "" if form in ("text", "github") else json.loads(out) is not None
    if form == "sarif":
        assert json.loads(out)["runs"][0]["results"] == []


def test_a_uri_of_sarif_is_a_uri() -> None:
    log = json.loads(FORMATS["sarif"]([finding("limit", "$", "m", source="my flags/é.json")]))
    physical = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert physical == {"artifactLocation": {"uri": "my%20flags/%C3%A9.json"}}
