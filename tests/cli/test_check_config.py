"""`wigwag check-config`: every source reached once, everything that would keep the agent from starting told."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.real.processes import claim_port
from tests.sources.blob_stores import Scripted, answer
from wigwag.agent.options import AgentOptions
from wigwag.cli.commands.check_config import Options
from wigwag.cli.main import main

FLAG = {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}
GOOD, BAD = {"flags": {"a": FLAG, "b": FLAG}}, {"flags": {"a": FLAG, "b": {"variants": 1}}}


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [*os.environ]:
        if name.startswith(("FLAGD_", "AZURE_", "OTEL_", "CONSUL_", "POD_", "KUBERNETES_")):
            monkeypatch.delenv(name)
    for name in ("PORT", "MANAGEMENT_PORT", "SYNC_PORT", "OFREP_PORT"):
        monkeypatch.setenv(f"FLAGD_{name}", "0")  # whatever else is served on this machine
    monkeypatch.setenv("HOME", str(tmp_path))  # no config file of whoever runs this


@pytest.fixture
def good(tmp_path: Path) -> str:
    return written(tmp_path / "good.json", GOOD)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    return written(tmp_path / "bad.json", BAD)


def written(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return f"file:{path}"


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["check-config", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = check(capsys, *arguments, "--output=json")
    return code, json.loads(out)


class TestSources:
    def test_all_is_well(self, capsys: Any, good: str) -> None:
        code, out, err = check(capsys, "--uri", good)
        lines = [line.split() for line in out.splitlines()]
        assert code == 0
        assert lines[0] == ["SOURCE", "PROVIDER", "STATE", "FLAGS", "PROBLEMS", "TIME", "ERROR"]
        assert lines[1][:5] == [good.removeprefix("file:"), "file", "ok", "2", "0"]
        assert err == "1 of 1 source answered, with 2 flags: ready to start\n"

    def test_a_source_that_fails_does_not_hide_the_others(self, capsys: Any, good: str) -> None:
        code, out, err = check(capsys, "--uri=file:/nowhere/a.json", "--uri", good)
        assert code == 1
        assert "failing" in out.splitlines()[1]
        assert "/nowhere/a.json: No such file or directory" in out.splitlines()[1]
        assert "ok" in out.splitlines()[2]
        assert err == "1 of 2 sources answered, with 2 flags: not ready to start\n"

    def test_an_optional_source_may_fail(self, capsys: Any, good: str) -> None:
        sources = [{"uri": good, "provider": "file"}, {"uri": "/nowhere", "provider": "file", "required": False}]
        code, out, _ = check(capsys, "--sources", json.dumps(sources))
        assert code == 0
        assert "/nowhere (optional)" in out

    def test_a_bad_flag_is_told_with_its_place(self, capsys: Any, good: str, bad: str) -> None:
        code, out, _ = check(capsys, "--uri", good, "--uri", bad)
        assert code == 1
        assert out.splitlines()[2].split()[2:5] == ["ok", "1", "1"]
        assert f"{bad.removeprefix('file:')}:1:95: error: $.flags.b.variants: " in out

    def test_a_rule_that_answers_no_variant_is_an_error_here_as_it_is_to_lint(
        self, capsys: Any, tmp_path: Path
    ) -> None:
        rule = {"if": [{"var": "beta"}, "onn"]}
        path = written(tmp_path / "x.json", {"flags": {"a": {**FLAG, "targeting": rule}}})
        code, told = as_json(capsys, "--uri", path)
        (problem,) = told["sources"][0]["problems"]
        assert (code, problem["code"], problem["severity"], problem["line"]) == (1, "variant-unknown", "error", 1)
        _, out, err = check(capsys, "--uri", path)
        assert "did you mean `on`?" in out
        assert err == "1 of 1 source answered, with 1 flag: not ready to start\n"
        assert main(["lint", "-o", "json", path]) == 1
        (found,) = json.loads(capsys.readouterr().out)
        assert {**found, "source": ""} == {**problem, "source": ""}

    def test_with_strict_it_is_the_document_that_fails(self, capsys: Any, bad: str) -> None:
        code, told = as_json(capsys, "--uri", bad, "--strict")
        (source,) = told["sources"]
        assert (code, source["state"], source["flags"], len(source["problems"])) == (1, "failing", 0, 1)

    def test_what_is_no_document_fails(self, capsys: Any, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text("<html>")
        code, told = as_json(capsys, "--uri", f"file:{tmp_path / 'x.json'}")
        assert (code, told["sources"][0]["state"]) == (1, "failing")
        assert "JSON" in told["sources"][0]["error"]

    def test_json_has_it_all(self, capsys: Any, good: str) -> None:
        code, told = as_json(capsys, "--uri", good)
        (source,) = told["sources"]
        assert source.pop("seconds") >= 0
        assert (code, told) == (
            0,
            {
                "ok": True,
                "sources": [
                    {
                        "source": good.removeprefix("file:"),
                        "provider": "file",
                        "priority": 0,
                        "selector": "",
                        "required": True,
                        "state": "ok",
                        "flags": 2,
                        "problems": [],
                        "error": None,
                    }
                ],
                "errors": [],
                "warnings": [],
            },
        )

    def test_without_a_source_it_is_the_demo(self, capsys: Any) -> None:
        assert check(capsys)[1].splitlines()[1].split()[:4] == ["demo", "demo", "ok", "6"]

    def test_a_source_that_cannot_even_be_asked_is_skipped(self, capsys: Any, good: str) -> None:
        code, told = as_json(capsys, "--uri=azblob://c/o", "--uri", good)
        assert (code, told["ok"]) == (2, False)
        assert [source["state"] for source in told["sources"]] == ["skipped", "ok"]
        assert told["sources"][0]["error"] == "the storage account is missing; set AZURE_STORAGE_ACCOUNT"

    def test_no_secret_is_printed(self, capsys: Any) -> None:
        server = Scripted()
        server.fault = lambda handler: answer(handler, 401, b"hush6")
        server.start()
        try:
            address = server.query.partition("endpoint=http://")[2].partition("&")[0]
            element = {
                "uri": f"http://me:hush1@{address}/a.json?token=hush2",
                "provider": "http",
                "headers": {"X-Key": "hush4"},
            }
            code, out, err = check(capsys, "--sources", json.dumps([element]))
            _, told = as_json(capsys, "--sources", json.dumps([element | {"authHeader": "hush5"}]))
        finally:
            server.stop()
        assert code == 1
        assert "401" in out
        assert len(server.requests) == 2
        assert "hush" not in out + err + json.dumps(told)

    def test_two_selectors_of_one_server_are_two_rows(self, capsys: Any) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # nobody listens there
            uri = f"127.0.0.1:{taken.getsockname()[1]}"
            elements = [{"uri": uri, "provider": "grpc", "selector": f"flagSetId={name}"} for name in "ab"]
            code, out, _ = check(capsys, "--sources", json.dumps(elements))
        assert code == 1
        assert f"{uri} (flagSetId=a)" in out
        assert f"{uri} (flagSetId=b)" in out

    def test_the_same_source_twice_is_remarked_on(self, capsys: Any, good: str) -> None:
        code, told = as_json(capsys, "--uri", good, "--uri", good)
        assert code == 0
        assert told["warnings"] == [
            f"source {good.removeprefix('file:')}: is listed 2 times with the same settings; once is enough"
        ]


def test_all_are_asked_at_the_same_time_and_given_up_together() -> None:
    """Forty that never answer take as long as one."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uris = [f"--uri=http://127.0.0.1:{silent.getsockname()[1]}/{name}.json" for name in range(40)]
        command = [sys.executable, "-m", "wigwag", "check-config", *uris, "--timeout=1s", "--output=json"]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        took = time.monotonic() - began
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert [source["error"] for source in told["sources"]] == [
        "no answer within 1 s; look at the network, or give it more time with --timeout"
    ] * 40
    assert all(source["seconds"] > 0.9 for source in told["sources"])
    assert took < 30
    assert "Traceback" not in done.stderr


