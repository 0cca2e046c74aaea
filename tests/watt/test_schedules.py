"""watt as a whole, on a clock that the test moves: faults, convergence, and ten thousand changes of what is watched."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.fakes import run, settle
from tests.watt.world import INTERVAL, LATE, World, kinds, part, resolver
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.spec import Unavailable
from wigwag.watt.hooks.hook import HookError
from wigwag.watt.report import WattReport
from wigwag.watt.snapshots.projection import EVERYTHING, projected_digest
from wigwag.watt.snapshots.snapshot import WattSnapshot
from wigwag.watt.watches.specs import KubernetesSpec


class WatchHook:
    """A watch hook that answers as the test says."""

    def __init__(self, *answers: str) -> None:
        self.answer: Any = kinds(*answers)
        self.calls = self.running = self.most = 0

    async def __call__(self, snapshot: WattSnapshot) -> Any:
        self.calls, self.running = self.calls + 1, self.running + 1
        self.most = max(self.most, self.running)
        try:
            if isinstance(self.answer, Exception):
                raise self.answer
            return await asyncio.Event().wait() if self.answer == "hang" else self.answer
        finally:
            self.running -= 1


class NotifyHook:
    """A notify hook that writes down what it gets."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    async def __call__(self, snapshot: WattSnapshot) -> None:
        self.ids.append(snapshot.id)


def hooked(hook: Any) -> Any:
    """Return a coroutine function: a hook that is none would run in a thread."""

    async def call(snapshot: WattSnapshot) -> Any:
        return await hook(snapshot)

    return call


@pytest.mark.parametrize(
    "bad",
    [OSError("crashed"), "garbage", {"kubernetes-watches": [{"kynd": "pods"}]}, {"kubernetes-watches": 3}],
    ids=["exit", "garbage", "unknown field", "wrong type"],
)
def test_a_watch_hook_that_fails_once_tears_nothing_down_and_is_repaired_by_itself(bad: Any) -> None:
    async def main() -> None:
        hook = WatchHook("pods")
        async with World(source=["services"], watch=[hooked(hook)]).running() as world:
            await world.objects("services", "a")
            await world.objects("pods", "p")
            assert (world.ids(), world.names("pods"), world.watt.ready) == ([1], ["p"], True)
            hook.answer, calls = bad, hook.calls
            await world.objects("services", "a", "b")
            await world.clock.advance(INTERVAL)
            assert (world.names("services"), world.names("pods")) == (["a", "b"], ["p"]), "changes are not lost"
            [status] = WattReport(world.watt, world.clock.now).page()["watch-hooks"]
            assert (status["state"], world.watt.ready) == ("degraded", False)
            assert status["error"]
            hook.answer = kinds("pods", "nodes")
            await world.clock.advance(20.0)
            assert KubernetesSpec("nodes") in world.wanted(), "it was called again though nothing has changed"
            assert world.watt.ready
            assert hook.calls - calls <= 3, "with a pause"

    run(main)


def test_a_watch_hook_that_hangs_holds_up_snapshots_once() -> None:
    """Its timeout has to pass before its last good result counts; after that, it is called beside the others."""

    async def main() -> None:
        hook = WatchHook("pods")
        async with World(source=["services"], watch=[hooked(hook)]).running() as world:
            await world.objects("services", "a")
            await world.objects("pods", "p")
            hook.answer = "hang"
            await world.objects("services", "b")
            await world.clock.advance(29.0)
            assert world.names("services") == ["a"]
            await world.clock.advance(2.0)
            assert (world.names("services"), world.names("pods")) == (["b"], ["p"])
            for number in range(20):
                await world.objects("services", f"s{number}")
                await world.clock.advance(INTERVAL)
                assert world.names("services") == [f"s{number}"]
            assert hook.most == 1, "it is not called while it is running"
            hook.answer = kinds("nodes")
            await world.clock.advance(60.0)
            assert KubernetesSpec("nodes") in world.wanted()
            assert world.watt.ready

    run(main)


def test_a_watch_hook_that_has_never_worked_keeps_the_gate_closed_until_it_does() -> None:
    async def main() -> None:
        hook = WatchHook()
        hook.answer = OSError("not yet")
        async with World(source=["services"], watch=[hooked(hook)]).running() as world:
            await world.objects("services", "a")
            await world.clock.advance(60.0)
            assert (world.ids(), world.watt.ready) == ([], False)
            assert "not yet" in WattReport(world.watt, world.clock.now).page()["error"]
            assert hook.calls < 12
            hook.answer = kinds("pods")
            await world.clock.advance(30.0)
            await world.objects("pods")
            assert (world.ids(), world.watt.ready) == ([1], True)

    run(main)


