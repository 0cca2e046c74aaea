"""The tests of the original and of its ancestors, each by its name there, as far as they are about the core.

Those of the flags page and of the log level are with these front ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.kubelet import Heard, Volume, becomes, until
from wigwag import dflag
from wigwag.dflag import Origin, Policy
from wigwag.errors import StartError, UsageError


@dataclass(frozen=True)
class Outer:
    """What the original's tests call outerJSON."""

    strings: list[str]
    number: int


@dataclass(frozen=True)
class Defaulted:
    """A structure with a member that may be absent."""

    name: str
    number: int = 0


Define = Callable[..., dflag.DynFlag[Any]]
TYPES: list[tuple[str, Any, str, Any, Any]] = [
    ("bool", False, "true", True, lambda value: value is False),
    ("int", 13, "77", 77, dflag.in_range(0, 50)),
    ("float", 13.3, "177.5", 177.5, dflag.in_range(0.0, 50.0)),
    ("str", "something", "else", "else", dflag.matches("^some")),
    ("duration", timedelta(seconds=5), "1d3h\n", timedelta(hours=27), dflag.in_range(timedelta(0), timedelta(hours=1))),
    ("list", ["foo"], "car,star", ["car", "star"], dflag.length(0, 1)),
    ("set", {"foo"}, "car,star", {"car", "star"}, dflag.length(0, 1)),
    ("bytes", b"\0", "AQA=", b"\1\0", dflag.length(0, 1)),
    ("json", Outer(["a"], 1), '{"strings":["b"],"number":9}', Outer(["b"], 9), lambda value: value.number < 5),
]
EACH = pytest.mark.parametrize(("kind", "default", "text", "value", "rule"), TYPES, ids=[row[0] for row in TYPES])


@EACH
def test_set_and_get(kind: str, default: Any, text: str, value: Any, rule: Any) -> None:
    """DynX_SetAndGet, for each type."""
    flags = dflag.FlagSet("foobar")
    flag = getattr(flags, kind)("some", default, "Use it or lose it")
    assert flag.get() == default
    flags.assign("some", text)
    assert flag.get() == value


@EACH
def test_is_marked_dynamic(kind: str, default: Any, text: str, value: Any, rule: Any) -> None:
    """DynX_IsMarkedDynamic, for each type; NonDynamic."""
    flags = dflag.FlagSet("foobar")
    assert getattr(flags, kind)("some", default).dynamic
    assert not getattr(flags, kind)("other", default, dynamic=False).dynamic


@EACH
def test_fires_validators(kind: str, default: Any, text: str, value: Any, rule: Any) -> None:
    """DynX_FiresValidators, for each type."""
    flag = getattr(dflag.FlagSet("foobar"), kind)("some", default, validators=[rule])
    with pytest.raises(dflag.FlagError):
        flag.set(text)
    assert flag.get() == default


@EACH
def test_fires_notifier(kind: str, default: Any, text: str, value: Any, rule: Any) -> None:
    """DynX_FiresNotifier, for each type."""
    flag = getattr(dflag.FlagSet("foobar"), kind)("some", default)
    heard, came = Heard(), threading.Event()
    flag.on_change(heard)
    flag.on_change(lambda old, new: came.set())
    flag.set(text)
    assert came.wait(20.0)
    assert heard.steps == [(default, value)]


def test_bool_sync_notifier_and_newline() -> None:
    """DynBool_SyncNotifier; a bool accepts `true` with a newline."""
    flag, heard = dflag.FlagSet("foobar").bool("some", False), Heard()
    flag.on_change(heard, "sync")
    flag.set("true\n")
    assert (flag.get(), heard.steps) == (True, [(False, True)])


def test_duration() -> None:
    """DynDuration: `0`, and a bogus one."""
    flag = dflag.FlagSet("foobar").duration("some", timedelta(seconds=5))
    flag.set("0")
    assert flag.get() == timedelta(0)
    assert dflag.FlagSet("foobar").duration("some", "1d3h").get() == timedelta(hours=27)
    with pytest.raises(dflag.FlagError, match="is not a duration"):
        flag.set("bogus")


