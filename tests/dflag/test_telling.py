"""What an updater says: in the log, in its errors, and of itself."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import Volume, becomes, until
from wigwag import dflag
from wigwag.dflag import Policy
from wigwag.errors import StartError, UsageError

QUICK = Policy(poll=0.01, poll_blind=0.01)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "wigwag.dflag")
    return caplog


def example() -> tuple[dflag.FlagSet, dflag.DynFlag[int], dflag.DynFlag[int]]:
    flags = dflag.FlagSet("test")
    return flags, flags.int("rate", 10, validators=[dflag.in_range(0, 100)]), flags.int("size", 1, dynamic=False)


def informed(told: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """Return the lines about good news."""
    lines = [record.getMessage() for record in told.records if record.levelno == logging.INFO]
    return [line for line in lines if any(word in line for word in words)]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"unknown": "warning"}, "the policy's unknown must be 'warn', 'error' or 'ignore', got 'warning'"),
        ({"on_missing": None}, "the policy's on_missing must be 'default', 'keep' or 'error', got None"),
        ({"atomic": True}, "the policy's atomic must be 'per_key' or 'all', got True"),
        ({"tolerant": "no"}, "the policy's tolerant must be False or True, got 'no'"),
        ({"inotify": 1}, "the policy's inotify must be False or True, got 1"),
        ({"poll": "5"}, "the policy's poll must be a number of seconds, more than 0; got '5'"),
        ({"poll": 0}, "the policy's poll must be a number of seconds, more than 0; got 0"),
        ({"poll_blind": True}, "the policy's poll_blind must be a number of seconds, more than 0; got True"),
        ({"settle": float("nan")}, "the policy's settle must be a number of seconds, 0 or more; got nan"),
        ({"settle": -1}, "the policy's settle must be a number of seconds, 0 or more; got -1"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(reason)}$"):
        Policy(**wrong)


def test_a_policy_may_be_at_its_limits() -> None:
    policy = Policy(poll=1, poll_blind=0.001, settle=0, inotify=False, on_missing="error", unknown="ignore")
    assert (policy.poll, policy.settle) == (1, 0)


def test_a_key_that_is_good_again_is_told_once(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    flags, rate, _ = example()
    other = flags.int("other", 0)
    volume = Volume(tmp_path / "conf", {"rate": "101", "other": "1"})
    with dflag.setup(flags, volume.path, policy=Policy(tolerant=True)):
        volume.write({"rate": "102", "other": "2"})
        becomes(other, 2)
        volume.write({"rate": "30", "other": "3"})
        becomes(rate, 30)
        volume.write({"rate": "31", "other": "4"})
        until(lambda: flags.snapshot()[other] == 4)
    assert informed(told, "good again") == [f"{volume.path}/rate: it is good again"]


def test_a_bad_key_that_is_gone_is_told_too_and_a_crowd_is_counted(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {f"unknown{number:02}": "" for number in range(12)} | {"rate": "20"})
    with dflag.setup(flags, volume.path):
        volume.write({"rate": "30"})
        becomes(rate, 30)
    lines = informed(told, "it is gone", "more")
    assert lines[0] == f"{volume.path}/unknown00: it is gone, and the problem with it"
    assert (len(lines), lines[-1]) == (11, "and 2 more problems are over")


def test_a_document_that_can_be_read_again_is_told(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {"app.yaml": "rate: 20"})
    with dflag.setup(flags, dflag.Directory(str(volume.path), documents=("app.yaml",))) as updater:
        volume.write({"app.yaml": "rate: ["})
        until(lambda: updater.errors == 1)
        volume.write({"app.yaml": "rate: 30"})
        becomes(rate, 30)
    assert informed(told, "good again") == [f"{volume.path}/app.yaml: it is good again"]


def test_a_directory_that_is_back_is_told_and_a_stop_is_no_recovery(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {"rate": "20"})
    with dflag.setup(flags, volume.path, policy=QUICK) as updater:
        volume.path.rename(tmp_path / "away")
        until(lambda: updater.errors == 1)
        assert [str(problem) for problem in updater.problems] == [f"{volume.path}: No such file or directory"]
        (tmp_path / "away").rename(volume.path)
        until(lambda: not updater.problems)
        assert informed(told, "again") == [f"{volume.path}: it can be read again"]
        volume.path.rename(tmp_path / "away")
        until(lambda: updater.errors == 2)
    assert rate.get() == 20
    assert len(informed(told, "again")) == 1


def test_what_cannot_be_read_is_told_without_the_path_twice_and_without_the_name_of_a_class(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    flags, _, _ = example()
    missing = tmp_path / "none"
    updater = dflag.Updater(flags, missing, policy=QUICK)
    with pytest.raises(StartError) as refused:
        updater.initialize()
    assert str(refused.value) == f"1 error in the flags: {missing}: No such file or directory"
    with pytest.raises(StartError) as refused:
        updater.start()
    assert str(refused.value) == f"cannot watch the flags: {missing}: No such file or directory"
    assert updater.errors == 1
    lines = [record.getMessage() for record in told.records if "No such file" in record.getMessage()]
    assert lines == [f"directory:{missing}: No such file or directory"]


def test_a_static_flag_that_is_to_change_is_told_and_that_it_is_not_any_more(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    flags, rate, _ = example()
    volume = Volume(tmp_path / "conf", {"rate": "20", "size": "5"})
    with dflag.setup(flags, volume.path):
        volume.write({"rate": "21", "size": "6"})
        becomes(rate, 21)
        volume.write({"rate": "22", "size": "0x5"})
        becomes(rate, 22)
        volume.write({"rate": "23"})
        becomes(rate, 23)
    lines = [record.getMessage() for record in told.records if "static flag 'size'" in record.getMessage()]
    assert lines == [
        f"restart required: the static flag 'size' stays as it is, but {volume.path}/size has another value",
        "no restart required any more: the static flag 'size' has the value that is configured",
        f"restart required: the static flag 'size' stays as it is, but {volume.path}/size is gone",
    ]


def test_a_key_that_looks_like_a_document_is_told_how_to_be_one(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    flags, _, _ = example()
    volume = Volume(tmp_path / "conf", {"app.yaml": "rate: 20", "other": ""})
    with dflag.setup(flags, volume.path):
        pass
    hint = "if it holds many flags, name it with --config-documents, or in the `documents` of its place"
    assert f"{volume.path}/app.yaml: there is no such flag in the set 'test'; {hint}" in told.text
    assert f"{volume.path}/other: there is no such flag in the set 'test'\n" in told.text


def test_an_updater_says_what_it_is(tmp_path: Path) -> None:
    flags, _, _ = example()
    (tmp_path / "unknown").write_text("")
    updater = dflag.Updater(flags, tmp_path, "configmap/shop/flags")
    assert repr(updater) == f"<Updater of 'test' from {tmp_path}, configmap/shop/flags: stopped, generation 0>"
    with dflag.setup(flags, tmp_path) as updater:
        assert repr(updater) == f"<Updater of 'test' from {tmp_path}: running, generation 1, 1 problem>"
