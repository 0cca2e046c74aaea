"""The agent as an operator meets it: probes, files that break, options, ports, signals."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.process import AgentProcess, write

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
ON = {**FLAG, "defaultVariant": "on"}
RESOLVE = "/flagd.evaluation.v1.Service/ResolveBoolean"


def value(agent: AgentProcess, key: str, **headers: str) -> Any:
    status, body = agent.fetch("evaluation", RESOLVE, {"flagKey": key}, content_type="application/json", **headers)
    told = json.loads(body)
    return told["value"] if status == 200 else told["code"]


def changed(agent: AgentProcess, lines: int) -> None:
    agent.wait_for_log(lambda line: line["msg"] == "snapshot published", lines)


def test_a_change_of_the_file_is_served_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "flags.yaml"
    write(path, {"flags": {"x": FLAG}})
    with AgentProcess(f"--uri=file:{path}") as agent:
        assert value(agent, "x") is False
        seen = len(agent.lines)
        write(path, {"flags": {"x": ON}})
        changed(agent, seen)
        assert value(agent, "x") is True
        seen = len(agent.lines)
        write(path, "flags: {x: [")
        agent.wait_for_log(lambda line: "not valid YAML" in line["msg"], seen)
        assert value(agent, "x") is True
        (source,) = json.loads(agent.fetch("management", "/debug/sources")[1])
        assert (source["state"], "not valid YAML" in source["error"]) == ("failing", True)
        assert agent.fetch("management", "/readyz")[0] == 200
        metrics = agent.fetch("management", "/metrics")[1].decode()
        assert f'wigwag_source_up{{source="{path}",priority="0"}} 0' in metrics
        seen = len(agent.lines)
        write(path, {"flags": {"x": FLAG, "bad": {"variants": 1}}})
        changed(agent, seen)
        assert value(agent, "x") is False
        metrics = agent.fetch("management", "/metrics")[1].decode()
        assert f'wigwag_flags_quarantined{{source="{path}",priority="0"}} 1' in metrics


def test_a_file_that_is_missing_at_the_start_is_picked_up_when_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "later" / "flags.json"
    with AgentProcess(f"--uri=file:{path}", ready=False) as agent:
        assert agent.fetch("management", "/healthz")[0] == 200
        assert agent.fetch("management", "/readyz")[0] == 412
        agent.wait_for_log(lambda line: line["msg"] == f"not ready: waiting for the first flags of {path}")
        assert value(agent, "x") == "not_found"
        path.parent.mkdir()
        write(path, {"flags": {"x": ON}})
        changed(agent, 0)
        assert value(agent, "x") is True
        agent.wait_for_log(lambda line: line["msg"] == "ready: every required source has answered")
        assert agent.fetch("management", "/readyz")[0] == 200


def test_later_sources_win_and_give_way(tmp_path: Path) -> None:
    low, high = tmp_path / "low.json", tmp_path / "high.json"
    write(low, {"flags": {"x": FLAG}})
    write(high, {"flags": {"x": ON}})
    sources = json.dumps([{"uri": str(high), "provider": "file"}])
    with AgentProcess(f"--uri=file:{low}", f"--sources={sources}") as agent:
        assert value(agent, "x") is True
        assert value(agent, "x", flagd_selector=f"source={high}") is True
        assert value(agent, "x", flagd_selector=f"source={low}") == "not_found"
        seen = len(agent.lines)
        write(high, {"flags": {}})
        changed(agent, seen)
        assert value(agent, "x") is False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_gently(tmp_path: Path, number: signal.Signals) -> None:
    write(tmp_path / "f.json", {"flags": {"x": FLAG}})
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}") as agent:
        with socket.create_connection(("127.0.0.1", agent.port("OFREP"))) as events:
            events.sendall(b"GET /ofrep/v1/sse HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"connected" in receive(events, b"connected")
            assert agent.stop(number) == 0
            receive(events, None)
        assert not [line for line in agent.lines if "Traceback" in str(line)]


def receive(connection: socket.socket, until: bytes | None) -> bytes:
    connection.settimeout(20)
    found = b""
    while until is None or until not in found:
        part = connection.recv(4096)
        found += part
        if not part:
            break
    return found


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wigwag", "start", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, env=environment, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port=x"], "--port: 'x' is not a whole number"),
        (["--port=70000"], "--port: '70000' is not a port"),
        (["--uri=flags.json"], "cannot tell what 'flags.json' is; write file:PATH"),
        (["--uri=core.openfeature.dev/team"], "this names no FeatureFlag; write core.openfeature.dev/NAMESPACE/NAME"),
        (["--sources={"], "--sources"),
        (['--sources=[{"uri": "x", "provider": "carrier-pigeon"}]'], "unknown provider 'carrier-pigeon'"),
        (["--stream-deadline=soon"], "is not a duration such as 30s"),
        (["--context-value=x"], "not of the form key=value"),
        (["--server-cert-path=x"], "both --server-cert-path and --server-key-path"),
        (["--server-cert-path=x", "--server-key-path=y"], "--server-cert-path: there is no file x"),
        (["--client-ca-path=x"], "--client-ca-path needs TLS"),
        (["--config=no-such-file"], "cannot read the config file no-such-file"),
        (["--fractional=v9"], "v9"),
        (["--uri=file:"], "'file:' names nothing"),
        (["--max-request-body=-5"], "is negative"),
        (["--ofrep-sse-inactivity-delay=0"], "is not at least 1"),
    ],
)
def test_a_wrong_option_is_one_clear_line(arguments: list[str], message: str) -> None:
    done = start(*arguments)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        done = start("--port=0", "--sync-port=0", "--ofrep-port=0", f"--management-port={number}")
    assert done.returncode == 1
    assert f"port {number} (management) is in use" in done.stderr
    assert "--management-port" in done.stderr
    assert "Traceback" not in done.stderr


def test_options_come_from_the_environment_and_a_config_file_too(tmp_path: Path) -> None:
    rule = {"if": [{"==": [{"var": "env"}, "prod"]}, "on"]}
    write(tmp_path / "f.json", {"flags": {"x": {**FLAG, "targeting": rule}}})
    config = tmp_path / "agent.yaml"
    sources = [{"uri": str(tmp_path / "f.json"), "provider": "file"}]
    write(config, {"sources": sources, "context-value": {"env": "prod"}, "disable-sync-metadata": True})
    with AgentProcess(f"--config={config}") as agent:
        assert value(agent, "x") is True


def test_static_and_header_context_apply(tmp_path: Path) -> None:
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}
    write(tmp_path / "f.json", {"flags": {"x": {**FLAG, "targeting": rule}}})
    with AgentProcess(f"-ffile:{tmp_path / 'f.json'}", "-X", "tier=tin", "-H", "X-Tier=tier") as agent:
        assert value(agent, "x") is False
        assert value(agent, "x", x_tier="gold") is True


def test_the_management_port_shows_flags_and_explains_them(tmp_path: Path) -> None:
    write(tmp_path / "f.json", {"flags": {"x": FLAG}, "metadata": {"flagSetId": "s"}})
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}") as agent:
        told = json.loads(agent.fetch("management", "/debug/flags")[1])
        assert [flag["key"] for flag in told["flags"]] == ["x"]
        assert told["number"] == 1
        explained = json.loads(agent.fetch("management", "/debug/explain?key=x")[1])
        assert (explained["variant"], explained["reason"]) == ("off", "STATIC")
        assert agent.fetch("management", "/debug/explain")[0] == 400
        assert agent.fetch("management", "/debug/explain?key=x", b"[")[0] == 400
        assert agent.fetch("management", "/debug/flags?selector=a=b")[0] == 400
        assert agent.fetch("management", "/nope")[0] == 404


def test_context_values_are_not_logged(tmp_path: Path) -> None:
    write(tmp_path / "f.json", {"flags": {"x": {**FLAG, "targeting": {"%": [{"var": "secret"}, 2]}}}})
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}") as agent:
        agent.fetch("OFREP", "/ofrep/v1/evaluate/flags/x", {"context": {"secret": "s3cr3t-value"}})
        agent.stop()
        assert "s3cr3t-value" not in json.dumps(agent.lines)


def test_without_a_source_the_demo_is_served_on_loopback_and_says_what_to_try() -> None:
    ports = ["--port=0", "--management-port=0", "--sync-port=0", "--ofrep-port=0"]
    command = [sys.executable, "-m", "wigwag", "start", *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert sum("curl -s" in line for line in lines) == 3
    assert "evaluation=127.0.0.1:" in err


def test_a_flag_that_goes_bad_on_its_own_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write(path, {"flags": {"x": FLAG}})
    with AgentProcess(f"--uri=file:{path}") as agent:
        seen = len(agent.lines)
        write(path, {"flags": {"x": {**FLAG, "variants": 5}}})
        agent.wait_for_log(lambda line: "last good definition stays" in line["msg"], seen)
        assert value(agent, "x") is False
        (source,) = json.loads(agent.fetch("management", "/debug/sources")[1])
        assert [problem["path"] for problem in source["problems"]] == ["$.flags.x.variants"]


def test_a_rule_that_answers_no_variant_keeps_the_flag_as_it_was_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write(path, {"flags": {"x": FLAG}})
    with AgentProcess(f"--uri=file:{path}") as agent:
        seen = len(agent.lines)
        write(path, {"flags": {"x": {**ON, "targeting": {"if": [{"!": [{"var": "group"}]}, "onn"]}}, "y": ON}})
        line = agent.wait_for_log(lambda line: "variant-unknown" in line["msg"], seen)
        assert "its last good definition stays in force" in line["msg"]
        assert "did you mean `on`?" in line["msg"]
        assert (value(agent, "x"), value(agent, "y")) == (False, True)
        (source,) = json.loads(agent.fetch("management", "/debug/sources")[1])
        (problem,) = source["problems"]
        assert (problem["code"], problem["severity"]) == ("variant-unknown", "error")
        metrics = agent.fetch("management", "/metrics")[1].decode()
        assert f'wigwag_flags_quarantined{{source="{path}",priority="0"}} 1' in metrics
        assert f'wigwag_findings{{source="{path}",priority="0",severity="error"}} 1' in metrics
        seen = len(agent.lines)
        write(path, {"flags": {"x": {**ON, "targeting": {"if": [{"!": [{"var": "group"}]}, "on"]}}}})
        changed(agent, seen)
        assert value(agent, "x") is True


def test_a_new_flag_whose_rule_answers_no_variant_is_served_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "f.json", {"flags": {"x": {**ON, "targeting": {"if": [{"var": "group"}, "onn"]}}}})
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}") as agent:
        line = agent.wait_for_log(lambda line: "variant-unknown" in line["msg"])
        assert "there is no last good definition, so the flag is served as it is" in line["msg"]
        assert value(agent, "x") is True


def test_a_body_that_is_too_large_is_refused_in_the_words_of_each_protocol(tmp_path: Path) -> None:
    write(tmp_path / "f.json", {"flags": {"x": FLAG}})
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}", "--max-request-body=1000") as agent:
        body = {"flagKey": "x", "context": {"a": "x" * 1000}}
        status, told = agent.fetch("evaluation", RESOLVE, body, content_type="application/json")
        assert (status, json.loads(told)["code"]) == (429, "resource_exhausted")
        status, told = agent.fetch("OFREP", "/ofrep/v1/evaluate/flags/x", body)
        assert (status, json.loads(told)) == (413, {"errorDetails": "request body too large"})


def test_a_config_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "agent.yaml", "[]")
    done = start(f"--config={tmp_path / 'agent.yaml'}")
    assert done.returncode == 2
    assert "it must be a mapping of options to values" in done.stderr


def test_a_misspelt_key_of_the_config_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "agent.json", {"sorces": []})
    done = start(f"--config={tmp_path / 'agent.json'}", "--port=x")
    assert "'sorces', which is not an option" in done.stderr


def test_a_second_signal_cuts_it_short(tmp_path: Path) -> None:
    write(tmp_path / "f.json", {"flags": {"x": FLAG}})
    with AgentProcess(f"--uri=file:{tmp_path / 'f.json'}") as agent:
        with socket.create_connection(("127.0.0.1", agent.port("OFREP"))) as half:
            head = b"POST /ofrep/v1/evaluate/flags HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n"
            half.sendall(head + b"expect: 100-continue\r\n\r\n")
            receive(half, b"100 Continue")  # it has begun, so the end waits for it
            agent.process.send_signal(signal.SIGINT)
            agent.wait_for_log(lambda line: line["msg"] == "stopping")
            assert agent.stop(signal.SIGINT) == 130
        assert not [line for line in agent.lines if "Traceback" in str(line)]


def test_the_same_file_twice_is_two_sources(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write(path, {"flags": {"x": FLAG}})
    with AgentProcess(f"--uri=file:{path}", f"--uri=file:{path}") as agent:
        metrics = agent.fetch("management", "/metrics")[1].decode().splitlines()
        names = [line.rpartition(" ")[0] for line in metrics if line and line[0] != "#"]
        assert len(names) == len(set(names))