def test_int_mutator() -> None:
    """DynInt64_Mutator."""
    flag = dflag.FlagSet("foobar").int("some", 13, mutator=lambda value: -value)
    flag.set("12")
    assert flag.get() == -12


def test_string_input_mutator() -> None:
    """DynString_InputMutator: the outside only by default, verbatim with none, or one's own."""
    flags = dflag.FlagSet("foobar")
    default, verbatim = flags.str("a", ""), flags.str("b", "", input_mutator=None)
    upper = flags.str("c", "", input_mutator=str.upper)
    for flag in (default, verbatim, upper):
        flag.set("  a b\n")
    assert (default.get(), verbatim.get(), upper.get()) == ("a b", "  a b\n", "  A B\n")


@pytest.mark.parametrize(
    ("kind", "default", "texts", "value"),
    [
        ("list", ["x"], ["a,b", "c"], ["c"]),
        ("set", {"x"}, ["a,b", "c"], {"c"}),
        ("mapping", {"x": "1"}, ["a=1,b=2", "c=3"], {"c": "3"}),
        ("bytes", b"x", ["AAEC", "AQ=="], b"\1"),
        ("json", {"x": 1}, ['{"a": 1, "b": 2}', '{"c": 3}'], {"c": 3}),
        ("json", Defaulted("x", 9), ['{"name": "a", "number": 5}', '{"name": "b"}'], Defaulted("b", 0)),
    ],
)
def test_what_is_set_replaces_what_was_there(kind: str, default: Any, texts: list[str], value: Any) -> None:
    """All parses: consecutive sets replace and never append; DynJSON: into a fresh instance, absent fields are zero."""
    flag = getattr(dflag.FlagSet("foobar"), kind)("some", default)
    for text in texts:
        flag.set(text)
    assert flag.get() == value


def test_json_array_and_invalid_input() -> None:
    """DynJSON: an array; and InvalidInput, which is an error of the program."""
    flags = dflag.FlagSet("foobar")
    flag = flags.json("some", [Outer([], 0)], type=list[Outer])
    flag.set('[{"strings":["x"],"number":7}]')
    assert flag.get() == [Outer(["x"], 7)]
    with pytest.raises(TypeError, match="cannot be read from JSON"):
        flags.json("bad", 5)


def test_set_contains() -> None:
    """DynStringSet_Contains."""
    flag = dflag.FlagSet("foobar").set("some", {"a", "b"})
    assert "a" in flag.get()
    assert "c" not in flag.get()


def test_parse_bad_and_good_type() -> None:
    """Parse_BadType, Parse_GoodType."""
    with pytest.raises(TypeError, match="cannot be read from JSON"):
        dflag.new(complex, 1j)
    flag = dflag.new(int, 0)
    flag.set(" 23 ")
    assert flag.get() == 23


def test_set_and_array_to_string() -> None:
    """SetToString, ArrayToString."""
    flags = dflag.FlagSet("foobar")
    assert flags.set("a", {"z", "a", "m"}).text == "a,m,z"
    assert flags.list("b", ["z", "a", "m"]).text == "z,a,m"


def test_binary() -> None:
    """Binary: base64 with newlines is fine, a bogus one is not."""
    flag = dflag.FlagSet("foobar").bytes("some", b"")
    flag.set("AAEC\nAw==\n")
    assert (flag.get(), flag.text) == (bytes(range(4)), "AAECAw==")
    with pytest.raises(dflag.FlagError, match="base64"):
        flag.set("bogus")


def test_checksum_differs_and_filters() -> None:
    """Checksum_Differs, Checksum_Filters."""
    flags = dflag.FlagSet("foobar")
    flag = flags.int("some", 13)
    flags.int("fixed", 13, dynamic=False)
    before, static = flags.checksum(legacy=True), flags.checksum("static", legacy=True)
    flag.set("14")
    assert flags.checksum(legacy=True) != before
    assert flags.checksum("static", legacy=True) == static
    flag.set("13")
    assert flags.checksum(legacy=True) == before


