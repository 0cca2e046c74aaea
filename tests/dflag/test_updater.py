"""The updater: reading, following, and what it says of what is wrong."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import ORDERS, Heard, Order, Volume, becomes, until
from wigwag import dflag
from wigwag.dflag import Directory, Origin, Policy
from wigwag.dflag.updating.contents import Contents
from wigwag.dflag.updating.places import Names
from wigwag.errors import StartError, UsageError

POLICIES = [Policy(poll=3600.0), Policy(inotify=False, poll=0.002)]
BOTH = pytest.mark.parametrize("policy", POLICIES, ids=["inotify", "poll"])


def example() -> tuple[dflag.FlagSet, dflag.DynFlag[int], dflag.DynFlag[int]]:
    flags = dflag.FlagSet("test")
    return flags, flags.int("rate", 10, validators=[dflag.in_range(0, 100)]), flags.int("size", 1, dynamic=False)


@BOTH
@pytest.mark.parametrize("order", ORDERS)
def test_a_swap_is_one_generation(tmp_path: Path, policy: Policy, order: Order) -> None:
    flags, rate, _ = example()
    other = flags.str("other", "x")
    volume = Volume(tmp_path / "conf", {"rate": "20\n", "size": "5"}, order)
    with dflag.setup(flags, volume.path, policy=policy) as updater:
        assert (rate.get(), updater.generation, rate.held.origin) == (20, 1, Origin.CONFIGMAP)
        assert rate.held.slot.place == str(volume.path)
        volume.write({"rate": "30", "size": "5", "other": "y"})
        until(lambda: updater.generation == 2)
        assert (rate.get(), other.get(), flags.snapshot()[rate]) == (30, "y", 30)
        assert (updater.errors, updater.warnings, updater.problems) == (0, 0, ())


@BOTH
def test_a_plain_directory_is_followed_too(tmp_path: Path, policy: Policy) -> None:
    flags, rate, _ = example()
    (tmp_path / "rate").write_text("20")
    with dflag.setup(flags, str(tmp_path), policy=policy):
        (tmp_path / "rate").write_text("30")
        becomes(rate, 30)
        (tmp_path / "new").write_text("31")
        (tmp_path / "new").rename(tmp_path / "rate")
        becomes(rate, 31)
        (tmp_path / "rate").unlink()
        becomes(rate, 10)


def test_a_static_flag_is_read_before_the_start_and_asks_for_a_restart_after_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags, rate, size = example()
    volume = Volume(tmp_path / "conf", {"rate": "20", "size": "5"})
    with dflag.setup(flags, volume.path) as updater:
        assert size.get() == 5
        volume.write({"rate": "21", "size": "6"})
        becomes(rate, 21)
        assert (size.get(), list(updater.restart_required)) == (5, ["size"])
        assert (updater.errors, updater.warnings) == (0, 0)
        until(lambda: "restart required: the static flag 'size' stays as it is" in caplog.text)
        volume.write({"rate": "22", "size": "0x5"})
        becomes(rate, 22)
        assert updater.restart_required == ()
        volume.write({"rate": "23"})
        becomes(rate, 23)
        assert (size.get(), list(updater.restart_required)) == (5, ["size"])


def test_without_initialize_only_dynamic_flags_are_read(tmp_path: Path) -> None:
    flags, rate, size = example()
    volume = Volume(tmp_path / "conf", {"rate": "20", "size": "5"})
    updater = dflag.Updater(flags, volume.path)
    updater.start()
    assert (rate.get(), size.get(), updater.restart_required) == (20, 1, ("size",))
    updater.stop()


def test_it_can_be_stopped_twice_and_started_again(tmp_path: Path) -> None:
    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    updater = dflag.Updater(flags, volume.path)
    updater.stop()
    updater.initialize()
    for number in range(21, 24):
        updater.start()
        with pytest.raises(UsageError, match="started already"):
            updater.start()
        with pytest.raises(UsageError, match="initialize\\(\\) comes before"):
            updater.initialize()
        volume.write({"rate": str(number)})
        becomes(rate, number)
        updater.stop()
        updater.stop()
        assert not updater.running
    volume.write({"rate": "50"})
    assert rate.get() == 23
    updater.initialize()
    assert rate.get() == 50


def test_what_happens_between_initialize_and_start_is_not_missed(tmp_path: Path) -> None:
    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    updater = dflag.Updater(flags, volume.path)
    updater.initialize()
    volume.write({"rate": "21"})
    updater.start()
    assert (rate.get(), updater.generation) == (21, 2)
    updater.stop()


def test_nothing_is_left_open_after_a_stop(tmp_path: Path) -> None:
    flags, _, _ = example()
    updater = dflag.Updater(flags, Volume(tmp_path / "conf", {"rate": "20"}).path)
    updater.start()
    updater.stop()
    before = open_now()
    for _ in range(20):
        updater.start()
        updater.stop()
    assert all(now <= then for now, then in zip(open_now(), before, strict=True))  # less, if other tests let go


def open_now() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def test_a_bad_key_spoils_itself_only_and_is_counted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags, rate, _ = example()
    other = flags.int("other", 0)
    volume = Volume(tmp_path / "conf", {"rate": "20", "other": "0"})
    with dflag.setup(flags, volume.path) as updater:
        for number in range(1, 4):
            volume.write({"rate": "101", "other": str(number)})
            becomes(other, number)
        assert (rate.get(), updater.errors) == (20, 1)
        assert [str(problem) for problem in updater.problems] == [f"{volume.path}/rate: must be from 0 to 100, got 101"]
        assert caplog.text.count("must be from 0 to 100, got 101") == 1
        volume.write({"rate": "102", "other": "4"})
        becomes(other, 4)
        assert updater.errors == 2
        volume.write({"rate": "30", "other": "4"})
        becomes(rate, 30)
        assert (updater.errors, updater.problems) == (2, ())


def test_all_or_nothing(tmp_path: Path) -> None:
    flags, rate, _ = example()
    other = flags.int("other", 0)
    volume = Volume(tmp_path / "conf", {"rate": "20", "other": "1"})
    with dflag.setup(flags, volume.path, policy=Policy(atomic="all")) as updater:
        volume.write({"rate": "101", "other": "2"})
        until(lambda: updater.errors == 1)
        assert (rate.get(), other.get(), updater.generation) == (20, 1, 1)
        volume.write({"rate": "30", "other": "3"})
        until(lambda: updater.generation == 2)
        assert (rate.get(), other.get()) == (30, 3)


@pytest.mark.parametrize(("on_missing", "value", "errors"), [("default", 10, 0), ("keep", 20, 0), ("error", 20, 1)])
def test_a_key_that_is_gone(tmp_path: Path, on_missing: Any, value: int, errors: int) -> None:
    flags, rate, _ = example()
    other = flags.int("other", 0)
    volume = Volume(tmp_path / "conf", {"rate": "20", "other": "1"})
    with dflag.setup(flags, volume.path, policy=Policy(on_missing=on_missing)) as updater:
        for number in (2, 3):
            volume.write({"other": str(number)})
            becomes(other, number)
        assert (rate.get(), updater.errors) == (value, errors)
        volume.write({"other": "4", "rate": "40"})
        becomes(other, 4)
        assert (rate.get(), updater.problems) == (40, ())


def test_a_key_that_is_gone_uncovers_what_else_there_is(tmp_path: Path) -> None:
    flags, rate, _ = example()
    dflag.load_environment(flags, {"RATE": "15"})
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path):
        volume.write({})
        becomes(rate, 15)
        assert rate.held.origin is Origin.ENVIRONMENT


def test_the_command_line_counts_more_than_the_configmap(tmp_path: Path) -> None:
    flags, rate, _ = example()
    dflag.load_texts(flags, {"rate": "5"}, Origin.COMMAND_LINE)
    with dflag.setup(flags, Volume(tmp_path / "conf", {"rate": "20"}).path):
        assert rate.get() == 5
        assert rate.layers[rate.held.slot].value == 5


@pytest.mark.parametrize(("unknown", "warnings", "errors"), [("warn", 1, 0), ("error", 0, 1), ("ignore", 0, 0)])
def test_a_file_that_names_no_flag(tmp_path: Path, unknown: Any, warnings: int, errors: int) -> None:
    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {"rate": "20", "other": "1"})
    with dflag.setup(flags, volume.path, policy=Policy(unknown=unknown, tolerant=True)) as updater:
        for number in (21, 22):
            volume.write({"rate": str(number), "other": str(number)})
            becomes(rate, number)
        assert (updater.warnings, updater.errors) == (warnings, errors)


def test_a_flag_may_be_defined_after_its_file_was_there(tmp_path: Path) -> None:
    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {"rate": "20", "late": "5"})
    with dflag.setup(flags, volume.path) as updater:
        late = flags.int("late", 0)
        volume.write({"rate": "21", "late": "5"})
        becomes(rate, 21)
        assert (late.get(), updater.problems) == (5, ())


def test_two_keys_for_one_flag_are_told_of(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    flag = flags.int("a", 0, aliases=["b"])
    with dflag.setup(flags, Volume(tmp_path / "conf", {"a": "1", "b": "2"}).path) as updater:
        assert (flag.get(), updater.warnings) == (2, 1)
        assert "b: sets the flag 'a', as a does: this one counts" in str(updater.problems[0])


def test_of_several_directories_the_last_counts(tmp_path: Path) -> None:
    flags, rate, _ = example()
    low, high = Volume(tmp_path / "low", {"rate": "20"}), Volume(tmp_path / "high", {"rate": "30"})
    with dflag.setup(flags, low.path, high.path) as updater:
        assert (rate.get(), updater.generation) == (30, 1)
        low.write({"rate": "21"})
        until(lambda: updater.generation == 2)
        assert rate.get() == 30
        high.write({})
        becomes(rate, 21)


def test_prefix_namespace_and_sub_directories(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    rate, pool, deep = flags.int("rate", 0), flags.int("db.pool", 0), flags.int("a.b.c", 0)
    shared = Volume(tmp_path / "shared", {"shop.rate": "1", "blog.rate": "x"})
    database = Volume(tmp_path / "db", {"pool": "2"})
    nested = Volume(tmp_path / "nested", {"a/b/c": "3"})
    places = Directory(str(shared.path), prefix="shop."), Directory(str(database.path), namespace="db."), nested.path
    with dflag.setup(flags, *places) as updater:
        assert (rate.get(), pool.get(), deep.get(), updater.warnings) == (1, 2, 3, 0)
        nested.write({"a/b/c": "4", "a/b/d": "5"})
        becomes(deep, 4)
        assert updater.warnings == 1


@BOTH
def test_sub_directories_of_a_plain_directory_are_followed(tmp_path: Path, policy: Policy) -> None:
    flags = dflag.FlagSet("test")
    flag, other = flags.int("a.b", 0), flags.int("c.d", 0)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("1")
    with dflag.setup(flags, tmp_path, policy=policy):
        assert flag.get() == 1
        (tmp_path / "a" / "b").write_text("2")
        becomes(flag, 2)
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "d").write_text("3")
        becomes(other, 3)
        (tmp_path / "c" / "d").write_text("4")
        becomes(other, 4)


def test_no_deeper_than_is_asked_for(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    flag = flags.int("a.b", 0)
    volume = Volume(tmp_path / "conf", {"a/b": "1"})
    with dflag.setup(flags, Directory(str(volume.path), depth=1)) as updater:
        assert (flag.get(), updater.warnings) == (0, 0)


def test_bytes_are_taken_as_they_are_and_text_must_be_utf8(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    raw, text = flags.bytes("raw", b""), flags.str("text", "a")
    volume = Volume(tmp_path / "conf", {"raw": b"\xff\x00\n", "text": "é\n"})
    with dflag.setup(flags, volume.path) as updater:
        assert (raw.get(), text.get()) == (b"\xff\x00\n", "é")
        volume.write({"raw": b"\xfe", "text": b"ok\xff"})
        becomes(raw, b"\xfe")
        assert (text.get(), updater.errors) == ("é", 1)
        assert "not UTF-8 text (byte 2 of 3)" in str(updater.problems[0])


def test_a_secret_is_not_told_when_it_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flags = dflag.FlagSet("test")
    flags.int("pin", 1, secret=True, validators=[dflag.in_range(0, 9)])
    volume = Volume(tmp_path / "conf", {"pin": "hunter2"})
    with pytest.raises(StartError) as caught:
        dflag.setup(flags, volume.path)
    assert "hunter2" not in str(caught.value) + caplog.text


def test_a_swap_without_a_change_tells_nobody(tmp_path: Path) -> None:
    flags, rate, _ = example()
    other, heard = flags.int("other", 0), Heard()
    volume = Volume(tmp_path / "conf", {"rate": "20", "other": "0"})
    with dflag.setup(flags, volume.path) as updater:
        rate.on_change(heard)
        volume.again()
        volume.again()
        for path in volume.path.glob("..2026*/rate"):
            path.touch()
        volume.write({"rate": "20", "other": "1"})
        becomes(other, 1)
        assert flags.flush(20.0)
        assert (heard.steps, updater.generation) == ([], 2)


def test_setup_of_something_wrong_takes_what_is_good_raises_and_watches_nothing(tmp_path: Path) -> None:
    flags, rate, _ = example()
    other = flags.int("other", 0)
    volume = Volume(tmp_path / "conf", {"rate": "101", "other": "5"})
    with pytest.raises(StartError, match=r"1 error in the flags: .*/rate: must be from 0 to 100, got 101"):
        dflag.setup(flags, volume.path)
    assert (rate.get(), other.get()) == (10, 5)
    assert not [thread for thread in threading.enumerate() if thread.name == "dflag updater"]


def test_many_problems_are_told_of_briefly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flags, _, _ = example()
    volume = Volume(tmp_path / "conf", {f"unknown{number}": "" for number in range(100)})
    with dflag.setup(flags, volume.path) as updater:
        assert (updater.warnings, len(updater.problems)) == (100, 100)
    assert len(caplog.records) < 20
    assert "and 90 more problems" in caplog.text


def test_a_notifier_may_stop_the_updater(tmp_path: Path) -> None:
    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    updater = dflag.setup(flags, volume.path)
    rate.on_change(lambda old, new: updater.stop(), "sync")
    volume.write({"rate": "21"})
    until(lambda: not updater.running)
    assert rate.get() == 21
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "dflag updater"])


def test_an_updater_needs_a_directory() -> None:
    with pytest.raises(UsageError, match="needs a directory"):
        dflag.Updater(dflag.FlagSet("test"))


def test_a_place_may_be_of_another_sort_and_mixed_with_directories(tmp_path: Path) -> None:
    import asyncio

    @dataclass(frozen=True, slots=True)
    class Elsewhere:
        position: int = 0
        title: str = "elsewhere"
        names: Names = Names()
        documents: tuple[str, ...] = ()
        optional: bool = False

        def numbered(self, position: int) -> Elsewhere:
            return replace(self, position=position)

        def read(self) -> Contents:
            return {"rate": b"20"}

        async def look(self) -> Contents:
            return self.read()

        async def watch(self, policy: Policy) -> AsyncIterator[Contents]:
            yield {"rate": b"20"}
            yield {"rate": b"30"}
            await asyncio.Event().wait()

        def unchanging(self) -> list[str]:
            return []

    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {"rate": "1"})
    updater = dflag.Updater(flags, volume.path, Elsewhere())
    updater.initialize()
    assert (rate.get(), str(rate.held)) == (20, "ConfigMap elsewhere")
    with updater:
        becomes(rate, 30)


def test_the_log_names_the_flags_and_stays_off_the_root(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flags, _, _ = example()
    with caplog.at_level(logging.DEBUG), dflag.setup(flags, Volume(tmp_path / "conf", {"x": "1"}).path):
        pass
    assert {record.name.partition(".")[0] for record in caplog.records} <= {"wigwag", "asyncio"}