def test_a_resync_calls_all_hooks_again_and_ends_pauses() -> None:
    async def main() -> None:
        hook, notify = WatchHook("pods"), NotifyHook()
        settings = {"source": ["services"], "watch": [hooked(hook)], "notify": [hooked(notify)]}
        async with World(**settings).running() as world:
            await world.objects("services", "a")
            await world.objects("pods")
            calls = hook.calls
            hook.answer = kinds()
            world.watt.resync()
            await world.clock.advance(INTERVAL)
            assert (hook.calls, notify.ids) == (calls + 1, [1, 1, 2])
            hook.answer = OSError("down")
            await world.objects("services", "b")
            await world.clock.advance(60.0)
            hook.answer, calls = kinds("nodes"), hook.calls
            world.watt.resync()
            await settle()
            assert hook.calls == calls + 1, "at once"
            await world.clock.advance(INTERVAL)
            assert KubernetesSpec("nodes") in world.wanted()

    run(main)


def test_a_kind_that_does_not_answer_is_named_and_the_others_go_on_after_the_grace() -> None:
    async def main() -> None:
        async with World(source=["services", "nosuch"], grace="5s").running() as world:
            await world.objects("services", "a")
            await world.fake.push(KubernetesSpec("nosuch"), Unavailable("no such kind"))
            await world.clock.advance(4.9)
            assert world.ids() == []
            page = WattReport(world.watt, world.clock.now).page()
            assert page["waiting"] == ["kubernetes nosuch|*|*|*"]
            await world.clock.advance(0.2)
            assert (world.ids(), world.latest.unresolved) == ([1], ("kubernetes nosuch|*|*|*",))
            await world.objects("nosuch", "x")
            await world.clock.advance(INTERVAL)
            assert (world.latest.complete, world.names("nosuch")) == (True, ["x"])

    run(main)


def test_a_derived_kind_that_does_not_answer_is_marked_and_the_others_go_on() -> None:
    async def main() -> None:
        hook, notify = WatchHook("pods", "nosuch"), NotifyHook()
        settings = {"source": ["services"], "watch": [hooked(hook)], "notify": [hooked(notify)]}
        async with World(**settings).running() as world:
            await world.objects("services", "a")
            await world.objects("pods", "p")
            await world.fake.push(KubernetesSpec("nosuch"), Unavailable("forbidden"))
            await world.clock.advance(29.0)
            assert world.ids() == [], "the first snapshot waits for it"
            await world.clock.advance(2.0)
            assert (world.ids(), notify.ids) == ([1], [1])
            assert world.latest.unresolved == ("kubernetes nosuch|*|*|*",)
            await world.objects("services", "a", "b")
            await world.clock.advance(INTERVAL)
            assert (world.names("services"), notify.ids) == (["a", "b"], [1, 2])

    run(main)


def test_a_watch_that_is_away_and_back_is_stale_meanwhile_and_notifies_nobody() -> None:
    async def main() -> None:
        notify = NotifyHook()
        async with World(source=["services"], notify=[hooked(notify)]).running() as world:
            report, spec = WattReport(world.watt, world.clock.now), KubernetesSpec("services")
            await world.objects("services", "a")
            for error in (OSError("away"), Unavailable("away"), StopAsyncIteration):
                await world.fake.push(spec, error)
                [source] = report.sources().values()
                assert (source["state"], source["stale"]) == ("failing", True)
                await world.clock.advance(60.0)
                assert world.names("services") == ["a"]
                await world.objects("services", "a")
                await world.clock.advance(1.0)
                [source] = report.sources().values()
                assert (source["state"], source["stale"]) == ("live", False)
            assert (world.ids(), notify.ids) == ([1], [1])

    run(main)


def test_a_hook_that_never_settles_is_slowed_down_and_the_rest_goes_on() -> None:
    """It wants the pods as long as it does not have them."""

    async def flip(snapshot: WattSnapshot) -> Any:
        return kinds() if snapshot.objects("pods") else kinds("pods")

    async def main() -> None:
        async with World(source=["services"], watch=[flip]).running() as world:
            report = WattReport(world.watt, world.clock.now)
            await world.objects("services", "a")
            for _ in range(60):
                await world.objects("pods", "p")
                await world.clock.advance(INTERVAL)
            assert "keep changing" in report.page()["error"]
            assert not world.watt.ready
            changes = len(world.fake.started)
            for number in range(10):
                await world.objects("services", f"s{number}", "extra")
                await world.clock.advance(LATE + INTERVAL)
                assert f"s{number}" in world.names("services")
            assert len(world.fake.started) - changes <= 25

    run(main)


def test_a_fatal_hook_ends_the_block_with_its_error() -> None:
    async def main() -> None:
        world = World(source=["services"], notify=[{"python": f"{__name__}:fail", "on-failure": "fatal"}])

        async def block() -> None:
            async with world.running():
                await world.objects("services", "a")
                await asyncio.Event().wait()

        with pytest.raises(HookError, match="broken"):
            await block()

    run(main)


