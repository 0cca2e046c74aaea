"""Forks: the child follows the directory by itself, and nothing that was locked in the parent stays locked in it.

Python is told of most forks beforehand, and of some (uWSGI's, those of any C code) never; see also test_uwsgi.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.dflag.kubelet import Heard, Volume, becomes, until
from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.dflag.fork import Forks

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


LIBC = ctypes.PyDLL(None)


def untold() -> int:
    """Fork as C code does, without a word to Python; the interpreter's lock stays with us.

    No other thread may wait for that lock: the child would, for ever, and nothing but Python itself could help that.
    """
    until(at_rest)
    return int(LIBC.fork())


def at_rest() -> bool:
    """Tell whether no other thread has run, or wanted to, though for a moment it could have."""
    before = others()
    threading.Event().wait(0.01)
    after = others()
    return before == after and all("S (sleeping)" in status for status in after.values())


def others() -> dict[str, list[str]]:
    """What the kernel says of the other threads: their state, and how often they came and went."""
    found = {}
    for path in Path("/proc/self/task").iterdir():
        if path.name != str(threading.get_native_id()):
            with suppress(OSError):  # it has ended meanwhile
                lines = (path / "status").read_text().splitlines()
                found[path.name] = [
                    line.removeprefix("State:\t") for line in lines if line.startswith("State") or "switches" in line
                ]
    return found


Fork = Callable[[], int]
BOTH = pytest.mark.parametrize("fork", [os.fork, untold], ids=["told", "untold"])


def in_child(task: Callable[[], object], fork: Fork = os.fork) -> int:
    """Do something in a child; it ends with 0 if all was well."""
    pid = fork()
    if pid:
        return pid
    code = 1
    try:
        LIBC.signal(signal.SIGALRM, None)  # not by Python, whose handler would not reach a thread that is stuck
        signal.alarm(30)
        task()
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on with the parent's tests
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def ended_well(pid: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def example(path: Path) -> tuple[dflag.FlagSet, dflag.DynFlag[int], Volume]:
    flags = dflag.FlagSet("test")
    return flags, flags.int("rate", 10), Volume(path / "conf", {"rate": "20"})


@BOTH
def test_parent_and_child_both_follow(tmp_path: Path, fork: Fork) -> None:
    flags, rate, volume = example(tmp_path)
    heard = Heard()
    rate.on_change(heard)
    seen, say = os.pipe()
    with dflag.setup(flags, volume.path) as updater:
        assert flags.flush(20.0)

        def child() -> None:
            assert (rate.get(), updater.running, updater.generation) == (20, True, 1)
            threads = [thread.name for thread in threading.enumerate() if thread.is_alive()]
            assert fork is untold or threads.count("dflag updater") == 1
            os.write(say, b"!")
            becomes(rate, 21)
            assert flags.flush(20.0)
            assert heard.steps == [(10, 20), (20, 21)]
            assert (updater.generation, updater.errors) == (2, 0)
            updater.stop()
            assert not updater.running

        pid = in_child(child, fork)
        assert updater.running
        os.close(say)
        assert os.read(seen, 1) == b"!"
        os.close(seen)
        volume.write({"rate": "21"})
        becomes(rate, 21)
        assert ended_well(pid)
        volume.write({"rate": "22"})
        becomes(rate, 22)
        assert flags.flush(20.0)
        assert heard.steps == [(10, 20), (20, 21), (21, 22)]
        assert updater.generation == 3


@BOTH
def test_a_grandchild_follows_too(tmp_path: Path, fork: Fork) -> None:
    flags, rate, volume = example(tmp_path)
    with dflag.setup(flags, volume.path):

        def grandchild() -> None:
            with flags.pinned():  # as a request does, and so it finds out
                pass
            becomes(rate, 21)

        pid = in_child(lambda: ended_well(in_child(grandchild, fork)) or os._exit(2), fork)
        volume.write({"rate": "21"})
        assert ended_well(pid)


def test_a_child_has_no_more_open_than_its_parent(tmp_path: Path) -> None:
    flags, rate, volume = example(tmp_path)

    def open_now() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with dflag.setup(flags, volume.path):
        before = open_now()

        def child() -> None:
            becomes(rate, 21)
            assert open_now() <= before

        pid = in_child(child)
        volume.write({"rate": "21"})
        assert ended_well(pid)
        becomes(rate, 21)
        until(lambda: open_now() <= before)


def test_forks_amid_changes_leave_no_lock_behind(tmp_path: Path) -> None:
    flags, rate, volume = example(tmp_path)
    other, stop = flags.int("other", 0), threading.Event()
    other.on_change(lambda old, new: None)
    other.on_change(lambda old, new: None, "sync")

    def hammer() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            other.set_value(number)

    threads = [threading.Thread(target=hammer) for _ in range(2)]
    with dflag.setup(flags, volume.path):
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):

                def child() -> None:
                    assert flags.snapshot()[other] == other.get()
                    other.set_value(-1)
                    rate.set("5")
                    assert (other.get(), rate.get()) == (-1, 5)
                    assert flags.flush(20.0)

                assert ended_well(in_child(child))
        finally:
            stop.set()
            for thread in threads:
                thread.join()


@BOTH
def test_what_was_still_to_be_told_is_told_in_the_child_too(fork: Fork) -> None:
    flags = dflag.FlagSet("test")
    rate, heard, release = flags.int("rate", 10), Heard(), threading.Event()
    here = os.getpid()

    def notifier(old: int, new: int) -> None:
        if os.getpid() == here:
            release.wait(30.0)
        heard(old, new)

    rate.on_change(notifier)
    for number in (11, 12, 13):
        rate.set_value(number)

    def child() -> None:
        assert flags.flush(20.0)
        assert heard.steps == [(10, 11), (11, 12), (12, 13)]

    assert ended_well(in_child(child, fork))
    release.set()
    assert flags.flush(20.0)
    assert heard.steps == [(10, 11), (11, 12), (12, 13)]


@BOTH
def test_an_override_runs_out_in_the_child_too(fork: Fork) -> None:
    flags = dflag.FlagSet("test")
    rate = flags.int("rate", 10)
    flags.assign("rate", "20", Origin.HTTP, ttl=0.2)

    def child() -> None:
        flags.flush(20.0)
        becomes(rate, 10)

    assert ended_well(in_child(child, fork))
    becomes(rate, 10)


def test_an_updater_that_does_not_run_is_left_alone(tmp_path: Path) -> None:
    flags, rate, volume = example(tmp_path)
    updater = dflag.Updater(flags, volume.path)

    def child() -> None:
        assert not updater.running
        with updater:
            assert rate.get() == 20

    assert ended_well(in_child(child))


def test_a_program_that_forgets_to_stop_ends_nevertheless(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    code = f"""
from wigwag import dflag
flags = dflag.FlagSet("test")
rate = flags.int("rate", 10)
rate.on_change(lambda old, new: __import__("threading").Event().wait())
dflag.setup(flags, {str(volume.path)!r})
print(rate.get())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=30, cwd=ROOT
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "20\n", "")


