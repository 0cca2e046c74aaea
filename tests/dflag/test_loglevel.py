"""Log levels as flags. The tests of the original about them go by their names there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dflag.kubelet import Volume, becomes
from wigwag import dflag
from wigwag.dflag.startup.levels import VERBOSE, level_of, name_of, show_log
from wigwag.errors import UsageError


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Leave the loggers of this process as they were."""
    root = logging.getLogger().level
    yield
    logging.getLogger().setLevel(root)
    for name in ("test", "test.db", "test.http"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("debug", logging.DEBUG),
        ("  Verbose\n", VERBOSE),
        (" InFO\n\n", logging.INFO),
        ("WARNING", logging.WARNING),
        ("warn", logging.WARNING),
        ("Error", logging.ERROR),
        ("Critical", logging.CRITICAL),
        ("Fatal", logging.CRITICAL),
        ("notset", logging.NOTSET),
        ("35", 35),
    ],
)
def test_set_level_flag(text: str, level: int) -> None:
    """SetLevelFlag: a name in any case, amid white space, sets the level while the setter waits."""
    flags = dflag.FlagSet("test")
    flag = dflag.loglevel(flags, default="error")
    assert logging.getLogger().level == logging.ERROR
    flag.set(text)
    assert (logging.getLogger().level, flag.get()) == (level, text.strip().lower())


@pytest.mark.parametrize("text", ["foo", "", "1e3", "-1", "1000", "debug info"])
def test_what_is_no_level_changes_nothing(text: str) -> None:
    flag = dflag.loglevel(dflag.FlagSet("test"), default="info")
    with pytest.raises(dflag.FlagError, match="is not a log level; write one of debug, verbose, info, warning, error"):
        flag.set(text)
    assert (flag.get(), logging.getLogger().level) == ("info", logging.INFO)
    with pytest.raises(dflag.FlagError, match="expected the name of a log level, got int"):
        flag.set_value(10)  # type: ignore[arg-type]


def test_multiple_flag_names() -> None:
    """MultipleFlagNames: several names are one value."""
    flags = dflag.FlagSet("test")
    level = dflag.loglevel(flags, "level1", "level2", default="info")
    flags.assign("level2", "warning")
    assert (flags["level1"].get(), logging.getLogger().level) == ("warning", logging.WARNING)
    flags.assign("level1", "debug")
    assert (flags["level2"].get(), logging.getLogger().level) == ("debug", logging.DEBUG)
    assert level.names == ("level1", "level2")


def test_a_second_call_gives_the_same_flag_and_more_names() -> None:
    flags = dflag.FlagSet("test")
    first = dflag.loglevel(flags)
    assert dflag.loglevel(flags) is first
    assert dflag.loglevel(flags, "v", default="error") is first
    assert (first.names, first.get(), logging.getLogger().level) == (("loglevel", "v"), "error", logging.ERROR)
    flags.int("size", 1)
    with pytest.raises(UsageError, match="has a flag 'size' already"):
        dflag.loglevel(flags, "size")
    with pytest.raises(UsageError, match="has a flag 'size' already"):
        dflag.loglevel(flags, "size", logger="test.db")


def test_change_flags_default() -> None:
    """ChangeFlagsDefault: the default, and the value with it, of all flags that are named."""
    flags = dflag.FlagSet("test")
    dflag.loglevel(flags, default="info")
    name = flags.str("name", "x")
    flags.set_default("warning", "loglevel", "name")
    assert (flags["loglevel"].default, logging.getLogger().level, name.get()) == ("warning", logging.WARNING, "warning")
    assert flags.generation == 1
    flags.assign("loglevel", "debug", dflag.Origin.COMMAND_LINE)
    flags.set_default("error", "loglevel")
    assert (flags["loglevel"].get(), flags["loglevel"].default) == ("debug", "error")


def test_change_flags_default_err_case_1() -> None:
    """ChangeFlagsDefault of a flag that is not there: an error, and nothing changes."""
    flags = dflag.FlagSet("test")
    dflag.loglevel(flags, default="info")
    with pytest.raises(UsageError, match="there is no flag 'nope' in the set 'test'"):
        flags.set_default("warning", "loglevel", "nope")
    assert flags["loglevel"].default == "info"


