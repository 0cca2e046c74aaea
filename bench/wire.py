"""What one request costs the wire layer: CPU time of the server process, with a handler that does nothing.

    scripts/bench wire            HTTP/2 POST with a gRPC body and HTTP/1.1 GET, 16 streams on each of 4 connections
    scripts/bench wire --quick    a tenth of the requests

Needs h2load (Debian: nghttp2-client). CPU time per request is what the server process used, user and system, divided by
the requests; wall time on a shared machine says little. Exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = 10.0
"""Microseconds."""
SERVER = Path(__file__).with_name("wire_server.py")
CASES = {
    "HTTP/2 POST": ["-m", "16", "-H", "content-type: application/grpc", "-H", "te: trailers", "-d", "BODY"],
    "HTTP/1.1 GET": ["--h1"],
}


class Server:
    """A server process that tells how much CPU time it has used."""

    def __init__(self) -> None:
        command = [sys.executable, str(SERVER)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.line()

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def cpu(self) -> float:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.line())

    def close(self) -> None:
        self.process.communicate()


def load(address: str, requests: int, options: list[str]) -> int:
    """Send requests; return how many succeeded."""
    url = f"http://{address}/flagd.evaluation.v1.Service/ResolveBoolean"
    command = ["h2load", "-n", str(requests), "-c", "4", *options, url]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) succeeded", output)
    return int(found[1]) if found else 0


def microseconds(server: Server, requests: int, options: list[str]) -> float:
    load(server.address, requests // 10, options)
    before = server.cpu()
    answered = load(server.address, requests, options)
    if answered != requests:
        sys.exit(f"{requests - answered} requests failed")
    return (server.cpu() - before) / requests * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    requests = 20_000 if parser.parse_args().quick else 200_000
    if not shutil.which("h2load"):
        sys.exit("h2load is not installed (Debian: apt-get install nghttp2-client)")
    missed = 0
    with tempfile.NamedTemporaryFile() as body:
        body.write(b"\0" * 5)
        body.flush()
        for name, options in CASES.items():
            server = Server()
            filled = [body.name if option == "BODY" else option for option in options]
            best = min(microseconds(server, requests, filled) for _ in range(3))
            server.close()
            missed += best > TARGET
            print(f"{name:14} {best:6.2f} µs of CPU per request (target {TARGET:.0f})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
