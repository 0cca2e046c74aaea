"""The soak: a real agent under changes, outages, bad documents, reconnects and load, for as long as you like.

    scripts/bench soak                    30 minutes
    scripts/bench soak --seconds 120      two

The agent has a file, a web server and another agent as sources, and keeps its last good flags. Storms alternate with
calms. In a storm everything happens at once; in a calm the sources are well again, no client is there, and the agent
must have the newest flags soon. Then its open files, its tasks and its memory are counted: the last third of the counts
must be as the second is; the first is for warming up. Every answer is looked at, too. Exits 1 if anything is amiss.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import grpc
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from bench.soak_clients import BULK, HOST, Ground, ask, connected, load, visitor
from bench.soak_upstreams import SOURCES, Agent, Upstreams

VISITORS = 6
RECOVERY_SECONDS = 45.0
"""How soon after everything is well again the newest flags must be served: the longest back-off, and some."""
MORE_FILES, MORE_TASKS, MORE_MEMORY = 2, 2, 0.03
"""What the last third may have more than the second: files and tasks by number, memory by share."""
SLACK_MB, WARMING_MB, WARM_SECONDS = 1.0, 8.0, 600.0
"""What memory may differ by; an agent is warm after some minutes (of load: on a busy machine that takes longer)."""


@dataclass(frozen=True)
class Sample:
    """The agent in a calm."""

    at: float
    files: float
    tasks: float
    memory: float
    """MB."""
    cpu: float
    snapshots: float


class Soak:
    """One run."""

    def __init__(self, folder: Path, seconds: float, rate: float, seed: int) -> None:
        self._seconds, self._rate, self._folder, random = seconds, rate, folder, Random(seed)
        self.upstreams = Upstreams(folder, random)
        self.samples: list[Sample] = []
        self.agent: Agent
        self.ground: Ground
        self._random, self._documents = random, 0
        self._newest = ""

    async def run(self) -> None:
        """Storm and calm, until the time is over."""
        sources = await self.upstreams.start()
        self.agent = Agent("agent", self._folder, f"--sources={sources}", f"--state-dir={self._folder / 'state'}")
        self.agent.start()
        self.ground = Ground(self.agent.ports, self._random)
        follower = None
        try:
            await self._calm()
            follower = asyncio.create_task(self._follow())
            start, length = time.monotonic(), min(max(self._seconds / 24, 3.0), 40.0)
            while time.monotonic() - start < self._seconds:
                await self._storm(length * 0.75)
                await self._calm()
                self.samples.append(await self._sample(time.monotonic() - start))
                self._progress()
        finally:
            if follower is not None:
                follower.cancel()
            code = await asyncio.to_thread(self.agent.end)
            self.ground.expect(code == 0, f"the agent ended with {code}")
            await self.upstreams.stop()

    async def _storm(self, seconds: float) -> None:
        resting = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(VISITORS):
                group.create_task(visitor(self.ground, resting))
            group.create_task(self.upstreams.disturb(resting))
            group.create_task(load(self.ground, self._rate, resting))
            await asyncio.sleep(seconds)
            resting.set()

    async def _calm(self) -> None:
        """Wait until the newest flags of all sources are served, and those who have left are gone."""
        self.upstreams.say()
        end = time.monotonic() + RECOVERY_SECONDS
        while set((await self._marks()).values()) != {self.upstreams.revision}:
            if time.monotonic() > end:
                self.ground.faults.append(f"not recovered: {await self._marks()} is not {self.upstreams.revision}")
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        wanted = f'"now":{self.upstreams.revision}}}'
        told = not self._newest or self._newest.count(wanted) == len(SOURCES)
        self.ground.expect(told, f"the sync stream did not get revision {self.upstreams.revision}")

    async def _marks(self) -> dict[str, Any]:
        """Return the revision of each source that is served."""
        try:
            async with connected(self.agent.ports["ofrep"]) as (reader, writer):
                status, _, body = await ask(reader, writer, BULK, {"context": {}})
        except OSError:
            return {}
        if status != 200:  # it listens, and knows nothing yet
            return {}
        found = {flag["key"]: flag.get("value") for flag in json.loads(body)["flags"]}
        return {source: found.get(f"mark-{source}") for source in SOURCES}

    async def _follow(self) -> None:
        """One client stays from the beginning to the end."""
        async with grpc.aio.insecure_channel(f"{HOST}:{self.agent.ports['sync']}") as channel:
            stub: Any = sync_pb2_grpc.FlagSyncServiceStub(channel)
            async for message in stub.SyncFlags(sync_pb2.SyncFlagsRequest()):
                self._newest = message.flag_configuration
                self._documents += 1

    async def _sample(self, at: float) -> Sample:
        async with connected(self.agent.ports["management"]) as (reader, writer):
            _, _, body = await ask(reader, writer, "/metrics")
        lines = (line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))
        told = {name: float(value) for name, value in lines}
        return Sample(
            at,
            told["process_open_fds"],
            told["wigwag_tasks"],
            told["process_resident_memory_bytes"] / 1e6,
            told["process_cpu_seconds_total"],
            told["wigwag_snapshot_number"],
        )

    def _progress(self) -> None:
        sample, counts = self.samples[-1], self.ground.counts
        if len(self.samples) == 1:
            columns = ("seconds", "files", "tasks", "MB", "CPU s", "snapshots", "changes", "requests", "streams")
            print("".join(f"{name:>11}" for name in (*columns, "visits", "faults")))
        numbers = (
            sample.at, sample.files, sample.tasks, sample.memory, sample.cpu, sample.snapshots,
            self.upstreams.changes, counts["requests"], counts["streams"], counts["visits"], len(self.ground.faults),
        )  # fmt: skip
        print("".join(f"{number:>11.1f}" if number % 1 else f"{number:>11.0f}" for number in numbers), flush=True)


def judge(samples: list[Sample], slack: float = SLACK_MB) -> list[str]:
    """Compare the last third with the second; return what is not flat."""
    third = len(samples) // 3
    if not third:
        return ["too few samples to judge: run it longer"]
    second, last = samples[third : 2 * third], samples[2 * third :]

    def grew(name: str, most: float) -> str:
        before, after = (statistics.median(getattr(each, name) for each in part) for part in (second, last))
        verdict = "flat" if after <= before + most else "GROWS"
        print(
            f"{name:8}{before:>9.1f} in the second third,{after:>9.1f} in the last (at most {most:.1f} more): {verdict}"
        )
        return "" if verdict == "flat" else f"{name} grew from {before:.1f} to {after:.1f}"

    memory = statistics.median(each.memory for each in second) * MORE_MEMORY + slack
    found = [grew("files", MORE_FILES), grew("tasks", MORE_TASKS), grew("memory", memory)]
    return [each for each in found if each]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--rate", type=float, default=400.0, help="evaluations a second, beside what visitors do")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), options.seconds, options.rate, options.seed)
        asyncio.run(soak.run())
        slack = SLACK_MB if options.seconds >= WARM_SECONDS else WARMING_MB
        amiss = judge(soak.samples, slack) + soak.ground.faults
        for each in amiss[:20]:
            print(f"amiss: {each}")
        if amiss:
            print(soak.agent.tail())
    print(f"{soak.ground.counts['visits']} visits, {soak.upstreams.outages} outages; {len(amiss)} things amiss")
    return 1 if amiss else 0


if __name__ == "__main__":
    sys.exit(main())