def test_fileread(tmp_path: Path) -> None:
    """FileRead: ReadsWithADefault, EmptyPathsAreIgnored, BadFlagPathThenGood, BadFileContent."""
    (tmp_path / "good").write_text("7\n")
    (tmp_path / "bad").write_text("x")
    flags = dflag.FlagSet("foobar")
    good = flags.int("good", 1, path_flag=str(tmp_path / "good"))
    flags.int("empty", 2, path_flag="")
    missing = flags.int("missing", 3, path_flag=str(tmp_path / "none"))
    with pytest.raises(dflag.FlagError, match="none: No such file or directory"):
        dflag.load_files(flags)
    assert (good.get(), flags["empty"].get(), missing.get()) == (7, 2, 3)
    flags.assign("missing_path", str(tmp_path / "bad"))
    with pytest.raises(dflag.FlagError, match="'x' is not a whole number"):
        dflag.load_files(flags)
    flags.assign("missing_path", str(tmp_path / "good"))
    dflag.load_files(flags)
    assert missing.get() == 7


def test_print_defaults_does_not_crash() -> None:
    """PrintDefaultsNotCrashing."""
    flags = dflag.FlagSet("foobar")
    for kind, default, *_ in TYPES:
        getattr(flags, kind)(kind, default, "usage")
    assert len(flags.usage().splitlines()) == 2 * len(TYPES)


def test_change_flags_default() -> None:
    """ChangeFlagsDefault, and its errors: an unknown flag, a bad value."""
    flags = dflag.FlagSet("foobar")
    flags.int("some", 1, validators=[dflag.in_range(0, 9)])
    flags["some"].set_default(5)
    assert (flags["some"].get(), flags["some"].default) == (5, 5)
    with pytest.raises(KeyError):
        flags["none"].set_default(5)
    with pytest.raises(dflag.FlagError):
        flags["some"].set_default(10)


def suite(path: Path) -> tuple[dflag.FlagSet, dflag.DynFlag[int], dflag.DynFlag[int], Volume]:
    """The flags and the first generation of the original's updater tests."""
    flags = dflag.FlagSet("updater_test")
    static = flags.int("some_int", 1, "static int for testing", dynamic=False)
    dynamic = flags.int("some_dynint", 1, "dynamic int for testing")
    return flags, static, dynamic, Volume(path / "dflag", {"some_int": "1234\n", "some_dynint": "10001\n"})


def test_updater_initialize_fails_on_bad_formed_flag(tmp_path: Path) -> None:
    """InitializeFailsOnBadFormedFlag."""
    flags, _, _, volume = suite(tmp_path)
    volume.write({"some_int": "1234", "some_dynint": "randomjunk"})
    with pytest.raises(StartError, match="'randomjunk' is not a whole number"):
        dflag.Updater(flags, volume.path).initialize()


def test_updater_setup_function(tmp_path: Path) -> None:
    """SetupFunction: a second Initialize and Start are errors, Stop is fine."""
    flags, _, _, volume = suite(tmp_path)
    updater = dflag.setup(flags, volume.path)
    for again in (updater.initialize, updater.start):
        with pytest.raises(UsageError, match="started already"):
            again()
    updater.stop()


def test_updater_initialize_sets_values(tmp_path: Path) -> None:
    """InitializeSetsValues; etcd: SetsInitialValues."""
    flags, static, dynamic, volume = suite(tmp_path)
    dflag.Updater(flags, volume.path).initialize()
    assert (static.get(), dynamic.get()) == (1234, 10001)


def test_updater_dynamic_updates_propagate(tmp_path: Path) -> None:
    """DynamicUpdatesPropagate; etcd: DynamicUpdate."""
    flags, static, dynamic, volume = suite(tmp_path)
    with dflag.setup(flags, volume.path):
        volume.write({"some_int": "1234", "some_dynint": "20002"})
        becomes(dynamic, 20002)
        assert static.get() == 1234


def test_updater_reads_the_files_whose_names_are_those_of_flags(tmp_path: Path) -> None:
    """readAll: names are compared exactly and in case, hidden files are none, and are not warned of."""
    flags, _, dynamic, volume = suite(tmp_path)
    flags.int(".hidden", 1)
    volume.write({"some_int": "1234", "Some_DynInt": "5", ".hidden": "6", "some_dynint.bak": "7"})
    with dflag.setup(flags, volume.path) as updater:
        assert (dynamic.get(), flags[".hidden"].get()) == (1, 1)
        assert sorted(problem.key for problem in updater.problems) == ["Some_DynInt", "some_dynint.bak"]
        assert (updater.warnings, updater.errors) == (2, 0)


