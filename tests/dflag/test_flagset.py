"""A set of flags: names, where values come from, snapshots, overrides, digests and help."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import becomes, until
from tests.pipeline.fakes import run
from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.dflag.flag import Put
from wigwag.dflag.origin import Slot
from wigwag.errors import UsageError
from wigwag.golang import fnv1a32


def test_flags_come_in_the_order_of_their_names_and_each_name_once() -> None:
    flags = dflag.FlagSet("test")
    for name in ("b", "c", "a"):
        flags.int(name, 0)
    assert [flag.name for flag in flags] == ["a", "b", "c"]
    assert (len(flags), "b" in flags, "x" in flags) == (3, True, False)
    with pytest.raises(UsageError, match="the set 'test' has a flag 'b' already"):
        flags.int("b", 0)
    with pytest.raises(UsageError, match="has a flag 'y' already"):
        flags.int("x", 0, aliases=["y", "y"])
    assert "x" not in flags
    with pytest.raises(UsageError, match="there is no flag 'x' in the set 'test'"):
        flags.assign("x", "1")


def test_one_value_may_have_several_names() -> None:
    flags = dflag.FlagSet("test")
    level = flags.str("loglevel", "info", aliases=["log_level"])
    flags.bind("verbosity", level)
    flags.assign("verbosity", "debug")
    assert level.names == ("loglevel", "log_level", "verbosity")
    assert flags["log_level"] is level
    snapshot = flags.snapshot()
    assert {snapshot[name] for name in level.names} == {"debug"}
    assert list(snapshot) == ["loglevel"]
    assert "verbosity" in snapshot


def test_a_library_makes_a_flag_and_the_program_names_it() -> None:
    flag = dflag.new(int, 4, "threads", aliases=["size"], validators=[dflag.in_range(1, 100)])
    flag.set("8")
    flags = dflag.FlagSet("test")
    flags.bind("pool", flag)
    assert (flag.name, flags["size"].get(), flags.snapshot()[flag]) == ("pool", 8, 8)
    flags.assign("pool", "9")
    assert flag.get() == 9
    with pytest.raises(UsageError, match="belongs to the set 'test' already"):
        dflag.FlagSet("other").bind("pool", flag)


ORDER = [
    (Origin.FILE, "1"),
    (Origin.ENVIRONMENT, "2"),
    (Origin.CONFIGMAP, "3"),
    (Origin.COMMAND_LINE, "4"),
    (Origin.PROGRAM, "5"),
    (Origin.HTTP, "6"),
]


@pytest.mark.parametrize("order", [ORDER, ORDER[::-1]], ids=["weakest-first", "strongest-first"])
def test_precedence_decides_and_not_time(order: list[tuple[Origin, str]]) -> None:
    flags = dflag.FlagSet("test", wall=lambda: 7.0)
    flag = flags.int("x", 0)
    for origin, text in order:
        flags.assign("x", text, origin, "here")
    for origin, text in reversed(ORDER):
        assert (flag.get(), flag.held.origin, str(flag.held)) == (int(text), origin, f"{origin.value} here")
        assert flag.held.at == 7.0
        flags.clear(origin)
    assert (flag.get(), flag.held.origin) == (0, Origin.DEFAULT)


def test_the_last_writer_wins_if_one_wants_it_as_the_original_has_it() -> None:
    flags = dflag.FlagSet("test", precedence=dflag.LAST_WRITER)
    flag = flags.int("x", 0)
    for origin, text in reversed(ORDER):
        flags.assign("x", text, origin)
        assert flag.get() == int(text)
    with flag.override(99):
        flags.assign("x", "5")
        assert flag.get() == 99
    assert flag.get() == 5


def test_precedence_can_be_chosen() -> None:
    flags = dflag.FlagSet("test", precedence=(Origin.DEFAULT, Origin.COMMAND_LINE, Origin.CONFIGMAP))
    flag = flags.int("x", 0)
    flags.assign("x", "1", Origin.CONFIGMAP)
    flags.assign("x", "2", Origin.COMMAND_LINE)
    assert flag.get() == 1


def test_a_default_counts_least_though_it_has_no_rank() -> None:
    flags = dflag.FlagSet("test", precedence=(Origin.ENVIRONMENT, Origin.CONFIGMAP, Origin.HTTP))
    flag = flags.int("x", 0)
    for origin, text in ((Origin.ENVIRONMENT, "1"), (Origin.CONFIGMAP, "2"), (Origin.PROGRAM, "3")):
        flags.assign("x", text, origin)
        flags.set_default("9", "x")
        assert flag.get() == int(text)
    flags.clear(Origin.PROGRAM)
    assert (flag.get(), flag.default) == (2, 9)


@pytest.mark.parametrize(
    ("precedence", "told"),
    [
        ((Origin.FILE, Origin.HTTP, Origin.FILE), "'file' is there twice"),
        ((Origin.FILE, Origin.DEFAULT), "'default' always is first: put it there, or leave it out"),
        ((Origin.TEST, Origin.FILE), "'test override' always is last: put it there, or leave it out"),
        (("file", "HTTP override"), "'file' is no Origin"),
    ],
)
def test_an_order_that_could_not_be_kept_is_refused(precedence: Any, told: str) -> None:
    with pytest.raises(UsageError, match=f"precedence: {told}"):
        dflag.FlagSet("test", precedence=precedence)


def test_an_override_runs_out() -> None:
    now = [100.0]
    flags = dflag.FlagSet("test", clock=lambda: now[0])
    flag = flags.int("x", 1)
    flags.assign("x", "2", Origin.HTTP, ttl=3600.0)
    now[0] += 3599.0
    flags.expire()
    assert (flag.get(), flag.held.until) == (2, 3700.0)
    now[0] += 1.0
    flags.expire()
    assert (flag.get(), flag.held.origin) == (1, Origin.DEFAULT)
    with pytest.raises(UsageError, match="must live for more than"):
        flags.assign("x", "2", Origin.HTTP, ttl=0.0)


def test_an_override_runs_out_by_itself() -> None:
    flags = dflag.FlagSet("test")
    flag = flags.int("x", 1)
    gone = threading.Event()
    flag.on_change(lambda old, new: gone.set() if new == 1 else None, "sync")
    flags.assign("x", "2", Origin.HTTP, ttl=0.01)
    flags.assign("x", "3", Origin.HTTP, "other", ttl=0.02)
    assert gone.wait(20.0)
    becomes(flag, 1)  # the first one may have run out before the second was set


def test_texts_the_environment_and_files_bring_values_under_one_generation() -> None:
    flags = dflag.FlagSet("test")
    rate, name = flags.int("db.rate", 1), flags.str("name", "x")
    dflag.load_environment(flags, {"APP_DB_RATE": "2", "APP_NAME": "env", "NAME": "no"}, "APP_")
    assert (rate.get(), name.get(), flags.generation) == (2, "env", 1)
    dflag.load_texts(flags, {"name": "cli"}, Origin.COMMAND_LINE)
    assert (name.get(), str(name.held), str(rate.held)) == ("cli", "command line", "environment APP_DB_RATE")
    with pytest.raises(UsageError, match="there is no flag 'nope' in the set 'test'"):
        dflag.load_texts(flags, {"nope": "1"}, Origin.COMMAND_LINE)


def test_what_is_refused_does_not_keep_the_rest_from_being_taken() -> None:
    flags = dflag.FlagSet("test")
    one, two, _ = flags.int("one", 1), flags.int("two", 2), flags.int("three", 3)
    with pytest.raises(dflag.FlagError, match=r"'one': ONE: 'x' is not a.*'three': THREE: 'y' is not") as caught:
        dflag.load_environment(flags, {"ONE": "x", "TWO": "5", "THREE": "y"})
    assert caught.value.flag == "one, three"
    assert (one.get(), two.get()) == (1, 5)


def test_overrides_nest_and_go_whatever_happens_between() -> None:
    flags = dflag.FlagSet("test")
    x, y = flags.int("x", 1), flags.int("y-z", 1)
    with flags.override({"y-z": 5}, x=2):
        assert (x.get(), y.get()) == (2, 5)
        x.set("7")
        with x.override(3):
            assert x.get() == 3
        assert x.get() == 2
    assert (x.get(), y.get()) == (7, 1)
    with pytest.raises(ZeroDivisionError), flags.override(x=4):
        raise ZeroDivisionError
    assert x.get() == 7
    with pytest.raises(dflag.FlagError), flags.override(x="no"):
        pass


def test_a_snapshot_stays_as_it_is() -> None:
    flags = dflag.FlagSet("test")
    x, y = flags.int("x", 1), flags.str("y", "a")
    before = flags.snapshot()
    x.set("2")
    assert (before[x], before["x"], before[y], before.generation) == (1, 1, "a", 0)
    assert (flags.snapshot()[x], flags.snapshot().generation) == (2, 1)
    assert dict(before) == {"x": 1, "y": "a"}
    assert flags.snapshot().held(x).origin is Origin.PROGRAM
    with pytest.raises(TypeError):
        before["x"] = 3  # type: ignore[index]


def test_a_flag_that_is_defined_later_is_in_the_next_snapshot() -> None:
    flags = dflag.FlagSet("test")
    before = flags.snapshot()
    x = flags.int("x", 1)
    assert ("x" in before, x.name in flags.snapshot()) == (False, True)
    with flags.pinned():
        y = flags.int("y", 1)
        assert y() == 1


def test_within_a_pin_a_flag_that_is_called_has_the_value_of_its_generation() -> None:
    flags = dflag.FlagSet("test")
    x = flags.int("x", 1)
    assert x() == 1
    with flags.pinned() as snapshot:
        x.set("2")
        assert (x(), x.get(), x.value, snapshot[x]) == (1, 2, 2, 1)
        assert flags.current() is snapshot
        with flags.pinned() as inner:
            assert inner is snapshot
    assert x() == 2


def test_a_pin_belongs_to_its_request_alone() -> None:
    flags = dflag.FlagSet("test")
    x = flags.int("x", 0)

    async def request(arrived: asyncio.Event, go: asyncio.Event) -> tuple[int, int]:
        with flags.pinned():
            first = x()
            arrived.set()
            await go.wait()
            return first, await asyncio.create_task(later())

    async def later() -> int:
        return x()

    async def main() -> None:
        go = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number in range(3):
                x.set_value(number)
                arrived = asyncio.Event()
                tasks.append(group.create_task(request(arrived, go)))
                await arrived.wait()
            assert x() == 2
            go.set()
        assert [task.result() for task in tasks] == [(0, 0), (1, 1), (2, 2)]

    run(main)
    assert copy_context().run(x) == 2


def test_readers_never_see_half_a_commit() -> None:
    flags = dflag.FlagSet("test")
    every = [flags.int(f"f{number}", 0) for number in range(50)]
    stop, torn = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            with flags.pinned():
                seen = {flag() for flag in every}
            if len(seen) != 1:
                torn.append(seen)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    slot = Slot(Origin.PROGRAM)
    for number in range(1, 1001):
        puts = [Put(flag, slot, number) for flag in every]
        flags.commit(_constantly(puts))
    stop.set()
    for reader in readers:
        reader.join()
    assert torn == []
    assert flags.generation == 1000


def _constantly(puts: list[Put]) -> Callable[[], list[Put]]:
    return lambda: puts


def test_a_checksum_differs_when_a_value_does_and_comes_back_with_it() -> None:
    flags = dflag.FlagSet("test")
    x = flags.int("x", 1)
    flags.str("s", "a", dynamic=False)
    for legacy in (False, True):
        before = [flags.checksum(which, legacy=legacy) for which in ("all", "dynamic", "static")]
        assert len(set(before)) == 3
        x.set("2")
        after = [flags.checksum(which, legacy=legacy) for which in ("all", "dynamic", "static")]
        assert [first == second for first, second in zip(before, after, strict=True)] == [False, False, True]
        x.set("1")
        assert [flags.checksum(which, legacy=legacy) for which in ("all", "dynamic", "static")] == before


def test_ours_tells_apart_what_the_original_runs_together() -> None:
    def of(**texts: str) -> tuple[str, str]:
        flags = dflag.FlagSet("test")
        for name, text in texts.items():
            flags.str(name, text)
        return flags.checksum(), flags.checksum(legacy=True)

    (ours, theirs), (ours_too, theirs_too) = of(ab="c"), of(a="bc")
    assert (ours == ours_too, theirs == theirs_too) == (False, True)


@pytest.mark.parametrize(("text", "value"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_the_original_hash_has_its_published_values(text: str, value: int) -> None:
    assert fnv1a32([text]) == value


def test_the_checksum_of_the_original_has_every_name_and_the_values_as_go_writes_them() -> None:
    flags = dflag.FlagSet("test")
    flags.float("f", 1.0, aliases=["a"])
    flags.json("j", {"b": "<&>", "a": 1})
    assert flags.checksum(legacy=True) == f"{fnv1a32(['a', '1', 'f', '1', 'j', _GO_JSON]):08x}"


_GO_JSON = '{"a":1,"b":"\\u003c\\u0026\\u003e"}'


def test_the_help_never_fails() -> None:
    flags = dflag.FlagSet("test")
    flags.json("long", {"a": "x" * 200}, "two\nlines")
    flags.bytes("raw", b"\xff" * 200)
    flags.str("empty", "", secret=True)
    flags.duration("odd", timedelta()).default = object()  # type: ignore[assignment]
    told = flags.usage()
    assert "odd  duration, dynamic, default (cannot be shown: AttributeError)" in told
    assert "{ ... truncated ... }" in told
    assert "    two\n    lines" in told
    assert "empty  str, dynamic, default (secret)" in told


def test_a_companion_flag_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "rate").write_text("5\n")
    flags = dflag.FlagSet("test")
    rate = flags.int("rate", 1, path_flag=str(tmp_path / "rate"))
    assert flags["rate_path"].get() == str(tmp_path / "rate")
    assert rate.get() == 1
    dflag.load_files(flags)
    assert (rate.get(), rate.held.origin) == (5, Origin.FILE)


def test_the_timer_of_an_override_holds_no_process() -> None:
    before = set(threading.enumerate())  # of other tests
    flags = dflag.FlagSet("test")
    flags.int("x", 1)
    flags.assign("x", "2", Origin.HTTP, ttl=3600.0)
    (timer,) = set(threading.enumerate()) - before
    assert timer.daemon
    flags.clear(Origin.HTTP)
    flags.expire()
    until(lambda: not timer.is_alive())