@BOTH
def test_a_lock_that_somebody_holds_in_the_parent_is_free_in_the_child(fork: Fork) -> None:
    flags = dflag.FlagSet("test")
    judging, release, here = threading.Event(), threading.Event(), os.getpid()

    def slow(value: int) -> None:
        if value == 5 and os.getpid() == here:
            judging.set()
            release.wait(30.0)

    rate, other = flags.int("rate", 10, validators=[slow]), flags.int("other", 0)
    setter = threading.Thread(target=rate.set_value, args=(5,))
    setter.start()
    assert judging.wait(20.0)

    def child() -> None:
        other.set_value(1)
        rate.set_value(5)
        assert (rate.get(), other.get(), flags.snapshot()[rate]) == (5, 1, 5)

    assert ended_well(in_child(child, fork))
    assert rate.get() == 10
    release.set()
    setter.join()
    assert rate.get() == 5


class Stuck(asyncio.SelectorEventLoop):
    """A loop in which whoever wakes it stays until he may go: the middle of a change."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.release, self._here = threading.Event(), threading.Event(), os.getpid()

    def call_soon_threadsafe(  # type: ignore[override]  # we are the only ones who call it
        self, callback: Any, *values: Any, context: Any = None
    ) -> asyncio.Handle:
        if os.getpid() == self._here:
            self.entered.set()
            self.release.wait(30.0)
        return super().call_soon_threadsafe(callback, *values, context=context)


def test_a_change_that_is_half_made_is_made_to_its_end_in_the_child() -> None:
    flags = dflag.FlagSet("test")
    first, second, loop, heard = flags.int("first", 0), flags.int("second", 0), Stuck(), Heard()

    async def hear(old: int, new: int) -> None: ...

    first.on_change(hear, loop=loop)
    second.on_change(heard, "sync")
    texts = {"first": "1", "second": "2"}
    setter = threading.Thread(target=dflag.load_texts, args=(flags, texts, Origin.COMMAND_LINE))
    setter.start()
    assert loop.entered.wait(20.0)

    def child() -> None:
        flags.flush(20.0)
        snapshot = flags.snapshot()
        assert (first.get(), second.get(), snapshot[first], snapshot[second]) == (1, 2, 1, 2)
        assert heard.steps == [(0, 2)]

    assert ended_well(in_child(child, untold))
    loop.release.set()
    setter.join()
    loop.close()
    assert heard.steps == [(0, 2)]


@BOTH
@pytest.mark.parametrize("how", ["sync", "thread"])
def test_a_notifier_that_forks_is_not_called_again_by_its_child(how: Literal["sync", "thread"], fork: Fork) -> None:
    flags = dflag.FlagSet("test")
    rate, told, later = flags.int("rate", 10), Heard(), Heard()
    seen, say = os.pipe()

    def forks(old: int, new: int) -> None:
        os.write(say, b"!")
        told(old, new)
        if len(told.steps) == 1:
            assert ended_well(in_child(child, fork))

    def child() -> None:
        flags.flush(20.0) if how == "sync" else None
        rate.set_value(12)
        until(lambda: later.steps[-1:] == [(11, 12)])

    rate.on_change(forks, how)
    rate.on_change(later, how)
    rate.set_value(11)
    assert flags.flush(30.0)
    os.close(say)
    assert os.read(seen, 100) == b"!!"  # one of the parent's, and the child's of its own change
    os.close(seen)
    assert later.steps == [(10, 11)]


def test_a_process_of_multiprocessing_follows(tmp_path: Path) -> None:
    flags, rate, volume = example(tmp_path)
    with dflag.setup(flags, volume.path):
        process = multiprocessing.get_context("fork").Process(target=becomes, args=(rate, 21))
        process.start()
        volume.write({"rate": "21"})
        process.join(30.0)
        assert process.exitcode == 0
        becomes(rate, 21)


def test_a_fork_does_not_wait_for_ever_for_a_notifier(tmp_path: Path) -> None:
    flags, rate, volume = example(tmp_path)
    entered, release, here = threading.Event(), threading.Event(), os.getpid()

    def block(old: int, new: int) -> None:
        if new == 21 and os.getpid() == here:
            entered.set()
            release.wait(30.0)

    rate.on_change(block, "sync")
    with dflag.setup(flags, volume.path) as updater:
        volume.write({"rate": "21"})
        assert entered.wait(20.0)
        pid = in_child(lambda: becomes(rate, 22))
        assert updater.running
        volume.write({"rate": "22"})
        assert ended_well(pid)
        release.set()
        becomes(rate, 22)
        volume.write({"rate": "23"})
        becomes(rate, 23)


def test_a_notifier_may_fork_while_the_updater_has_something_to_tell(tmp_path: Path) -> None:
    """The updater would wait until the notifier is done, and the fork until the updater has stopped."""
    flags, rate, volume = example(tmp_path)
    other, heard = flags.int("other", 0), Heard()
    with dflag.setup(flags, volume.path) as updater:

        def forks(old: int, new: int) -> None:
            volume.write({"rate": "21"})
            until(lambda: updater.generation == 2)
            assert ended_well(in_child(lambda: None))

        other.on_change(forks, "sync")
        rate.on_change(heard, "sync")
        other.set_value(1)
        until(lambda: heard.steps == [(20, 21)])


def test_loops_of_the_parent_are_not_woken_by_the_child() -> None:
    flags = dflag.FlagSet("test")
    rate, heard = flags.int("rate", 10), Heard()

    async def main() -> None:
        async def hear(old: int, new: int) -> None:
            heard(old, new)

        rate.on_change(hear)

        def child() -> None:
            rate.set_value(99)
            assert rate.event._subscriptions == ()

        pid = in_child(child)
        assert ended_well(pid)
        rate.set_value(11)
        await rate.wait_for(lambda value: value == 11)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert heard.steps == [(10, 11)]


class Forked:
    """Something that is told of forks."""

    def __init__(self, order: int, calls: list[str], fails: bool = False) -> None:
        self.fork_order, self._calls, self._fails = order, calls, fails

    def _note(self, what: str) -> None:
        self._calls.append(f"{what} {self.fork_order}")
        if self._fails:
            raise ZeroDivisionError

    def before_fork(self) -> None:
        self._note("before")

    def after_fork_in_parent(self) -> None:
        self._note("parent")

    def after_fork_in_child(self) -> None:
        self._note("locks")

    def go_on_in_child(self) -> None:
        self._note("child")


def test_one_that_fails_does_not_keep_the_others_from_going_on(caplog: pytest.LogCaptureFixture) -> None:
    forks, calls = Forks(), list[str]()
    both = [Forked(1, calls, fails=True), Forked(2, calls)]
    for each in both:
        forks.remember(each)
    forks.before()
    forks.in_parent()
    forks._process = forks._started = -1
    forks.in_child()
    assert calls == ["before 2", "before 1", "parent 1", "parent 2", "locks 1", "locks 2", "child 1", "child 2"]
    assert caplog.text.count("failed at a fork") == 4


def test_several_threads_that_find_out_at_once_wait_until_there_are_new_locks() -> None:
    forks, calls = Forks(), list[str]()
    entered, release = threading.Event(), threading.Event()

    class Slow(Forked):
        def after_fork_in_child(self) -> None:
            entered.set()
            release.wait(20.0)
            self._note("locks")

    slow = Slow(1, calls)
    forks.remember(slow)
    forks._process = forks._started = -1

    def find_out() -> None:
        forks.catch_up()
        calls.append("went on")

    threads = [threading.Thread(target=find_out) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert entered.wait(20.0)
    assert calls == []
    release.set()
    for thread in threads:
        thread.join()
    assert sorted(calls) == ["child 1", "locks 1", *["went on"] * 4]


def test_a_program_ends_though_a_notifier_holds_up_the_updater(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    code = f"""
import threading
from tests.dflag.kubelet import Volume
from wigwag import dflag
flags = dflag.FlagSet("test")
rate, entered = flags.int("rate", 10), threading.Event()
dflag.setup(flags, {str(volume.path)!r})
rate.on_change(lambda old, new: (entered.set(), threading.Event().wait()), "sync")
open({str(volume.path / "..data" / "rate")!r}, "w").write("21")
import os
os.rename({str(volume.path / "..data")!r}, {str(volume.path / "..old")!r})
os.symlink(os.readlink({str(volume.path / "..old")!r}), {str(volume.path / "..tmp")!r})
os.rename({str(volume.path / "..tmp")!r}, {str(volume.path / "..data")!r})
assert entered.wait(20)
print(rate.get())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=40, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, "21\n"), done.stderr


