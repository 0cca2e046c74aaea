"""Watch hooks: their last good results stay, and a failing hook is called again after a pause."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.pipeline.fakes import FakeClock, run, settle
from tests.watt.driven import Driven, Numbered
from tests.watt.processes import marked, marker, run_on, until
from wigwag.errors import UsageError
from wigwag.pipeline.backoff import Backoff
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
        self.hooks = WatchHooks(hooks, self.encode, parse, self.caller)

    def encode(self, snapshot: Numbered, _: Hook) -> bytes:
        self.encoded += 1
        return f'["{snapshot.digest}"]'.encode()

    def due(self) -> float | None:
        return self.hooks.retry_at

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
        assert derived.due() is None
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
        broken, fine = Scripted(["a"], bad, bad, ["z"]), Scripted(["b"], ["c"], ["d"], ["e"])
        derived = Derived(*hooks(broken, fine))
        assert await derived("1") == ("a", "b")
        assert await derived("2") == ("a", "c")
        status, other = derived.hooks.statuses()
        assert (status.state, status.runs, status.failures, other.state) == ("degraded", 2, 1, "ok")
        assert status.error
        assert derived.due() == 1001.0
        assert await derived("3") == ("a", "d")  # new input does not shorten the pause
        assert broken.calls == ["1", "2"]
        await derived.clock.advance(1.0)
        assert await derived("3") == ("a", "d")
        assert derived.due() == 1003.0
        await derived.clock.advance(2.0)
        assert await derived("3") == ("z", "d")
        assert broken.calls == ["1", "2", "3", "3"]
        assert fine.calls == ["1", "2", "3"]
        status = derived.hooks.statuses()[0]
        assert (status.state, status.error, status.since, derived.due()) == ("ok", None, 1003.0, None)

    run(main)


def test_an_error_is_logged_once_with_what_stays_in_force(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        derived = Derived(*hooks(Scripted(["a"], "bad", "bad", ["b"])))
        await derived("1")
        for _ in range(3):
            await derived("2")
            await derived.clock.advance(2.0)

    run(main)
    (message,) = caplog.messages
    assert message == (
        "the hook hook0: its output cannot be used: not a list of names: Expected `array`, got `str`; "
        "its last good result stays in force; it is called again in 1.0 s"
    )


@pytest.mark.parametrize("policy", ["retry", "fatal"])
def test_nothing_is_derived_before_a_hook_has_worked_once(policy: str) -> None:
    async def main() -> None:
        derived = Derived(*hooks(Scripted(ValueError("no"), ["a"]), on_failure=policy))
        for _ in range(2):  # the second time without a call
            with pytest.raises(HookError, match="the hook hook0: it raised ValueError: no"):
                await derived("1")
        await derived.clock.advance(1.0)
        assert await derived("1") == ("a",)

    run(main)


def test_with_skip_a_hook_that_has_never_worked_adds_nothing() -> None:
    async def main() -> None:
        derived = Derived(*hooks(Scripted(ValueError("no"), ["a"]), on_failure="skip"), *hooks(Scripted(["b"])))
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

    async def raised(derived: Derived) -> HookError:
        with pytest.raises(HookError) as caught:
            await derived.hooks.fatal()
        return caught.value

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


def test_a_resync_calls_hooks_again_and_ends_a_pause_but_a_failure_keeps_the_last_result() -> None:
    async def main() -> None:
        one, two = Scripted(["a"], ["b"], ValueError("gone")), Scripted(["c"], ValueError("once"), ["d"])
        derived = Derived(*hooks(one, two))
        assert await derived("x") == ("a", "c")
        derived.hooks.resync()
        assert await derived("x") == ("b", "c")
        assert await derived("x") == ("b", "c"), "the second hook pauses"
        derived.hooks.resync()
        assert await derived("x") == ("b", "d"), "the first hook fails now, and its result stays"
        assert (one.calls, two.calls) == (["x"] * 3, ["x"] * 3)

    run(main)
