"""The console of a proxy, of watt and of an operator, in a real browser: each shows what it knows, and follows it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agent.process import AgentProcess
from tests.console.browser import Browser
from tests.console.test_console import flag, write
from tests.proxy.process import ProxyProcess
from tests.real.access import Access
from tests.real.operators import OperatorProcess
from tests.watt.process import PORT, WattProcess


def test_a_proxy_shows_its_targets_and_who_waits_for_what(chrome: Browser, tmp_path: Path) -> None:
    flags = tmp_path / "flags.json"
    write(flags, {"a": flag()})
    with ProxyProcess("--file-root", str(tmp_path)) as proxy:
        page = chrome.open(f"http://{proxy.address('management')}/console/")
        page.see("Nobody subscribes to anything yet.")
        sources = [{"uri": proxy.address("sync"), "provider": "grpc", "selector": f"file:{flags}"}]
        with AgentProcess("--sources", json.dumps(sources)):
            page.see("flags.json")
            page.see("live", "table")
            page.run("location.hash = '#/subscribers'")
            page.see("the next change")
        assert page.problems == []
        page.close()


def test_watt_shows_watches_hooks_and_snapshots(chrome: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    (folder / "a.txt").write_text("one")
    watches = json.dumps([{"source": "directory", "path": str(folder)}])
    with WattProcess("--watches", watches, "--notify", "true") as watt:
        page = chrome.open(f"http://{watt.address(PORT)}/console/")
        page.see("the options")
        page.see("has answered")
        page.run("location.hash = '#/snapshots'")
        page.see("complete")
        (folder / "b.txt").write_text("two")
        page.see("add b.txt")
        page.run("location.hash = '#/hooks'")
        page.see("notify")
        assert page.problems == []
        page.close()


def test_an_operator_without_a_cluster_says_that_it_knows_nothing(chrome: Browser, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    Access("https://127.0.0.1:1", "").kubeconfig(config)
    with OperatorProcess(ready=False, environment={"KUBECONFIG": str(config)}) as operator:
        page = chrome.open(f"http://{operator.address('probes')}/console/")
        page.see("There are no FeatureFlags.")
        page.run("location.hash = '#/agents'")
        page.see("No agent runs, or another replica leads.")
        assert page.problems == []
        page.close()
