"""Watch hooks: their last good results stay, and a failing hook is called again after a pause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.pipeline.fakes import FakeClock, run, settle
from tests.watt.driven import Driven, Numbered
from tests.watt.processes import marked, marker, run_on, until
from wigwag.errors import UsageError
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.spec import cause
from wigwag.watt.hooks.call import HookCaller, HookDeps
from wigwag.watt.hooks.derive import WatchHooks
from wigwag.watt.hooks.hook import Hook, HookError, parse_hook


def parse(output: bytes) -> list[str]:
    try:
        return msgspec.json.decode(output, type=list[str])
    except msgspec.MsgspecError as error:
        raise UsageError(f"not a list of names: {error}") from None


class Scripted:
    """A hook that returns or raises what the test says next."""

    def __init__(self, *results: object) -> None:
        self.results, self.calls = list(results), list[str]()

    async def call(self, snapshot: Numbered) -> object:
        self.calls.append(snapshot.digest)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


class Derived:
    """Watch hooks on a clock that stands still."""

    def __init__(self, *hooks: Hook, **deps: Any) -> None:
        self.clock, self.encoded = FakeClock(), 0
        self.caller = HookCaller(HookDeps(self.clock, random=lambda: 1.0, backoff=Backoff(first=1.0), **deps))
        self.hooks = WatchHooks(hooks, self.encode, parse, self.caller, self.changed)
        self.changes = 0

    def encode(self, snapshot: Numbered, _: Hook) -> bytes:
        self.encoded += 1
        return f'["{snapshot.digest}"]'.encode()

    def changed(self) -> None:
        self.changes += 1

    def due(self) -> list[float]:
        """Return in how many seconds failing hooks are called again."""
        return self.clock.pending()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.hooks.run())
            await settle()
            yield
            task.cancel()
        assert self.due() == []

    async def __call__(self, digest: str) -> tuple[str, ...]:
        return await self.hooks(Numbered(1, digest))


def hooks(*scripts: Scripted, **options: Any) -> list[Hook]:
    return [Hook(script.call, f"hook{number}", **options) for number, script in enumerate(scripts)]


def test_results_of_several_hooks_come_in_order_and_new_input_only_is_derived_from() -> None:
    async def main() -> None:
        one, two = Scripted(["a", "b"], ["a"]), Scripted(["c"], [])
        derived = Derived(*hooks(one, two))
        assert await derived("x") == ("a", "b", "c")
        assert await derived("x") == ("a", "b", "c")
        assert await derived("y") == ("a",)
        assert one.calls == two.calls == ["x", "y"]
        assert derived.due() == []
        assert derived.encoded == 0

    run(main)


def test_hooks_run_beside_each_other() -> None:
    async def main() -> None:
        slow, quick = Driven(), Driven()
        derived = Derived(slow.hook(), quick.hook())
        async with asyncio.TaskGroup() as group:
            results = group.create_task(derived("x"))
            await settle()
            assert slow.calls == quick.calls == [1]
            await quick.end(["quick"])
            await slow.end(["slow"])
            assert await results == ("slow", "quick")

    run(main)


def test_commands_share_one_serialisation() -> None:
    derived = Derived(parse_hook("cat"), parse_hook("cat"))
    assert run_on("uvloop", lambda: derived("x")) == ("x", "x")
    assert derived.encoded == 1


@pytest.mark.parametrize("bad", [ValueError("no"), {"unknown": 1}, "garbage"])
def test_a_hook_that_fails_keeps_its_last_good_result_and_is_called_again_after_a_pause(bad: object) -> None:
    async def main() -> None:
        broken, fine = Scripted(["a"], bad, bad, ["z"]), Scripted(["b"], ["c"], ["d"])
        derived = Derived(*hooks(broken, fine))
        async with derived.running():
            assert await derived("1") == ("a", "b")
            assert await derived("2") == ("a", "c")
            await settle()
            status, other = derived.hooks.statuses()
            assert (status.state, status.runs, status.failures, other.state) == ("degraded", 2, 1, "ok")
            assert status.error
            assert derived.due() == [1.0]
            assert await derived("3") == ("a", "d")
            assert broken.calls == ["1", "2"], "new input does not shorten the pause"
            await derived.clock.advance(1.0)
            assert (broken.calls, derived.due(), derived.changes) == (["1", "2", "3"], [2.0], 0)
            await derived.clock.advance(2.0)
            assert (broken.calls, derived.due(), derived.changes) == (["1", "2", "3", "3"], [], 1)
            assert await derived("3") == ("z", "d")
            assert fine.calls == ["1", "2", "3"]
            status = derived.hooks.statuses()[0]
            assert (status.state, status.error, status.since) == ("ok", None, 1003.0)

    run(main)


def test_a_failing_hook_that_hangs_holds_up_nothing_and_is_not_called_twice() -> None:
    async def main() -> None:
        hook = Driven()
        derived = Derived(hook.hook())
        async with derived.running():
            async with asyncio.TaskGroup() as group:
                group.create_task(derived("1"))
                await settle()
                await hook.end(["a"])
                group.create_task(derived("2"))
                await settle()
                await hook.end(ValueError("no"))
            await derived.clock.advance(1.0)
            assert len(hook.running) == 1
            assert await derived("3") == ("a",)
            derived.hooks.resync()
            assert await derived("4") == ("a",)
            assert len(hook.calls) == 3
            await hook.end(["b"])
            assert derived.changes == 1
            async with asyncio.TaskGroup() as group:
                group.create_task(derived("4"))
                await settle()
                assert len(hook.calls) == 4, "there is a newer snapshot than the one that it has taken"
                await hook.end(["b"])

    run(main)


def test_a_resync_calls_a_hook_with_the_same_input_again_and_a_failing_one_at_once() -> None:
    async def main() -> None:
        script = Scripted(["a"], ["b"], ValueError("no"), ["c"])
        derived = Derived(*hooks(script))
        async with derived.running():
            assert await derived("1") == ("a",)
            derived.hooks.resync()
            assert await derived("1") == ("b",)
            assert await derived("1") == ("b",)
            assert await derived("2") == ("b",)
            derived.hooks.resync()
            await settle()
            assert (script.calls, derived.changes) == (["1", "1", "2", "2"], 1)
            assert await derived("2") == ("c",)

    run(main)


def test_an_error_is_logged_once_with_what_stays_in_force(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        derived = Derived(*hooks(Scripted(["a"], "bad", "bad", ["b"])))
        async with derived.running():
            await derived("1")
            await derived("2")
            await derived.clock.advance(6.0)
            assert derived.changes == 1

    run(main)
    (message,) = caplog.messages
    assert message == (
        "the hook hook0: its output cannot be used: not a list of names: Expected `array`, got `str`; "
        "its last good result stays in force; it is called again in 1.0 s"
    )


def test_nothing_is_derived_before_a_hook_has_worked_once() -> None:
    async def main() -> None:
        derived = Derived(*hooks(Scripted(ValueError("no"), ["a"])))
        async with derived.running():
            for _ in range(2):  # the second time without a call
                with pytest.raises(HookError, match="the hook hook0: it raised ValueError: no"):
                    await derived("1")
            await derived.clock.advance(1.0)
            assert await derived("1") == ("a",)

    run(main)


def test_with_skip_a_hook_that_has_never_worked_adds_nothing() -> None:
    async def main() -> None:
        derived = Derived(*hooks(Scripted(ValueError("no"), ["a"]), on_failure="skip"), *hooks(Scripted(["b"])))
        async with derived.running():
            assert await derived("1") == ("b",)
            await derived.clock.advance(1.0)
            assert await derived("1") == ("a", "b")

    run(main)


def test_with_fatal_the_error_is_there_for_the_process() -> None:
    async def main() -> None:
        derived = Derived(*hooks(Scripted(["a"], ValueError("no")), on_failure="fatal"))
        async with asyncio.TaskGroup() as group:
            fatal = group.create_task(raised(derived))
            assert await derived("1") == ("a",)
            await settle()
            assert not fatal.done()
            assert await derived("2") == ("a",)
            assert str(await fatal) == "the hook hook0: it raised ValueError: no"

    async def raised(derived: Derived) -> BaseException:
        with pytest.raises(ExceptionGroup) as caught:
            await derived.hooks.run()
        return cause(caught.value)

    run(main)


def test_a_cancelled_call_counts_as_neither_and_leaves_no_process() -> None:
    async def main() -> None:
        derived = Derived(parse_hook("sleep 60 & sleep 60;:"), environment=environment, grace=0.1)
        call = asyncio.ensure_future(derived("1"))
        await until(lambda: marked(environment["MARKER"]))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        (status,) = derived.hooks.statuses()
        assert (status.state, status.running_since, status.failures) == ("never run", None, 0)

    with marker("derive") as environment:
        run_on("uvloop", main)


def test_a_resync_calls_hooks_again_but_a_failure_keeps_the_last_result() -> None:
    async def main() -> None:
        one, two = Scripted(["a"], ["b"], ValueError("gone")), Scripted(["c"], ValueError("once"), ["d"])
        derived = Derived(*hooks(one, two))
        assert await derived("x") == ("a", "c")
        derived.hooks.resync()
        assert await derived("x") == ("b", "c")
        assert await derived("x") == ("b", "c"), "the second hook pauses"
        derived.hooks.resync()
        assert await derived("x") == ("b", "c"), "the first hook fails now, and its result stays"
        assert (one.calls, two.calls) == (["x"] * 3, ["x"] * 2), "a failing hook is called beside the pipeline"

    run(main)