async def fail(snapshot: WattSnapshot) -> None:
    raise OSError("broken")


def test_cancelled_while_it_starts_or_while_a_hook_runs_nothing_is_left() -> None:
    async def hang(snapshot: WattSnapshot) -> Any:
        await asyncio.Event().wait()

    async def main() -> None:
        async with World(source=["services", "pods"]).running() as world:
            await world.objects("services", "a")
        async with World(source=["services"], watch=[hang]).running() as world:
            await world.objects("services", "a")
            assert world.ids() == []
        world = World(source=["services"], notify=[hang])
        async with asyncio.TaskGroup() as group:
            leave = asyncio.Event()

            async def block() -> None:
                async with world.running():
                    await leave.wait()

            group.create_task(block())
            await world.objects("services", "a")
            assert world.ids() == [1]
            leave.set()
            await world.clock.advance(10.0)  # what a hook is given to end

    run(main)


class Answering:
    """Watches that answer at once, and then are quiet; except for those that the test feeds."""

    def __init__(self) -> None:
        self.open = 0

    async def __call__(self, spec: Any) -> AsyncIterator[Any]:
        self.open += 1
        try:
            yield part(spec.kind, "one")
            await asyncio.Event().wait()
        finally:
            self.open -= 1


def test_ten_thousand_changes_of_derived_watches_leave_nothing() -> None:
    """The original keeps the data of up to a quarter of those that it has dropped."""
    hook, answering = WatchHook(), Answering()
    rounds, size = 200, 50

    async def main() -> None:
        world = World(source=["services"], watch=[hooked(hook)], history=2)
        fake = world.fake.watch

        def watcher(spec: Any) -> AsyncIterator[Any]:
            return fake(spec) if spec.kind == "services" else answering(spec)

        world.watt.pipeline._watcher = watcher
        objects: list[int] = []
        async with world.running():
            for number in range(rounds):
                hook.answer = kinds(*(f"kind{number}-{each}" for each in range(size)))
                await world.objects("services", f"s{number}")
                await world.clock.advance(INTERVAL)
                assert (answering.open, len(world.latest.tables)) == (size, size + 1)
                hook.answer = kinds()
                await world.objects("services", f"t{number}")
                await world.clock.advance(INTERVAL)
                assert (answering.open, len(world.latest.tables)) == (0, 1), "neither watches nor data stay"
                world.published.clear()
                if number % 50 == 49:
                    gc.collect()
                    objects.append(len(gc.get_objects()))
            assert world.wanted() == [KubernetesSpec("services")]
            assert len(asyncio.all_tasks()) < 12
        assert objects[-1] - objects[0] < 200, objects

    run(main, timeout=150.0)


def test_additions_and_deletions_within_one_turn_are_one_change() -> None:
    """What a ConfigMap names meanwhile is never watched."""

    async def main() -> None:
        world = World(source=["configmaps"])
        async with world.running():
            await world.fake.push(
                KubernetesSpec("configmaps"),
                *(
                    part("configmaps", "dc", **resolver(*(f"s{each}" for each in range(number % 7))))
                    for number in range(2000)
                ),
            )
            await settle(5000)
            await world.clock.advance(INTERVAL)
            for service in range(1999 % 7):
                await world.endpoints(f"s{service}", "10.0.0.1")
            await world.clock.advance(60.0)
            assert len(world.wanted()) == 1 + 1999 % 7
            assert len(world.latest.tables) == 2

    run(main)


MODES = ["ok", "ok", "ok", "fail", "garbage", "slow", "hang"]
INITIAL, DERIVED = ("a", "b"), ("x", "y", "z")
spec_names = st.sampled_from([*INITIAL, *DERIVED])
steps = st.one_of(
    st.tuples(st.just("value"), st.sampled_from(INITIAL), st.sets(st.sampled_from(DERIVED))),
    st.tuples(st.just("value"), spec_names, st.just(set())),
    st.tuples(st.just("fault"), spec_names, st.sampled_from([OSError("x"), Unavailable("y"), StopAsyncIteration])),
    st.tuples(st.just("time"), st.sampled_from([0.01, 0.25, 1.0, 6.0, 40.0]), st.none()),
    st.tuples(st.just("turn"), st.integers(1, 9), st.none()),
    st.tuples(st.just("watch"), st.sampled_from(MODES), st.none()),
    st.tuples(st.just("notify"), st.sampled_from(MODES), st.none()),
)


