"""The world of one schedule: an agent that lives and dies, its sources, its disk, its clients, and the model beside it.

The agent is the product's own `Agent`. What it gets from us is what a machine would give it: see `AgentDeps`.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.disk import Disk
from tests.simulation.flags import Author
from tests.simulation.links import Link
from tests.simulation.loop import VirtualLoop, settle
from tests.simulation.model import GRACE, State, Upstream, numbers
from tests.simulation.subscribers import Subscriber
from tests.simulation.surfaces import Surfaces
from wigwag.agent.options import AgentOptions
from wigwag.agent.run import Agent, AgentDeps
from wigwag.flags.flagset import FlagSet
from wigwag.pipeline.watch import WatchPolicy
from wigwag.wire.limits import WireLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from tests.simulation.model import Layer
    from tests.simulation.schedule import Setting, Step
    from wigwag.agent.state.file import StateEntry
    from wigwag.sources.kind import Documents
    from wigwag.sources.source import Source
    from wigwag.wire.http import Early, Handler
    from wigwag.wire.server.listen import Listener

PORTS = {1: "evaluation", 2: "management", 3: "sync", 4: "ofrep"}
MOST_SUBSCRIBERS = 6


class Life:
    """One process of the agent."""

    def __init__(self, world: World) -> None:
        self.ports: dict[str, Handler] = {}
        self.subscribers: list[Subscriber] = []
        self.stop = asyncio.Event()
        self.states: list[State] = []
        """Every state that was, or may have been, published."""
        self.began = world.loop.time()
        self.was_ready = False
        self.grace = GRACE
        self.whole_since: float | None = None
        deps = AgentDeps(
            policy=WatchPolicy(random=world.luck.random),
            wall=world.wall,
            documents=world.documents,
            state=world.disk.open,
            serve=self.serve,  # type: ignore[arg-type]  # what an agent wants of a server
        )
        self.agent = Agent(world.options, deps)
        self.task = asyncio.ensure_future(self.agent.run(self.stop))

    @asynccontextmanager
    async def serve(
        self, handler: Handler, listeners: Sequence[Listener], limits: WireLimits, early: Early | None
    ) -> AsyncIterator[_Port]:
        """In the place of ports: hand the handler to the simulated clients."""
        port = _Port(self, listeners[0].port)
        self.ports[PORTS[listeners[0].port]] = handler
        yield port

    @cached_property
    def surfaces(self) -> Surfaces:
        return Surfaces(self.ports)

    async def end(self) -> None:
        """See the process to its end, and its clients lose their connections."""
        await asyncio.wait([self.task])
        for subscriber in self.subscribers:
            subscriber.leave()
        await asyncio.gather(*(each.task for each in self.subscribers), return_exceptions=True)


class _Port:
    """A port of the agent, as far as the agent can tell."""

    def __init__(self, life: Life, number: int) -> None:
        self._life, self.addresses = life, [f"simulated:{number}"]
        self.connections, self.limits, self.refused = 0, WireLimits(), dict[str, int]()

    async def drain(self, grace: float) -> None:
        """Wait for the clients; cut off those who do not read."""
        open_ = [each.task for each in self._life.subscribers if not each.task.done()]
        if open_:
            _, late = await asyncio.wait(open_, timeout=grace)
            for task in late:
                task.cancel()


class World:
    """Everything there is."""

    def __init__(self, seed: int, setting: Setting, loop: VirtualLoop) -> None:
        self.setting, self.loop = setting, loop
        self.luck = Random(f"{seed} luck")
        self.author = Author(Random(f"{seed} first documents"))
        self.disk = Disk()
        self.disk.completed = self._saved
        self.jumps = 0.0
        names = [f"{name}.json" for name in ("low", "mid", "high")[: setting.sources]]
        self.options = _options(setting, names)
        self.upstreams = [Upstream(name, need) for name, need in zip(names, setting.required, strict=True)]
        self.links = [
            Link(upstream, self.author.document(), loop.time, setting.stale_after, strict=setting.strict)
            for upstream in self.upstreams
        ]
        for link in self.links:
            link.accepted = self._accepted
        self.floors: dict[str, int] = {}
        """The version of each source that is surely on disk."""
        self.life: Life

    def wall(self) -> float:
        return 1_700_000_000.0 + self.loop.time() + self.jumps

    def documents(self, source: Source) -> Documents:
        return self.links[source.position].documents()

    # what the model says

    def published(self) -> State | None:
        """Return the flags that must be in force now; None if there must not be any yet."""
        layers = [(each.name, each.layer) for each in self.upstreams if each.layer is not None]
        late = self.loop.time() >= self.life.began + self.life.grace
        if not layers or not (late or all(each.layer is not None for each in self.upstreams if each.required)):
            return None
        return State(layers)

    def whole(self) -> bool:
        """Tell whether the flags of all required sources are known: only then are they handed out as all there are."""
        return self.published() is not None and all(each.layer is not None for each in self.upstreams if each.required)

    def _accepted(self) -> None:
        """Note each state on the way: any of them may be published for a moment."""
        layers = [(each.name, each.layer) for each in self.upstreams if each.layer is not None]
        self.life.states.append(State(layers))
        if self.life.whole_since is None and self.whole():
            self.life.whole_since = self.loop.time()

    # lives

    async def begin(self, look: Callable[[], None] = lambda: None) -> None:
        """Start the agent on what is on the disk; `look` sees what there is before any source can speak."""
        candidates = [self._restorable(entries) for entries in self.disk.kept] if self.setting.keeps else [{}]
        for link in self.links:
            link.begin()
        now = self.loop.time()
        self.life = Life(self)
        restored = self._found(candidates)
        for upstream in self.upstreams:
            kept = restored.get(upstream.name)
            upstream.live_again(kept and (kept[0], self._age(kept[1])), now)
        self.life.grace = 0.0 if restored else GRACE
        self._accepted()
        look()
        await settle()

    def _found(self, candidates: list[dict[str, tuple[Layer, float]]]) -> dict[str, tuple[Layer, float]]:
        """Tell which of the states that may have been found was: what is served before any source can have spoken."""
        found = {
            source.name: ({(flag.set_id, flag.key): flag.metadata["number"] for flag in held.value.flags()}, held.age)
            for source, held in self.life.agent.pipeline._restored.items()
            if isinstance(held.value, FlagSet)
        }
        for candidate in reversed(candidates):
            if found == {name: (numbers(layer), self._age(saved)) for name, (layer, saved) in candidate.items()}:
                return candidate
        raise AssertionError(f"P4: after a restart there is {found}, which is none of what was saved: {candidates}")

    def _age(self, saved: float) -> float:
        return max(0.0, self.wall() - saved)

    def _restorable(self, entries: Iterable[StateEntry]) -> dict[str, tuple[Layer, float]]:
        """Return what was saved as layers of the model."""
        return {entry.name: (self._version(entry)[1], entry.saved) for entry in entries}

    def _version(self, entry: StateEntry) -> tuple[int, Layer]:
        """Return which state of a source was saved: one that it was in, or somebody made it up."""
        written = json.loads(entry.document)
        inherited = written.get("metadata", {})
        found = {}
        for flag in written["flags"]:
            metadata = {**inherited, **(flag.get("metadata") or {})}
            found[metadata.get("flagSetId") or "", flag["key"]] = metadata["number"]
        (upstream,) = (each for each in self.upstreams if each.name == entry.name)
        for index in range(len(upstream.versions) - 1, -1, -1):
            if numbers(upstream.versions[index]) == found:
                return index, upstream.versions[index]
        raise AssertionError(f"P6: what was saved of {entry.name} never was: {found}")

    def _saved(self, entries: tuple[StateEntry, ...]) -> None:
        """Note that a save is complete. From now on nothing older may come back."""
        for entry in entries:
            index, _ = self._version(entry)
            before = self.floors.get(entry.name, 0)
            assert index >= before, f"P4: {entry.name} was saved as version {index} after {before}"
            self.floors[entry.name] = index
        if not self.jumps:
            for entry in entries:
                assert entry.saved <= self.wall() + 1e-3, f"P3: {entry.name} was saved as from the future"

    async def kill(self, step: Step) -> None:
        """End the process at any moment, perhaps in the middle of a save; perhaps the power fails with it."""
        luck = Random(step.luck)
        self.disk.left = luck.randrange(8)
        for job in self.loop.pending():
            job.run()
        self.disk.dead = True
        self.life.task.cancel()
        await self.life.end()
        self.loop.jobs.clear()
        if luck.random() < 0.4:
            self.disk.power_off(luck.random())

    async def shut_down(self) -> None:
        """End the process gently."""
        self.life.stop.set()
        await self.life.end()
        if not self.life.task.cancelled():
            self.life.task.result()


def _options(setting: Setting, names: list[str]) -> AgentOptions:
    sources = [
        {"uri": name, "provider": "file", "required": required}
        for name, required in zip(names, setting.required, strict=True)
    ]
    numbered: dict[str, Any] = {"port": 1, "management_port": 2, "sync_port": 3, "ofrep_port": 4}
    by_uri = all(setting.required)
    return AgentOptions(
        uri=tuple(f"file:{name}" for name in names) if by_uri else (),
        sources="" if by_uri else json.dumps(sources),
        strict=setting.strict,
        stale_after=setting.stale_after,
        readiness="fresh" if setting.only_fresh else "served",
        response_metadata=setting.told,
        snapshots=setting.snapshots,
        stream_deadline=setting.deadline,
        state_dir="/state" if setting.keeps else "",
        **numbered,
    )