class Unix(HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(self._path)


@contextmanager
def gunicorn(volume: Volume, address: Path, log: Path) -> Iterator[Callable[[], dict[str, str]]]:
    """A gunicorn with the service loaded before it forks; the test asks whichever worker answers."""
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--bind", f"unix:{address}"]
    command += ["--no-control-socket"] if control_socket() else []
    environment = {
        **os.environ,
        "CONFIG_DIR": str(volume.path),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "tests.dflag.gunicorn_app:make()"], env=environment, cwd=ROOT, stdout=output, stderr=output
        )
        try:
            until(lambda: address.exists() or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield lambda: ask(address)
        finally:
            process.terminate()
            process.wait(30)


def control_socket() -> bool:
    """Whether this gunicorn would make a socket of its own somewhere."""
    told = subprocess.run([sys.executable, "-m", "gunicorn", "--help"], capture_output=True, text=True, check=True)
    return "--no-control-socket" in told.stdout


def ask(address: Path) -> dict[str, str]:
    connection = Unix(address)
    try:
        connection.request("GET", "/")
        pid, rate, told, running = connection.getresponse().read().decode().split()
    finally:
        connection.close()
    return {"pid": pid, "rate": rate, "told": told, "running": running}


def follow_through_a_death(volume: Volume, workers: Callable[..., set[str]]) -> None:
    """Two workers follow a volume that says 20; so does the one that takes the place of one that is killed."""
    first = workers("20")
    volume.write({"rate": "21"})
    assert workers("21") == first
    victim = first.pop()
    os.kill(int(victim), signal.SIGKILL)
    second = workers("21", without=victim)
    assert first < second
    volume.write({"rate": "22"})
    assert workers("22") == second


def test_workers_of_gunicorn_follow_each_by_itself_and_so_does_one_that_comes_later(tmp_path: Path) -> None:
    volume = Volume(tmp_path / "conf", {"rate": "20"})

    def everywhere(ask: Callable[[], dict[str, str]], rate: str, without: str = "") -> set[str]:
        """Wait until two workers answer with a value, and return who they are."""
        found: set[str] = set()

        def both() -> bool:
            try:
                answer = ask()
            except OSError:
                return False
            if answer["rate"] == answer["told"] == rate and answer["pid"] != without:
                assert answer["running"] == "True"
                found.add(answer["pid"])
            return len(found) == 2

        until(both, 40.0)
        return found

    with gunicorn(volume, tmp_path / "sock", tmp_path / "log") as ask_one:
        follow_through_a_death(volume, partial(everywhere, ask_one))
    assert "Traceback" not in (tmp_path / "log").read_text()