def test_change_flags_default_err_case_2() -> None:
    """ChangeFlagsDefault to what the flag refuses: an error, and nothing changes, not even in the others."""
    flags = dflag.FlagSet("test")
    dflag.loglevel(flags, default="info")
    name = flags.str("name", "x")
    with pytest.raises(dflag.FlagError, match="flag 'loglevel': 'foo' is not a log level"):
        flags.set_default("foo", "name", "loglevel")
    assert (flags["loglevel"].default, name.get(), flags.generation) == ("info", "x", 0)


def test_the_default_of_a_static_flag_stays_once_the_program_has_started() -> None:
    flags = dflag.FlagSet("test")
    flags.str("name", "x", dynamic=False)
    flags.freeze()
    with pytest.raises(dflag.StaticFlagError):
        flags.set_default("y", "name")


def test_without_a_default_nothing_changes() -> None:
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("test.db").setLevel(17)
    flags = dflag.FlagSet("test")
    assert (dflag.loglevel(flags).get(), dflag.loglevel(flags, logger="test.db").get()) == ("error", "17")
    assert dflag.loglevel(flags, logger="test.http").get() == "notset"
    assert [logging.getLogger(name).level for name in ("", "test.db", "test.http")] == [logging.ERROR, 17, 0]


def test_a_logger_has_a_flag_of_its_own(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    root, db = dflag.loglevel(flags, default="warning"), dflag.loglevel(flags, logger=logging.getLogger("test.db"))
    assert (db.name, db is dflag.loglevel(flags, logger="test.db"), db is root) == ("loglevel.test.db", True, False)
    volume = Volume(tmp_path / "dflag", {"loglevel.test.db": "debug\n"})
    with dflag.setup(flags, volume.path) as updater:
        assert logging.getLogger("test.db").isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("test.http").isEnabledFor(logging.INFO)
        volume.write({"loglevel": "info"})
        becomes(root, "info")
        assert logging.getLogger("test.db").level == logging.NOTSET
        assert logging.getLogger("test.http").isEnabledFor(logging.INFO)
        assert (updater.errors, updater.warnings) == (0, 0)


def test_a_map_has_the_levels_of_any_loggers_and_gives_back_what_they_had() -> None:
    flags = dflag.FlagSet("test")
    levels = dflag.loglevels(flags)
    assert dflag.loglevels(flags) is levels
    logging.getLogger("test.db").setLevel(logging.ERROR)
    levels.set("test.db=DEBUG, test.http = verbose")
    assert levels.get() == {"test.db": "debug", "test.http": "verbose"}
    assert [logging.getLogger(name).level for name in ("test.db", "test.http")] == [logging.DEBUG, VERBOSE]
    levels.set('{"test.db": "info"}')
    assert [logging.getLogger(name).level for name in ("test.db", "test.http")] == [logging.INFO, logging.NOTSET]
    with pytest.raises(dflag.FlagError, match="test: 'loud' is not a log level"):
        levels.set("test=loud, test.db=debug")
    assert logging.getLogger("test.db").level == logging.INFO
    levels.reset()
    assert logging.getLogger("test.db").level == logging.ERROR


def test_a_map_of_loggers_may_be_a_map_in_a_document(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    levels = dflag.loglevels(flags)
    (tmp_path / "app.yaml").write_text("loglevels: {test.document: debug}\n")
    with dflag.setup(flags, dflag.Directory(str(tmp_path), documents=("app.yaml",))):
        assert levels.get() == {"test.document": "debug"}
    flags.clear(dflag.Origin.CONFIGMAP)
    assert logging.getLogger("test.document").level == logging.NOTSET


def test_a_map_of_loggers_has_a_limit() -> None:
    levels = dflag.loglevels(dflag.FlagSet("test"), "levels")
    with pytest.raises(dflag.FlagError, match="must be of length 0 to 100"):
        levels.set(",".join(f"test.{number}=info" for number in range(101)))
    assert not any(name.startswith("test.100") for name in logging.Logger.manager.loggerDict)


def test_names_that_a_program_has_added_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    known = logging.getLevelNamesMapping() | {"TRACE": 5}
    monkeypatch.setattr(logging, "getLevelNamesMapping", lambda: known)
    assert (level_of("Trace"), name_of(5)) == (5, "trace")


def test_the_last_resort_shows_all_for_a_while_and_is_then_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    last = logging.lastResort
    assert last is not None
    before = last.level, last.formatter
    with show_log():
        assert last.level == logging.NOTSET
        with show_log():
            assert last.level == logging.NOTSET
        assert last.level == logging.NOTSET
    assert (last.level, last.formatter) == before
    monkeypatch.setattr(logging, "lastResort", None)
    with show_log():
        assert logging.lastResort is None
