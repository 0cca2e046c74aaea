"""What is wrong with the original, and is not wrong here: a test for each, which the original's behaviour would fail.

Each docstring names what the original does.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.dflag.kubelet import ORDERS, Heard, Order, Volume, becomes, until
from tests.dflag.sets import set_of
from wigwag import dflag
from wigwag.dflag import Policy
from wigwag.errors import UsageError


def example(path: Path, order: Order = "new") -> tuple[dflag.FlagSet, dflag.DynFlag[int], dflag.DynFlag[int], Volume]:
    flags = dflag.FlagSet("test")
    volume = Volume(path / "cfg", {"a": "1", "b": "1"}, order)
    return flags, flags.int("a", 0), flags.int("b", 0, validators=[dflag.in_range(0, 9)]), volume


def test_no_text_is_no_item() -> None:
    """Types: `""` is a list of one empty item; items keep the blanks around them."""
    flags = dflag.FlagSet("test")
    words, names = flags.list("words", ["x"]), flags.set("names", {"x"})
    for flag in (words, names):
        flag.set("")
        assert len(flag.get()) == 0
        flag.set("a, b")
        assert set(flag.get()) == {"a", "b"}


def test_a_second_validator_does_not_replace_the_first() -> None:
    """WithValidator: a single slot."""
    flag = dflag.FlagSet("test").int("x", 5, validators=[dflag.in_range(0, 9), lambda value: value % 5 == 0])
    for bad in ("10", "4"):
        with pytest.raises(dflag.FlagError):
            flag.set(bad)


def test_a_validator_sees_the_default() -> None:
    """WithValidator: not run on the default."""
    with pytest.raises(UsageError, match="the default is refused"):
        dflag.FlagSet("test").int("x", 50, validators=[dflag.in_range(0, 9)])


def test_there_may_be_many_notifiers_and_they_hear_in_order() -> None:
    """WithNotifier: a single slot, a goroutine for each change and so no order."""
    flag = dflag.FlagSet("test").int("x", 0)
    first, second = Heard(), Heard()
    flag.on_change(first)
    flag.on_change(second)
    for number in range(1, 200):
        flag.set_value(number)
    assert set_of(flag).flush(20.0)
    assert first.steps == second.steps == [(number - 1, number) for number in range(1, 200)]


def test_no_change_is_no_news() -> None:
    """WithNotifier: fires even if the old value equals the new one."""
    flag, heard = dflag.FlagSet("test").int("x", 5), Heard()
    flag.on_change(heard, "sync")
    flag.set("5")
    flag.set("0x5")
    assert heard.steps == []


def test_a_notifier_that_fails_does_not_take_the_process_with_it() -> None:
    """WithNotifier: a panic in it crashes the process."""
    flag = dflag.FlagSet("test").int("x", 0)

    def bad(old: int, new: int) -> None:
        raise SystemExit

    flag.on_change(bad, "sync")
    flag.on_change(bad, "thread")
    flag.set("1")
    assert set_of(flag).flush(20.0)
    assert (flag.get(), set_of(flag).notifier_errors) == (1, 2)


def test_judging_and_swapping_are_one_step() -> None:
    """Set: validate-then-swap is no critical section, so a value that was judged first may land last."""
    judging, second_done, heard = threading.Event(), threading.Event(), Heard()

    def slow_about_five(value: int) -> None:
        if value == 5:
            judging.set()
            second_done.wait(0.2)

    flag = dflag.FlagSet("test").int("x", 1, validators=[slow_about_five])
    flag.on_change(heard, "sync")
    first = threading.Thread(target=flag.set_value, args=(5,))
    first.start()
    assert judging.wait(20.0)
    flag.set_value(7)
    second_done.set()
    first.join()
    assert heard.steps == [(1, 5), (5, 7)]


def test_names_and_values_do_not_run_together() -> None:
    """Checksum: no separator, so `ab`+`c` equals `a`+`bc`."""
    one, two = dflag.FlagSet("test"), dflag.FlagSet("test")
    one.str("ab", "c")
    two.str("a", "bc")
    assert one.checksum() != two.checksum()
    assert one.checksum(legacy=True) == two.checksum(legacy=True)


def test_a_swap_between_initialize_and_start_is_seen(tmp_path: Path) -> None:
    """Initialize reads before any watch is placed: a swap between the two is missed until the next one."""
    flags, a, _, volume = example(tmp_path)
    updater = dflag.Updater(flags, volume.path)
    updater.initialize()
    volume.write({"a": "2", "b": "1"})
    updater.start()
    assert a.get() == 2
    updater.stop()


def test_stop_can_be_called_twice_and_start_after_it(tmp_path: Path) -> None:
    """Stop: a second one blocks for ever, and it cannot be started again."""
    flags, a, _, volume = example(tmp_path)
    updater = dflag.setup(flags, volume.path)
    updater.stop()
    updater.stop()
    volume.write({"a": "2", "b": "1"})
    updater.start()
    assert a.get() == 2
    updater.stop()


def test_a_reload_tells_only_of_what_changed(tmp_path: Path) -> None:
    """readAll: sets every flag again, so every notifier fires on every reload."""
    flags, a, b, volume = example(tmp_path)
    with dflag.setup(flags, volume.path):
        heard = Heard()
        b.on_change(heard, "sync")
        for number in "234":
            volume.write({"a": number, "b": "1"})
            becomes(a, int(number))
        assert heard.steps == []


@pytest.mark.parametrize("order", ORDERS)
def test_a_key_that_is_gone_takes_its_value_with_it_and_is_no_error(tmp_path: Path, order: Order) -> None:
    """readAll: the value of a removed key stays for ever, and errors grow by two."""
    flags, a, b, volume = example(tmp_path, order)
    with dflag.setup(flags, volume.path) as updater:
        volume.write({"a": "2"})
        becomes(a, 2)
        assert (b.get(), updater.errors) == (0, 0)


def test_an_unknown_key_is_counted_once(tmp_path: Path) -> None:
    """readAll: an unknown flag is counted and logged again on every reload."""
    flags, a, _, volume = example(tmp_path)
    with dflag.setup(flags, volume.path) as updater:
        for number in "234":
            volume.write({"a": number, "b": "1", "unknown": number})
            becomes(a, int(number))
        assert updater.warnings == 1


def test_a_bad_key_is_counted_once(tmp_path: Path) -> None:
    """readAll, and the duplicate events of one swap: one bad key is counted several times."""
    flags, a, _, volume = example(tmp_path)
    with dflag.setup(flags, volume.path) as updater:
        for number in "234":
            volume.write({"a": number, "b": "99"})
            becomes(a, int(number))
        assert updater.errors == 1


def test_a_static_flag_that_is_to_change_is_told_of(tmp_path: Path) -> None:
    """readAll: a static flag that changed is skipped without a word."""
    flags, a, _, volume = example(tmp_path)
    flags.int("s", 0, dynamic=False)
    with dflag.setup(flags, volume.path) as updater:
        volume.write({"a": "2", "b": "1", "s": "5"})
        becomes(a, 2)
        assert updater.restart_required == ("s",)


def test_what_only_looks_like_the_directory_is_none_of_our_business(tmp_path: Path) -> None:
    """Events: a sibling `/p/cfg2` of `/p/cfg` is taken for a key of it, and counted as two errors."""
    flags, a, _, volume = example(tmp_path)
    with dflag.setup(flags, volume.path) as updater:
        (tmp_path / "cfg2").write_text("x")
        (tmp_path / "cfg2").unlink()
        volume.write({"a": "2", "b": "1"})
        becomes(a, 2)
        assert (updater.errors, updater.warnings) == (0, 0)


def test_the_files_of_editors_and_new_directories_are_no_errors(tmp_path: Path) -> None:
    """Events: `.foo.swp` counts as two errors, a new sub-directory as one."""
    flags = dflag.FlagSet("test")
    a = flags.int("a", 0)
    (tmp_path / "a").write_text("1")
    with dflag.setup(flags, tmp_path) as updater:
        (tmp_path / ".a.swp").write_text("x")
        (tmp_path / ".a.swp").unlink()
        (tmp_path / "folder").mkdir()
        (tmp_path / "a").write_text("2")
        becomes(a, 2)
        assert (updater.errors, updater.warnings) == (0, 0)


def test_a_directory_under_the_name_of_a_flag_is_no_error(tmp_path: Path) -> None:
    """readAll: it is read as a file, and fails."""
    flags = dflag.FlagSet("test")
    a = flags.int("a", 5)
    (tmp_path / "a").mkdir()
    with dflag.setup(flags, tmp_path) as updater:
        assert (a.get(), updater.errors) == (5, 0)


def test_a_new_key_comes_with_the_swap_and_not_with_its_link(tmp_path: Path) -> None:
    """readAll lists the top level, so a new key is seen only when its own link comes; in between, half is applied."""
    flags, a, _, volume = example(tmp_path)
    new = flags.int("new", 0)
    with dflag.setup(flags, volume.path) as updater:
        steps = volume.steps({"a": "2", "b": "1", "new": "2"})
        while next(steps) != "swap":
            pass
        assert not (volume.path / "new").exists()
        until(lambda: updater.generation == 2)
        assert (a.get(), new.get()) == (2, 2)
        list(steps)


@pytest.mark.parametrize("order", ORDERS)
def test_a_link_that_the_kubelet_never_made_is_not_missed(tmp_path: Path, order: Order) -> None:
    """readAll lists the top level: a kubelet that died between two steps leaves keys there that nobody sees."""
    flags, a, b, volume = example(tmp_path, order)
    with dflag.setup(flags, volume.path) as updater:
        (volume.path / "b").unlink()
        volume.write({"a": "2", "b": "2"})
        (volume.path / "b").unlink(missing_ok=True)
        becomes(a, 2)
        assert (b.get(), updater.errors) == (2, 0)


def test_a_hundred_stops_and_starts_leave_nothing_open(tmp_path: Path) -> None:
    """Stop: the handle of inotify is never closed."""
    flags, a, _, volume = example(tmp_path)
    updater = dflag.Updater(flags, volume.path)
    updater.start()
    updater.stop()
    before = open_now()
    for number in range(100):
        updater.start()
        if number % 10 == 0:
            volume.write({"a": str(number + 5), "b": "1"})
            becomes(a, number + 5)
        updater.stop()
    assert all(now <= then for now, then in zip(open_now(), before, strict=True))  # less, if other tests let go


def open_now() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


def test_the_digest_tells_of_a_secret_only_that_it_has_changed() -> None:
    """Checksum: the value itself goes into four bytes, which anybody can try out."""
    flags = dflag.FlagSet("test")
    secret = flags.str("s", "a", secret=True)
    before = flags.checksum()
    secret.set("b")
    assert flags.checksum() != before
    secret.set("a")
    assert flags.checksum() == before
    plain = dflag.FlagSet("test")
    plain.str("s", "a")
    assert plain.checksum() != before


def test_a_queue_that_ran_over_is_not_the_end(tmp_path: Path) -> None:
    """fsnotify blocks on its undrained errors: one queue overflow ends the live reload. See also test_faults."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    flags, a, _, volume = example(tmp_path)
    entered, release = threading.Event(), threading.Event()

    def block(old: int, new: int) -> None:
        if new == 2:
            entered.set()
            release.wait(30.0)

    a.on_change(block, "sync")
    with dflag.setup(flags, volume.path, policy=Policy(poll=3600.0)):
        volume.write({"a": "2", "b": "1"})
        assert entered.wait(20.0)
        for _ in range(limit // 2 + 100):
            (volume.path / "..x").touch()
            (volume.path / "..x").unlink()
        release.set()
        for number in "345":
            volume.write({"a": number, "b": "1"})
            becomes(a, int(number))


def test_readers_never_see_half_a_configmap(tmp_path: Path) -> None:
    """No transaction across flags: readers can see a half-applied ConfigMap. See also test_swaps."""
    flags, a, b, volume = example(tmp_path)
    mixed: list[tuple[int, int]] = []
    a.on_change(lambda old, new: mixed.append((a.get(), b.get())) if a.get() != b.get() else None, "sync")
    with dflag.setup(flags, volume.path):
        for number in "23456789":
            volume.write({"a": number, "b": number})
            becomes(b, int(number))
    assert mixed == []


def test_where_the_kernel_tells_nothing_looking_helps(tmp_path: Path) -> None:
    """No polling: on file systems without events nothing is ever reloaded."""
    flags, a, _, volume = example(tmp_path)
    with dflag.setup(flags, volume.path, policy=Policy(inotify=False, poll=0.01)):
        volume.write({"a": "2", "b": "1"})
        becomes(a, 2)


def test_times_of_files_prove_nothing(tmp_path: Path) -> None:
    """The kubelet may leave a time as it was, or touch a file without a change: content decides."""
    flags = dflag.FlagSet("test")
    a, heard = flags.int("a", 0), Heard()
    (tmp_path / "a").write_text("1")
    stamp = (tmp_path / "a").stat()
    with dflag.setup(flags, tmp_path):
        a.on_change(heard, "sync")
        os.utime(tmp_path / "a")
        (tmp_path / "b").write_text("2")
        os.utime(tmp_path / "b", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        (tmp_path / "b").rename(tmp_path / "a")
        becomes(a, 2)
    assert heard.steps == [(1, 2)]
