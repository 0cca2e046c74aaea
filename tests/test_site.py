"""The documentation as a site: mkdocs.yml names every page, and a strict build finds no broken link."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import ROOT

DOCS = ROOT / "docs"


def configuration() -> dict[str, Any]:
    """Read mkdocs.yml; a tag names a function of Python, which is of no interest here."""
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text())
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def named(nav: Any) -> list[str]:
    """Return the pages of a navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    return [page for child in (nav.values() if isinstance(nav, dict) else nav) for page in named(child)]


def test_the_navigation_names_every_page_once() -> None:
    """Decision records are many; their README lists them, and another test checks that."""
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    records = {page for page in pages if re.match(r"decisions/\d", page)}
    nav = named(configuration()["nav"])
    assert len(set(nav)) == len(nav)
    assert set(nav) == pages - records


def test_the_front_page_leads_to_every_page() -> None:
    links = set(re.findall(r"\]\(([^)#]+)\)", (DOCS / "README.md").read_text()))
    assert set(named(configuration()["nav"])) - {"README.md"} == links


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a checkout into its folder `site`. Not with --quiet: that makes strict builds pass."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(DOCS, tmp_path / "docs")
    for name in ("mkdocs.yml", "tools", "examples", "deploy"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_a_strict_build_has_no_complaints(checkout: Path) -> None:
    done = build(checkout)
    assert (done.returncode, re.findall("^WARNING.*", done.stderr, re.MULTILINE)) == (0, [])
    pages = {path.stem: path.read_text() for path in (checkout / "site" / "guides").glob("*.html")}
    assert "<h1" in pages["agent"]
    assert "is in examples/server_kube." in pages["dflag"], "a link out of docs leads nowhere in the site"
    assert '"$TOKEN" | sha256sum' in pages["tenancy"].replace("&quot;", '"'), "the bar of a table is shown as it is"


def test_broken_links_fail_the_build_each_with_a_warning(checkout: Path) -> None:
    broken = ("nowhere.md", "agent.md#nowhere")
    with (checkout / "docs" / "guides" / "flags.md").open("a") as page:
        page.writelines(f"\n[broken]({link})\n" for link in broken)
    done = build(checkout)
    assert done.returncode != 0
    warnings = re.findall("^WARNING.*", done.stderr, re.MULTILINE)
    assert [sum(link in warning for warning in warnings) for link in broken] == [1, 1], warnings
