"""Notifiers: ordered, once per change, never in each other's way."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from typing import Any

import pytest

from tests.dflag.kubelet import Heard, until
from tests.dflag.sets import set_of
from tests.pipeline.fakes import run, settle
from wigwag import dflag
from wigwag.dflag.notifying.notifiers import NotifierPool, NotifierQueue, ValueChange
from wigwag.errors import UsageError

PATIENCE = 20.0


def flag() -> dflag.DynFlag[int]:
    return dflag.FlagSet("test").int("x", 0)


@pytest.mark.parametrize("how", ["thread", "sync"])
def test_every_change_is_told_once_and_in_order(how: Any) -> None:
    found, heard = flag(), Heard()
    found.on_change(heard, how)
    for number in range(1, 501):
        found.set_value(number)
    assert set_of(found).flush(PATIENCE)
    assert heard.steps == [(number - 1, number) for number in range(1, 501)]


def test_setting_the_same_value_is_no_change_unless_one_wants_to_know() -> None:
    found, heard, always = flag(), Heard(), Heard()
    found.on_change(heard, "sync")
    found.on_change(always, "sync", always=True)
    found.set("0")
    assert (heard.steps, always.steps) == ([], [(0, 0)])


def test_notifiers_of_one_flag_are_called_in_the_order_in_which_they_came() -> None:
    found = flag()
    order: list[int] = []

    def noting(number: int) -> Any:
        return lambda old, new: order.append(number)

    for number in range(5):
        found.on_change(noting(number))
    found.set("1")
    assert set_of(found).flush(PATIENCE)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", ["thread", "sync"])
def test_one_that_raises_is_logged_and_counted_and_called_again(how: Any, caplog: pytest.LogCaptureFixture) -> None:
    found, heard = flag(), Heard()

    def bad(old: int, new: int) -> None:
        raise ZeroDivisionError("oh")

    subscription = found.on_change(bad, how)
    found.on_change(heard, how)
    found.set("1")
    found.set("2")
    assert set_of(found).flush(PATIENCE)
    assert (subscription.errors, set_of(found).notifier_errors) == (2, 2)
    assert heard.steps == [(0, 1), (1, 2)]
    assert found.get() == 2
    assert [record.getMessage().rsplit(".", 1)[-1] for record in caplog.records] == ["bad raised ZeroDivisionError"] * 2


def test_what_a_notifier_of_a_secret_says_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    found = dflag.FlagSet("test").str("x", "", secret=True)

    def bad(old: str, new: str) -> None:
        raise ValueError(new)

    found.on_change(bad, "sync")
    found.set("hunter2")
    assert "ValueError" in caplog.text
    assert "hunter2" not in caplog.text


def test_one_that_blocks_holds_up_neither_the_setter_nor_the_notifiers_of_others() -> None:
    flags = dflag.FlagSet("test")
    slow, other = flags.int("slow", 0), flags.int("other", 0)
    release, heard, slowly = threading.Event(), Heard(), Heard()
    slow.on_change(lambda old, new: release.wait(PATIENCE))
    slow.on_change(slowly)
    other.on_change(heard)
    for number in range(1, 4):
        slow.set_value(number)
        other.set_value(number)
    assert until(lambda: heard.steps == [(0, 1), (1, 2), (2, 3)])
    assert slowly.steps == []
    release.set()
    assert flags.flush(PATIENCE)
    assert slowly.steps == [(0, 1), (1, 2), (2, 3)]


def test_what_waits_has_a_bound_and_the_chain_of_values_does_not_break() -> None:
    notifiers, release, heard = NotifierPool(backlog=5), threading.Event(), Heard()

    def call(step: ValueChange) -> None:
        release.wait(PATIENCE)
        heard(step.old, step.new)

    queue = NotifierQueue(call)
    for number in range(100):
        notifiers.submit(queue, ValueChange(number, number + 1))
    assert len(queue.steps) <= 5
    release.set()
    assert notifiers.flush(PATIENCE)
    assert heard.steps[0][0] == 0
    assert heard.steps[-1][1] == 100
    assert all(after[0] == before[1] for before, after in zip(heard.steps, heard.steps[1:], strict=False))


def test_threads_go_when_there_is_nothing_to_do() -> None:
    notifiers, called = NotifierPool(linger=0.0), Heard()
    notifiers.submit(NotifierQueue(lambda step: called(step.old, step.new)), ValueChange(0, 1))
    assert notifiers.flush(PATIENCE)
    until(lambda: notifiers._running == 0)
    notifiers.submit(NotifierQueue(lambda step: called(step.old, step.new)), ValueChange(1, 2))
    assert notifiers.flush(PATIENCE)
    assert called.steps == [(0, 1), (1, 2)]


def test_a_notifier_that_sets_a_flag_is_followed_by_what_comes_of_it_in_order() -> None:
    flags = dflag.FlagSet("test")
    first, second = flags.int("first", 0), flags.int("second", 0)
    told: list[Any] = []

    def copy(old: int, new: int) -> None:
        told.append(("first", old, new))
        second.set_value(new)
        if new < 3:
            first.set_value(new + 1)

    first.on_change(copy, "sync")
    first.on_change(lambda old, new: told.append(("later", old, new)), "sync")
    second.on_change(lambda old, new: told.append(("second", old, new)), "sync")
    first.set_value(1)
    assert [step for step in told if step[0] != "second"] == [
        (name, number - 1, number) for number in (1, 2, 3) for name in ("first", "later")
    ]
    assert [step for step in told if step[0] == "second"] == [("second", 0, 1), ("second", 1, 2), ("second", 2, 3)]


def test_setters_in_many_threads_are_told_of_in_one_order() -> None:
    found, heard = flag(), Heard()
    found.on_change(heard, "sync")

    def count(start: int) -> None:
        for number in range(start, start + 200):
            found.set_value(number)

    threads = [threading.Thread(target=count, args=(1000 * number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(heard.steps) == 800
    assert heard.steps[0][0] == 0
    assert heard.steps[-1][1] == found.get()
    assert all(after[0] == before[1] for before, after in zip(heard.steps, heard.steps[1:], strict=False))


def test_a_blocked_sync_notifier_does_not_hold_up_who_sets_another_flag() -> None:
    flags = dflag.FlagSet("test")
    slow, other = flags.int("slow", 0), flags.int("other", 0)
    entered, release = threading.Event(), threading.Event()

    def block(old: int, new: int) -> None:
        entered.set()
        release.wait(PATIENCE)

    slow.on_change(block, "sync")
    setter = threading.Thread(target=slow.set_value, args=(1,))
    setter.start()
    assert entered.wait(PATIENCE)
    other.set_value(1)
    assert (slow.get(), other.get()) == (1, 1)
    release.set()
    setter.join()


def test_async_notifiers_are_awaited_in_their_loop_in_order() -> None:
    async def main() -> None:
        found, heard, loop = flag(), Heard(), asyncio.get_running_loop()

        async def hear(old: int, new: int) -> None:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0)
            heard(old, new)
            if new == 2:
                raise ZeroDivisionError

        subscription = found.on_change(hear)
        for number in range(1, 4):
            await asyncio.to_thread(found.set_value, number)
        await settle()
        assert heard.steps == [(0, 1), (1, 2), (2, 3)]
        assert subscription.errors == 1
        subscription.cancel()
        found.set_value(9)
        await settle()
        assert len(heard.steps) == 3

    run(main)


def test_an_async_notifier_without_a_loop_is_an_error_and_one_whose_loop_is_gone_is_forgotten() -> None:
    found = flag()

    async def hear(old: int, new: int) -> None: ...

    with pytest.raises(UsageError, match="no event loop is running here"):
        found.on_change(hear)

    async def main() -> None:
        found.on_change(hear)

    run(main)
    found.set("1")
    assert found.event._subscriptions == ()


def test_a_notifier_is_called_in_one_of_three_ways() -> None:
    with pytest.raises(UsageError, match="thread, sync or async"):
        flag().on_change(Heard(), "later")  # type: ignore[arg-type]


def test_a_set_tells_once_for_each_generation() -> None:
    flags = dflag.FlagSet("test")
    one, two = flags.int("one", 0), flags.int("two", 0)
    heard: list[tuple[tuple[int, int], tuple[int, int]]] = []
    flags.on_change(lambda old, new: heard.append(((old[one], old[two]), (new[one], new[two]))))
    dflag.load_texts(flags, {"one": "1", "two": "2"}, dflag.Origin.COMMAND_LINE)
    one.set("5")
    assert flags.flush(PATIENCE)
    assert heard == [((0, 0), (1, 2)), ((1, 2), (5, 2))]


def test_changes_can_be_waited_for() -> None:
    async def main() -> None:
        found = flag()
        seen: list[int] = []

        async def follow() -> None:
            async for value in found.changes():
                seen.append(value)
                if value == 2:
                    break

        async with asyncio.TaskGroup() as group:
            group.create_task(follow())
            waiting = group.create_task(found.wait_for(lambda value: value > 0))
            await settle()
            found.set("1")
            await settle()
            assert waiting.done()
            found.set("2")
        assert seen == [0, 1, 2]
        gc.collect()
        await settle()
        assert found.event._subscriptions == ()

    run(main)


def test_logging_is_quiet_when_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        found = flag()
        found.on_change(Heard(), "sync")
        found.set("1")
    assert caplog.records == []


@pytest.mark.parametrize("how", ["thread", "sync"])
def test_a_coroutine_function_is_not_for_a_thread(how: Any) -> None:
    async def hear(old: int, new: int) -> None: ...

    with pytest.raises(UsageError, match=f"leave out how='{how}', or say 'async'"):
        flag().on_change(hear, how)


def test_a_subscription_ends_with_its_block() -> None:
    found, heard = flag(), Heard()
    with found.on_change(heard, "sync") as subscription:
        found.set("1")
        assert subscription.errors == 0
    found.set("2")
    assert heard.steps == [(0, 1)]
