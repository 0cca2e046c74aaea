"""The documents tell what is true: counts, codes, commands, examples and links."""

from __future__ import annotations

import doctest
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.agent.process import AgentProcess
from wigwag.cli.main import COMMANDS
from wigwag.flags.checks import catalogue
from wigwag.flags.rules.operators.table import OPERATORS
from wigwag.sources.kinds import BUILT_IN

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted((ROOT / "src/wigwag").rglob("*.py"))
CODE = re.compile(r"`([\w.]+)`")
STATES = ("works", "differs", "not yet")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_documented_commands_exist(path: Path) -> None:
    """Every `wigwag X …` that people are told to type is a command, with options that it has."""
    lines = [line for block in blocks(path.read_text(), "(?:sh|bash|console)") for line in block.splitlines()]
    for line in lines:
        words = line.removeprefix("$ ").split()
        if words[:1] == ["wigwag"] and len(words) > 1 and not words[1].startswith("-"):
            assert words[1] in COMMANDS, line
            assert set(re.findall(r"(?<!\S)--[a-z-]+", line)) <= options(words[1]), line


def options(command: str) -> set[str]:
    shown = subprocess.run(
        [sys.executable, "-m", "wigwag", command, "--help"], capture_output=True, text=True, check=True
    )
    return set(re.findall(r"--[a-z-]+", shown.stdout))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_python_examples_run(path: Path) -> None:
    namespace: dict[str, object] = {}
    for block in blocks(path.read_text(), "python"):
        if ">>>" not in block:
            exec(compile(block, str(path), "exec"), namespace)
            continue
        test = doctest.DocTestParser().get_doctest(block, namespace, path.name, str(path), 0)
        assert doctest.DocTestRunner(verbose=False).run(test, clear_globs=False).failed == 0
        namespace.update(test.globs)


def test_the_readme_is_short_and_its_first_screen_has_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 150
    commands = [line.split()[0] for line in lines[:40] if line.startswith("./scripts/")]
    assert commands == ["./scripts/run", "./scripts/test"]
    assert not [line for line in lines[:40] if line.startswith(("pip ", "uv ", "docker ", "podman "))]


def test_the_readme_promises_only_what_is_there_and_says_how_to_install_it() -> None:
    text = (ROOT / "README.md").read_text()
    promised = set(re.findall(r"^\| `wigwag ([a-z]+)", text, re.MULTILINE))
    assert promised == {"start", "proxy", "operator", "watt", "console"}
    assert promised <= set(COMMANDS)
    install = text.partition("## Install")[2].partition("\n## ")[0]
    assert "pip install ." in install
    assert "uv tool install ." in install
    assert ".venv/bin/wigwag" in text


def test_the_page_for_users_of_flagd_is_one_page_with_five_differences() -> None:
    text = (ROOT / "docs/tutorial/from-flagd.md").read_text()
    assert re.findall(r"^\*\*(\d)\. ", text, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    assert len(text.splitlines()) <= 60


def test_the_example_of_the_readme_prints_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (tmp_path / "flags.yaml").write_text(blocks(text, "yaml")[0])
    session = blocks(text, "console")[0]
    command, _, expected = session.removeprefix("$ wigwag ").partition("\n")
    shell = f"{sys.executable} -m wigwag {command}"
    shown = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == expected


MISSING = [name for name in ("curl", "grpcurl") if shutil.which(name) is None]


@pytest.mark.skipif(
    bool(MISSING), reason=f"THE README'S COMMANDS WERE NOT TRIED: there is no {' and no '.join(MISSING)}"
)
def test_the_commands_of_the_readme_work_against_the_demo() -> None:
    text = (ROOT / "README.md").read_text()
    (commands,) = [block for block in blocks(text, "sh") if "curl" in block]
    with AgentProcess() as agent:
        for port, name in (("8013", "evaluation"), ("8014", "management"), ("8016", "OFREP")):
            commands = commands.replace(f"localhost:{port}", agent.address(name))
        lines = commands.replace("\\\n", " ").splitlines()
        answers = [
            subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=True) for line in lines
        ]
        assert [line.split()[0] for line in lines] == ["curl", "curl", "curl", "grpcurl", "grpcurl"]
        told = [answer.stdout for answer in answers]
        assert json.loads(told[0])["value"] is True
        assert len(json.loads(told[1])["flags"]) == 6
        assert told[2].startswith("background-colour = ")
        assert "flagd.evaluation.v2.Service" in told[3].split()
        assert json.loads(told[4])["variant"] == json.loads(told[1])["flags"][0]["variant"]
        script = blocks(text, "py")[0] + "\napi.shutdown()"
        environment = {**os.environ, "FLAGD_PORT": str(agent.port("evaluation")), "FLAGD_HOST": "127.0.0.1"}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stdout == "True\n"


