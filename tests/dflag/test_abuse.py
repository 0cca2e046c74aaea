"""What users do to flags that nobody thought of: nothing hangs, nothing is half done, and nobody is told twice."""

from __future__ import annotations

import asyncio
import copy
import gc
import math
import pickle
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from contextvars import copy_context
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import Heard, Volume, becomes, until
from tests.dflag.sets import set_of
from tests.pipeline.fakes import run, settle
from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.dflag.notifying.notifiers import NotifierPool, NotifierQueue, ValueChange
from wigwag.dflag.values.kinds import ValueKind
from wigwag.errors import UsageError

PATIENCE = 20.0


def flag() -> dflag.DynFlag[int]:
    return dflag.FlagSet("test").int("x", 0)


def start(task: Any) -> threading.Thread:
    thread = threading.Thread(target=task)
    thread.start()
    return thread


def test_notifiers_of_two_sets_may_set_flags_of_each_other() -> None:
    one, two = flag(), flag()
    both_inside, heard = threading.Barrier(2), [Heard(), Heard()]

    def set_other(other: dflag.DynFlag[int]) -> Any:
        def call(old: int, new: int) -> None:
            if new == 1:
                both_inside.wait(PATIENCE)
                other.set_value(2)

        return call

    for mine, other, told in ((one, two, heard[0]), (two, one, heard[1])):
        mine.on_change(set_other(other), "sync")
        mine.on_change(told, "sync")
    threads = [start(lambda: one.set_value(1)), start(lambda: two.set_value(1))]
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    until(lambda: [told.steps for told in heard] == [[(0, 1), (1, 2)]] * 2)


