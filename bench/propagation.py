"""What it costs to know which agents have a change: a question, for the agent and for who asks, beside GET /metrics.

    scripts/bench propagation                    5,000 questions to an agent with ten flags, and with 1 MB of them
    scripts/bench propagation --quick            500

The agent is a process of its own. It is asked by the operator's own client, 32 questions at a time, each with a
connection of its own; its peer is the page that Prometheus asks for in the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from bench.process import ServerProcess
from bench.table import ComparisonTable
from tests.real.processes import claim_port
from wigwag.operator.controllers.propagation import ASKING
from wigwag.operator.propagation.ask import LIMITS, AgentAnswer, AgentClient
from wigwag.wire.client.client import Client
from wigwag.wire.client.url import Url
from wigwag.wire.h1.client import ClientRequest

QUICK, FULL = 500, 5000
DOCUMENTS = {"10 flags": 10, "1 MB of flags": 4000}


class QuestionCost(NamedTuple):
    """Milliseconds of CPU for a question."""

    asking: float
    answering: float


def document(flags: int) -> str:
    """Return a document with so many flags."""
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", "off"]}
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off", "targeting": rule}
    more = {"description": "x" * 80}
    return json.dumps({"flags": {f"flag-{number}": {**flag, "metadata": more} for number in range(flags)}})


async def measured(agent: ServerProcess, ask: Callable[[], Awaitable[object]], questions: int) -> QuestionCost:
    """Ask so often; return what a question costs."""
    limit = asyncio.Semaphore(ASKING)

    async def once() -> None:
        async with limit:
            await ask()

    await once()
    own, theirs = time.process_time(), agent.cpu()
    async with asyncio.TaskGroup() as group:
        for _ in range(questions):
            group.create_task(once())
    return QuestionCost(
        *(each / questions * 1000 for each in (time.process_time() - own, agent.cpu() - theirs)),
    )


async def compare(table: ComparisonTable, agent: ServerProcess, management: int, questions: int) -> None:
    """Measure the page, and its peer."""
    client, plain = AgentClient(), Client(limits=LIMITS, keep=False)

    async def ask() -> None:
        assert isinstance(await client.ask("127.0.0.1", management), AgentAnswer)

    async def scrape() -> None:
        assert (await plain.fetch(ClientRequest(Url("http", "127.0.0.1", management, "/metrics")))).status == 200

    ours, theirs = await measured(agent, ask, questions), await measured(agent, scrape, questions)
    table.row("CPU of the agent, per question", ours.answering, "ms", theirs.answering, theirs.answering)
    table.row("CPU of who asks, per question", ours.asking, "ms", theirs.asking)
    table.row("CPU of who asks, for 1,000 agents once", ours.asking, "s", theirs.asking)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few questions")
    questions = QUICK if parser.parse_args().quick else FULL
    table = ComparisonTable("/metrics")
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in DOCUMENTS.items():
            path, management = Path(folder, f"{flags}.json"), claim_port()
            path.write_text(document(flags))
            ports = " ".join(f"--{each}=0" for each in ("port", "sync-port", "ofrep-port"))
            command = f"{sys.executable} -m wigwag start --uri file:{path} --management-port={management} {ports}"
            table.head(name)
            with ServerProcess(command, management) as agent:
                asyncio.run(compare(table, agent, management, questions))
    return 0 if table.met else 1


if __name__ == "__main__":
    sys.exit(main())
