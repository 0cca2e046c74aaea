"""What can go wrong with a mounted directory: the flags stay, somebody is told, and it heals by itself."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import Heard, Volume, becomes, until
from tests.pipeline.fakes import run
from tests.sources.disk import unprivileged
from wigwag import dflag
from wigwag.dflag import Directory, Policy
from wigwag.dflag.updating.places import Names
from wigwag.errors import StartError

QUICK = Policy(poll=0.01, poll_blind=0.01)


def example() -> tuple[dflag.FlagSet, dflag.DynFlag[int]]:
    flags = dflag.FlagSet("test")
    return flags, flags.int("rate", 10)


def test_a_directory_that_is_missing_at_the_start_is_an_error(tmp_path: Path) -> None:
    flags, _ = example()
    updater = dflag.Updater(flags, tmp_path / "none")
    for begin in (updater.initialize, updater.start):
        with pytest.raises(StartError, match="none: No such file or directory"):
            begin()
    assert not updater.running
    assert updater.errors == 1
    Volume(tmp_path / "none", {"rate": "20"})
    with updater:
        assert flags["rate"].get() == 20


def test_one_that_is_optional_may_come_later(tmp_path: Path) -> None:
    flags, rate = example()
    with dflag.setup(flags, Directory(str(tmp_path / "a" / "b"), optional=True)) as updater:
        assert (rate.get(), updater.errors, updater.generation) == (10, 0, 0)
        (tmp_path / "a").mkdir()
        Volume(tmp_path / "made", {"rate": "20"}).path.rename(tmp_path / "a" / "b")
        becomes(rate, 20)
        until(lambda: updater.generation == 1)
        assert updater.problems == ()
        (tmp_path / "a" / "b").rename(tmp_path / "gone")
        until(lambda: updater.errors == 1)
        assert rate.get() == 20


def test_one_that_may_be_missing_does_not_hold_up_the_others(tmp_path: Path) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path, tmp_path / "none", policy=Policy(tolerant=True)) as updater:
        assert (rate.get(), updater.errors) == (20, 1)
        volume.write({"rate": "21"})
        becomes(rate, 21)
        Volume(tmp_path / "none", {"rate": "30"})
        becomes(rate, 30)


def test_a_directory_that_is_replaced_is_followed(tmp_path: Path) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    other = Volume(tmp_path / "other", {"rate": "30"})
    with dflag.setup(flags, volume.path):
        volume.path.rename(tmp_path / "gone")
        other.path.rename(tmp_path / "conf")
        other.path = tmp_path / "conf"
        becomes(rate, 30)
        other.write({"rate": "31"})
        becomes(rate, 31)


def test_a_link_that_is_turned_to_another_directory_is_followed(tmp_path: Path) -> None:
    flags, rate = example()
    one, two = Volume(tmp_path / "one", {"rate": "20"}), Volume(tmp_path / "two", {"rate": "30"})
    (tmp_path / "conf").symlink_to(one.path)
    with dflag.setup(flags, tmp_path / "conf"):
        (tmp_path / "tmp").symlink_to(two.path)
        (tmp_path / "tmp").rename(tmp_path / "conf")
        becomes(rate, 30)
        two.write({"rate": "31"})
        becomes(rate, 31)


def test_a_volume_that_is_unmounted_is_trouble_and_not_an_empty_configmap(tmp_path: Path) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    (tmp_path / "empty").mkdir()
    with dflag.setup(flags, volume.path) as updater:
        volume.path.rename(tmp_path / "elsewhere")
        (tmp_path / "empty").rename(volume.path)
        until(lambda: any("the volume is gone" in problem.reason for problem in updater.problems))
        assert rate.get() == 20
        volume.path.rmdir()
        (tmp_path / "elsewhere").rename(volume.path)
        volume.write({"rate": "21"})
        becomes(rate, 21)
        until(lambda: updater.problems == ())


def test_a_configmap_without_keys_is_no_trouble(tmp_path: Path) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path) as updater:
        volume.write({})
        becomes(rate, 10)
        assert updater.errors == 0


def test_a_permission_that_is_taken_and_given_back() -> None:
    with unprivileged() as folder:
        flags, rate = example()
        volume = Volume(folder / "conf", {"rate": "20"})
        with dflag.setup(flags, volume.path, policy=QUICK) as updater:
            volume.path.chmod(0)
            until(lambda: updater.errors == 1)
            assert "Permission denied" in updater.problems[0].reason
            assert rate.get() == 20
            volume.path.chmod(0o755)
            until(lambda: not updater.problems)
            volume.write({"rate": "21"})
            becomes(rate, 21)
            assert updater.errors == 1


def test_one_file_that_may_not_be_read_does_not_hold_up_the_others() -> None:
    with unprivileged() as folder:
        flags, rate = example()
        other = flags.int("other", 0)
        (folder / "rate").write_text("20")
        (folder / "other").write_text("1")
        with dflag.setup(flags, folder) as updater:
            (folder / "rate").chmod(0)
            (folder / "other").write_text("2")
            becomes(other, 2)
            until(lambda: updater.errors == 1)
            assert (rate.get(), str(updater.problems[0])) == (20, f"{folder}/rate: Permission denied")
            (folder / "rate").chmod(0o644)
            (folder / "rate").write_text("21")
            becomes(rate, 21)
            until(lambda: not updater.problems)


def test_a_link_in_a_circle_is_its_own_problem_and_not_a_key_that_is_gone(tmp_path: Path) -> None:
    flags, rate = example()
    other = flags.int("other", 0)
    (tmp_path / "rate").write_text("20")
    with dflag.setup(flags, tmp_path) as updater:
        (tmp_path / "tmp").symlink_to("rate")
        (tmp_path / "tmp").rename(tmp_path / "rate")
        (tmp_path / "other").write_text("2")
        becomes(other, 2)
        until(lambda: updater.errors == 1)
        assert (rate.get(), updater.problems[0].key) == (20, "rate")


def test_a_sub_directory_that_may_not_be_read_is_trouble_and_not_keys_that_are_gone() -> None:
    with unprivileged() as folder:
        flags = dflag.FlagSet("test")
        size = flags.int("db.size", 1)
        (folder / "db").mkdir()
        (folder / "db" / "size").write_text("5")
        with dflag.setup(flags, folder, policy=QUICK) as updater:
            (folder / "db").chmod(0)
            until(lambda: updater.errors)
            assert size.get() == 5
            (folder / "db").chmod(0o755)
            until(lambda: not updater.problems)
            (folder / "db" / "size").write_text("6")
            becomes(size, 6)


def test_an_updater_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wigwag.dflag.updating.record import UpdateRecord

    flags, rate = example()
    updater = dflag.Updater(flags, Volume(tmp_path / "conf", {"rate": "20"}).path)

    def broken(self: UpdateRecord, picture: object, *, static: bool) -> None:
        raise ZeroDivisionError("oh")

    with monkeypatch.context() as patch:
        patch.setattr(UpdateRecord, "apply", broken)
        with pytest.raises(StartError, match="ZeroDivisionError: oh"):
            updater.start()
    assert not updater.running
    with updater:
        assert rate.get() == 20


class Fragile(Directory):
    """A place that breaks the updater while it is told to: with an error that nobody foresaw."""

    broken = False

    @property
    def names(self) -> Names:
        if Fragile.broken:
            raise ZeroDivisionError("hunter2")
        return super().names


@pytest.fixture
def fragile() -> Iterator[type[Fragile]]:
    yield Fragile
    Fragile.broken = False


def test_an_updater_that_fails_later_says_so_and_comes_back(
    tmp_path: Path, fragile: type[Fragile], caplog: pytest.LogCaptureFixture
) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with caplog.at_level(logging.INFO), dflag.setup(flags, fragile(str(volume.path))) as updater:
        fragile.broken = True
        volume.write({"rate": "21"})
        until(lambda: updater.problems)
        told = (
            "the updater of 'test': it has failed, and is restarted; the flags keep their values: "
            "ZeroDivisionError: hunter2"
        )
        assert [str(problem) for problem in updater.problems] == [told]
        assert (updater.running, rate.get()) == (True, 20)
        fragile.broken = False
        becomes(rate, 21)
        until(lambda: not updater.problems)
        volume.write({"rate": "22"})
        becomes(rate, 22)
        assert (updater.errors, caplog.text.count(told)) == (1, 1)
        assert "the updater of 'test': it works again" in caplog.text


def test_an_updater_that_fails_of_one_content_is_counted_once_however_often_it_tries(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it begins with what it had, which is good, and then comes to what breaks it."""
    from wigwag.dflag.updating.record import UpdateRecord

    apply, failures = UpdateRecord.apply, list[object]()

    def fragile(self: UpdateRecord, picture: Any, *, static: bool) -> None:
        if any(contents.get("rate") == b"21" for contents in picture.values()):
            failures.append(picture)
            raise ZeroDivisionError("oh")
        apply(self, picture, static=static)

    monkeypatch.setattr(UpdateRecord, "apply", fragile)
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path) as updater:
        volume.write({"rate": "21"})
        until(lambda: len(failures) > 3)
        assert (updater.errors, len(updater.problems), caplog.text.count("it has failed")) == (1, 1, 1)
        volume.write({"rate": "22"})
        becomes(rate, 22)
        until(lambda: not updater.problems)


