"""Agents whose proxy restarts again and again: each time they are back as soon as after the first restart.

`scripts/bench restarts` measures it with a hundred agents.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.process import replace
from tests.pipeline.fakes import run
from tests.proxy.process import ProxyProcess, document
from tests.real.processes import claim_port
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.pipeline.watch import WatchPolicy
from wigwag.sources.document import Document
from wigwag.sources.remote.grpc import GrpcWatch, watch_grpc

AGENTS, RESTARTS, FAILURES = 5, 3, 3
PATIENCE = 150.0


@dataclass(frozen=True)
class Counted(Backoff):
    """A policy that tells after how many failures in a row it was asked for a pause."""

    noted: Callable[[int], None] = print

    def pause(self, failures: int, random: Callable[[], float]) -> float:
        self.noted(failures)
        return super().pause(failures, random)


class Agent:
    """A pipeline with one gRPC source."""

    def __init__(self, spec: GrpcWatch, changed: Callable[[], None]) -> None:
        policy = WatchPolicy(Counted(noted=self._failed))
        self.pipeline: Pipeline[GrpcWatch, Document, Mapping[GrpcWatch, Document]] = Pipeline(
            [Wanted(spec)], watch_grpc, dict, policy=policy
        )
        self.failures: list[int] = []
        self.content = b""
        self._changed = changed

    def _failed(self, failures: int) -> None:
        self.failures.append(failures)
        self._changed()

    async def follow(self) -> None:
        async for picture in self.pipeline.published:
            (self.content,) = (found.content for found in picture.values())
            self._changed()


class Fleet:
    """Several agents in one task group."""

    def __init__(self, spec: GrpcWatch) -> None:
        self._changed = asyncio.Event()
        self.agents = [Agent(spec, self._changed.set) for _ in range(AGENTS)]

    async def until(self, wanted: Callable[[Agent], bool]) -> None:
        while not all(map(wanted, self.agents)):
            self._changed.clear()
            await self._changed.wait()

    async def survive(self, port: int, flags: Path) -> None:
        """Restart the proxy a few times."""
        for number in range(RESTARTS + 1):
            content = json.dumps(document(number))
            replace(flags, content)
            with ProxyProcess(f"--port={port}"):
                await self.until(lambda agent, content=content: agent.content == content.encode())  # type: ignore[misc]
                for agent in self.agents:
                    assert agent.failures == list(range(len(agent.failures)))
                    agent.failures.clear()
            await self.until(lambda agent: len(agent.failures) >= FAILURES)


def test_every_restart_of_the_proxy_begins_a_new_row_of_failures(tmp_path: Path) -> None:
    flags = tmp_path / "flags.json"
    port = claim_port()

    async def main() -> None:
        fleet = Fleet(GrpcWatch(f"127.0.0.1:{port}", selector=f"file:{flags}"))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(each) for agent in fleet.agents for each in (agent.pipeline.run(), agent.follow())
            ]
            await fleet.survive(port, flags)
            for task in tasks:
                task.cancel()

    run(main, PATIENCE)
