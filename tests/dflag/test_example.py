"""The example service, as its README says: started, asked, and driven by a mounted ConfigMap."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import yaml

from tests.dflag.kubelet import Volume, until

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "server_kube"
MANIFESTS = EXAMPLE / "kubernetes"


@contextmanager
def server(*options: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Start the example on free ports; yield where it and its page are."""
    command = [sys.executable, str(EXAMPLE / "server.py"), "-example_my_static_int=0", "--config-port=0", *options]
    clean = {name: value for name, value in os.environ.items() if not name.lower().startswith("example_")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean) as process:
        try:
            assert process.stderr
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "serving at" in line:
                    break
            page, home = (re.findall(rf"{word} (http://\S+/)", "".join(lines))[0] for word in ("is at", "serving at"))
            yield home, page, process
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


def asked(url: str) -> tuple[int, Any]:
    try:
        with urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def says(url: str) -> list[str]:
    found: list[str] = asked(url)[1]["says"]
    return found


def config_map() -> dict[str, str]:
    data: dict[str, str] = yaml.safe_load((MANIFESTS / "configmap.yaml").read_text())["data"]
    return data


def test_a_config_map_drives_a_running_service(tmp_path: Path) -> None:
    content = config_map()
    volume = Volume(tmp_path / "flags", content)
    with server(f"--config-dir={volume.path}") as (home, page, _):
        assert says(home) == ["something"] * 20
        volume.write(content | {"example_my_dynamic_int": "2", "example_my_dynamic_string": "hello"})
        until(lambda: says(home) == ["hello"] * 2)
        volume.write(content | {"example_my_dynamic_int": "many", "example_my_dynamic_string": "still here"})
        until(lambda: says(home) == ["still here"] * 2)
        listed = {flag["name"]: flag for flag in asked(f"{page}?format=json")[1]["flags"]}
        assert listed["example_my_dynamic_int"]["current_value"] == "2"
        volume.write({"example_my_dynamic_json": '{"policy": "deny", "rate": 1}'})
        until(lambda: asked(home)[0] == 403)


def test_it_starts_on_the_directory_of_its_readme() -> None:
    with server(f"--config-dir={EXAMPLE / 'flags'}") as (home, _, _process):
        assert says(home) == ["something"] * 2


def test_the_help_lists_every_flag() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE / "server.py"), "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    for name in (*config_map(), "config-dir", "config-port", "bind"):
        assert f"--{name.replace('_', '-')}" in done.stdout
