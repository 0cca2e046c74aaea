"""How soon agents are back after three restarts of the proxy in a row: seconds until all of them have the newest flags.

    scripts/bench restarts                            100 agents, 3 restarts, 2 seconds down, 10 seconds apart
    scripts/bench restarts --agents 10 --apart 3

The proxy is a process of its own; it is killed, is down for a while, and starts again on the same port. Each agent is a
pipeline with one gRPC source, as in `wigwag start`, and a connection of its own; all of them share one process. The
flags change while the proxy is down, so an agent counts as back when it has the new document. Exits 1 if a target is
missed: after a short outage nobody waits much longer than the outage lasted, however often it happens.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.process import ServerProcess, free_ports, replace
from bench.proxy import OURS, document
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.sources.document import Document
from wigwag.sources.remote.grpc import GrpcWatch, watch_grpc

GIVE_UP = 60.0


class Agents:
    """Pipelines of one gRPC source each, and when each of them got the newest document."""

    def __init__(self, count: int, port: int, flags: Path) -> None:
        self._wanted = b""
        self._back: dict[int, float] = {}
        self._all = asyncio.Event()
        self._count = count
        spec = GrpcWatch(f"127.0.0.1:{port}", selector=f"file:{flags}")
        self.pipelines = [Pipeline([Wanted(spec)], watch_grpc, dict) for _ in range(count)]

    async def follow(self, number: int) -> None:
        async for picture in self.pipelines[number].published:
            found = next(iter(picture.values()))
            assert isinstance(found, Document)
            if found.content == self._wanted:
                self._back.setdefault(number, time.monotonic())
                if len(self._back) == self._count:
                    self._all.set()

    def expect(self, content: str) -> None:
        self._wanted, self._back = content.encode(), {}
        self._all.clear()

    async def wait(self, since: float) -> list[float]:
        """Return how many seconds each agent took, the fastest first."""
        async with asyncio.timeout(GIVE_UP):
            await self._all.wait()
        return sorted(when - since for when in self._back.values())


async def measure(agents: int, restarts: int, down: float, apart: float) -> list[list[float]]:
    """Return, for each restart, the seconds from when the proxy was ready again until each agent was back."""
    took = []
    with tempfile.TemporaryDirectory() as folder:
        flags = Path(folder) / "flags.json"
        port, management = free_ports(2)
        command = OURS.format(port=port, management=management)
        server = ServerProcess(command, management)
        fleet = Agents(agents, port, flags)
        fleet.expect(document(0))
        replace(flags, document(0))
        await asyncio.to_thread(server.__enter__)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each.run()) for each in fleet.pipelines]
                tasks += [group.create_task(fleet.follow(number)) for number in range(agents)]
                await fleet.wait(0.0)
                for revision in range(1, restarts + 1):
                    await asyncio.sleep(apart)
                    server.process.kill()
                    server.process.wait()
                    fleet.expect(document(revision))
                    replace(flags, document(revision))
                    await asyncio.sleep(down)
                    await asyncio.to_thread(server.__enter__)
                    took.append(await fleet.wait(time.monotonic()))
                for task in tasks:
                    task.cancel()
        finally:
            server.process.kill()
            server.process.wait()
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--down", type=float, default=2.0, metavar="SECONDS")
    parser.add_argument("--apart", type=float, default=10.0, metavar="SECONDS")
    options = parser.parse_args()
    took = asyncio.run(measure(options.agents, options.restarts, options.down, options.apart))
    print(f"{options.agents} agents, proxy down for {options.down:g} s, {options.apart:g} s apart")
    print(f"{'restart':>8} {'half':>7} {'99 %':>7} {'all':>7}  seconds after it was ready again")
    for number, seconds in enumerate(took, 1):
        nearly = seconds[max(0, round(len(seconds) * 0.99) - 1)]
        print(f"{number:8} {statistics.median(seconds):7.2f} {nearly:7.2f} {seconds[-1]:7.2f}")
    target = 2 * options.down + 1.0
    worst = max(each[-1] for each in took)
    print(f"worst: {worst:.2f} s, target: {target:.2f} s")
    return int(worst > target)


if __name__ == "__main__":
    sys.exit(main())
