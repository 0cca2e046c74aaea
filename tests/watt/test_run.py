"""`wigwag watt` as a process: its command line, its config file, its port, and how it reports."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.processes import until
from tests.watt.process import Notified, WattProcess
from wigwag.version import __version__

CONFIG = """
interval: 10ms
notify:
  - {notified}
  - command: 'printf "%s" > {folder}/projected'
    name: projected
    on-failure: skip
    projection: {{sections: [Files]}}
outputs:
  - directory: {folder}/out
    files: {{files.json: {{sections: [Files]}}}}
watches:
  - source: directory
    path: {folder}/watched
  - source: uri
    uri: file:{folder}/document.json
    required: false
"""


def wigwag(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "wigwag", "watt", *arguments], capture_output=True, text=True)


def directory(path: Path) -> list[str]:
    return ["--watches", json.dumps([{"source": "directory", "path": str(path)}])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "watched").mkdir()
    (tmp_path / "watched" / "a").write_text("1")
    (tmp_path / "document.json").write_text('{"b": 2}')
    return tmp_path


class TestCommandLine:
    def test_the_version(self) -> None:
        done = wigwag("--version")
        assert (done.returncode, done.stdout) == (0, f"wigwag watt {__version__}\n")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "no initial sources configured; name a kind with -s"),
            (["-s", "service", "--listen-address", ":8002"], "every address is not loopback; give --token-file"),
            (["-s", "service", "--listen-address", "8002"], "--listen-address: '8002' has no port"),
            (["-s", "service", "-p", "70000"], "--port: '70000' is not a port"),
            (["-s", "service", "--notify", "python:no:where"], "notify[0]: the hook python:no:where cannot"),
            (["-s", "a/b"], "source: 'a/b' is not the name of a kind"),
            (["-s", "service", "--outputs", '[{"directory": "/a"}]'], "outputs: $[0]: Object missing required field"),
            (["--watches", "[{}]"], "watches: $[0]: Object missing required field `source`"),
            (["--sorce", "a"], "watt: unknown option --sorce; did you mean --source?"),
            (["--config", "/no/such/file.yaml"], "/no/such/file.yaml"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_meant_is_one_line_and_an_exit_code(self, arguments: list[str], message: str) -> None:
        done = wigwag(*arguments)
        assert done.returncode not in (0, 1), done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "address"),
        [
            (["-p", "0"], r"127\.0\.0\.1:\d+"),
            (["--listen-address=[::1]:0"], r"\[::1\]:\d+"),
            (["--listen-address=localhost:0"], r"(127\.0\.0\.1|\[::1\]):\d+.*"),
            (["--listen-address=127.0.0.1:0", "--listen-network=tcp4"], r"127\.0\.0\.1:\d+"),
        ],
    )
    def test_it_listens_where_it_is_told(self, arguments: list[str], address: str, folder: Path) -> None:
        if "::1" in arguments[0] and not socket.has_ipv6:
            pytest.skip("this machine has no IPv6")
        hook = Notified(folder)
        with WattProcess(*directory(folder / "watched"), "--notify", hook.command, *arguments) as watt:
            assert re.fullmatch(address, watt.address("snapshots"))
            until(hook.urls, "a notification")
            first = watt.address("snapshots").split()[0]
            assert hook.urls()[0] == f"http://{first}/snapshots/1"

    def test_with_a_token_everybody_has_to_send_it(self, folder: Path) -> None:
        (folder / "token").write_text("hush\n")
        with WattProcess(*directory(folder / "watched"), f"--token-file={folder}/token") as watt:
            until(lambda: watt.get("/readyz")[0] == 200, "the first snapshot")
            assert watt.get("/snapshots/1")[0] == 401
            assert watt.get("/healthz")[0] == 200
            assert watt.get("/snapshots/1", Authorization="Bearer hush")[0] == 200

    def test_a_fatal_hook_ends_it_with_an_exit_code(self, folder: Path) -> None:
        config = folder / "watt.yaml"
        config.write_text("notify: [{command: 'exit 7', on-failure: fatal}]")
        done = wigwag("--config", str(config), "--port=0", *directory(folder / "watched"))
        assert done.returncode == 1
        assert "the hook exit: exit status 7" in done.stderr


def test_everything_from_a_config_file(folder: Path) -> None:
    hook = Notified(folder)
    config = folder / "watt.yaml"
    config.write_text(CONFIG.format(folder=folder, notified=json.dumps(hook.command)))
    with WattProcess("--config", str(config)) as watt:
        first = watt.until(lambda latest: "Documents" in latest, "the document")
        assert first["Files"] == {f"{folder}/watched": {"a": "1"}}
        assert first["Documents"] == {f"{folder}/document.json": {"b": 2}}
        projected = folder / "projected"
        # a shell makes it empty first, whenever there is a new snapshot
        url = until(lambda: projected.read_text() if projected.exists() else "", "the second hook")
        assert url.endswith("?section=Files")
        until(lambda: (folder / "out" / "files.json").exists(), "the output")
        (folder / "new").write_text("2")
        (folder / "new").rename(folder / "watched" / "a")
        watt.until(lambda latest: latest["Files"] == {f"{folder}/watched": {"a": "2"}}, "the change")
        until(lambda: '"a": "2"' in (folder / "out" / "files.json").read_text(), "the change in the output")
        assert watt.stop() == 0
    assert hook.ids() == sorted(set(hook.ids()))


def test_how_it_reports(folder: Path) -> None:
    (folder / "out").write_text("in the way")
    outputs = json.dumps([{"directory": f"{folder}/out", "files": {"a.json": {}}}])
    watches = json.dumps([
        {"source": "directory", "path": f"{folder}/watched"},
        {"source": "directory", "path": f"{folder}/missing", "required": False},
    ])  # fmt: skip
    with WattProcess("--watches", watches, "--notify", "false # hush", "--outputs", outputs) as watt:
        watt.until(bool, "the first snapshot")
        until(lambda: watt.debug()["notify-hooks"][0]["failures"], "the hook to fail")
        until(lambda: watt.debug()["outputs"][0]["error"], "the output to fail")
        until(lambda: "failing" in {each["state"] for each in watt.watches().values()}, "the optional watch to fail")
        page = watt.debug()
        (hook,) = page["notify-hooks"]
        assert (hook["hook"], hook["state"], hook["error"]) == ("false", "degraded", "exit status 1")
        assert {each["watch"].rpartition("/")[2]: each["state"] for each in page["watches"]} == {
            "watched": "live", "missing": "failing"
        }  # fmt: skip
        assert watt.get("/readyz")[0] == 412, "a hook is failing"
        metrics = watt.get("/metrics")[1].decode()
        for line in (
            "wigwag_watt_snapshot_id 1",
            'wigwag_watt_watches{state="live"} 1',
            'wigwag_watt_watches{state="failing"} 1',
            f'wigwag_watt_watch_up{{watch="directory {folder}/watched"}} 1',
            'wigwag_watt_hook_up{hook="false",type="notify"} 0',
        ):
            assert line in metrics
        sources = watt.snapshot("latest", "?format=v2")["sources"]
        assert sources[f"directory {folder}/missing"]["state"] == "failing"
        assert "hush" not in json.dumps(page) + metrics + json.dumps(watt.lines), "arguments may be secret"
        assert watt.stop() == 0
