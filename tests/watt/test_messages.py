"""What `wigwag watt` says about input that it cannot use: what is wrong, where, and what was probably meant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.watt.process import WattProcess
from wigwag.errors import UsageError
from wigwag.watt.config import read_hooks, read_outputs
from wigwag.watt.hooks.hook import parse_hook
from wigwag.watt.options import options_of
from wigwag.watt.snapshots.snapshot import TableName, WatchPart, WattSnapshot, entry
from wigwag.watt.watches.resolvers import ANNOTATION, Resolvers
from wigwag.watt.watches.watchset import read_watch_set, read_watches


@pytest.mark.parametrize(
    ("watch", "message"),
    [
        ({"source": "directry", "path": "d"}, "$[0].source: Invalid value 'directry'; did you mean `directory`?"),
        ({"source": "x"}, "$[0].source: Invalid value 'x'; one of kubernetes, consul, consul-kv, directory, uri"),
        ({"source": "directory", "pth": "d"}, "$[0]: unknown field `pth`; did you mean `path`?"),
        ({"source": "directory", "path": "d", "grace": "soon"}, "$[0]: grace: 'soon' is not a duration"),
    ],
)
def test_a_watch_that_cannot_be_used(watch: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_watches([watch], {}, "watches")
    assert f"watches: {message}" in str(raised.value)


def test_a_watch_set_that_cannot_be_used() -> None:
    with pytest.raises(UsageError, match="not a watch set: unknown field `watchs`; did you mean `watches`"):
        read_watch_set(b'{"watchs": []}', {})


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ({"comand": "x"}, "notify[0]: unknown field `comand`; did you mean `command`?"),
        ({"command": "x", "on-failure": "ignore"}, "Invalid enum value 'ignore'; one of retry, skip, fatal"),
        ({"command": "x", "on-failure": "skipp"}, "Invalid enum value 'skipp'; did you mean `skip`?"),
        ({"command": "x", "timeout": "5x"}, "notify[0]: timeout: '5x' is not a duration"),
        ({"command": "x", "url": "http://y"}, "notify[0]: a hook has one of command, url and python"),
        ({"command": "x", "projection": {"kind": "y"}}, "projection.kind: unknown member; did you mean `kinds`?"),
    ],
)
def test_a_hook_that_cannot_be_used(hook: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_hooks([hook], "notify", 60.0)
    assert message in str(raised.value)


def test_an_output_that_cannot_be_used() -> None:
    with pytest.raises(UsageError, match=r"outputs: \$\[0\]\.format: Invalid enum value 'v1'; one of watt1, v2"):
        read_outputs([{"directory": "d", "files": {}, "format": "v1"}])


@pytest.mark.parametrize("timeout", [5, 5.0, "5", "5s"])
def test_a_timeout_is_a_number_of_seconds_or_a_duration(timeout: object) -> None:
    (hook,) = read_hooks([{"command": "x", "timeout": timeout}], "notify", 60.0)
    assert hook.timeout == 5.0


def test_a_grace_is_a_number_of_seconds_or_a_duration() -> None:
    for grace in (90, "90", "1m30s"):
        (want,) = read_watches([{"source": "directory", "path": "d", "grace": grace}], {}, "watches")
        assert want.grace == 90.0


def test_the_name_of_a_hook_is_its_program_also_in_a_list_of_commands() -> None:
    assert parse_hook("reload; exit 3").name == "reload"


def test_an_unknown_keyword_argument_is_told_with_the_known_one() -> None:
    with pytest.raises(UsageError, match="'sorce' is not an option of watt; did you mean `source`"):
        options_of({"sorce": ["services"]})


def config_map(address: str) -> WattSnapshot:
    table = TableName("Kubernetes", "configmaps")
    value = {
        "kind": "ConfigMap",
        "metadata": {"name": "a", "annotations": {ANNOTATION: ""}},
        "data": {"consulAddress": address, "service": "web"},
    }
    return WattSnapshot({table: WatchPart.of(table, {("", "a"): entry("a", json.dumps(value).encode())})})


def test_a_resolver_that_names_a_variable_that_is_no_address() -> None:
    resolvers = Resolvers({"SECRET": "hunter2", "HOST_IP": "10.0.0.1"})
    assert resolvers(config_map("$SECRET:8500")) == ()
    (problem,) = resolvers.problems.values()
    assert problem.startswith("the address '$SECRET:8500' cannot be used: it names SECRET; a variable must end in _IP,")
    (want,) = resolvers(config_map("${HOST_IP}:8500"))
    assert (str(want.spec), resolvers.problems) == ("consul 10.0.0.1:8500|*|web", {})


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wigwag", "watt", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20)


def test_nothing_to_watch() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "no initial sources configured; name a kind with -s, or other sources with --watches" in done.stderr


def test_a_token_file_that_is_not_there_is_an_error_at_the_start(tmp_path: Path) -> None:
    watches = json.dumps([{"source": "directory", "path": str(tmp_path)}])
    done = run("--watches", watches, "--port=0", f"--token-file={tmp_path}/token")
    assert done.returncode == 2
    assert f"--token-file: FileNotFoundError: {tmp_path}/token: No such file" in done.stderr
    (tmp_path / "token").touch()
    assert "there is no token in it" in run("--watches", watches, f"--token-file={tmp_path}/token").stderr


def test_a_misspelt_key_of_a_config_file_is_told_with_the_known_one(tmp_path: Path) -> None:
    (tmp_path / "watt.yaml").write_text("notfy: x\n")
    assert "'notfy', which is not an option; did you mean `notify`?" in run("--config", f"{tmp_path}/watt.yaml").stderr


def test_the_log_says_that_there_is_no_snapshot_yet_and_repeats_no_failure(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    watches = json.dumps([{"source": "directory", "path": str(missing)}])
    with WattProcess("--watches", watches, "--notify", "reload() { exit 3; }; reload") as watt:
        line = watt.wait_for_log(lambda line: "missing: FileNotFoundError" in line["msg"])
        assert line["msg"].endswith("; there is no snapshot yet")
        missing.mkdir()
        watt.wait_for_log(lambda line: line["msg"] == "snapshot 1: 0 changes, complete")
        (missing / "file").touch()
        watt.wait_for_log(lambda line: line["msg"] == "snapshot 2: 1 change, complete")
        failures = [line for line in watt.lines if "exit status 3" in line["msg"]]
        assert len(failures) == 1
