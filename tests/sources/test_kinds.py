"""Every kind of source gives documents, and none is loaded before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process import AgentProcess
from tests.pipeline.fakes import run
from tests.sources.blob_stores import AWS, Scripted, answer
from wigwag.errors import UsageError
from wigwag.pipeline.spec import Unavailable
from wigwag.sources.document import Document
from wigwag.sources.kinds import documents, parse_sources, prepare
from wigwag.sources.source import Source, SourceSettings

PLUGINS = ("importlib.metadata",)
"""What is loaded to look for plug-ins."""
EMPTY = b'{"flags": {}}'
KINDS = (
    "wigwag.sources.remote.http",
    "wigwag.sources.remote.grpc",
    "wigwag.sources.remote.blob",
    "wigwag.sources.remote.oauth",
    "obstore",
)
CONSUL = ("wigwag.sources.consul.keys", "wigwag.sources.consul.access", "wigwag.wire.client.client")
KUBE = ("wigwag.kube.client", "wigwag.kube.watch.follow", "wigwag.sources.kubernetes.objects")


async def first(source: Source) -> Any:
    stream = documents(source)
    try:
        return await anext(stream)
    finally:
        await stream.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "kind"), [("a.json", "json"), ("a.yaml", "yaml"), ("a.yml", "yaml"), ("a", None)])
def test_a_file_is_what_its_name_says(tmp_path: Path, name: str, kind: Any) -> None:
    (tmp_path / name).write_bytes(EMPTY)
    assert run(lambda: first(Source(str(tmp_path / name), "file"))) == Document(EMPTY, kind)


def test_a_file_that_is_too_large_or_missing_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(EMPTY)
    found = run(lambda: first(Source(str(tmp_path / "a.json"), "file", settings=SourceSettings(most=5))))
    assert isinstance(found, Unavailable)
    assert isinstance(run(lambda: first(Source(str(tmp_path / "b.json"), "file"))), Unavailable)


def test_the_demo_is_a_document() -> None:
    found = run(lambda: first(Source("demo", "demo")))
    assert len(json.loads(found.content)["flags"]) == 6


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_remote_document_comes_from_where_its_address_says(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name has no secrets in it, so it cannot be what is asked for."""
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    server = Scripted()
    server.content = EMPTY
    server.start()
    try:
        address = server.query.partition("endpoint=")[2].partition("&")[0]
        uri = f"{address}/flags.json?key=hush" if kind == "http" else f"s3://flags/flags.json{server.query}&key=hush"
        (source,) = parse_sources((uri,), "")
        assert "hush" not in source.name
        assert run(lambda: first(source)) == Document(EMPTY, "json")
        assert ("hush" in server.paths[0]) is (kind == "http")
    finally:
        server.stop()


def test_what_http_is_told() -> None:
    server = Scripted()
    server.content = EMPTY
    server.start()
    try:
        address = server.query.partition("endpoint=http://")[2].partition("&")[0]
        fields = {"uri": f"http://me:hush@{address}/a.json", "provider": "http", "headers": {"X-Team": "blue"}}
        (source,) = parse_sources((), [fields])
        assert run(lambda: first(source)) == Document(EMPTY, "json")
        (sent,) = server.requests
        assert (sent["Authorization"], sent["X-Team"]) == ("Basic bWU6aHVzaA==", "blue")
    finally:
        server.stop()


def test_an_agent_on_a_file_loads_no_other_kind_of_source(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(EMPTY)
    code = f"""
import asyncio, sys
import wigwag.agent.run
from wigwag.sources.kinds import documents, prepare
from wigwag.sources.kinds import parse_sources
async def main():
    sources = parse_sources(("file:{path}",), "")
    prepare(sources, print)
    stream = documents(sources[0])
    await anext(stream)
    await stream.aclose()
asyncio.run(main())
print(*sys.modules)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "wigwag.sources.disk.file" in output.split()
    assert {*KINDS, *CONSUL, *KUBE, *PLUGINS} & set(output.split()) == set()


class TestPrepare:
    def test_without_obstore_a_blob_says_what_to_install(self) -> None:
        code = """
import sys
sys.modules["obstore"] = None
from wigwag.cli.main import main
sys.exit(main(["start", "--uri", "s3://bucket/flags.json"]))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 2
        assert "source s3://bucket/flags.json: blob stores need an extra; install wigwag[blob]" in done.stderr

    @pytest.mark.parametrize(
        ("source", "why"),
        [
            (Source("azblob://c/o", "azblob"), "the storage account is missing; set AZURE_STORAGE_ACCOUNT"),
            (Source("xds:///flags", "grpc"), "xds"),
        ],
    )
    def test_what_can_never_answer_is_refused(self, source: Source, why: str) -> None:
        with pytest.raises(UsageError, match=f"source {source.name}: .*{why}"):
            prepare([source], print, {})

    def test_what_has_no_effect_is_told(self) -> None:
        told: list[str] = []
        prepare([Source("s3://b/o?fips=true", "s3"), Source("a.json", "file")], told.append, {})
        assert told == ["source s3://b/o?fips=true: the option fips has no effect"]


def test_two_sources_of_one_uri_are_kept_apart_by_the_agent(tmp_path: Path) -> None:
    """The same address, asked by two teams: each has its own flags, state and problems."""
    server = Scripted()
    server.fault = by_team
    server.start()
    try:
        address = server.query.partition("endpoint=")[2].partition("&")[0]
        uri = f"{address}/flags.json"
        elements = [{"uri": uri, "provider": "http", "headers": {"X-Team": team}} for team in ("red", "blue")]
        with AgentProcess("--sources", json.dumps(elements)) as agent:
            body = agent.fetch("OFREP", "/ofrep/v1/evaluate/flags", {"context": {}})[1]
            told = json.loads(agent.fetch("management", "/debug/sources")[1])
            metrics = agent.fetch("management", "/metrics")[1].decode()
    finally:
        server.stop()
    assert sorted(flag["key"] for flag in json.loads(body)["flags"]) == ["blue", "red"]
    assert [(each["source"], each["priority"], each["state"]) for each in told] == [(uri, 0, "live"), (uri, 1, "live")]
    assert [[problem["path"] for problem in each["problems"]] for each in told] == [[], ["$.flags.bad.variants"]]
    for priority, count in ((0, 0), (1, 1)):
        assert f'wigwag_flags_quarantined{{source="{uri}",priority="{priority}"}} {count}' in metrics


def by_team(handler: BaseHTTPRequestHandler) -> None:
    team = handler.headers["X-Team"]
    flag = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
    bad = {"bad": {"variants": 1}} if team == "blue" else {}
    answer(handler, 200, json.dumps({"flags": {team: flag, **bad}}).encode())
