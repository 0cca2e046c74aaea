"""What the agent costs: CPU per request and per stream, memory, time to ready, time from a change to a client.

    scripts/bench agent                     the whole table
    scripts/bench agent --quick             a tenth of the requests, 100 streams
    scripts/bench agent --peer 'flagd start -f file:{flags} -p {port} -m {management} -g {sync} -r {ofrep}'

Beside ours in the same run: the raw limit (our wire layer with a handler that does nothing), and any flagd-compatible
command given with --peer. CPU is user and system time of the server process. Needs h2load (Debian: nghttp2-client);
with ghz on PATH also a real grpc-go client, whose `grpc-timeout` header changes with every call. Exits 1 if a target is
missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import struct_pb2
from openfeature.schemas.protobuf.flagd.evaluation.v1 import evaluation_pb2, evaluation_pb2_grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from bench.process import ServerProcess, free_ports, replace
from bench.wire import Server

ROOT = Path(__file__).parent.parent
PORTS = "-p {port} -m {management} -g {sync} -r {ofrep}"
OURS = f"{sys.executable} -m wigwag start -f file:{{flags}} {PORTS} --bind 127.0.0.1"
TARGETS = {"gRPC": 20, "Connect": 20, "OFREP": 20, "OFREP bulk of 100": 150}
RSS_IDLE, RSS_LOADED, READY_MS, CHANGE_MS, STREAM_US = 40, 50, 400, 20, 8
CONTEXT: dict[str, Any] = {"targetingKey": "user-1", "tier": "gold", "email": "fay@example.com", "age": 42}
CHANGING = {**CONTEXT, "targetingKey": "user-{{.RequestNumber}}", "email": "u{{.RequestNumber}}@example.com"}
"""As ghz's templates write it."""
RESOLVE = "/flagd.evaluation.v1.Service/ResolveBoolean"


def document(revision: int = 0) -> str:
    on_off = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    flags: dict[str, Any] = {f"flag-{n}": on_off for n in range(97)}
    flags["static"] = on_off
    flags["targeted"] = {**on_off, "targeting": {"if": [{"==": [{"var": "tier"}, "gold"]}, "on"]}}
    flags["fractional"] = {**on_off, "targeting": {"fractional": [{"var": "email"}, ["on", 50], ["off", 50]]}}
    flags["flag-0"] = {**on_off, "metadata": {"revision": revision}}
    return json.dumps({"flags": flags})


class Agent(ServerProcess):
    """An agent under test, ours or a peer's, and its file of flags."""

    def __init__(self, command: str, folder: Path) -> None:
        self.flags = folder / "flags.json"
        self.write(0)
        self.ports = dict(zip(("port", "management", "sync", "ofrep"), free_ports(4), strict=True))
        super().__init__(command.format(flags=self.flags, **self.ports), self.ports["management"])

    def write(self, revision: int) -> None:
        replace(self.flags, document(revision))


def grpc_body(flag: str) -> bytes:
    context = struct_pb2.Struct()
    context.update(CONTEXT)
    message = evaluation_pb2.ResolveBooleanRequest(flag_key=flag, context=context).SerializeToString()
    return bytes(b"\0" + len(message).to_bytes(4, "big") + message)


def h2load(url: str, requests: int, body: bytes, *options: str) -> tuple[int, float]:
    """Send requests; return how many succeeded, and how many there were in a second."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        command = ["h2load", "-n", str(requests), "-c", "4", "-d", file.name, *options, url]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found, rate = re.search(r"(\d+) succeeded", output), re.search(r"([\d.]+) req/s", output)
    return int(found[1]) if found else 0, float(rate[1]) if rate else 0.0


def cases(server: Agent) -> dict[str, tuple[str, bytes, tuple[str, ...], int]]:
    """Return what is asked of a server: URL, body, h2load's options, and how many in proportion."""
    grpc_options = ("-m", "16", "-H", "content-type: application/grpc", "-H", "te: trailers")
    json_options = ("--h1", "-H", "content-type: application/json")
    evaluation, ofrep = (f"http://127.0.0.1:{server.ports[name]}" for name in ("port", "ofrep"))
    bulk = f"{ofrep}/ofrep/v1/evaluate/flags"
    found: dict[str, tuple[str, bytes, tuple[str, ...], int]] = {}
    for flag in ("static", "targeted", "fractional"):
        connect = json.dumps({"flagKey": flag, "context": CONTEXT}).encode()
        found[f"gRPC {flag}"] = (evaluation + RESOLVE, grpc_body(flag), grpc_options, 1)
        found[f"Connect {flag}"] = (evaluation + RESOLVE, connect, json_options, 1)
        found[f"OFREP {flag}"] = (f"{bulk}/{flag}", json.dumps({"context": CONTEXT}).encode(), json_options, 1)
    found["OFREP bulk of 100"] = (bulk, json.dumps({"context": CONTEXT}).encode(), json_options, 20)
    return found


