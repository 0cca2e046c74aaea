"""Every command that README.md and docs tell people to type is run, or is in one table with the reason why not."""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.documents import ROOT, Block, Place, Session, blocks, contents, is_server
from wigwag import dflag
from wigwag.version import __version__

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = {
    r"^\./scripts/run$": "it makes an environment of its own; what it starts then is `wigwag start`, which is run",
    r"^\./scripts/test$": "it runs these tests",
    r"^pip install \.$": "it needs an index to build from; `uv tool install .` makes the same, and is run",
    r"client/bin/pip install openfeature-provider-flagd$": "the tests have it installed, as uv.lock pins it",
    r"^docker build": "it needs Docker and a registry",
    r"localhost:8016/ofrep/v1/evaluate/flags/new-checkout": "it asks a pod; tests/real/test_operator_e2e.py does so",
    r"localhost:8081/console": "it asks an operator in a cluster; tests/console/test_faces.py opens its console",
    r"^kubectl": "it needs a cluster; tests/real/test_tutorial.py and test_deploy.py do the same at an API server",
    r"^wigwag sidecars": "it needs a cluster; tests/real/test_operator_upgrades.py asks one",
    r"^helm": "it needs a cluster; tests/real/test_deploy.py does the same at an API server",
    r"^consul kv put": "it needs Consul; tests/real/test_consul.py runs against one",
    r"^\.venv/bin/python -m tests\.simulation": "it takes minutes; tests/simulation runs a part of the seeds",
    r"^wigwag watt --listen-address": "it takes a fixed port; tests/real/test_watt.py runs such options",
    r"^scripts/bench soak": "it takes minutes; tests/agent/test_soak.py runs a short one",
}
"""Commands that are not run, and why."""
NOT_READY = {
    r"https://flags\.example|grpcs://|dns:///": "there is no such host",
    r"s3://": "there is no such bucket",
    r"consul://": "there is no Consul",
    r"wigwag watt -s": "there is no Kubernetes",
    r"unix:/run/flags": "nobody serves on that socket",
}
"""Servers that are started, and stopped, but never have flags or snapshots, and why: their sources are not here."""
EXIT_CODES = {r"wigwag diff": 1, r"wigwag lint typo": 1}
"""Commands that end with another code than 0; here, because there are differences, or errors."""
EDITS = re.compile(r"^(sed|mv) .*mv \S+ flags\.yaml$|^mv .*flags\.yaml$", re.MULTILINE)
"""Commands after which the agent of a page publishes a snapshot; what follows waits for it."""
NEEDED = [name for name in ("curl", "grpcurl", "git") if shutil.which(name) is None]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def reason(command: str, table: dict[str, str]) -> str | None:
    return next((why for pattern, why in table.items() if re.search(pattern, command)), None)


def flags_of_agent() -> str:
    return contents((ROOT / "docs/guides/agent.md").read_text(), "yaml")[0]


def in_set(name: str) -> str:
    return f"metadata: {{flagSetId: {name}}}\n" + flags_of_agent().partition("\n")[2]


class Page(NamedTuple):
    """What the commands of a page need."""

    server: str = ""
    """What they talk to, unless the block starts a server itself."""
    files: Callable[[Place, str], None] = lambda place, text: None
    also: Callable[[Session, Place], AbstractContextManager[dict[str, str]]] = lambda session, place: nullcontext({})
    """Whatever else must be running; what stands for its addresses in the page, and where it is."""


def usual(place: Place, text: str) -> None:
    """The files that most pages speak of."""
    flags = flags_of_agent()
    document = json.dumps({"flags": {"a": {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}}})
    place.write(flags_yaml=flags, base_json=document, overlay_json=document, a_yaml=in_set("a"), b_yaml=in_set("b"))
    place.write(agent_yaml=place.here("sources:\n  - {uri: /etc/flags/base.yaml, provider: file}\n"))
    for name in ("base.yaml", "overlay.yaml"):
        (place.folder / "etc/flags" / name).write_text(flags)
    place.certificates()


def agent(place: Place, text: str) -> None:
    usual(place, text)
    place.write(agent_yaml=place.here(next(block for block in contents(text, "yaml") if "# agent.yaml" in block)))


def tenancy(place: Place, text: str) -> None:
    usual(place, text)
    rules = next(block for block in contents(text, "yaml") if "# rules.yaml" in block)
    place.write(rules_yaml=rules)
    (place.folder / "team-a.token").write_text("a-token-of-team-a-that-is-long-enough")
    place.environment["TOKEN"] = re.findall(r"token: (\w+)", rules)[0]


def snapshots(place: Place, text: str) -> None:
    main, branch = contents(text, "yaml")
    place.write(main_yaml=main, branch_yaml=branch, flags_yaml=main, users_json=contents(text, "json")[0])
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for command in (
        ["git", "init", "-q"],
        ["git", "add", "flags.yaml"],
        [*git, "commit", "-qm", "flags"],
        ["git", "update-ref", "refs/remotes/origin/main", "HEAD"],
    ):
        subprocess.run(command, cwd=place.folder, check=True, env=place.environment)


def proxy(place: Place, text: str) -> None:
    place.write(flags_json=contents(text, "json")[0])


def operator(place: Place, text: str) -> None:
    place.write(old_yaml=contents(text, "yaml")[-1])


def readme(place: Place, text: str) -> None:
    place.write(flags_yaml=contents(text, "yaml")[0])
    (place.folder / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    for name in ("README.md", "LICENSE"):
        (place.folder / name).symlink_to(ROOT / name)
    tools = {"UV_TOOL_DIR": str(place.folder / ".tools"), "UV_TOOL_BIN_DIR": str(place.folder / ".bin")}
    cache = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))
    settings = {
        "UV_CACHE_DIR": cache,
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "copy",
    }
    place.environment |= tools | settings
    place.environment["PATH"] += f":{ROOT / '.cache/uv/bin'}"


