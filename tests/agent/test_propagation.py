"""What an agent says about the documents that it serves: their digests, the same whichever way they took."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

from tests.pipeline.fakes import FakeClock, FakeWatcher, run, settle
from wigwag.agent.assemble import Loader, assembler, content
from wigwag.agent.propagation import Propagation
from wigwag.flags.digests import document_digest
from wigwag.pipeline.run import Pipeline
from wigwag.pipeline.spec import Wanted
from wigwag.pipeline.watch import WatchPolicy
from wigwag.serve.management.propagation import LARGE, PATH
from wigwag.serve.snapshot import Snapshot
from wigwag.sources.document import Document
from wigwag.sources.source import Source
from wigwag.wire.http import Reply, Request

FILE, SYNC = Source("file:a", "file", 0), Source("proxy:8015", "grpc", 1)
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
FLAGS: dict[str, Any] = {"flags": {"x": FLAG}, "$evaluators": {}}


class ServingAgent:
    """Two sources whose documents the test gives, and the page."""

    def __init__(self) -> None:
        self.watcher, loader = FakeWatcher(), Loader("v2", strict=False)
        self.pipeline: Pipeline[Source, Any, Snapshot] = Pipeline(
            [Wanted(FILE), Wanted(SYNC)],
            loader.watcher(self.watcher.watch, lambda source, document: False),
            assembler(lambda: 0.0),
            key=content,
            policy=WatchPolicy(clock=FakeClock(), random=lambda: 1.0),
        )
        self._page = Propagation(self.pipeline, lambda: loader.documents).pages()[PATH]

    async def put(self, source: Source, document: Any, **spaces: Any) -> None:
        text = document if isinstance(document, str) else json.dumps(document, **spaces)
        await self.watcher.push(source, Document(text.encode()))
        await settle()

    async def reply(self) -> Reply:
        found = self._page(Request(b"GET", PATH))
        return await found if isawaitable(found) else found

    async def digests(self) -> list[str]:
        return [each["digest"] for each in json.loads((await self.reply()).body)["sources"]]


@asynccontextmanager
async def serving() -> AsyncIterator[ServingAgent]:
    agent = ServingAgent()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(agent.pipeline.run())
        await settle()
        yield agent
        task.cancel()


def test_each_source_has_the_digest_of_its_own_document_however_it_is_written() -> None:
    async def main() -> None:
        async with serving() as agent:
            assert await agent.digests() == ["", ""], "nothing is served yet"
            await agent.put(FILE, FLAGS, indent=2, sort_keys=True)
            assert await agent.digests() == ["", ""], "the other source is waited for"
            await agent.put(SYNC, FLAGS)
            assert await agent.digests() == [document_digest(FLAGS)] * 2
            said = json.loads((await agent.reply()).body)["sources"][1]
            assert (said["priority"], said["source"], said["state"]) == (1, "proxy:8015", "live")

    run(main)


def test_a_change_that_no_evaluation_notices_counts_and_one_that_cannot_be_loaded_does_not() -> None:
    async def main() -> None:
        async with serving() as agent:
            await agent.put(FILE, FLAGS)
            await agent.put(SYNC, FLAGS)
            other = {**FLAGS, "$evaluators": {"unused": {}}}
            await agent.put(FILE, other)
            assert await agent.digests() == [document_digest(other), document_digest(FLAGS)]
            await agent.put(FILE, "{")
            assert await agent.digests() == [document_digest(other), document_digest(FLAGS)]

    run(main)


def test_the_answer_is_made_once_and_a_large_document_in_a_thread() -> None:
    async def main() -> None:
        async with serving() as agent:
            await agent.put(FILE, FLAGS)
            await agent.put(SYNC, FLAGS)
            assert await agent.reply() is await agent.reply()
            large = {**FLAGS, "metadata": {"text": "x" * LARGE}}
            await agent.put(FILE, large)
            while document_digest(large) not in await agent.digests():  # noqa: ASYNC110 - it is loaded in a thread, too
                await asyncio.sleep(0.01)

    run(main)
