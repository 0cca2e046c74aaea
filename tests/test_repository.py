"""The files around the code: CI, hooks, templates and changelog fragments agree with what they stand for."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PAGES = sorted(ROOT.glob("*.md")) + sorted((ROOT / "changelog.d").glob("*.md"))


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def test_ci_runs_scripts_test_and_nothing_else_on_every_version_that_the_package_names() -> None:
    job = read(".github/workflows/test.yml")["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["./scripts/test"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert job["strategy"]["matrix"]["python"] == named
    assert f">={named[0]}" == PROJECT["project"]["requires-python"]


def test_ci_reads_the_repository_and_gets_no_secret() -> None:
    text = (ROOT / ".github/workflows/test.yml").read_text()
    assert read(".github/workflows/test.yml")["permissions"] == {"contents": "read"}
    assert "secrets." not in text


def test_the_hooks_are_local_and_run_the_scripts() -> None:
    for repository in read(".pre-commit-config.yaml")["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            assert os.access(ROOT / hook["entry"], os.X_OK)
            assert not hook["pass_filenames"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_at_least_one_question_that_must_be_answered(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in questions}) == len(questions)
    assert any(part.get("validations", {}).get("required") for part in questions)


def test_there_are_forms_for_bugs_and_features() -> None:
    assert [path.stem for path in FORMS] == ["bug", "feature"]


def test_the_citation_says_what_the_package_says() -> None:
    citation, project = read("CITATION.cff"), PROJECT["project"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["title"] == project["name"]
    assert citation["abstract"] == project["description"]
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]
    assert citation["authors"] == project["authors"]


def anchors(page: Path) -> set[str]:
    """The fragments that the headings of a page make."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def draft(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "next", "--date", "2026-01-02"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what towncrier reads, with one fragment more."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "changelog.d", tmp_path / "changelog.d")
    (tmp_path / "changelog.d" / "+one.fixed.md").write_text("One thing is fixed.\n")
    return tmp_path


def test_the_fragments_make_a_section_of_the_changelog(project: Path) -> None:
    done = draft(project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## next (2026-01-02)\n")
    section = done.stdout.partition("### Fixed\n")[2]
    assert "- One thing is fixed.\n" in section


def test_a_release_puts_its_section_above_the_older_ones(project: Path) -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", "9.9.9"]
    subprocess.run(["git", "init", "--quiet"], check=True, cwd=project)
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=project)
    assert done.returncode == 0, done.stderr
    text = (project / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\S+)", text, flags=re.MULTILINE)[0] == "9.9.9"
    assert [path.name for path in (project / "changelog.d").iterdir()] == ["README.md"]


def test_a_fragment_of_an_unknown_type_is_an_error(project: Path) -> None:
    (project / "changelog.d" / "+two.fxied.md").write_text("Two.\n")
    done = draft(project)
    assert done.returncode != 0
    assert "+two.fxied.md" in done.stderr + done.stdout


PATCHED = {
    "cli/test_check_config.py": 1,  # an extra that is not installed
    "dflag/test_ahead.py": 1,  # the parser, to see which thread calls it
    "dflag/test_faults.py": 3,  # defects that the code does not have; no inotify left
    "dflag/test_mounts.py": 2,  # the path of the kernel's mount table
    "kube/test_decode.py": 1,  # limits that are constants, lowered
    "kube/test_reflector.py": 1,
    "serve/test_extent.py": 1,
}
"""How often tests replace an attribute of wigwag itself. CONTRIBUTING.md says when; an argument is better."""

OUTSIDE = {"sys", "threading", "logging", "tomllib", "tests"}
"""Whose attributes tests may replace: the standard library's, and those of the tests' own models."""


def origins(tree: ast.Module) -> dict[str, str]:
    """The top-level package that each imported name comes from."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: node.module or "" for alias in node.names}
    return {name: module.partition(".")[0] for name, module in found.items()}


def replaced(tree: ast.Module) -> Iterator[str]:
    """The package of each attribute or module that a syntax tree replaces by monkeypatch."""
    packages = origins(tree)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        target = node.args[0]
        if node.func.attr == "setitem" and ast.unparse(target) == "sys.modules":
            yield str(ast.literal_eval(node.args[1])).partition(".")[0]
        elif node.func.attr == "setattr" and isinstance(target, ast.Constant):
            yield str(target.value).partition(".")[0]
        elif node.func.attr == "setattr":
            name = next(part.id for part in ast.walk(target) if isinstance(part, ast.Name))
            yield packages.get(name, name)


def test_tests_replace_no_part_of_wigwag_beyond_the_known_ones() -> None:
    folder = ROOT / "tests"
    trees = {path.relative_to(folder).as_posix(): ast.parse(path.read_text()) for path in folder.rglob("test_*.py")}
    counts = Counter(name for name, tree in trees.items() for package in replaced(tree) if package == "wigwag")
    assert counts == PATCHED
    assert {package for tree in trees.values() for package in replaced(tree)} <= OUTSIDE | {"wigwag", "uwsgi"}
    assert not [name for name, tree in trees.items() if "unittest" in origins(tree).values()]


@pytest.mark.parametrize(
    ("line", "package"),
    [
        ("from wigwag.dflag import mounts\nmonkeypatch.setattr(mounts, 'X', 1)", "wigwag"),
        ("from wigwag.a import A\npatch.setattr(A.__init__, 'x', 1)", "wigwag"),
        ("monkeypatch.setattr('wigwag.kube.X', 3)", "wigwag"),
        ("monkeypatch.setitem(sys.modules, 'wigwag.telemetry', None)", "wigwag"),
        ("import logging\nmonkeypatch.setattr(logging.getLogger('x'), 'handlers', [])", "logging"),
    ],
)
def test_every_form_of_patching_is_seen(line: str, package: str) -> None:
    assert list(replaced(ast.parse(line))) == [package]