def per_request(
    server: Agent | Server, url: str, body: bytes, options: tuple[str, ...], requests: int
) -> tuple[float, float]:
    """Return the CPU time of one request, in microseconds, and the requests per second."""
    h2load(url, max(requests // 10, 100), body, *options)
    before = server.cpu()
    done, rate = h2load(url, requests, body, *options)
    if done != requests:
        sys.exit(f"{requests - done} of {requests} requests to {url} failed")
    return (server.cpu() - before) / requests * 1e6, rate


def compare_requests(ours: Agent, peer: Agent | None, requests: int) -> bool:
    met, theirs = True, cases(peer) if peer else {}
    print(f"{'CPU per request, µs':24}{'wigwag':>10}{'raw limit':>11}{'peer':>10}{'target':>8}{'requests/s':>12}")
    with closing(Server()) as raw:
        for name, (url, body, options, share) in cases(ours).items():
            count = requests // share
            cost, rate = per_request(ours, url, body, options, count)
            floor, _ = per_request(raw, f"http://{raw.address}{RESOLVE}", body, options, count)
            other = per_request(peer, *theirs[name][:3], count)[0] if peer else None
            target = TARGETS.get(name) or TARGETS[name.split()[0]]
            met &= cost <= target
            shown = f"{other:>10.1f}" if other is not None else f"{'-':>10}"
            missed = "" if cost <= target else "missed"
            print(f"{name:24}{cost:>10.1f}{floor:>11.1f}{shown}{target:>8}{rate:>12,.0f} {missed}")
    return met


def with_ghz(server: Agent, requests: int) -> bool:
    """Load with a real grpc-go client, if there is one; tell whether the target was met."""
    ghz = shutil.which("ghz")
    if ghz is None:
        print("\nghz is not on PATH: no grpc-go client was run, so its target was not judged")
        return True
    proto = ROOT / "src" / "wigwag" / "proto" / "evaluation_v1.proto"
    call = ["--insecure", "--proto", str(proto), "--call", "flagd.evaluation.v1.Service.ResolveBoolean"]
    options = ["-c", "64", "--connections", "4"]

    def load(count: int, context: dict[str, Any]) -> None:
        data = json.dumps({"flag_key": "targeted", "context": context})
        command = [ghz, *call, "-d", data, *options, "-n", str(count), f"127.0.0.1:{server.ports['port']}"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    met = True
    for name, context in ("the same context", CONTEXT), ("a new context each", CHANGING):
        load(max(requests // 10, 100), context)
        before = server.cpu()
        load(requests, context)
        cost = (server.cpu() - before) / requests * 1e6
        print()
        met &= report(f"gRPC by ghz, {name}", cost, "µs", TARGETS["gRPC"])
    return met


async def change_to_client(server: Agent, changes: int) -> float:
    """Return the median time from a file's replacement to the event at a client, in milliseconds."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.ports['port']}") as channel:
        stream: Any = evaluation_pb2_grpc.ServiceStub(channel).EventStream(evaluation_pb2.EventStreamRequest())
        await stream.read()
        times = []
        for revision in range(1, changes + 1):
            await asyncio.sleep(0.05)
            start = time.monotonic()
            server.write(revision)
            while (await stream.read()).type != "configuration_change":
                pass
            times.append((time.monotonic() - start) * 1000)
    return statistics.median(times)


async def per_stream(server: Agent, streams: int, changes: int) -> float:
    """Return the CPU time of one change to one sync stream, in microseconds; every stream must see the last change."""
    channels = [
        grpc.aio.insecure_channel(f"127.0.0.1:{server.ports['sync']}", [("grpc.use_local_subchannel_pool", 1)])
        for _ in range(max(streams // 100, 1))
    ]
    stubs = [sync_pb2_grpc.FlagSyncServiceStub(channel) for channel in channels]
    opened = [stubs[n % len(stubs)].SyncFlags(sync_pb2.SyncFlagsRequest()) for n in range(streams)]
    await asyncio.gather(*(stream.read() for stream in opened))
    before = server.cpu()
    for revision in range(changes):
        server.write(1_000_000 + revision)
        await asyncio.gather(*(until(stream, 1_000_000 + revision) for stream in opened))
    used = server.cpu() - before
    for channel in channels:
        await channel.close()
    return used / streams / changes * 1e6


async def until(stream: Any, revision: int) -> None:
    wanted = f'"revision":{revision}'
    while wanted not in (await stream.read()).flag_configuration.replace(" ", ""):
        pass


def report(name: str, value: float, unit: str, target: float) -> bool:
    print(f"{name:44}{value:>9.1f} {unit:3} (target {target:g}){'' if value <= target else '   missed'}")
    return value <= target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, 100 streams")
    parser.add_argument("--peer", help="a command with {flags}, {port}, {management}, {sync} and {ofrep}")
    options = parser.parse_args()
    if shutil.which("h2load") is None:
        sys.exit("h2load is missing; on Debian: apt-get install nghttp2-client")
    requests, streams = (10_000, 100) if options.quick else (100_000, 1_000)
    with tempfile.TemporaryDirectory() as folder, Agent(OURS, Path(folder)) as ours:
        met = report("ready after", ours.ready_ms, "ms", READY_MS)
        met &= report("memory when idle", ours.rss(), "MB", RSS_IDLE)
        if options.peer:
            with tempfile.TemporaryDirectory() as second, Agent(options.peer, Path(second)) as peer:
                met &= compare_requests(ours, peer, requests)
        else:
            met &= compare_requests(ours, None, requests)
        met &= with_ghz(ours, requests * 2)
        met &= report("memory after the load", ours.rss(), "MB", RSS_LOADED)
        met &= report("change to client, median", asyncio.run(change_to_client(ours, 30)), "ms", CHANGE_MS)
        cost = asyncio.run(per_stream(ours, streams, 20))
        # The target is for 1,000 streams: what one change costs by itself weighs ten times as much on each of 100.
        met &= report(f"sync: CPU per stream and change, {streams} streams", cost, "µs", STREAM_US) or options.quick
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
