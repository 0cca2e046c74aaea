"""Runs a schedule: one step after the other, everything checked after each, and peace at the end."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.checks import Checks
from tests.simulation.flags import Author
from tests.simulation.loop import VirtualLoop, settle
from tests.simulation.schedule import Step, setting
from tests.simulation.subscribers import EVENTS, KINDS, SSE, Subscriber
from tests.simulation.world import MOST_SUBSCRIBERS, World
from wigwag.agent import assemble
from wigwag.agent.state.keeper import Keeper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.model import Layer

_SELECTORS = ("", "", "", "flagSetId=red", "flagSetId=blue", "flagSetId=", "source=low.json")
_LAST = 100.0
"""Seconds of peace, at the end of every schedule, after which everything must be as it should."""


class Run:
    """One schedule under way."""

    def __init__(self, seed: int, world: World) -> None:
        self.world, self.checks = world, Checks(world, Random(f"{seed} checks"))
        self.trace: list[str] = []

    async def main(self, schedule: Sequence[Step]) -> None:
        """Live through it."""
        await self.world.begin()
        await self.checks.all()
        for step in schedule:
            await getattr(self, f"_{step.name}")(step)
            await settle()
            await self.checks.all()
            self._note(step)
        await self._peace()

    def _note(self, step: Step) -> None:
        """Write down what can be seen, so that two runs can be compared."""
        current = self.world.life.agent.snapshots.value
        told = [(each.kind, each.told[-3:], len(each.documents)) for each in self.world.life.subscribers]
        self.trace.append(f"{self.world.loop.time():.6f} {step} {current.number} {current.id} {told}")

    # what happens to sources

    def _link(self, step: Step) -> int:
        return step.where % len(self.world.links)

    def _rewrite(self, step: Step, turn: int = 0) -> None:
        author = Author(Random(f"{step.luck} {turn}"), self.world.author.numbers)
        self.world.links[self._link(step)].doc = author.document()

    async def _change(self, step: Step) -> None:
        self._rewrite(step)

    async def _push(self, step: Step) -> None:
        self._rewrite(step)
        self._deliver_now(step)

    def _deliver_now(self, step: Step) -> None:
        link = self.world.links[self._link(step)]
        if link.mode in ("up", "trouble"):
            link.deliver()

    async def _deliver(self, step: Step) -> None:
        for _ in range(1 + step.luck % 3):
            self._deliver_now(step)

    async def _confirm(self, step: Step) -> None:
        link = self.world.links[self._link(step)]
        if link.mode == "up":
            link.confirm()

    async def _fail(self, step: Step) -> None:
        self.world.links[self._link(step)].fail(step.how)

    async def _restore(self, step: Step) -> None:
        self.world.links[self._link(step)].restore()

    async def _burst(self, step: Step) -> None:
        for turn in range(4):
            self._rewrite(step, turn)
            self._deliver_now(step)
            for _ in range((step.luck >> turn) % 7):
                await asyncio.sleep(0)
                self.checks.halfway()

    async def _drip(self, step: Step) -> None:
        """One change after the other, with some time between them."""
        for turn in range(4):
            self._rewrite(step, turn)
            self._deliver_now(step)
            await asyncio.sleep(4 + 5 * step.amount)

    # what happens to time and the machine

    async def _advance(self, step: Step) -> None:
        await asyncio.sleep(step.amount)

    async def _disk(self, step: Step) -> None:
        self.world.disk.failing = not self.world.disk.failing

    async def _wall(self, step: Step) -> None:
        self.world.jumps += (step.amount - 0.5) * 7200

    async def _kill(self, step: Step) -> None:
        await self.world.kill(step)
        await self._again(step)

    async def _restart(self, step: Step) -> None:
        await self.world.shut_down()
        await self._again(step, None if self.world.disk.failing else self._layers())

    async def _again(self, step: Step, before: dict[str, Layer] | None = None) -> None:
        for link in self.world.links:
            link.mode = ("raise", "trouble", "hang", "refuse")[step.luck % 4] if step.how == "dead" else link.mode
        await self._reborn(before)

    async def _reborn(self, before: dict[str, Layer] | None) -> None:
        """Begin another life; P4: a gentle end has lost nothing of what there was before."""
        await self.world.begin(lambda: self._nothing_lost(before))

    def _nothing_lost(self, before: dict[str, Layer] | None) -> None:
        if before is not None and self.world.setting.keeps:
            assert self._layers() == before, "P4: a gentle end lost something"

    def _layers(self) -> dict[str, Layer]:
        return {each.name: each.layer for each in self.world.upstreams if each.layer is not None}

    # what clients do

    async def _join(self, step: Step) -> None:
        life = self.world.life
        life.subscribers = [each for each in life.subscribers if not each.task.done()]
        selector = _SELECTORS[step.luck % len(_SELECTORS)]
        for number in range(min(1 + step.luck % 3, MOST_SUBSCRIBERS - len(life.subscribers))):
            kind = KINDS[(KINDS.index(step.how) + number) % len(KINDS)]
            life.subscribers.append(
                Subscriber(kind, selector, life.surfaces, life.agent.snapshots.current, self.world.loop.time)
            )

    def _some(self, step: Step) -> list[Subscriber]:
        there = self.world.life.subscribers
        return [there[step.where % len(there)]] if there else []

    async def _stall(self, step: Step) -> None:
        for each in self._some(step):
            each.reading.clear()

    async def _lag(self, step: Step) -> None:
        """Stall while much changes, then read again."""
        await self._stall(step)
        for turn in range(3):
            self._rewrite(step, turn)
            self._deliver_now(step)
            await settle()
        await self._resume(step)

    async def _resume(self, step: Step) -> None:
        for each in self._some(step):
            each.reading.set()

    async def _leave(self, step: Step) -> None:
        for each in self._some(step):
            each.leave()
            self.world.life.subscribers.remove(each)

    # the end

    async def _peace(self) -> None:
        """Everything recovers; so everybody must know everything, on disk, too, and the end is told."""
        self._recover()
        await asyncio.sleep(_LAST)
        self._say_it_again()
        await settle()
        await self.checks.all()
        self._recovered()
        await self._goodbye()
        await self._after_all()

    def _recover(self) -> None:
        self.world.disk.failing = False
        for link in self.world.links:
            link.restore()
        for each in self.world.life.subscribers:
            each.reading.set()

    def _say_it_again(self) -> None:
        """What every source says last it says just before the end."""
        for link in self.world.links:
            link.deliver()

    def _recovered(self) -> None:
        for link in self.world.links:
            assert link.connected, f"P2: {link.upstream.name} was not tried again"
            usable = link.doc.flawless() if self.world.setting.strict else link.doc.usable
            assert link.upstream.state == ("live" if usable else "failing"), f"P2: {link.upstream.name}"

    async def _goodbye(self) -> None:
        watching = [each for each in self.world.life.subscribers if not each.ended]
        await self.world.shut_down()
        for each in watching:
            _farewell(each)

    async def _after_all(self) -> None:
        """Everything can be had again, with every source dead."""
        for link in self.world.links:
            link.mode = "hang"
        await self._reborn(self._layers())
        await self.checks.all()
        await self.world.shut_down()


def _farewell(subscriber: Subscriber) -> None:
    """P5: an agent that stops says so."""
    assert subscriber.ended, f"P5: {subscriber.kind} was not told that the agent stops"
    if subscriber.kind in EVENTS:
        assert subscriber.told[-1] == "provider_shutdown", f"P5: {subscriber.kind}: {subscriber.told[-3:]}"
    if subscriber.kind != SSE:
        assert subscriber.status in ("14", "unavailable"), f"P5: {subscriber.kind} ended with {subscriber.status}"


def simulate(seed: int, schedule: Sequence[Step]) -> list[str]:
    """Run a schedule, and return a trace of it; raises what it finds."""
    luck, told = Random(f"{seed} threads"), setting(seed)
    loop = VirtualLoop(lambda work: luck.choice((0.0, 0.001, 0.2, 2.5)) if _saves(work) else 0.0)
    run, usual = Run(seed, World(seed, told, loop)), assemble.LARGE
    assemble.LARGE = 200 if told.in_threads else usual
    asyncio.set_event_loop(None)
    try:
        loop.run_until_complete(run.main(schedule))
        left = asyncio.all_tasks(loop)
        assert not left, f"P7: tasks are left over: {left}"
    finally:
        assemble.LARGE = usual
        _clean(loop)
    return run.trace


def _saves(work: Callable[..., object]) -> bool:
    """Tell a save, which takes its time, from documents that are read: those take none, or nothing could be said."""
    return isinstance(getattr(work, "__self__", None), Keeper)


def _clean(loop: VirtualLoop) -> None:
    """Leave nothing behind, whatever happened."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
