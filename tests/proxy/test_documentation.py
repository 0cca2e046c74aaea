"""What docs/guides/proxy.md tells people to type does what it says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.agent.process import AgentProcess
from tests.proxy.process import ProxyProcess
from tests.test_documents import ROOT, blocks

TEXT = (ROOT / "docs/guides/proxy.md").read_text()
MISSING = [name for name in ("curl", "grpcurl") if shutil.which(name) is None]


@pytest.mark.skipif(
    bool(MISSING), reason=f"THE COMMANDS OF docs/guides/proxy.md WERE NOT TRIED: no {' and no '.join(MISSING)}"
)
def test_its_commands_do_what_they_say(tmp_path: Path) -> None:
    flags = blocks(TEXT, "json")[0]
    (tmp_path / "flags.json").write_text(flags)
    start, ask, agent = blocks(TEXT, "sh")
    options = start.split()[3:]
    assert options == ["--file-root", "."]
    with ProxyProcess("--file-root", str(tmp_path)) as proxy:
        for port, name in (("8015", "sync"), ("8016", "management")):
            ask, agent = (text.replace(f"localhost:{port}", proxy.address(name)) for text in (ask, agent))
        answers = [
            subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=True).stdout
            for line in ask.splitlines()
        ]
        assert json.loads(answers[0]) == {"flagConfiguration": flags}
        assert [each["state"] for each in json.loads(answers[1])["targets"]] == ["live"]
        for metric in re.findall(r"^\| `(\w+)", TEXT.partition("## What to watch")[2], re.MULTILINE):
            assert f"# TYPE {metric} " in answers[2]
        sources = re.search(r"--sources '(.+)'", agent)
        assert sources
        with AgentProcess("--sources", sources[1]) as running:
            assert b"welcome" in running.fetch("management", "/debug/flags")[1]
