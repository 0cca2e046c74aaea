"""The API of the console, over HTTP: what it returns, whom it refuses, and that its description is true."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.agent.process import AgentProcess
from wigwag.cli.commands.console import NoConsoleError, find_console
from wigwag.serve.console.openapi import AGENT

FLAG: dict[str, Any] = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


def ask(agent: AgentProcess, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://{agent.address('management')}/console/api/v1{path}", data, headers)
    try:
        with urlopen(request, timeout=20) as response:
            content = response.read()
            packed = response.headers.get("content-encoding") == "gzip"
            return response.status, json.loads(gzip.decompress(content) if packed else content)
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def status_of(url: str, **headers: str) -> int:
    try:
        with urlopen(Request(url, headers=headers), timeout=20) as response:
            return int(response.status)
    except HTTPError as error:
        error.close()
        return error.code


@pytest.fixture(scope="module")
def agent() -> Any:
    with AgentProcess() as running:
        yield running


def test_the_description_is_true(agent: AgentProcess) -> None:
    status, described = ask(agent, "/openapi.json")
    assert status == 200
    assert set(described["paths"]) == {f"/console/api/v1{path}" for path in AGENT}
    assert ask(agent, "/nothing")[0] == 404
    for path, operation in AGENT.items():
        if path == "/events":
            continue
        status, answer = ask(agent, path, {} if operation.method == "post" else None)
        assert status == 200 or ("error" in answer and status in (400, 404)), (path, answer)


def test_answers_over_http(agent: AgentProcess) -> None:
    assert ask(agent, "")[1]["face"] == "agent"
    rows = {row["key"]: row for row in ask(agent, "/flags")[1]["flags"]}
    assert rows["requests-per-second"]["type"] == "integer"
    assert rows["maintenance-mode"]["state"] == "DISABLED"
    assert rows["background-colour"]["rule"] == "25 % red, 25 % blue, 50 % green, by targetingKey"
    tried = ask(agent, "/try", {"key": "requests-per-second", "context": {"tier": "gold"}})[1]
    assert tried["answer"] == {"value": 100, "variant": "high", "reason": "TARGETING_MATCH"}
    assert len(tried["over_time"]) == 1
    contexts = [{"targetingKey": f"user-{number}"} for number in range(100)]
    spread = ask(agent, "/distribution", {"key": "background-colour", "contexts": contexts})[1]
    assert sum(spread["variants"].values()) == 100
    assert set(spread["variants"]) == {"red", "blue", "green"}


def test_large_answers_are_compressed(agent: AgentProcess) -> None:
    status, rows = ask(agent, "/flags", **{"accept-encoding": "gzip"})
    assert (status, len(rows["flags"])) == (200, 6)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/try", {"context": {}}, "`key` is missing"),
        ("/try", {"key": "x", "context": []}, "`context` must be an object"),
        ("/try", [], "send a JSON object"),
        ("/distribution", {"key": "x", "contexts": [1]}, "`contexts` must be a list of objects"),
        ("/distribution", {"key": "x", "contexts": [{}] * 10_001}, "there may be 10000 contexts"),
        ("/whatif", {"document": 7}, "`document` is missing"),
        ("/whatif", {"document": "{}", "source": 7}, "`source` must be"),
    ],
)
def test_what_makes_no_sense_is_refused(agent: AgentProcess, path: str, body: Any, message: str) -> None:
    status, answer = ask(agent, path, body)
    assert status == 400
    assert message in answer["error"]


def test_an_unknown_flag_and_an_unknown_snapshot(agent: AgentProcess) -> None:
    assert ask(agent, "/flag?key=nothing")[0] == 404
    assert "no snapshot" in ask(agent, "/diff?from=123456")[1]["error"]


def test_other_machines_and_other_sites_see_nothing(agent: AgentProcess) -> None:
    for headers in ({"x-forwarded-for": "192.0.2.1"}, {"host": "evil.example"}, {"origin": "http://evil.example"}):
        status, answer = ask(agent, "/flags", **headers)
        assert status == 403
        assert "the console shows nothing to other machines" in answer["error"]


def test_the_page_holds_no_data_and_allows_nothing_from_elsewhere(agent: AgentProcess) -> None:
    place = f"http://{agent.address('management')}/console/"
    with urlopen(place, timeout=20) as response:
        assert "default-src 'none'; script-src 'self'" in response.headers["content-security-policy"]
        etag = response.headers["etag"]
    assert status_of(place, **{"if-none-match": etag}) == 304
    assert {status_of(place + name) for name in ("app.js", "style.css", "preact.js")} == {200}
    assert {status_of(place + name) for name in ("no.js", "../site.py", "%2e%2e/site.py", "preact.LICENSE")} == {404}


def test_all_files_of_the_page_are_small() -> None:
    assets = Path(__file__).parents[2] / "src/wigwag/serve/console/assets"
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in assets.iterdir()) < 150_000


def test_the_command_finds_it(agent: AgentProcess) -> None:
    address, overview = find_console(agent.address("management"))
    assert (address, overview["face"]) == (agent.address("management"), "agent")
    with pytest.raises(NoConsoleError, match="is that the management port"):
        find_console(agent.address("OFREP"))
