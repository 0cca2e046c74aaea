"""h2spec, the conformance suite of HTTP/2 servers, against our server: every case, in strict mode.

Found by the environment variable H2SPEC or on the PATH; `go install github.com/summerwind/h2spec/cmd/h2spec@latest`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.wire.served import LOOPS, run
from wigwag.wire.http import Reply
from wigwag.wire.server.server import Listener, serve

H2SPEC = os.environ.get("H2SPEC") or shutil.which("h2spec") or str(Path.home() / "go/bin/h2spec")


@pytest.mark.skipif(
    not Path(H2SPEC).exists(), reason="H2SPEC IS NOT INSTALLED: conformance to HTTP/2 was NOT tested (set H2SPEC)"
)
@pytest.mark.parametrize("loop", LOOPS)
def test_every_case_of_h2spec(loop: str) -> None:
    async def test() -> None:
        async with serve(lambda _: Reply(200, (), b"hello"), [Listener(host="127.0.0.1")]) as server:
            port = server.addresses[0].rpartition(":")[2]
            process = await asyncio.create_subprocess_exec(
                H2SPEC, "-S", "-h", "127.0.0.1", "-p", port, "-o", "5", stdout=asyncio.subprocess.PIPE
            )
            output = (await process.communicate())[0].decode()
        found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", output)
        assert found, output
        total, passed, skipped, failed = map(int, found.groups())
        assert (skipped, failed) == (0, 0), output[output.find("Failures:") :]
        assert total == passed > 140

    run(test, loop)