class Chaos(World):
    """A watt whose watches and hooks fail as a schedule says, and what an onlooker knows of it."""

    def __init__(self) -> None:
        watches = [{"source": "kubernetes", "kind": "o", "required": False}]
        super().__init__(
            self.numbered, source=list(INITIAL), watches=watches, watch=[self.derive], notify=[self.notified]
        )
        self.mode = {"watch": "ok", "notify": "ok"}
        self.starts = dict.fromkeys([*INITIAL, *DERIVED, "o"], 0)
        self.dropped: dict[str, int] = {}
        self.good: set[str] = set()
        self.running_hooks = self.most_hooks = self.value = 0
        self.notifications: list[WattSnapshot] = []
        self.watt.history.snapshots.subscribe(self.check)

    async def numbered(self, spec: Any) -> AsyncIterator[Any]:
        """Every value says which start of its watch it is from."""
        self.starts[spec.kind] += 1
        start = self.starts[spec.kind]
        stream = self.fake.watch(spec)
        try:
            async for item in stream:
                yield item if isinstance(item, Unavailable) else part(spec.kind, "it", start=start, **item)
        except (asyncio.CancelledError, GeneratorExit):  # it is no longer wanted
            self.dropped[spec.kind] = start
            raise
        finally:
            await stream.aclose()  # type: ignore[attr-defined]

    async def behave(self, hook: str) -> Any:
        if self.mode[hook] == "fail":
            raise OSError("broken")
        if self.mode[hook] == "slow":
            self.mode[hook] = "ok"  # the next call is fast
            await sleep_until(self.clock, self.clock.now() + 3.0)
        if self.mode[hook] == "hang":
            await asyncio.Event().wait()
        return "garbage" if self.mode[hook] == "garbage" else None

    async def derive(self, snapshot: WattSnapshot) -> Any:
        wants = {name for kind in INITIAL for each in snapshot.objects(kind) for name in each["wants"]}
        if garbage := await self.behave("watch"):
            return garbage
        self.good = wants
        return kinds(*sorted(wants))

    async def notified(self, snapshot: WattSnapshot) -> None:
        self.running_hooks += 1
        self.notifications.append(snapshot)
        self.most_hooks = max(self.most_hooks, self.running_hooks)
        try:
            await self.behave("notify")
        finally:
            self.running_hooks -= 1

    def check(self) -> None:
        """Check one snapshot, at the moment at which it is published."""
        snapshot = self.latest
        tables = {table.name: part for table, part in snapshot.tables.items()}
        assert snapshot.id == len(self.published)
        assert {*INITIAL} <= tables.keys(), "the gate"
        assert tables.keys() <= {*INITIAL, "o", *self.good}, "no data of what is not wanted"
        missing = {*self.good} - tables.keys()
        assert {f"kubernetes {name}|*|*|*" for name in missing} <= {*snapshot.unresolved}, "what is missing is said"
        for name in tables.keys() & {*DERIVED}:
            assert snapshot.objects(name)[0]["start"] > self.dropped.get(name, 0), "never the data from before"
        if len(self.published) > 1:
            assert self.published[-1][0] - self.published[-2][0] >= INTERVAL - 1e-5, "one per interval"

    async def do(self, step: str, what: Any, item: Any) -> None:
        if step in ("watch", "notify"):
            self.mode[step] = what
        elif step == "time":
            await self.clock.advance(what)
        elif step == "turn":
            await settle(what)
        else:
            self.feed(what, item)

    def feed(self, name: str, item: Any) -> None:
        self.value += 1
        content = {"value": self.value, "wants": sorted(item)} if isinstance(item, set) else item
        self.fake._inboxes[KubernetesSpec(name)].put_nowait(content)


@settings(max_examples=150, deadline=None)
@given(st.booleans(), st.lists(steps, min_size=10, max_size=60))
def test_the_invariants_hold_whatever_fails_in_whatever_order(
    started: bool, schedule: list[tuple[str, Any, Any]]
) -> None:
    async def main() -> None:
        world = Chaos()
        async with world.running():
            for name in INITIAL if started else ():
                world.feed(name, set())
            await world.clock.advance(10.0)
            for step in schedule:
                await world.do(*step)
            world.mode = {"watch": "ok", "notify": "ok"}
            await world.clock.advance(100.0)
            for name, wants in (("a", {"x"}), ("b", {"y"})):
                world.feed(name, wants)
            await world.clock.advance(100.0)
            for name in (*INITIAL, "x", "y"):
                world.feed(name, {"x", "y"})
            last = world.value
            await world.clock.advance(200.0)
            latest = world.latest
            values = {name: latest.objects(name)[0]["value"] for name in (*INITIAL, "x", "y")}
            assert sorted(values.values()) == [last - 3, last - 2, last - 1, last]
            assert not latest.objects("z")
            assert world.most_hooks == 1, "hooks never overlap"
            notified = world.notifications[-1]
            assert projected_digest(notified, EVERYTHING) == projected_digest(latest, EVERYTHING)
            assert world.watt.ready
            assert len(world.fake.running()) == len(world.wanted()) == 5

    run(main)
