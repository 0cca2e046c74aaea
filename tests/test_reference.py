"""The pages of docs/reference that are generated are up to date, and the endpoints that they name are served."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import closing
from dataclasses import fields
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest

from tests.agent.process import TIMEOUT, AgentProcess
from tests.documents import ROOT
from tests.proxy.process import ProxyProcess
from tests.real.access import Access
from tests.real.operators import OperatorProcess
from tests.watt.process import WattProcess
from tools.reference import PAGES, PORTS, REFERENCE, rendered
from wigwag.agent.options import AgentOptions
from wigwag.proxy.options import ProxyOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.reference import Page, Port

ROUTES = (
    "serve/management/manage.py",
    "serve/management/debug.py",
    "serve/ofrep.py",
    "proxy/report.py",
    "operator/ports.py",
    "watt/api.py",
)
"""Where the code names HTTP paths."""
QUERIES = {"/debug/explain": "?key=background-colour", "/debug/diff": "?from=current"}
SERVED = [(port, page) for port in PORTS for page in port.pages]
ASKED = [(port, page) for port, page in SERVED if port.name != "admission"]
"""Without an API server, the webhooks have no certificate; tests/real calls them."""
UNREADY = {("operator", "/readyz"): 500}
"""Nor does the operator get ready."""
SERVICES = [port for port in PORTS if port.services]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    """If this fails, run `scripts/docs --update` and commit what it changes."""
    assert (REFERENCE / name).read_text() == rendered(name)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AgentProcess]]:
    config = tmp_path_factory.mktemp("operator") / "kubeconfig"
    Access("https://127.0.0.1:1", "").kubeconfig(config)
    operator = OperatorProcess(ready=False, environment={"KUBECONFIG": str(config)})
    folder = json.dumps([{"source": "directory", "path": str(tmp_path_factory.mktemp("watched"))}])
    with AgentProcess() as agent, ProxyProcess() as proxy, WattProcess("--watches", folder) as watt, operator:
        watt.until(bool, "the first snapshot")
        yield {"agent": agent, "proxy": proxy, "watt": watt, "operator": operator}


@pytest.mark.parametrize(("port", "page"), ASKED, ids=[f"{port.face}{page.path}" for port, page in ASKED])
def test_a_path_that_is_listed_is_served(port: Port, page: Page, servers: dict[str, AgentProcess]) -> None:
    path = page.path.replace("{key}", "background-colour").replace("{id}", "1") + QUERIES.get(page.path, "")
    with closing(HTTPConnection(servers[port.face].address(port.name), timeout=TIMEOUT)) as connection:
        connection.request(page.methods, path, b"{}" if page.methods == "POST" else None)
        assert connection.getresponse().status in (200, 202, UNREADY.get((port.face, page.path)))


def test_every_path_in_the_code_is_listed() -> None:
    listed = {page.path for _, page in SERVED}
    for name in ROUTES:
        paths = re.findall(r'b"(/[a-z][\w/]*)"', (ROOT / "src" / "wigwag" / name).read_text())
        assert paths
        assert set(paths) <= listed


@pytest.mark.skipif(shutil.which("grpcurl") is None, reason="THE SERVICES OF THE PORTS WERE NOT ASKED FOR: no grpcurl")
@pytest.mark.parametrize("port", SERVICES, ids=[f"{port.face}-{port.name}" for port in SERVICES])
def test_the_services_that_are_listed_are_those_of_the_port(port: Port, servers: dict[str, AgentProcess]) -> None:
    asked = ["grpcurl", "-plaintext", servers[port.face].address(port.name), "list"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    assert set(answer.stdout.split()) == set(port.services)


def test_every_option_of_the_agent_is_in_a_table_with_its_variable() -> None:
    rows = dict(
        re.findall(r"^\| (?:`-\w`, )?`--([a-z-]+).*?` \| .*?\| `(FLAGD_\w+)` \|", rendered("cli.md"), re.MULTILINE)
    )
    options = {field.name.replace("_", "-"): f"FLAGD_{field.name.upper()}" for field in fields(AgentOptions)}
    assert options.items() <= rows.items()


def test_every_option_of_the_proxy_is_in_a_table() -> None:
    section = rendered("cli.md").partition("## wigwag proxy\n")[2].partition("\n## ")[0]
    options = {field.name.replace("_", "-") for field in fields(ProxyOptions)} - {"action"}
    assert options == set(re.findall(r"^\| (?:`-\w`, )?`--([a-z-]+)", section, re.MULTILINE))
