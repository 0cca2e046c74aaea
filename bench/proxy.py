"""What the proxy costs: time until all subscribers have a change, CPU and memory of a stream, and whether any is lost.

    scripts/bench proxy                     100, 1,000 and 10,000 streams
    scripts/bench proxy --quick             100 and 1,000 streams, a few changes
    scripts/bench proxy --peer 'flagd-proxy start -p {port} -m {management}'

A hundred streams share a connection; what a connection costs is told apart, with one for each of 1,000 streams, as pods
have them. The document has 2.8 KB, as in flagd-proxy's own load test, and is replaced again and again. Subscribers are
in a process of their own, so their CPU is not counted, but on a machine with few cores it is in the times. CPU is user
and system time of the proxy. Exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.process import ServerProcess, free_ports, replace
from wigwag.wire.client.grpc import Channel, open_channel
from wigwag.wire.client.http2 import Endpoint
from wigwag.wire.rpcs.protobuf import text

OURS = f"{sys.executable} -m wigwag proxy start -p {{port}} -m {{management}} --bind 127.0.0.1"
METHOD = "/flagd.sync.v1.FlagSyncService/SyncFlags"
PER_CONNECTION = 100
IDLE_MB, STREAM_KB, STREAM_US, ALL_MS = 40, 10, 10, 100
JUDGED = 1_000
"""How many streams the targets for time and CPU are about; memory is judged with this many and more."""


def document(revision: int) -> str:
    on_off = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    flags: dict[str, Any] = {f"flag-{n}": on_off for n in range(28)}
    flags["flag-0"] = {**on_off, "metadata": {"revision": revision}}
    return json.dumps({"flags": flags})


class Proxy(ServerProcess):
    """A proxy under test, ours or a peer's, and the file that its subscribers ask for."""

    def __init__(self, command: str, folder: Path) -> None:
        self.flags = folder / "flags.json"
        self.write(0)
        self.port, self.management = free_ports(2)
        super().__init__(command.format(port=self.port, management=self.management), self.management)

    def write(self, revision: int) -> None:
        replace(self.flags, document(revision))

    def cpu(self) -> float:
        """Return the seconds of CPU time used so far, finer than clock ticks."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


class Arrived(NamedTuple):
    """When a change arrived: at half of the streams, at nearly all, at the last; and how many never saw it."""

    half: float
    nearly: float
    last: float
    lost: int


class Subscribers:
    """Streams in a process of their own: told a revision, it answers when they had it."""

    def __init__(self, proxy: Proxy, streams: int, connections: int) -> None:
        command = [sys.executable, "-m", "bench.proxy", "--subscribe", str(proxy.port), f"file:{proxy.flags}"]
        self._process = subprocess.Popen(
            [*command, str(streams), str(connections)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def wait(self, revision: int) -> Arrived:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{revision}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the subscribers gave up")
        return Arrived(*json.loads(line))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def subscribers(proxy: Proxy, streams: int, connections: int) -> Iterator[Subscribers]:
    found = Subscribers(proxy, streams, connections)
    try:
        yield found
    finally:
        found.close()


class Seen:
    """When each stream saw the revision that is waited for."""

    def __init__(self, streams: int) -> None:
        self._streams, self._wanted = streams, 0
        self._times: list[float] = []
        self._enough = asyncio.Event()
        self._newest = [-1] * streams

    def note(self, stream: int, revision: int) -> None:
        self._newest[stream] = revision
        if revision == self._wanted:
            self._times.append(time.monotonic())
            if len(self._times) >= self._streams:
                self._enough.set()

    async def wait(self, revision: int, patience: float = 60.0) -> Arrived:
        """The change may be here before we are told to wait for it: who has it is not asked when."""
        early = sum(newest == revision for newest in self._newest)
        self._wanted, self._times = revision, [time.monotonic()] * early
        self._enough.clear()
        if early < self._streams:
            try:
                async with asyncio.timeout(patience):
                    await self._enough.wait()
            except TimeoutError:
                pass
        times = sorted(self._times) or [0.0]
        half, nearly = times[len(times) // 2], times[int(len(times) * 0.99)]
        return Arrived(half, nearly, times[-1], self._streams - len(self._times))


async def subscribe(port: int, selector: str, streams: int, connections: int) -> None:
    """Hold streams, and answer each revision that is read from standard input."""
    seen, request = Seen(streams), text(2, selector)
    wanted = re.compile(rb'"revision": ?(\d+)')
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def one(channel: Channel, number: int) -> None:
        with channel.stream(METHOD, request) as answers:
            async for message in answers:
                found = wanted.search(message)
                if found:
                    seen.note(number, int(found[1]))

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        endpoint = Endpoint((("127.0.0.1", port),), f"127.0.0.1:{port}")
        channels = [await stack.enter_async_context(open_channel(endpoint)) for _ in range(connections)]
        tasks = [group.create_task(one(channels[n % connections], n)) for n in range(streams)]
        while line := await lines.readline():
            print(json.dumps(await seen.wait(int(line))), flush=True)
        for task in tasks:
            task.cancel()


class Measured(NamedTuple):
    """What a number of streams costs."""

    memory: float
    cpu: float
    arrived: list[Arrived]


def measure(proxy: Proxy, streams: int, connections: int, changes: int, first: int) -> Measured:
    """Open streams, replace the document so many times, and close them."""
    before = proxy.rss()
    with subscribers(proxy, streams, connections) as clients:
        lost = clients.wait(first).lost
        if lost:
            sys.exit(f"{lost} of {streams} streams got no document at all")
        memory = (proxy.rss() - before) * 1024
        for revision in range(first + 1, first + 4):
            change(proxy, clients, revision)  # not counted: what is touched for the first time
        used = proxy.cpu()
        arrived = [change(proxy, clients, revision) for revision in range(first + 4, first + 4 + changes)]
        used = proxy.cpu() - used
    return Measured(memory / streams, used / streams / changes * 1e6, arrived)


def change(proxy: Proxy, clients: Subscribers, revision: int) -> Arrived:
    time.sleep(0.05)
    start = time.monotonic()
    proxy.write(revision)
    found = clients.wait(revision)
    half, nearly, last = ((when - start) * 1000 for when in found[:3])
    return Arrived(half, nearly, last, found.lost)


def judge(name: str, value: float, unit: str, target: float | None) -> bool:
    wanted = "" if target is None else f" (target {target:g})"
    met = target is None or value <= target
    print(f"  {name:44}{value:>9.1f} {unit:3}{wanted}{'' if met else '   missed'}", flush=True)
    return met


def report(streams: int, found: Measured, *, memory: bool = True, speed: bool = True) -> bool:
    """Print what was measured; tell whether it is good enough, where that is judged."""
    half, nearly, last = (statistics.median(each[n] for each in found.arrived) for n in range(3))
    met = judge("until half of them have a change", half, "ms", None)
    met &= judge("until 99 of 100 have it", nearly, "ms", None)
    met &= judge("until all have it, median", last, "ms", ALL_MS if speed else None)
    met &= judge("until all have it, worst", max(each.last for each in found.arrived), "ms", None)
    met &= judge("CPU per stream and change", found.cpu, "µs", STREAM_US if speed else None)
    met &= judge("memory per stream", found.memory, "KB", STREAM_KB if memory else None)
    return met & judge("streams that missed a change", sum(each.lost for each in found.arrived), "", 0)


def run(command: str, counts: list[int], changes: int, *, judged: bool) -> bool:
    met = True
    for streams in counts:
        with tempfile.TemporaryDirectory() as folder, Proxy(command, Path(folder)) as proxy:
            if streams == counts[0]:
                met &= judge("memory when idle", proxy.rss(), "MB", IDLE_MB if judged else None)
            connections = max(streams // PER_CONNECTION, 1)
            print(f"{streams:,} streams, {connections} connections")
            found = measure(proxy, streams, connections, changes if streams <= JUDGED else changes // 2, 0)
            met &= report(streams, found, memory=judged and streams >= JUDGED, speed=judged and streams == JUDGED)
            print(f"  {'memory of the proxy with them':44}{proxy.rss():>9.1f} MB")
    with tempfile.TemporaryDirectory() as folder, Proxy(command, Path(folder)) as proxy:
        print(f"{JUDGED:,} streams, each with a connection of its own")
        met &= report(JUDGED, measure(proxy, JUDGED, JUDGED, changes, 0), memory=False, speed=False)
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="100 and 1,000 streams, a few changes")
    parser.add_argument("--peer", help="a command with {port} and {management}")
    parser.add_argument("--subscribe", nargs=4, metavar=("PORT", "SELECTOR", "STREAMS", "CONNECTIONS"))
    options = parser.parse_args()
    if options.subscribe:
        port, selector, streams, connections = options.subscribe
        import uvloop

        uvloop.run(subscribe(int(port), selector, int(streams), int(connections)))
        return
    counts, changes = ([100, 1_000], 10) if options.quick else ([100, 1_000, 10_000], 50)
    print(f"wigwag, {os.cpu_count()} cores, a document of {len(document(0))} bytes")
    met = run(OURS, counts, changes, judged=True)
    if options.peer:
        print(f"peer: {options.peer}")
        run(options.peer, counts, changes, judged=False)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