def test_every_lint_code_is_documented() -> None:
    """The table is generated: to renew it, put what `catalogue.table()` returns into the page."""
    assert catalogue.table() in (ROOT / "docs/reference/findings.md").read_text()
    package = [path for path in (ROOT / "src/wigwag/flags").rglob("*.py") if path.name != "catalogue.py"]
    source = "".join(path.read_text() for path in package)
    used = set(re.findall(r'(?:finding|_report)\(\s*"([a-z-]+)"', source))
    assert used == set(catalogue.CATALOGUE)


def test_the_summary_of_the_compatibility_tables_adds_up() -> None:
    text = (ROOT / "docs/compatibility.md").read_text()
    summary = {
        name: [int(n) for n in numbers.split("|")]
        for name, numbers in re.findall(r"^\| \[(.+?)\]\(#.+?\) \|(.+)\|$", text, re.MULTILINE)
    }
    assert len(summary) == 5
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        name = section.splitlines()[0]
        rows = re.findall(r"^\| (.*?) \| (works|differs|not yet) \|", section, re.MULTILINE)
        assert len({behaviour for behaviour, _ in rows}) == len(rows), "a row is there twice"
        counts = Counter(state for _, state in rows)
        if name in summary:
            assert [*(counts[state] for state in STATES), sum(counts.values())] == summary.pop(name)
    assert summary == {}


def test_the_glossary_names_each_term_once_in_order_and_modules_that_are_there() -> None:
    rows = [line.split("|")[1:4] for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()[6:]]
    terms = [term.strip() for term, _, _ in rows]
    assert terms == sorted(set(terms), key=str.lower)
    modules = [name for _, _, where in rows for name in re.findall(r"`(\w[\w/]*(?:\.py|/))`", where)]
    missing = [name for name in modules if not (ROOT / "src" / "wigwag" / name).exists() and not (ROOT / name).exists()]
    assert missing == []


def test_every_operator_is_in_the_guide() -> None:
    guide = (ROOT / "docs/guides/flags.md").read_text()
    assert [name for name in OPERATORS if f"`{name}`" not in guide] == []


def test_every_kind_of_source_is_in_the_guide() -> None:
    guide = (ROOT / "docs/guides/sources.md").read_text()
    named = [kind.name for kind in BUILT_IN if not kind.internal]
    assert [name for name in named if not re.search(rf"\b{name}\b", guide)] == []


def test_every_watcher_of_a_source_is_in_the_contract_that_they_do_not_know_each_other() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (independent,) = (each["modules"] for each in contracts if each["type"] == "independence")
    for path in (ROOT / "src/wigwag/sources").rglob("*.py"):
        if re.search(r"^(async )?def watch_", path.read_text(), re.MULTILINE):
            module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
            assert any(module == each or module.startswith(f"{each}.") for each in independent), module


def test_what_the_architecture_names_exists() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    source = {path.relative_to(ROOT / "src/wigwag").as_posix(): path.read_text() for path in SOURCES}
    files = {Path(name).name for name in source}
    assert [name for name in re.findall(r"`([\w/]+\.py)`", text) if Path(name).name not in files] == []
    packages = {part for name in source for part in Path(name).parts}
    layout = text[text.index("## Layout") : text.index("## The six flows")]
    modules = re.findall(r"`([a-z_]+)/?`", layout)
    assert {name for name in modules if f"{name}.py" not in files and name not in packages} == set()
    defined = set(re.findall(r"(?:def|class) (\w+)", "".join(source.values())))
    flows = text[text.index("## The six flows") : text.index("### Stopping")]
    functions = {
        name for row in re.findall(r"^\| \d+ \|[^|]*\|([^|]*)\|", flows, re.MULTILINE) for name in CODE.findall(row)
    }
    assert {name for name in functions if name.rpartition(".")[2] not in defined} == set()
