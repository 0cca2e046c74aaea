"""The Connect conformance suite: gRPC, gRPC-Web and Connect, as their own authors test them.

    go install connectrpc.com/conformance/cmd/connectconformance@v1.0.6

Found on PATH, or named by the environment variable CONNECTCONFORMANCE. The suite starts `conformance_server` itself.
What it cannot judge here, because its only cases are client streams: client certificates, and incomplete messages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = os.environ.get("CONNECTCONFORMANCE") or shutil.which("connectconformance")
INSTALL = "go install connectrpc.com/conformance/cmd/connectconformance@v1.0.6"
FEATURES = {
    "versions": ["HTTP_VERSION_1", "HTTP_VERSION_2"],
    "protocols": ["PROTOCOL_CONNECT", "PROTOCOL_GRPC", "PROTOCOL_GRPC_WEB"],
    "codecs": ["CODEC_PROTO", "CODEC_JSON"],
    "compressions": ["COMPRESSION_IDENTITY", "COMPRESSION_GZIP"],
    "streamTypes": ["STREAM_TYPE_UNARY", "STREAM_TYPE_SERVER_STREAM"],
    "supportsH2c": True,
    "supportsConnectGet": True,
    "supportsMessageReceiveLimit": True,
}
CASES = {False: 1374, True: 2636}
"""Of version 1.0.6, without and with TLS: a suite that runs fewer has not tested what it should."""


@pytest.mark.skipif(
    SUITE is None,
    reason=f"THE CONNECT CONFORMANCE SUITE DID NOT RUN: put it on PATH ({INSTALL}) or name it in CONNECTCONFORMANCE",
)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_every_case_of_the_suite_passes(tls: bool, tmp_path: Path) -> None:
    features = {**FEATURES, "supportsTls": tls}
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"features": features}))
    server = [sys.executable, "-m", "tests.wire.conformance_server"]
    run = subprocess.run(
        [str(SUITE), "--mode", "server", "--conf", str(config), "--", *server],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    output = run.stdout + run.stderr
    assert run.returncode == 0, output[-5000:]
    counted = re.search(r"(\d+) passed, 0 failed", output)
    assert counted is not None, output[-5000:]
    assert int(counted[1]) >= CASES[tls]
