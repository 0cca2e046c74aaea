"""How long a change takes to reach a client in a storm of other changes: of a critical flag, beside an ordinary one.

    scripts/bench killswitch                    all ways, 100 changes of each flag
    scripts/bench killswitch --quick            20 changes
    scripts/bench killswitch --only file,proxy  some ways; the third is kubernetes, with a real API server
    scripts/bench killswitch --sources 50 --rate 20 --flags 20

The agent reads two probes and many other sources, which another process changes at a rate each. The probes are changed
in turn, so both see the same storm, and the same neighbours on this machine. Time is from before the write until an
event stream of the agent names the flag. Ways: `file` (sources of an agent), `proxy` (files of a proxy, which the agent
subscribes to), `kubernetes` (FeatureFlags that the agent watches). Exits 1 if critical changes are slower in the median
than ordinary ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from bench.process import ServerProcess, cpu_seconds, free_ports, replace
from wigwag.wire.client.grpc import MessageStream, open_channel
from wigwag.wire.client.http2 import Endpoint

EVENTS = "/flagd.evaluation.v1.Service/EventStream"
WIGWAG = f"{sys.executable} -m wigwag"
ORDINARY, CRITICAL = "ordinary", "critical"
WAYS = ("file", "proxy", "kubernetes")
NAMESPACE = "bench"
PATIENCE = 120.0
PROBES = [f"{kind}-{number}" for kind in (ORDINARY, CRITICAL) for number in range(10)]
"""Ten of each kind, in turn, because a source has ten critical changes at once and then one every six seconds."""
Write = Callable[[str, int], None]
"""Changes the flags of a name to a revision."""


class Storm(NamedTuple):
    """So many other sources, how often each changes in a second, and how many flags it has."""

    sources: int
    rate: float
    flags: int

    def names(self) -> list[str]:
        return [f"storm-{number}" for number in range(self.sources)]


def document(name: str, revision: int, count: int = 1) -> dict[str, Any]:
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": ("on", "off")[revision % 2]}
    metadata = {"revision": revision, **({"critical": True} if name.startswith(CRITICAL) else {})}
    return {"flags": {f"{name}-{number}": {**flag, "metadata": metadata} for number in range(count)}}


def blow(storm: Storm, write: Write) -> None:
    """Change the sources in turn, for ever; one that is late is not made up for."""
    due, revision = time.monotonic(), 0
    while True:
        revision += 1
        for name in storm.names():
            due = max(due + 1 / storm.rate / storm.sources, time.monotonic() - 0.1)
            time.sleep(max(due - time.monotonic(), 0))
            write(name, revision)


class Files:
    """Sources that are files."""

    def __init__(self, folder: Path, flags: int) -> None:
        self.folder, self._flags = folder, flags

    def write(self, name: str, revision: int) -> None:
        count = 1 if name in PROBES else self._flags
        replace(self.folder / f"{name}.json", json.dumps(document(name, revision, count)))

    def uri(self, name: str) -> str:
        return f"file:{self.folder}/{name}.json"


class FeatureFlags:
    """Sources that are FeatureFlags of a real API server."""

    def __init__(self, flags: int) -> None:
        from bench.operator_cluster import Asker  # not needed without an API server
        from wigwag.kube.kinds import FEATURE_FLAG

        self._asker, self._kind, self._flags = Asker(), FEATURE_FLAG, flags

    def write(self, name: str, revision: int) -> None:
        count = 1 if name in PROBES else self._flags
        change = {"spec": {"flagSpec": document(name, revision, count)}}
        if revision:
            self._asker.patch(self._kind, NAMESPACE, name, change)
        else:
            self._asker.create(self._kind, {"metadata": {"name": name, "namespace": NAMESPACE}, **change})

    def uri(self, name: str) -> str:
        return f"core.openfeature.dev/{NAMESPACE}/{name}"


@contextmanager
def storming(way: str, folder: Path, storm: Storm) -> Iterator[None]:
    """Have another process change the sources."""
    arguments = ["--storm", way, str(folder), *map(str, storm)]
    process = subprocess.Popen([sys.executable, "-m", "bench.killswitch", *arguments])
    try:
        yield
    finally:
        process.kill()
        process.wait()


class Measured(NamedTuple):
    """Milliseconds of each change, by probe, and what the agent used."""

    times: dict[str, list[float]]
    cpu: float
    """Share of one core."""
    events: float
    """Per second."""


class EventLog:
    """When an event stream named a flag last."""

    def __init__(self) -> None:
        self.count, self._seen, self._news = 0, dict[str, float](), asyncio.Event()

    async def follow(self, messages: MessageStream) -> None:
        async for message in messages:
            self.count += 1
            for probe in PROBES:
                if f"{probe}-0".encode() in message:
                    self._seen[probe] = time.monotonic()
                    self._news.set()

    async def after(self, probe: str, start: float) -> float:
        """Return how many milliseconds after a time a probe was named."""
        async with asyncio.timeout(PATIENCE):
            while self._seen.get(probe, 0.0) < start:
                self._news.clear()
                await self._news.wait()
        return (self._seen[probe] - start) * 1000


async def probe(agent: ServerProcess, port: int, write: Write, changes: int) -> Measured:
    """Change both probes in turn, at no fixed phase of the storm."""
    log, times = EventLog(), {ORDINARY: list[float](), CRITICAL: list[float]()}
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        channel = await stack.enter_async_context(open_channel(Endpoint((("127.0.0.1", port),), f"127.0.0.1:{port}")))
        messages = stack.enter_context(channel.stream(EVENTS, b""))
        following = group.create_task(log.follow(messages))
        await asyncio.sleep(2.0)  # the storm begins
        began, used, events = time.monotonic(), cpu_seconds(agent.process.pid), log.count
        for revision in range(1, changes + 1):
            for kind, taken in times.items():
                await asyncio.sleep(0.1 + revision * 0.618 % 0.1)
                name, start = f"{kind}-{revision % 10}", time.monotonic()
                write(name, revision)
                taken.append(await log.after(name, start))
        seconds = time.monotonic() - began
        following.cancel()
        return Measured(times, (cpu_seconds(agent.process.pid) - used) / seconds, (log.count - events) / seconds)


def measure(way: str, storm: Storm, changes: int) -> Measured:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if way == "kubernetes":
            from bench.watch import control_plane

            stack.enter_context(control_plane())
        sources: Files | FeatureFlags = FeatureFlags(storm.flags) if way == "kubernetes" else Files(folder, storm.flags)
        names = [*storm.names(), *PROBES]
        for name in names:
            sources.write(name, 0)
        uris = [sources.uri(name) for name in names]
        if way == "proxy":
            port, management = free_ports(2)
            command = f"{WIGWAG} proxy start -p {port} -m {management} --bind 127.0.0.1 --allow file"
            stack.enter_context(ServerProcess(command, management))
            listed = [{"uri": f"127.0.0.1:{port}", "provider": "grpc", "selector": uri} for uri in uris]
            given = f"--sources '{json.dumps(listed)}'"
        else:
            given = " ".join(f"-f {uri}" for uri in uris)
        port, management, sync, ofrep = free_ports(4)
        ports = f"-p {port} -m {management} -g {sync} -r {ofrep} --bind 127.0.0.1"
        agent = stack.enter_context(ServerProcess(f"{WIGWAG} start {ports} {given}", management))
        stack.enter_context(storming(way, folder, storm))
        return uvloop.run(probe(agent, port, sources.write, changes))


def report(way: str, measured: Measured) -> bool:
    """Print a row for each probe; return whether critical changes are the quicker ones."""
    medians = {}
    for name, taken in measured.times.items():
        ordered = sorted(taken)
        medians[name] = statistics.median(ordered)
        worst = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
        print(f"  {way:12}{name:12}{medians[name]:10.1f} ms{worst:10.1f} ms")
    ratio = medians[ORDINARY] / medians[CRITICAL]
    print(
        f"  {way:12}ratio {ratio:.1f}; the agent: {measured.cpu:.0%} of a core, {measured.events:.0f} events/s",
        flush=True,
    )
    return ratio >= 1.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench killswitch")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--sources", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--flags", type=int, default=20)
    parser.add_argument("--changes", type=int, default=0)
    parser.add_argument("--storm", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.storm:
        way, folder, count, rate, flags = given.storm
        storm = Storm(int(count), float(rate), int(flags))
        blow(storm, (FeatureFlags(storm.flags) if way == "kubernetes" else Files(Path(folder), storm.flags)).write)
    storm = Storm(given.sources, given.rate, given.flags)
    print(f"{storm.sources} other sources of {storm.flags} flags, each changed {storm.rate:g} times a second")
    print(f"  {'':24}{'median':>13}{'p99':>13}", flush=True)
    changes = given.changes or (20 if given.quick else 100)
    quicker = {way: report(way, measure(way, storm, changes)) for way in given.only.split(",")}
    return 0 if all(quicker.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
