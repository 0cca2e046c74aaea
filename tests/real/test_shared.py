"""Servers of a test run start once, and end with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real import programs
from tests.real.processes import ServerError, claim_port, until
from tests.real.shared import ROOT, shared

USER = """
import json, sys
from pathlib import Path
from tests.real.shared import shared
with shared("consul", Path(sys.argv[1])) as state:
    print(json.dumps(state["pids"] + [state["keeper"]]), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def needs_consul(private_consul: Callable[..., Any]) -> None:
    """Skips loudly where there is none."""


@contextmanager
def another_user(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Run a process that uses the shared Consul until its standard input ends."""
    command = [sys.executable, "-c", USER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process, [int(pid) for pid in process.stdout.readline().strip("[]\n").split(",")]
        finally:
            process.kill()


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def test_users_get_the_same_servers_and_the_last_one_ends_them(tmp_path: Path) -> None:
    with another_user(tmp_path) as (process, pids):
        with shared("consul", tmp_path) as state:
            assert [*state["pids"], state["keeper"]] == pids
            process.communicate(timeout=20)
            assert not any(gone(pid) for pid in pids)
        assert all(gone(pid) for pid in pids)
    assert not (tmp_path / "data").exists()


def test_servers_start_again_for_a_user_who_comes_after_the_last(tmp_path: Path) -> None:
    with shared("consul", tmp_path) as first:
        pass
    with shared("consul", tmp_path) as second:
        assert first["pids"] != second["pids"]


def test_a_killed_user_leaves_no_server_behind(tmp_path: Path) -> None:
    with another_user(tmp_path) as (process, pids):
        process.kill()
        until(lambda: all(gone(pid) for pid in pids), "the end of the servers")


def test_servers_die_with_a_killed_keeper_and_the_next_user_starts_others(tmp_path: Path) -> None:
    with another_user(tmp_path) as (_, pids):
        os.kill(pids[-1], signal.SIGKILL)
        until(lambda: all(gone(pid) for pid in pids), "the end of the servers")
        with shared("consul", tmp_path) as state:
            assert state["keeper"] != pids[-1]
            assert not gone(state["keeper"])


def test_a_server_that_does_not_start_is_an_error_that_tells_why(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    with pytest.raises(ServerError, match="consul did not start: FileExistsError"), shared("consul", tmp_path):
        pass


def test_claimed_ports_differ() -> None:
    ports = [claim_port() for _ in range(20)]
    assert len(set(ports)) == 20


def test_given_programs_come_before_built_ones(tmp_path: Path) -> None:
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "consul")
    given, path, cache = tmp_path / "given", tmp_path / "path", tmp_path / "cache"
    for folder in (given, path, cache / "k8s", cache / "consul"):
        folder.mkdir(parents=True)
    for file in (given / "etcd", given / "kube-apiserver", *(path / name for name in names)):
        file.touch(mode=0o755)
    for file in (cache / "k8s" / "etcd", cache / "k8s" / "kube-apiserver", cache / "consul" / "consul"):
        file.touch(mode=0o755)
    assets = {"KUBEBUILDER_ASSETS": str(given), "PATH": str(path)}
    assert programs.kubernetes(assets, cache) == programs.Programs(given / "etcd", given / "kube-apiserver", None, None)
    assert programs.kubernetes({"PATH": str(path)}, cache).controllers == path / "kube-controller-manager"
    assert programs.consul({"PATH": str(path)}, cache) == path / "consul"
    assert programs.kubernetes({"PATH": ""}, cache).etcd == cache / "k8s" / "etcd"
    assert programs.consul({"PATH": ""}, cache) == cache / "consul" / "consul"


def test_what_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(programs.UnavailableError, match="scripts/controlplane"):
        programs.kubernetes({"PATH": ""}, tmp_path)
    with pytest.raises(programs.UnavailableError, match="scripts/controlplane"):
        programs.consul({"PATH": ""}, tmp_path)
    with pytest.raises(programs.UnavailableError, match="KUBEBUILDER_ASSETS"):
        programs.kubernetes({"KUBEBUILDER_ASSETS": str(tmp_path)}, tmp_path)