def tutorial(place: Place, text: str) -> None:
    first, second = contents(text, "yaml")
    place.write(flags_yaml=first, next_yaml=second)


@contextmanager
def openfeature_client(session: Session, place: Place) -> Iterator[dict[str, str]]:
    """The client of the tutorial, with the port of the agent of the page."""
    running = session.default()
    assert running is not None
    (script,) = contents((ROOT / "docs/tutorial/first-ten-minutes.md").read_text(), "py")
    place.write(client_py=script.replace("8013", str(running.port("evaluation"))))
    (place.folder / "client/bin").mkdir(parents=True)
    (place.folder / "client/bin/python").symlink_to(sys.executable)
    place.environment["PYTHONPATH"] = site.getsitepackages()[0]
    yield {}


@contextmanager
def installed(session: Session, place: Place) -> Iterator[dict[str, str]]:
    """What the page has installed is wigwag."""
    yield {}
    assert session.script(f"{place.folder}/.bin/wigwag version").startswith(f"wigwag: {__version__} ")


@contextmanager
def two_snapshots(session: Session, place: Place) -> Iterator[dict[str, str]]:
    """The agent of the page has had a change, so there is a previous snapshot."""
    running = session.default()
    assert running is not None
    shutil.copy(place.folder / "branch.yaml", place.folder / "flags.yaml")
    running.wait_for_log(lambda line: line["msg"] == "snapshot published" and line["number"] == 2)
    yield {"flags.example:8014": running.address("management")}


@contextmanager
def flags_page(session: Session, place: Place) -> Iterator[dict[str, str]]:
    """A program serves the page of its flags."""
    place.environment["TOKEN"] = "example"
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10)
    with dflag.PageServer(dflag.Site(flags, access=dflag.Access(token="example"))) as server:
        yield {"localhost:8081": server.url.partition("://")[2].rstrip("/")}


AGENT = "wigwag start -f file:flags.yaml"
WATT = """wigwag watt --watches '[{"source": "directory", "path": "settings"}]' """
USUAL = Page(AGENT, usual)
SPECIAL = {
    "README.md": Page("wigwag start", readme, installed),
    "docs/tutorial/first-ten-minutes.md": Page(AGENT, tutorial, openfeature_client),
    "docs/guides/agent.md": Page(AGENT, agent),
    "docs/guides/dflag.md": Page(also=flags_page),
    "docs/guides/operator.md": Page(files=operator),
    "docs/guides/proxy.md": Page("wigwag proxy start --file-root .", proxy),
    "docs/guides/snapshots.md": Page(AGENT, snapshots, two_snapshots),
    "docs/guides/tenancy.md": Page(AGENT, tenancy),
    "docs/guides/watt.md": Page(WATT),
}
"""What pages need that is not usual."""


@pytest.fixture
def place() -> Iterator[Place]:
    """In a directory with a short name: sockets must have one."""
    with tempfile.TemporaryDirectory(prefix="ww") as folder:
        yield Place(Path(folder))


def runnable(block: Block) -> Block:
    """Return the block without what is not run."""
    commands = block.commands()
    left = [command for command in commands if reason(command, NOT_RUN) is None]
    return block if left == commands else Block("sh", "\n".join(left))


@pytest.mark.skipif(bool(NEEDED), reason=f"THE COMMANDS OF THE DOCUMENTS WERE NOT TRIED: no {' and no '.join(NEEDED)}")
@pytest.mark.timeout(240)  # a page starts up to fifteen servers
@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path.read_text())], ids=relative)
def test_every_command_of_a_page_works(path: Path, place: Place) -> None:
    text, page = path.read_text(), SPECIAL.get(relative(path), USUAL)
    page.files(place, text)
    unready = re.compile("|".join(NOT_READY))
    with (
        Session(place, page.server, unready, EXIT_CODES) as session,
        page.also(session, place) as addresses,
    ):
        for block in map(runnable, blocks(text)):
            for name, address in addresses.items():
                block = block._replace(text=block.text.replace(name, address))
            published = session.published()
            printed = session.run(block)
            if EDITS.search(block.text):
                session.wait_for_snapshot(published)
            if block.language == "console":
                assert "".join(printed).rstrip("\n") == "".join(expected for _, expected in block.session()).rstrip(
                    "\n"
                )


def every_command() -> list[str]:
    return [command for path in PAGES for block in blocks(path.read_text()) for command in block.commands()]


@pytest.mark.parametrize("pattern", NOT_RUN)
def test_what_is_not_run_is_in_a_page(pattern: str) -> None:
    assert any(re.search(pattern, command) for command in every_command())


@pytest.mark.parametrize("pattern", NOT_READY)
def test_what_never_has_flags_is_a_server_in_a_page(pattern: str) -> None:
    assert any(re.search(pattern, command) and is_server(command) for command in every_command())


def test_pages_have_commands_and_their_languages_are_known() -> None:
    """A block that is marked otherwise (`shell`, `$`), or indented, would be run by nobody."""
    assert len(every_command()) >= 60
    assert [path for path in PAGES if re.search(r"^ +```", path.read_text(), re.MULTILINE)] == []
    languages = {
        language for path in PAGES for language in re.findall(r"^```([^\s`]+)", path.read_text(), re.MULTILINE)
    }
    assert languages <= {"sh", "console", "python", "py", "yaml", "json", "hcl", "html", "toml", "dockerfile"}