def test_an_updater_that_fails_tells_no_secret(
    tmp_path: Path, fragile: type[Fragile], caplog: pytest.LogCaptureFixture
) -> None:
    flags, _ = example()
    flags.str("password", "", secret=True)
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, fragile(str(volume.path))) as updater:
        fragile.broken = True
        volume.write({"rate": "21"})
        until(lambda: "ZeroDivisionError" in caplog.text)
        assert "hunter2" not in caplog.text + str(updater.problems)


def test_an_updater_that_fails_at_the_start_is_begun_again_if_that_is_tolerated(
    tmp_path: Path, fragile: type[Fragile]
) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    updater = dflag.Updater(flags, fragile(str(volume.path)), policy=Policy(tolerant=True))
    fragile.broken = True
    updater.start()
    until(lambda: updater.errors)
    assert updater.running
    fragile.broken = False
    becomes(rate, 20)
    updater.stop()


def test_when_the_kernel_has_lost_count_everything_is_looked_at_again(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    flags, rate = example()
    entered, release = threading.Event(), threading.Event()

    def block(old: int, new: int) -> None:
        if new == 21:
            entered.set()
            release.wait(30.0)

    rate.on_change(block, "sync")
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path, policy=Policy(poll=3600.0)):
        volume.write({"rate": "21"})
        assert entered.wait(20.0)
        noise = volume.path / "..noise"
        for _ in range(limit // 2 + 100):
            noise.touch()
            noise.unlink()
        volume.write({"rate": "22"})
        release.set()
        becomes(rate, 22)
        volume.write({"rate": "23"})
        becomes(rate, 23)


def test_a_file_where_a_directory_is_expected_is_an_error_and_so_is_one_that_comes_instead_of_it(
    tmp_path: Path,
) -> None:
    flags, rate = example()
    (tmp_path / "file").write_text("20")
    with pytest.raises(StartError, match="file: Not a directory"):
        dflag.setup(flags, tmp_path / "file")
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path) as updater:
        volume.path.rename(tmp_path / "elsewhere")
        (tmp_path / "file").rename(volume.path)
        until(lambda: any("Not a directory" in problem.reason for problem in updater.problems))
        assert rate.get() == 20
        volume.path.unlink()
        (tmp_path / "elsewhere").rename(volume.path)
        volume.write({"rate": "21"})
        becomes(rate, 21)
        until(lambda: updater.problems == ())


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe that nobody writes to, and a socket, under the names of flags."""
    flags, rate = example()
    other, third = flags.int("other", 0), flags.int("third", 0)
    os.mkfifo(tmp_path / "rate")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "third"))
    (tmp_path / "other").write_text("1")
    with dflag.setup(flags, tmp_path):
        assert (rate.get(), other.get(), third.get()) == (10, 1, 0)
        (tmp_path / "other").write_text("2")
        becomes(other, 2)


def test_a_name_that_is_no_text_is_warned_of_and_can_be_logged(tmp_path: Path) -> None:
    flags, rate = example()
    log = logging.FileHandler(tmp_path / "log", encoding="utf-8")
    logging.getLogger("wigwag.dflag").addHandler(log)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "rate").write_text("20")
    (Path(os.fsdecode(os.fsencode(tmp_path / "conf") + b"/\xff\n2026 ERROR all is lost"))).write_text("1")
    try:
        with dflag.setup(flags, tmp_path / "conf") as updater:
            assert (rate.get(), updater.warnings) == (20, 1)
    finally:
        logging.getLogger("wigwag.dflag").removeHandler(log)
        log.close()
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert "there is no such flag" in line


def test_a_notifier_that_blocks_the_updater_holds_up_values_but_loses_none(tmp_path: Path) -> None:
    flags, rate = example()
    entered, release, heard = threading.Event(), threading.Event(), Heard()

    def block(old: int, new: int) -> None:
        if new == 21:
            entered.set()
            release.wait(30.0)

    rate.on_change(block, "sync")
    rate.on_change(heard, "sync")
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path, policy=Policy(poll=3600.0)) as updater:
        volume.write({"rate": "21"})
        assert entered.wait(20.0)
        assert (rate.get(), updater.generation) == (21, 2)
        for number in range(22, 30):
            volume.write({"rate": str(number)})
        release.set()
        becomes(rate, 29)
        until(lambda: heard.steps[-1][1] == 29)
    assert [old for old, _ in heard.steps] == [10, *(new for _, new in heard.steps[:-1])]


def test_starts_that_fail_leave_nothing_open(tmp_path: Path) -> None:
    flags, _ = example()
    volume = Volume(tmp_path / "conf", {"rate": "junk"})
    missing = dflag.Updater(flags, tmp_path / "none")

    def fail() -> None:
        with pytest.raises(StartError):
            dflag.setup(flags, volume.path)
        with pytest.raises(StartError):
            missing.start()

    fail()
    before = open_now()
    for _ in range(100):
        fail()
    assert all(now <= then for now, then in zip(open_now(), before, strict=True))  # less, if other tests let go


def test_a_hundred_watches_in_a_loop_leave_nothing_open(tmp_path: Path) -> None:
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})

    async def main() -> None:
        before = None
        for number in range(100):
            async with dflag.watching(flags, volume.path):
                volume.write({"rate": str(number)})
                await rate.wait_for(number.__eq__)
            before = before or open_now()
        assert all(now <= then for now, then in zip(open_now(), before or (), strict=True))

    run(main, timeout=150.0)


def open_now() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def test_ten_thousand_keys(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    every = [flags.int(f"key{number}", 0) for number in range(10_000)]
    volume = Volume(tmp_path / "conf", {flag.name: "1" for flag in every})
    generations = Heard()
    with dflag.setup(flags, volume.path) as updater:
        assert {flag.get() for flag in every} == {1}
        flags.on_change(generations, "sync")
        began = time.perf_counter()
        volume.write({flag.name: "2" for flag in every})
        becomes(every[-1], 2)
        until(lambda: updater.generation == 2)
        assert time.perf_counter() - began < 20
        assert {flag.get() for flag in every} == {2}
    assert len(generations.steps) == 1


def test_values_of_a_megabyte(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    raw, text = flags.bytes("raw", b""), flags.str("text", "", input_mutator=None)
    volume = Volume(tmp_path / "conf", {"raw": b"\xff" * (1 << 20), "text": "x" * (1 << 20)})
    with dflag.setup(flags, volume.path):
        assert (raw.get(), text.get()) == (b"\xff" * (1 << 20), "x" * (1 << 20))
        volume.write({"raw": b"\xfe" * (1 << 20), "text": "y" * (1 << 20)})
        becomes(raw, b"\xfe" * (1 << 20))
        assert text.get() == "y" * (1 << 20)


def test_a_file_that_is_too_large_is_its_own_problem_and_too_much_together_is_one_of_the_directory(
    tmp_path: Path,
) -> None:
    flags, rate = example()
    text = flags.str("text", "a")
    volume = Volume(tmp_path / "conf", {"rate": "20", "text": "b"})
    with dflag.setup(flags, Directory(str(volume.path), largest=100, most=150)) as updater:
        volume.write({"rate": "21", "text": "x" * 101})
        becomes(rate, 21)
        assert (text.get(), updater.errors) == ("b", 1)
        assert "larger than the limit of 100 bytes" in updater.problems[0].reason
        volume.write({"rate": "22", "text": "x" * 90, "more": "x" * 90})
        until(lambda: any("larger than the limit of 150 bytes" in problem.reason for problem in updater.problems))
        assert rate.get() == 21
        volume.write({"rate": "23"})
        becomes(rate, 23)


def test_a_notifier_that_blocks_or_raises_holds_up_no_swap(tmp_path: Path) -> None:
    flags, rate = example()
    other, heard, release = flags.int("other", 0), Heard(), threading.Event()

    def bad(old: int, new: int) -> None:
        raise SystemExit

    rate.on_change(lambda old, new: release.wait(30.0))
    rate.on_change(bad, "sync")
    other.on_change(bad)
    other.on_change(heard)
    volume = Volume(tmp_path / "conf", {"rate": "20", "other": "20"})
    with dflag.setup(flags, volume.path) as updater:
        for number in range(21, 30):
            volume.write({"rate": str(number), "other": str(number)})
            becomes(rate, number)
        until(lambda: heard.steps[-1:] == [(28, 29)])
        assert updater.running
        release.set()
        assert flags.flush(20.0)
    assert flags.notifier_errors == 20


def test_no_inotify_left_is_no_reason_not_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wigwag.sources.disk import notify

    def none_left(heard: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(notify, "Inotify", none_left)
    flags, rate = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path, policy=QUICK):
        volume.write({"rate": "21"})
        becomes(rate, 21)
