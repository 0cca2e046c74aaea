"""uWSGI, which forks its workers in C and tells Python of it only if it is asked to: they follow, each by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.dflag.kubelet import Heard, Volume, until
from tests.dflag.test_fork import ROOT, Unix, ask, follow_through_a_death
from wigwag import dflag

WAYS = {
    "plain": [],
    "half-told": ["--py-call-osafterfork"],
    "told": ["--py-call-uwsgi-fork-hooks"],
    "lazy": ["--lazy-apps"],
}


@contextmanager
def uwsgi(folder: Path, volume: Volume, *options: str) -> Iterator[Path]:
    """A uWSGI with two workers, and where it listens. It must end when it is told to."""
    address, log = folder / "sock", folder / "log"
    command = [str(Path(sys.executable).parent / "pyuwsgi"), "--http-socket", str(address), "--master"]
    command += ["--processes", "2", "--die-on-term", "--module", "tests.dflag.uwsgi_app", *options]
    environment = {
        **os.environ,
        "CONFIG_DIR": str(volume.path),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
        )
        try:
            until(lambda: address.exists() or process.poll() is not None, 30.0)
            assert process.poll() is None, log.read_text()
            yield address
            process.terminate()
            assert process.wait(30) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
    assert "Traceback" not in log.read_text()


def workers(address: Path, rate: str, without: str = "") -> set[str]:
    """Wait until two workers answer with a value, of which their notifiers were told; return who they are."""
    found: set[str] = set()

    def both() -> bool:
        for answer in ask_two(address):
            if answer["rate"] == answer["told"] == rate and answer["pid"] != without:
                found.add(answer["pid"])
        return len(found) == 2

    until(both, 40.0)
    return found


def ask_two(address: Path) -> list[dict[str, str]]:
    """Ask again while somebody is busy with half a request: else the same worker may answer for ever."""
    with closing(Unix(address)) as busy:
        try:
            busy.connect()
            busy.sock.sendall(b"GET / HTTP/1.0\r\n")
            other = ask(address)
            busy.sock.sendall(b"\r\n")
            with busy.sock.makefile("rb") as answer:
                first = answer.read()
        except OSError:
            return []
    pid, rate, told, _ = first.partition(b"\r\n\r\n")[2].decode().split()
    return [other, {"pid": pid, "rate": rate, "told": told}]


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_workers_follow_and_so_does_one_that_comes_later(tmp_path: Path, options: list[str]) -> None:
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with uwsgi(tmp_path, volume, *options) as address:
        follow_through_a_death(volume, partial(workers, address))


def test_a_worker_that_comes_amid_changes_does_not_hang(tmp_path: Path) -> None:
    """A thread of the master that ran when uWSGI forked would leave the interpreter locked in the worker."""
    volume, stop = Volume(tmp_path / "conf", {"rate": "20"}), threading.Event()

    def change() -> None:
        number = 100
        while not stop.wait(0.002):
            number += 1
            volume.write({"rate": str(number)})

    with uwsgi(tmp_path, volume) as address:
        workers(address, "20")
        changing = threading.Thread(target=change)
        changing.start()
        try:
            for _ in range(4):
                victim = ask(address)["pid"]
                os.kill(int(victim), signal.SIGKILL)
                until(_other(address, victim))
        finally:
            stop.set()
            changing.join()
        volume.write({"rate": "7"})
        workers(address, "7")


def _other(address: Path, victim: str) -> Callable[[], bool]:
    def answers() -> bool:
        try:
            return ask(address)["pid"] != victim
        except ConnectionError:
            return False

    return answers


def test_a_hook_that_was_there_is_called_still(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    module = SimpleNamespace(post_fork_hook=lambda: called.append("theirs"), masterpid=lambda: 0, opt={})
    monkeypatch.setitem(sys.modules, "uwsgi", module)
    dflag.FlagSet("one")
    ours = module.post_fork_hook
    dflag.FlagSet("two")
    assert module.post_fork_hook is ours
    ours()
    assert called == ["theirs"]


def test_the_master_reads_and_leaves_it_to_the_workers_to_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = dflag.FlagSet("test")
    rate, volume = flags.int("rate", 10), Volume(tmp_path / "conf", {"rate": "20"})
    module = SimpleNamespace(masterpid=os.getpid, opt={})
    monkeypatch.setitem(sys.modules, "uwsgi", module)
    before, heard = set(threading.enumerate()), Heard()
    rate.on_change(heard)
    updater = dflag.setup(flags, volume.path)
    flags.assign("rate", "30", dflag.Origin.HTTP, ttl=3600.0)
    assert (rate.get(), updater.running, flags.frozen) == (30, True, True)
    assert set(threading.enumerate()) <= before
    assert heard.steps == []
    assert flags.flush(20.0)
    assert heard.steps == [(10, 20), (20, 30)]
    updater.stop()
    assert not updater.running
    module.opt = {"py-call-uwsgi-fork-hooks": True}
    with updater:
        assert "dflag updater" in [thread.name for thread in threading.enumerate()]