def test_updater_counters_never_go_back(tmp_path: Path) -> None:
    """Warnings and Errors are monotonic: not even a stop, a start or a recovery resets them."""
    flags, _, dynamic, volume = suite(tmp_path)
    with dflag.setup(flags, volume.path) as updater:
        volume.write({"some_int": "1234", "some_dynint": "junk", "extra": "1"})
        until(lambda: (updater.warnings, updater.errors) == (1, 1))
        volume.write({"some_int": "1234", "some_dynint": "5"})
        becomes(dynamic, 5)
        assert (updater.warnings, updater.errors, updater.problems) == (1, 1, ())
    updater.start()
    assert (updater.warnings, updater.errors) == (1, 1)
    updater.stop()


def test_updater_dynamic_log_level_and_binary_flag(tmp_path: Path) -> None:
    """DynamicLogLevelAndBinaryFlag: an extra file, a binary flag with a validator, a level amid white space."""
    flags = dflag.FlagSet("updater_test")
    level = flags.str("loglevel", "info", input_mutator=lambda text: text.strip().lower())
    binary = flags.bytes("binary_flag", b"", validators=[dflag.length(0, 4)])
    content: dict[str, bytes | str] = {"loglevel": " InFO\n\n", "binary_flag": bytes(range(4)), "extra": "x"}
    volume = Volume(tmp_path / "dflag", content)
    with dflag.setup(flags, volume.path) as updater:
        assert (level.get(), binary.get(), updater.warnings) == ("info", bytes(range(4)), 1)
        volume.write({"loglevel": "debug", "binary_flag": b"\1\0", "extra": "x"})
        becomes(binary, b"\1\0")
        assert (level.get(), updater.errors) == ("debug", 0)
        volume.write({"loglevel": "debug", "binary_flag": b"12345", "extra": "x"})
        until(lambda: updater.errors == 1)
        assert (binary.get(), updater.warnings) == (b"\1\0", 1)


def test_etcd_errors_on_initial_unknown_flag(tmp_path: Path) -> None:
    """etcd: ErrorsOnInitialUnknownFlag, which here is a policy."""
    flags, _, _, volume = suite(tmp_path)
    volume.write({"unknown": "1"})
    with pytest.raises(StartError, match="there is no such flag"):
        dflag.setup(flags, volume.path, policy=Policy(unknown="error"))


def test_etcd_dynamic_update_restores_good_state(tmp_path: Path) -> None:
    """etcd: DynamicUpdateRestoresGoodState: a bad value changes nothing, and the next good one is taken."""
    flags, _, dynamic, volume = suite(tmp_path)
    with dflag.setup(flags, volume.path) as updater:
        volume.write({"some_int": "1234", "some_dynint": "randombleh"})
        until(lambda: updater.errors == 1)
        assert (dynamic.get(), dynamic.held.origin) == (10001, Origin.CONFIGMAP)
        volume.write({"some_int": "1234", "some_dynint": "30003"})
        becomes(dynamic, 30003)


def test_etcd_wrote_bad_subdirectory(tmp_path: Path) -> None:
    """etcd: WroteBadSubdirectory: what stands there, under the name of a flag, changes nothing."""
    flags, _, dynamic, volume = suite(tmp_path)
    with dflag.setup(flags, volume.path) as updater:
        volume.write({"some_int": "1234", "some_dynint/bad": "7777"})
        until(lambda: updater.warnings == 1)
        assert (dynamic.get(), updater.errors) == (1, 0)


def test_etcd_does_not_update_non_dynamic_flags(tmp_path: Path) -> None:
    """etcd: DoesntUpdateNonDynamicFlags."""
    flags, static, dynamic, volume = suite(tmp_path)
    with dflag.setup(flags, volume.path):
        volume.write({"some_int": "5678", "some_dynint": "2"})
        becomes(dynamic, 2)
        assert static.get() == 1234
