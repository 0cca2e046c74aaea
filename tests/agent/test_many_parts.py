"""An agent on a source of many parts: what one change costs, counted and not timed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import wigwag
from wigwag.agent.assemble import LARGE, Loader, assembler
from wigwag.pipeline.broadcast import Broadcast
from wigwag.serve.management.history import SnapshotHistory
from wigwag.serve.selections import SLICE, Selection, document
from wigwag.serve.snapshot import Snapshot
from wigwag.sources.document import Merged
from wigwag.sources.merge import Merger
from wigwag.sources.source import Source

PARTS, EACH = 300, 5
SOURCE = Source("many", "kubernetes")


class Agent:
    """From documents to a feed, as the agent does it."""

    def __init__(self) -> None:
        self.merger, self.loader, self.assemble = Merger(), Loader("v2", strict=False), assembler(lambda: 0.0)
        self.snapshots = Broadcast(Snapshot(wigwag.load({"flags": {}}), extent="none"))
        self.history = SnapshotHistory(3)
        self.history.follow(self.snapshots)
        self.texts = {f"part-{number:03}": self.text(number) for number in range(PARTS)}

    def text(self, number: int, **more: Any) -> bytes:
        flag = {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "on"}
        flags = {f"flag-{number}-{n}": flag for n in range(EACH)}
        flags[f"flag-{number}-0"] = {**flag, **more}
        return json.dumps({"flags": flags}).encode()

    def publish(self) -> tuple[Merged, Snapshot]:
        merged, _ = self.merger.merge(self.texts)
        snapshot = self.assemble({SOURCE: self.loader._load(SOURCE, merged)})
        self.snapshots.publish(snapshot)
        return merged, snapshot

    def change(self, number: int, variant: str) -> tuple[Merged, Snapshot]:
        self.texts[f"part-{number:03}"] = self.text(number, defaultVariant=variant)
        return self.publish()


@pytest.fixture
def agent() -> Agent:
    found = Agent()
    found.publish()
    return found


def test_a_change_leaves_all_other_flags_the_same_objects(agent: Agent) -> None:
    before = agent.snapshots.value.flags
    _, snapshot = agent.change(7, "off")
    assert [flag.key for flag in snapshot.flags.flags() if before.flag(flag.key) is not flag] == ["flag-7-0"]
    assert snapshot.id != before.id
    assert snapshot.id == agent.assemble({SOURCE: Loader("v2", strict=False).parse(SOURCE, agent.publish()[0])}).id


def test_the_parts_are_never_written_as_one_document(agent: Agent) -> None:
    merged, _ = agent.change(7, "off")
    assert merged._content is None
    assert len(wigwag.load(merged.content)) == PARTS * EACH


def test_what_says_the_same_again_is_the_same_set_of_flags(agent: Agent) -> None:
    before = agent.snapshots.value.flags
    agent.merger = Merger()  # as of a watch that started again
    assert agent.publish()[1].flags is before


def test_only_what_is_new_counts_as_large(agent: Agent) -> None:
    large = Agent()
    large.texts = {name: large.text(number, note="n" * 8000) for number, name in enumerate(large.texts)}
    merged, _ = large.merger.merge(large.texts)
    assert merged.size_since(None) > LARGE
    assert large.loader._large(SOURCE, merged)
    large.publish()
    assert not large.loader._large(SOURCE, large.change(7, "off")[0])


async def sync(snapshot: Snapshot) -> None:
    """Publish the document of a snapshot."""
    selection = Selection(Broadcast(snapshot), "", lambda document, context: document.encode(), {})
    await selection.broadcast.after(0)


def test_a_sync_document_is_written_in_turns_and_after_a_change_only_what_changed(agent: Agent) -> None:
    async def turns_of(snapshot: Snapshot) -> int:
        turns, over = 0, asyncio.Event()

        async def others() -> None:
            nonlocal turns
            while not over.is_set():
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(others())
            await sync(snapshot)
            over.set()
        return turns

    first = agent.snapshots.value
    assert asyncio.run(turns_of(first)) >= PARTS * EACH // SLICE - 1
    texts = {flag.key: flag.written for flag in first.flags.flags()}
    assert all(texts.values())
    _, second = agent.change(7, "off")
    assert [flag.key for flag in second.flags.flags() if not flag.written] == ["flag-7-0"]
    assert asyncio.run(turns_of(second)) <= 3
    assert [flag.key for flag in second.flags.flags() if flag.written is not texts[flag.key]] == ["flag-7-0"]
    assert json.loads(document(second, ""))["flags"]["flag-7-0"]["defaultVariant"] == "off"


def test_flags_that_are_no_longer_in_force_let_go_of_their_text(agent: Agent) -> None:
    first = agent.snapshots.value
    asyncio.run(sync(first))
    old = first.flags.flag("flag-7-0")
    assert old is not None
    assert old.written
    agent.change(7, "off")
    assert not old.written


def test_a_selection_has_the_same_flags_in_every_snapshot(agent: Agent) -> None:
    before = agent.snapshots.value.select("source=many")
    after = agent.change(7, "off")[1].select("source=many")
    assert before.resolve("flag-1-1").metadata == {"source": "many"}
    assert [flag.key for flag in after.flags() if before.flag(flag.key) is not flag] == ["flag-7-0"]


def test_a_bad_flag_is_told_with_its_part_and_published_once(agent: Agent) -> None:
    agent.texts["part-007"] = agent.text(7, variants=5)
    first = agent.publish()[1]
    (found,) = first.flags.problems
    assert (found.source, found.path) == ("many (part-007)", "$.flags.flag-7-0.variants")
    assert found.message.endswith("its last good definition stays in force")
    second = agent.change(8, "off")[1]
    assert second.flags.layers[0].problems is first.flags.layers[0].problems