class TestOptions:
    def test_every_option_of_start_is_one_of_these(self) -> None:
        assert issubclass(Options, AgentOptions)

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [
            (["--port=9000", "--sync-port=9000"], "--port and --sync-port are both port 9000; choose another"),
            (["--socket-path=/s", "--sync-socket-path=/s"], "--socket-path and --sync-socket-path are both /s;"),
            (["--port=8016", "--ofrep-port=8016"], "--port and --ofrep-port are both port 8016"),
            (["--server-cert-path=/no.pem", "--server-key-path=/no.pem"], "there is no file /no.pem"),
            (["--auth-tokens=/no.yaml"], "--auth-tokens: access rules /no.yaml: No such file or directory"),
        ],
    )
    def test_what_would_keep_it_from_starting_is_told(
        self, capsys: Any, good: str, arguments: list[str], why: str
    ) -> None:
        code, out, err = check(capsys, "--uri", good, *arguments)
        assert code == 1
        assert "ok" in out  # the sources are looked at nevertheless
        assert err.startswith("error: ")
        assert why in err

    def test_any_free_port_and_sockets_do_not_clash(self, capsys: Any, good: str, tmp_path: Path) -> None:
        assert check(capsys, "--uri", good, "--port=0", "--sync-port=0")[0] == 0
        free = claim_port()
        ports = (f"--port={free}", f"--sync-port={free}", f"--sync-socket-path={tmp_path / 's'}", "--bind=127.0.0.1")
        assert check(capsys, "--uri", good, *ports)[0] == 0

    def test_certificates_that_cannot_be_used(self, capsys: Any, good: str, tmp_path: Path) -> None:
        (tmp_path / "x.pem").write_text("hush")
        path = str(tmp_path / "x.pem")
        code, told = as_json(capsys, "--uri", good, f"--server-cert-path={path}", f"--server-key-path={path}")
        assert code == 1
        (error,) = told["errors"]
        assert error.startswith(f"{path} holds no certificate in PEM; check --server-cert-path, ")

    def test_a_state_directory_is_looked_at_and_not_made(self, capsys: Any, good: str, tmp_path: Path) -> None:
        assert check(capsys, "--uri", good, f"--state-dir={tmp_path / 'new' / 'dir'}")[0] == 0
        assert not (tmp_path / "new").exists()
        (tmp_path / "file").touch()
        code, _, err = check(capsys, "--uri", good, f"--state-dir={tmp_path / 'file' / 'dir'}")
        assert (code, f"--state-dir: {tmp_path / 'file'} is no directory" in err) == (1, True)

    def test_a_state_directory_that_cannot_be_written_to(self, capsys: Any, good: str, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        path = "/proc" if os.geteuid() == 0 else str(closed)  # root may write wherever files can be
        code, _, err = check(capsys, "--uri", good, f"--state-dir={path}/state")
        assert (code, f"--state-dir: {path} cannot be written to (" in err) == (1, True)
        assert list(closed.iterdir()) == []

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [
            (["--uri=flags.json"], "cannot tell what 'flags.json' is"),
            (["--sources=[{}]"], "$.sources[0]: uri is missing"),
            (["--timeout=0"], "--timeout: a source needs some time"),
            (["--timeout=soon"], "--timeout: 'soon' is not a duration"),
            (["--server-cert-path=a"], "TLS needs both --server-cert-path and --server-key-path"),
            (["--port=x"], "--port: 'x' is not a whole number"),
        ],
    )
    def test_options_that_make_no_sense_are_2(self, capsys: Any, arguments: list[str], why: str) -> None:
        code, out, err = check(capsys, *arguments)
        assert (code, out) == (2, "")
        assert why in err

    def test_a_config_file_is_read_and_its_odd_keys_are_told(self, capsys: Any, good: str, tmp_path: Path) -> None:
        config = tmp_path / "agent.yaml"
        config.write_text(f"prot: 1\nsources:\n  - {{uri: '{good}', provider: file, intervall: 3}}\n")
        code, out, err = check(capsys, "--config", str(config))
        assert (code, " ok " in out) == (0, True)
        assert "the config file has 'prot', which is not an option" in err
        assert "$.sources[0].intervall is not a field and is ignored; did you mean interval?" in err
        assert as_json(capsys, "--config", str(config))[1]["warnings"] == [
            "the config file has 'prot', which is not an option",
            "--sources: $.sources[0].intervall is not a field and is ignored; did you mean interval?",
        ]

    @pytest.mark.parametrize(
        ("arguments", "why", "exit_code"),
        [
            (["-o=x:1", "-D=/nope", "-K=/nope"], "cannot read /nope, a file for the collector", 1),
            (["--metrics-exporter=otel"], "--metrics-exporter otel: where to?", 2),
            (["--metrics-exporter=x"], "--metrics-exporter: 'x' is unknown", 2),
            (["--cors-origin=https://*.*.x"], "--cors-origin: 'https://*.*.x' has more than one *", 2),
            (["--bind=999.1.1.1"], "cannot serve evaluation at port 0 of 999.1.1.1: ", 1),
            (["--bind=192.0.2.1"], "cannot serve evaluation at port 0 of 192.0.2.1: ", 1),
            (["--bind=a..b"], "cannot serve evaluation at port 0 of a..b: ", 1),
            (["--socket-path=/nope/x.sock"], "cannot serve evaluation at /nope/x.sock: [Errno 2] No such file", 1),
            (["--sync-socket-path=/proc/version"], "/proc/version (sync) is in use", 1),
            (["--context-from-consul=web"] * 2, "--context-from-consul: a service is named twice", 2),
            (["--rate-burst=1"], "--rate-burst needs --rate-limit", 2),
        ],
    )
    def test_what_start_refuses_is_refused_here_with_the_same_words(
        self, capsys: Any, good: str, arguments: list[str], why: str, exit_code: int
    ) -> None:
        code, _, err = check(capsys, "--uri", good, *arguments)
        command = [sys.executable, "-m", "wigwag", "start", "--uri", good, *arguments]
        started = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert (code, started.returncode) == (exit_code, exit_code)
        assert why in err
        assert why in started.stderr

    def test_the_extra_for_telemetry_may_be_missing(
        self, capsys: Any, good: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "wigwag.telemetry.batches", None)
        code, _, err = check(capsys, "--uri", good, "--otel-collector-uri=x:1")
        assert (code, "install wigwag[otel]" in err) == (2, True)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:1")
        code, told = as_json(capsys, "--uri", good)
        assert code == 0, "the agent starts without it"
        (warning,) = told["warnings"]
        assert warning.startswith("OTEL_* asks for telemetry, but ")

    def test_places_are_looked_at_and_left_as_they_were(self, capsys: Any, good: str, tmp_path: Path) -> None:
        path = tmp_path / "x.sock"
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            arguments = ["--uri", good, "--bind=127.0.0.1", f"--port={port}", f"--sync-socket-path={path}"]
            code, told = as_json(capsys, *arguments)
            assert (code, told["warnings"]) == (
                0,
                [f"port {port} (evaluation) is in use; stop what uses it, or choose another with --port"],
            ), "it may be the very agent whose options are looked at"
        assert not path.exists()
        assert as_json(capsys, *arguments)[1]["warnings"] == []

    def test_a_socket_in_use_is_left_alone(self, capsys: Any, good: str, tmp_path: Path) -> None:
        path = tmp_path / "x.sock"
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            other.listen()
            code, told = as_json(capsys, "--uri", good, f"--socket-path={path}")
            assert (code, len(told["warnings"])) == (0, 1)
            assert path.is_socket()

    def test_a_limit_that_calls_healthy_sources_stale_is_remarked_on(self, capsys: Any, good: str) -> None:
        code, told = as_json(capsys, "--uri", good, "--stale-after=2s")
        (warning,) = told["warnings"]
        assert code == 0
        assert "its flags are known to hold every 5 s at best" in warning

    def test_the_environment_counts(self, capsys: Any, good: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FLAGD_URI", good)
        assert check(capsys)[1].splitlines()[1].startswith(good.removeprefix("file:"))


class TestAccess:
    RULE: ClassVar[dict[str, Any]] = {"name": "a", "token": "hush-1", "selectors": ["*"]}

    def look(self, capsys: Any, good: str, folder: Path, rules: list[Any]) -> tuple[int, list[str]]:
        (folder / "rules.json").write_text(json.dumps(rules))
        code, told = as_json(capsys, "--uri", good, f"--auth-tokens={folder / 'rules.json'}")
        assert "hush" not in json.dumps(told)
        return code, told["errors"]

    def test_a_token_of_two_rules(self, capsys: Any, good: str, tmp_path: Path) -> None:
        code, errors = self.look(capsys, good, tmp_path, [self.RULE, {**self.RULE, "name": "b"}])
        rules = f"access rules {tmp_path / 'rules.json'}"
        told = f"--auth-tokens: {rules}: the rules 'a' and 'b' have the same token; give each its own"
        assert (code, errors) == (1, [told])

    def test_a_token_of_two_rules_in_two_files(self, capsys: Any, good: str, tmp_path: Path) -> None:
        rules = [{"name": name, "tokenFile": f"{name}.token", "selectors": ["*"]} for name in "ab"]
        for name in "ab":
            (tmp_path / f"{name}.token").write_text("hush-1")
        code, errors = self.look(capsys, good, tmp_path, rules)
        assert (code, "the rules 'a' and 'b' have the same token" in errors[0]) == (1, True)
        (tmp_path / "b.token").write_text("hush-2")
        assert self.look(capsys, good, tmp_path, rules) == (0, [])

    def test_a_token_file_that_is_missing(self, capsys: Any, good: str, tmp_path: Path) -> None:
        rules = [self.RULE, {"name": "b", "tokenFile": "b.token", "selectors": ["*"]}]
        code, errors = self.look(capsys, good, tmp_path, rules)
        assert (code, errors) == (
            1,
            [f"--auth-tokens: token file {tmp_path / 'b.token'}: No such file or directory"],
        )


class TestFacts:
    def test_they_are_asked_for_too(self, capsys: Any, good: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("POD_NAME", "agent-0")
        code, out, err = check(capsys, "--uri", good, "--context-from-pod", "--pod-info=/nowhere")
        assert code == 0
        assert out.splitlines()[2].split()[:6] == ["pod", "(optional)", "pod", "ok", "-", "0"]
        assert err == "2 of 2 sources answered, with 2 flags: ready to start\n"

    def test_the_agent_starts_without_them(self, capsys: Any, good: str) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # nobody listens there
            service = f"consul://127.0.0.1:{taken.getsockname()[1]}/web"
            code, told = as_json(capsys, "--uri", good, f"--context-from-consul={service}")
        fact = told["sources"][1]
        assert (code, fact["provider"], fact["state"], fact["flags"]) == (0, "consul-service", "failing", None)
        assert fact["error"]
