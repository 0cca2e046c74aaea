"""The example of watt: its hooks as programs, and its configuration; test_watt_example.py has real servers."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import yaml

from tests.documents import contents
from tests.real.processes import until
from tests.watt.process import WattProcess
from wigwag.cli.config import read_config
from wigwag.options import collect, unknown_keys
from wigwag.watt.config import initial_watches, read_hooks, read_outputs
from wigwag.watt.options import WattOptions
from wigwag.watt.watches.watchset import read_watch_set

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "watt"
GUIDE = (ROOT / "docs/guides/watt.md").read_text()
MANIFESTS = EXAMPLE / "kubernetes"


def checked(config: dict[str, Any]) -> list[str]:
    """Read a whole configuration as watt does; return the watches it starts with."""
    assert not unknown_keys(WattOptions, config)
    options = collect(WattOptions, Namespace(), config=config)
    read_hooks(options.watch, "watch", 30.0)
    read_hooks(options.notify, "notify", 60.0)
    read_outputs(options.outputs)
    return [str(want.spec) for want in initial_watches(options, {})]


def test_the_configurations_can_be_used() -> None:
    kinds = ["kubernetes services|*|*|*", "kubernetes configmaps|*|*|*"]
    assert checked(read_config(str(EXAMPLE / "watt.yaml"))) == kinds
    (config_map, _) = yaml.safe_load_all((MANIFESTS / "deployment.yaml").read_text())
    assert len(checked(yaml.safe_load(config_map["data"]["watt.yaml"]))) == 2


def test_the_config_file_of_the_guide_can_be_used() -> None:
    (config,) = (block for block in contents(GUIDE, "yaml") if block.startswith("# watt.yaml"))
    assert len(checked(yaml.safe_load(config))) == 9


def test_the_watch_set_of_the_guide_can_be_used() -> None:
    (text,) = (block for block in contents(GUIDE, "json") if "kubernetes-watches" in block)
    assert len(read_watch_set(text.encode(), {"HOST_IP": "10.0.0.1"})) == 3


def test_the_watch_hook_names_what_annotations_name() -> None:
    service = {"metadata": {"name": "a", "annotations": {"example.com/consul-service": "web"}}}
    snapshot = {"Kubernetes": {"services": [service, service, {"metadata": {"name": "b"}}]}, "Consul": {}}
    hook = [sys.executable, str(EXAMPLE / "watch_hook.py")]
    done = subprocess.run(hook, input=json.dumps(snapshot), capture_output=True, text=True, check=True)
    assert [str(want.spec) for want in read_watch_set(done.stdout.encode(), {})] == ["consul 127.0.0.1:8500|*|web"]


def test_the_notify_hook_writes_its_file_once(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    watches = json.dumps([{"source": "directory", "path": str(tmp_path / "watched")}])
    target = tmp_path / "upstreams.conf"
    hook = f"{sys.executable} {EXAMPLE / 'notify_hook.py'} {target}"
    with WattProcess("--watches", watches, "--notify", hook) as watt:
        until(target.exists, "the file")
        watt.wait_for_log(lambda line: "upstreams.conf has changed" in line["msg"])
        assert target.read_text() == "\n"