def test_a_notifier_may_stop_an_updater_that_has_something_to_tell(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    rate, other, heard = flags.int("rate", 10), flags.int("other", 0), Heard()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    updater = dflag.setup(flags, volume.path)

    def stop(old: int, new: int) -> None:
        volume.write({"rate": "21"})
        until(lambda: updater.generation == 2)
        updater.stop()

    rate.on_change(heard, "sync")
    other.on_change(stop, "sync")
    setter = start(lambda: other.set_value(1))
    setter.join(PATIENCE)
    assert not setter.is_alive()
    assert (heard.steps, updater.running) == ([(20, 21)], False)


@pytest.mark.parametrize("how", ["thread", "sync"])
def test_an_updater_may_be_stopped_and_started_by_a_notifier(tmp_path: Path, how: Any) -> None:
    flags = dflag.FlagSet("test")
    rate = flags.int("rate", 10)
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    updater, done = dflag.setup(flags, volume.path), threading.Event()

    def again(old: int, new: int) -> None:
        if new == 21:
            updater.stop()
            updater.start() if how == "thread" else None  # the updater's own thread has to end first
            done.set()

    rate.on_change(again, how)
    volume.write({"rate": "21"})
    assert done.wait(PATIENCE)
    if how == "sync":
        until(lambda: "dflag updater" not in [thread.name for thread in threading.enumerate()])
        updater.start()
    volume.write({"rate": "22"})
    becomes(rate, 22)
    updater.stop()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is an exception, though whoever started the tests may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_notifier_is_meant_for_the_program_and_the_others_are_called_nevertheless() -> None:
    found, heard = flag(), Heard()

    def interrupted(old: int, new: int) -> None:
        signal.raise_signal(signal.SIGINT)

    found.on_change(interrupted, "sync")
    found.on_change(heard, "sync")
    with pytest.raises(KeyboardInterrupt):
        found.set("1")
    assert (found.get(), heard.steps, set_of(found).notifier_errors) == (1, [(0, 1)], 0)
    with pytest.raises(KeyboardInterrupt):
        found.set("2")
    assert heard.steps == [(0, 1), (1, 2)]


class Rude(asyncio.SelectorEventLoop):
    """A loop that raises when it is woken: a signal that comes in the middle of a change."""

    rude = True

    def call_soon_threadsafe(  # type: ignore[override]  # we are the only ones who call it
        self, callback: Any, *values: Any, context: Any = None
    ) -> asyncio.Handle:
        if self.rude:
            self.rude = False
            raise KeyboardInterrupt
        return super().call_soon_threadsafe(callback, *values, context=context)


def test_a_signal_in_the_middle_of_a_change_does_not_leave_half_of_it() -> None:
    flags = dflag.FlagSet("test")
    first, second, heard, loop = flags.int("first", 0), flags.int("second", 0), Heard(), Rude()

    async def hear(old: int, new: int) -> None: ...

    first.on_change(hear, loop=loop)
    second.on_change(heard)
    with pytest.raises(KeyboardInterrupt):
        dflag.load_texts(flags, {"first": "1", "second": "2"}, Origin.COMMAND_LINE)
    loop.close()
    snapshot = flags.snapshot()
    assert (first.get(), second.get(), snapshot[first], snapshot[second]) == (1, 2, 1, 2)
    assert flags.flush(PATIENCE)
    assert heard.steps == [(0, 2)]


class Odd:
    """A value whose equality is not one."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __eq__(self, other: object) -> Any:
        if isinstance(self.answer, type) and issubclass(self.answer, BaseException):
            raise self.answer
        return self.answer

    __hash__ = object.__hash__


class Array:
    """What numpy answers: neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


@pytest.mark.parametrize(("answer", "told"), [(ZeroDivisionError, 1), (Array(), 1), (True, 0), (False, 1)])
def test_a_value_that_cannot_be_compared_has_changed(answer: Any, told: int) -> None:
    kind: ValueKind[Any] = ValueKind("odd", lambda text: Odd(answer), lambda value: "odd", lambda value: value)
    found, heard = dflag.FlagSet("test").flag(kind, "x", Odd(answer)), Heard()  # type: ignore[arg-type]
    found.on_change(heard, "sync")
    found.set("")
    assert len(heard.steps) == told


def test_one_whose_equality_ends_the_program_changes_nothing() -> None:
    kind: ValueKind[Any] = ValueKind(
        "odd", lambda text: Odd(KeyboardInterrupt), lambda value: "odd", lambda value: value
    )
    flags = dflag.FlagSet("test")
    number, odd = flags.int("a", 0), flags.flag(kind, "b", Odd(KeyboardInterrupt))  # type: ignore[arg-type]
    before = odd.get()
    with pytest.raises(KeyboardInterrupt):
        dflag.load_texts(flags, {"a": "1", "b": ""}, Origin.COMMAND_LINE)
    assert (number.get(), odd.get() is before, flags.generation) == (0, True, 0)
    number.set("2")
    assert flags.snapshot()[number] == 2


@pytest.mark.parametrize("leave", [sys.exit, lambda: 1 // 0], ids=["exit", "break"])
def test_a_validator_that_wants_to_leave_is_one_that_refuses(tmp_path: Path, leave: Any) -> None:
    flags = dflag.FlagSet("test")
    rate = flags.int("rate", 10, validators=[lambda value: leave() if value == 13 else None])
    other = flags.int("other", 0)
    volume = Volume(tmp_path / "conf", {"rate": "20", "other": "1"})
    with dflag.setup(flags, volume.path) as updater:
        volume.write({"rate": "13", "other": "2"})
        becomes(other, 2)
        assert (rate.get(), updater.errors, updater.running) == (20, 1, True)
        volume.write({"rate": "21", "other": "2"})
        becomes(rate, 21)


def test_a_slow_validator_holds_up_no_reader() -> None:
    flags, judging, release = dflag.FlagSet("test"), threading.Event(), threading.Event()

    def slow(value: int) -> None:
        if value:
            judging.set()
            release.wait(PATIENCE)

    found = flags.int("x", 0, validators=[slow])
    assert flags.snapshot()[found] == 0
    setter = start(lambda: found.set_value(1))
    assert judging.wait(PATIENCE)
    with flags.pinned() as snapshot:
        assert (found.get(), found(), snapshot[found], flags.checksum()) == (0, 0, 0, flags.checksum())
    release.set()
    setter.join()
    assert found.get() == 1


def test_a_validator_may_set_another_flag() -> None:
    flags = dflag.FlagSet("test")
    other = flags.int("other", 0)
    found = flags.int("x", 0, validators=[lambda value: other.set_value(value)])
    found.set("3")
    snapshot = flags.snapshot()
    assert (found.get(), other.get(), snapshot[found], snapshot[other]) == (3, 3, 3, 3)


def test_a_notifier_that_would_wait_for_itself_is_told_so() -> None:
    found = flag()
    told: list[str] = []

    def waits(old: int, new: int) -> None:
        try:
            set_of(found).flush()
        except UsageError as error:
            told.append(str(error))

    found.on_change(waits)
    found.set("1")
    assert set_of(found).flush(PATIENCE)
    assert told == ["flush() waits for the notifiers, so a notifier that calls it would wait for itself"]


def test_where_no_thread_is_to_be_had_notifiers_wait_for_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    notifiers, heard = NotifierPool(), Heard()
    queue = NotifierQueue(lambda step: heard(step.old, step.new))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        for number in range(3):
            notifiers.submit(queue, ValueChange(number, number + 1))
        assert not notifiers.flush(0.0)
    assert caplog.text.count("no thread can be started") == 1
    assert notifiers.flush(PATIENCE)
    assert heard.steps == [(0, 1), (1, 2), (2, 3)]


def test_an_updater_for_which_no_thread_is_to_be_had_says_so_and_can_be_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = dflag.FlagSet("test")
    rate = flags.int("rate", 10)
    updater = dflag.Updater(flags, Volume(tmp_path / "conf", {"rate": "20"}).path)

    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            updater.start()
    assert not updater.running
    with updater:
        assert rate.get() == 20


def test_an_async_notifier_that_is_cancelled_by_something_of_its_own_hears_the_rest() -> None:
    async def main() -> None:
        found, heard = flag(), Heard()

        async def hear(old: int, new: int) -> None:
            heard(old, new)
            if new == 1:
                raise asyncio.CancelledError

        subscription = found.on_change(hear)
        for number in (1, 2, 3):
            found.set_value(number)
        await settle()
        assert heard.steps == [(0, 1), (1, 2), (2, 3)]
        assert subscription.errors == 1

    run(main)


def test_overrides_of_tasks_that_overlap_go_without_a_trace() -> None:
    flags = dflag.FlagSet("test")
    found = flags.int("x", 0)

    async def overriding(number: int, order: list[asyncio.Event]) -> None:
        with flags.override(x=number):
            await order[number].wait()

    async def main() -> None:
        order = [asyncio.Event() for _ in range(4)]
        async with asyncio.TaskGroup() as group:
            for number in (1, 2, 3):
                group.create_task(overriding(number, order))
            await settle()
            for leaving, then in ((2, 3), (3, 1), (1, 0)):
                assert found.get() == max(then, found.get())
                order[leaving].set()
                await settle()
                assert found.get() == then

    run(main)
    assert len(found.layers) == 1


def test_a_flag_is_never_copied_and_goes_to_no_other_process() -> None:
    found = flag()
    settings = {"x": [found]}
    assert copy.deepcopy(settings)["x"][0] is found
    assert copy.copy(found) is found
    for thing, reason in ((found, "flag 'x' belongs to this process"), (set_of(found), "the set 'test' belongs")):
        with pytest.raises(TypeError, match=reason):
            pickle.dumps(thing)
    snapshot = pickle.loads(pickle.dumps(set_of(found).snapshot()))
    assert (dict(snapshot), snapshot.generation) == ({"x": 0}, 0)


NAN_KINDS: list[tuple[str, Any, str]] = [
    ("float", math.nan, "NaN"),
    ("decimal", Decimal("NaN"), "nan"),
    ("list", [1.0, math.nan], "1, NaN"),
    ("set", {math.nan, 1.0}, "nan,1.0"),
    ("mapping", {"a": math.nan}, "a=nan"),
]


@pytest.mark.parametrize(("kind", "default", "text"), NAN_KINDS, ids=[row[0] for row in NAN_KINDS])
def test_nan_is_no_change_from_nan_wherever_it_is(kind: str, default: Any, text: str) -> None:
    options = {} if kind in ("float", "decimal") else {"item": float}
    found, heard = getattr(dflag.FlagSet("test"), kind)("x", default, **options), Heard()
    found.on_change(heard, "sync")
    for _ in range(3):
        found.set(text)
    assert heard.steps == []
    found.set("a=1" if kind == "mapping" else "1")
    assert len(heard.steps) == 1


def test_a_text_with_the_same_words_is_not_the_same_list() -> None:
    found, heard = dflag.FlagSet("test").list("x", ["a", "b"]), Heard()
    found.on_change(heard, "sync")
    found.set_value(["a,b"])
    assert heard.steps == [(["a", "b"], ["a,b"])]


def test_a_decimal_that_cannot_be_compared_is_refused() -> None:
    with pytest.raises(dflag.FlagError, match="'sNaN' is not a decimal number"):
        dflag.FlagSet("test").decimal("x", Decimal(0)).set("sNaN")


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**5000], ids=["more", "less", "endless"])
def test_a_number_that_no_other_language_could_hold_is_refused(value: int) -> None:
    found = flag()
    with pytest.raises(dflag.FlagError, match="does not fit in 64 bits"):
        found.set_value(value)
    with pytest.raises(dflag.FlagError, match=r"64 bits|not a whole number"):
        found.set("9" * value.bit_length())
    assert found.get() == 0


def test_names_may_be_of_any_script_but_must_be_text(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    found = flags.int("größe", 1)
    with dflag.setup(flags, Volume(tmp_path / "conf", {"größe": "2"}).path):
        assert found.get() == 2
    assert len(flags.checksum()) == 64
    with pytest.raises(UsageError, match="cannot be the name of a flag"):
        flags.int("\udcff", 1)


def test_json_that_cannot_be_written_is_refused_when_it_comes() -> None:
    flags = dflag.FlagSet("test")
    found = flags.json("x", {"a": 1})
    endless: list[Any] = []
    endless.append(endless)
    for bad in ({"a": "\ud800"}, endless):
        with pytest.raises(dflag.FlagError, match="not JSON"):
            found.set_value(bad)  # type: ignore[arg-type]
    assert len(flags.checksum()) == 64


def test_who_reads_a_value_cannot_change_it_for_others() -> None:
    flags = dflag.FlagSet("test")
    default = {"a": [1]}
    found = flags.json("x", default)
    default["a"].append(2)
    seen = found.get()
    with pytest.raises(TypeError, match="copy it before you change it"):
        seen["a"].append(3)
    mine = copy.deepcopy(seen)
    mine["a"].append(4)
    found.set_value(mine)
    mine["a"].append(5)
    assert found.get() == {"a": [1, 4]}


def test_flags_that_are_watched_live_as_long_as_the_watch_and_no_longer(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "conf", {"rate": "20"})

    def watch() -> tuple[dflag.Updater, weakref.ref[dflag.FlagSet]]:
        flags = dflag.FlagSet("test")
        flags.int("rate", 10)
        return dflag.setup(flags, volume.path), weakref.ref(flags)

    updater, flags = watch()
    gc.collect()
    volume.write({"rate": "21"})
    becomes(updater.flags["rate"], 21)
    updater.stop()
    del updater
    until(lambda: gc.collect() is not None and flags() is None)


def test_a_forgotten_updater_goes_on(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    rate, volume = flags.int("rate", 10), Volume(tmp_path / "conf", {"rate": "20"})
    found = weakref.ref(dflag.setup(flags, volume.path))
    gc.collect()
    volume.write({"rate": "21"})
    becomes(rate, 21)
    updater = found()
    assert updater is not None
    updater.stop()


def test_what_is_pinned_is_not_taken_for_that_of_another_set_that_comes_to_its_place() -> None:
    def pinned() -> Any:
        flags = dflag.FlagSet("gone")
        flags.int("x", 1)
        with flags.pinned():
            return copy_context(), id(flags)

    contexts = [pinned() for _ in range(50)]
    gc.collect()

    def fresh() -> Iterator[dflag.DynFlag[int]]:
        for _ in range(50):
            yield dflag.FlagSet("new").int("x", 2)

    news = list(fresh())
    assert {context.run(new) for context, _ in contexts for new in news} == {2}
