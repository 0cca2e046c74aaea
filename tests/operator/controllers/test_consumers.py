"""Who uses flags: counting, and what a change of a source or a workload does to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.operator.controllers.world import World
from tests.operator.known import Laid, injected, pod, source_object
from tests.pipeline.fakes import run
from wigwag.kube.kinds import DEPLOYMENT, IN_PROCESS_CONFIGURATION, POD, ROLE, STATEFUL_SET
from wigwag.operator.controllers.changes import KnownChanges
from wigwag.operator.controllers.consumers import Consumers, FlagUses
from wigwag.operator.controllers.context import ControlContext
from wigwag.operator.names import ENABLED, ObjectName
from wigwag.operator.names import IN_PROCESS_CONFIGURATION as NAMES_CONFIGURATION
from wigwag.operator.reconcile.usage import FlagUse

NAMES = st.builds(ObjectName, st.sampled_from("ab"), st.sampled_from("xy"))
USES = st.builds(FlagUse, NAMES, st.sampled_from(["file", "kubernetes"]), NAMES)
CHANGES = st.lists(st.tuples(st.integers(0, 3), st.frozensets(USES, max_size=4)), max_size=30)


@given(CHANGES)
def test_uses_are_those_of_all_consumers_and_a_change_is_what_begins_or_ends(
    changes: list[tuple[int, frozenset[FlagUse]]],
) -> None:
    uses, model = FlagUses(), dict[int, frozenset[FlagUse]]()
    for consumer, wanted in changes:
        before = frozenset[FlagUse]().union(*model.values())
        model[consumer] = wanted
        after = frozenset[FlagUse]().union(*model.values())
        assert uses.replace(consumer, wanted) == before ^ after
        assert set(uses) == after
        for name in {each for use in before | after for each in (use.account, use.flag)}:
            assert uses.of_account(name) == {use for use in after if use.account == name}
            assert uses.of_flag(name) == {use for use in after if use.flag == name}
    for consumer in list(model):
        uses.replace(consumer, frozenset())
    assert not any(vars(uses).values()), "nothing is left of consumers that are gone"


class Watched:
    """Consumers on their own, and the uses that began or ended."""

    def __init__(self, world: World) -> None:
        self.world, self.changed, self.named = world, Counter[str](), Counter[Any]()
        self.consumers: Consumers | None = None

    async def run(self, context: ControlContext) -> None:
        await context.known.changed(0)
        changes = KnownChanges(context.known, context.settings)
        self.consumers = Consumers(context, changes)
        self.consumers.on_use(lambda use: self.changed.update([str(use.flag)]))
        self.consumers.feed_named(lambda key: self.named.update([key]))
        async with asyncio.TaskGroup() as group:
            group.create_task(self.consumers.run())
            group.create_task(changes.run())

    def uses(self) -> set[str]:
        assert self.consumers is not None
        return {str(use.flag) for use in self.consumers.uses}


def test_a_source_that_changes_changes_what_its_workloads_use() -> None:
    async def main() -> None:
        world = World()
        watched = Watched(world)
        world.workload("web", "flags, later")
        world.source()
        async with world.running(watched.run):
            assert (watched.uses(), watched.named[("team-a", "later")]) == ({"team-a/shop"}, 1)
            world.source({"source": "other", "provider": "file"})
            await world.settle()
            assert watched.uses() == {"team-a/other"}
            assert watched.changed == {"team-a/shop": 2, "team-a/other": 1}
            world.source({"source": "more", "provider": "kubernetes"}, name="later")
            await world.settle()
            assert watched.uses() == {"team-a/other", "team-a/more"}
            world.workload("web", "later")
            await world.settle()
            assert watched.uses() == {"team-a/more"}
            assert watched.named[("team-a", "flags")] == 2, "it is told that it has lost one"

    run(main)


def test_a_use_lasts_as_long_as_the_workload_or_one_of_its_pods() -> None:
    async def main() -> None:
        world = World()
        watched = Watched(world)
        world.source()
        world.workload()
        known = Laid(sources={"team-a/flags": source_object({"source": "shop"})}, flags={"team-a/shop": {}})
        running = injected(pod(), known)
        for name in ("web-1", "web-2"):
            metadata = {**running["metadata"], "name": name, "namespace": "team-a", "ownerReferences": []}
            world.server.put(POD, {**running, "metadata": metadata})
        async with world.running(watched.run):
            world.server.remove(DEPLOYMENT, ("team-a", "web"))
            world.server.remove(POD, ("team-a", "web-1"))
            await world.settle()
            assert watched.uses() == {"team-a/shop"}
            ended = world.get(POD, "web-2")
            world.server.put(POD, {**ended, "status": {"phase": "Succeeded"}})
            await world.settle()
            assert (watched.uses(), watched.changed) == (set(), {"team-a/shop": 2})

    run(main)


def test_workloads_that_name_an_object_are_found_among_all_kinds() -> None:
    async def main() -> None:
        world = World()
        watched = Watched(world)
        for kind, sources in ((DEPLOYMENT, "flags"), (STATEFUL_SET, "other,flags")):
            world.workload(sources=sources, kind=kind)
        world.put(DEPLOYMENT, "plain", {"template": {"spec": {}}})
        async with world.running(watched.run):
            assert watched.consumers is not None
            assert len(watched.consumers.naming(("team-a", "flags"))) == 2
            assert len(watched.consumers.naming(("team-a", "other"))) == 1
            assert watched.consumers.naming(("team-b", "flags")) == []

    run(main)


def test_an_in_process_configuration_counts_its_workloads_and_gives_no_rights() -> None:
    async def main() -> None:
        world = World()
        world.put(IN_PROCESS_CONFIGURATION, "local", {})
        async with world.running():
            assert world.condition(IN_PROCESS_CONFIGURATION, "local", "Accepted") == ("True", "Valid")
            annotations = {ENABLED: "true", NAMES_CONFIGURATION: "local"}
            world.put(DEPLOYMENT, "web", {"template": {"metadata": {"annotations": annotations}}})
            await world.settle()
            assert world.get(IN_PROCESS_CONFIGURATION, "local")["status"]["workloads"] == 1
            world.server.remove(DEPLOYMENT, ("team-a", "web"))
            await world.settle()
            assert "workloads" not in world.get(IN_PROCESS_CONFIGURATION, "local")["status"]
            assert world.names(ROLE) == []

    run(main)
