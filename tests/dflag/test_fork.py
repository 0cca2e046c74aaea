"""Forks: the child follows the directory by itself, and nothing that was locked in the parent stays locked in it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.dflag.kubelet import Heard, Volume, becomes, until
from wigwag import dflag
from wigwag.dflag import Origin

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def in_child(task: Callable[[], object]) -> int:
    """Do something in a child; it ends with 0 if all was well."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
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


def test_parent_and_child_both_follow(tmp_path: Path) -> None:
    flags, rate, volume = example(tmp_path)
    heard = Heard()
    rate.on_change(heard)
    seen, say = os.pipe()
    with dflag.setup(flags, volume.path) as updater:
        assert flags.flush(20.0)

        def child() -> None:
            assert (rate.get(), updater.running, updater.generation) == (20, True, 1)
            os.write(say, b"!")
            becomes(rate, 21)
            assert flags.flush(20.0)
            assert heard.steps == [(10, 20), (20, 21)]
            assert (updater.generation, updater.errors) == (2, 0)
            updater.stop()

        pid = in_child(child)
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


def test_a_grandchild_follows_too(tmp_path: Path) -> None:
    flags, rate, volume = example(tmp_path)
    with dflag.setup(flags, volume.path):
        pid = in_child(lambda: ended_well(in_child(lambda: becomes(rate, 21))) or os._exit(2))
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


def test_what_was_still_to_be_told_is_told_in_the_child_too() -> None:
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

    assert ended_well(in_child(child))
    release.set()
    assert flags.flush(20.0)
    assert heard.steps == [(10, 11), (11, 12), (12, 13)]


def test_an_override_runs_out_in_the_child_too() -> None:
    flags = dflag.FlagSet("test")
    rate = flags.int("rate", 10)
    flags.assign("rate", "20", Origin.HTTP, ttl=0.2)
    assert ended_well(in_child(lambda: becomes(rate, 10)))
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
        first = everywhere(ask_one, "20")
        volume.write({"rate": "21"})
        assert everywhere(ask_one, "21") == first
        victim = first.pop()
        os.kill(int(victim), signal.SIGKILL)
        second = everywhere(ask_one, "21", without=victim)
        assert first < second
        volume.write({"rate": "22"})
        assert everywhere(ask_one, "22") == second
    assert "Traceback" not in (tmp_path / "log").read_text()
