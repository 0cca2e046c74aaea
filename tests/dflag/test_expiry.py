"""Values that run out: in time, whoever is slow, and not at all if nothing would end them."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from tests.dflag.kubelet import becomes, until
from tests.dflag.page.asking import OPEN, put
from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.dflag.notifying.expiry import ExpiryTimer, seconds
from wigwag.dflag.page.site import Site
from wigwag.errors import UsageError


@contextmanager
def held_up(flag: dflag.DynFlag[int], at: int) -> Iterator[threading.Event]:
    """Have a notifier of a flag hold up whoever brings a value, until the end of the block."""
    arrived, go = threading.Event(), threading.Event()

    def hold(_: int, new: int) -> None:
        if new == at:
            arrived.set()
            go.wait(60.0)

    flag.on_change(hold, "sync")
    try:
        yield arrived
    finally:
        go.set()


def assigned(flags: dflag.FlagSet) -> None:
    flags.assign("x", "2", Origin.HTTP, ttl=0.02)


def asked(flags: dflag.FlagSet) -> None:
    assert put(Site(flags, access=OPEN), "x", 2, ttl=0.02).status == 200


@pytest.mark.parametrize("change", [assigned, asked])
def test_a_value_runs_out_though_its_notifier_has_not_returned(change: Callable[[dflag.FlagSet], None]) -> None:
    flags = dflag.FlagSet("test")
    x = flags.int("x", 1)
    with held_up(x, at=2) as arrived:
        changer = threading.Thread(target=change, args=(flags,))
        changer.start()
        assert arrived.wait(20.0)
        becomes(x, 1)
    changer.join()


def test_a_value_runs_out_though_a_notifier_of_another_that_did_has_not_returned() -> None:
    before = set(alarms())  # of other tests
    flags = dflag.FlagSet("test")
    x, y, z = (flags.int(name, 1) for name in "xyz")
    with held_up(x, at=1) as arrived:
        for number, name in enumerate("xyz", 1):
            flags.assign(name, "2", Origin.HTTP, ttl=0.02 * number)
        assert arrived.wait(20.0)
        becomes(y, 1)
        becomes(z, 1)
        until(lambda: len(set(alarms()) - before) == 1)  # the one that is held up; those after it do not wait in a row
    assert x.get() == 1


def alarms() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dflag expiry"]


def no_thread(self: threading.Thread) -> NoReturn:
    raise RuntimeError("can't start new thread")


def test_a_value_that_nothing_would_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = dflag.FlagSet("test")
    x = flags.int("x", 1)
    site = Site(flags, access=OPEN)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(dflag.FlagError, match=r"'x': no thread can be started .* \(can't start new thread\)"):
            flags.assign("x", "2", Origin.HTTP, ttl=60.0)
        assert put(site, "x", 2, ttl=60).status == 422
        assert put(site, "x", 3, "?validate_only=1", ttl=60).status == 200
        assert (x.get(), flags.generation) == (1, 0)
        flags.assign("x", "2", Origin.HTTP)
    assert (x.get(), flags.generation) == (2, 1)


def test_an_alarm_that_has_gone_off_stays_if_no_other_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    rung, over = [], threading.Event()

    def ring() -> None:
        rung.append(threading.current_thread())
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            expiry.then(time.monotonic() + 0.01 if len(rung) < 3 else None)
        if len(rung) == 3:
            over.set()

    expiry = ExpiryTimer(ring, time.monotonic)
    expiry.by(time.monotonic() + 0.01)
    assert over.wait(20.0)
    assert len(set(rung)) == 1
    until(lambda: not rung[0].is_alive())


def test_where_no_alarm_can_be_set_anew_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    flags = dflag.FlagSet("test", clock=lambda: now[0])
    x, y = flags.int("x", 1), flags.int("y", 1)
    flags.assign("x", "2", Origin.HTTP, ttl=1000.0)
    flags.assign("y", "2", Origin.HTTP, ttl=2000.0)
    now[0] += 1000.0
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(threading.Thread, "start", no_thread)
        flags.expire()
    assert (x.get(), y.get()) == (1, 2)
    assert "no thread can be started to end values that expire" in caplog.text
    now[0] += 1000.0
    flags.expire()
    assert y.get() == 1


def test_there_is_one_alarm_and_it_is_for_what_is_next() -> None:
    before = set(alarms())  # of other tests
    flags = dflag.FlagSet("test")
    flags.int("x", 1)

    def mine() -> set[threading.Thread]:
        return set(alarms()) - before

    flags.assign("x", "2", Origin.HTTP, "a", ttl=600.0)
    (first,) = mine()
    flags.assign("x", "2", Origin.HTTP, "b", ttl=700.0)
    assert mine() == {first}
    flags.assign("x", "2", Origin.HTTP, "c", ttl=500.0)
    until(lambda: len(mine()) == 1 and first not in mine())
    flags.clear(Origin.HTTP)
    flags.expire()
    until(lambda: not mine())


@pytest.mark.parametrize("ttl", [0.0, -1.0, math.inf, math.nan, "0s", "inf", timedelta(0), 10**400, None, [], "soon"])
def test_how_long_a_value_holds_is_a_time_that_comes(ttl: Any) -> None:
    with pytest.raises(UsageError, match=r"must live for more than 0 seconds, and not for ever|is a number of seconds"):
        seconds(ttl)


def test_a_value_may_hold_for_ages() -> None:
    flags = dflag.FlagSet("test")
    x = flags.int("x", 1)
    flags.assign("x", "2", Origin.HTTP, ttl=1e12)
    flags.assign("x", "3", Origin.HTTP, "other", ttl=0.02)
    until(lambda: len(x.layers) == 2)
    assert x.get() == 2
    flags.clear(Origin.HTTP)
    flags.expire()


def test_a_fault_of_the_clock_does_not_keep_later_values_from_running_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: failed.set())
    expiry = ExpiryTimer(lambda: next(calls)(), time.monotonic)
    rung = threading.Event()

    def fail() -> NoReturn:
        raise ZeroDivisionError

    calls = iter([fail, rung.set])
    expiry.by(time.monotonic() + 0.01)
    assert failed.wait(20.0)
    expiry.by(time.monotonic() + 0.02)
    assert rung.wait(20.0)


def test_an_override_that_is_interrupted_as_it_begins_or_ends_is_over() -> None:
    flags = dflag.FlagSet("test")
    x = flags.int("x", 1)
    interrupted: list[int] = []

    def press(_: int, new: int) -> None:
        if new not in interrupted:
            interrupted.append(new)
            raise KeyboardInterrupt

    x.on_change(press, "sync")
    with pytest.raises(KeyboardInterrupt), flags.override(x=2):
        pytest.fail("the block was entered")
    assert (x.get(), interrupted) == (1, [2, 1])
