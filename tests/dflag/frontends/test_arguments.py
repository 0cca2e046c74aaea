"""Flags as options of argparse."""

from __future__ import annotations

import argparse
from enum import Enum
from typing import Any

import pytest

from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.errors import UsageError


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def service() -> tuple[dflag.FlagSet, argparse.ArgumentParser]:
    flags = dflag.FlagSet("shop")
    flags.int("pool_size", 4, "threads", aliases=["p"], validators=[dflag.in_range(1, 100)])
    flags.bool("dry_run", False, "100% harmless", aliases=["n"])
    flags.duration("db.timeout", "1m30s", dynamic=False)
    flags.enum("colour", Colour.RED)
    flags.str("password", "hunter2", secret=True, validators=[dflag.length(3)], path_flag="")
    parser = argparse.ArgumentParser(prog="shop")
    dflag.add_to(parser, flags)
    return flags, parser


@pytest.mark.parametrize(
    "line",
    [
        "--pool-size 8",
        "--pool_size 8",
        "--pool-size=8",
        "--pool_size=0x8",
        "-pool_size 8",
        "-pool-size=8",
        "-p 8",
        "-p8",
        "--p=8",
        "--pool 8",
        "--pool-size 3 --pool_size 8",
    ],
)
def test_an_option_may_be_spelled_in_many_ways(line: str) -> None:
    flags, parser = service()
    parser.parse_args(line.split())
    assert (flags["pool_size"].get(), flags["p"].held.origin, flags.generation) == (8, Origin.COMMAND_LINE, 1)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("--dry-run", True),
        ("--dry_run", True),
        ("-n", True),
        ("--dry", True),
        ("--dry-run=T", True),
        ("-dry_run=false", False),
        ("--dry_run=0", False),
        ("-n=true", True),
        ("--no-dry-run", False),
        ("--no_dry_run", False),
        ("--no-dry_run", False),
        ("--no-d", False),
        ("--dry-run --dry-run=false", False),
    ],
)
def test_a_truth_needs_no_value_and_may_have_one(line: str, value: bool) -> None:
    flags, parser = service()
    parser.add_argument("file", nargs="?")
    flags.set_default("true" if value is False else "false", "dry_run")
    assert parser.parse_args([*line.split(), "some.file"]).file == "some.file"
    assert flags["dry_run"].get() is value
    assert flags["dry_run"].held.origin is Origin.COMMAND_LINE


def test_what_is_not_on_the_line_stays_where_it_comes_from() -> None:
    flags, parser = service()
    dflag.load_environment(flags, {"COLOUR": "blue"})
    namespace = parser.parse_args(["--pool-size", "8", "--db.timeout=5s", "--no-dry-run"])
    assert flags.generation == 2
    assert [flags[name].held.origin for name in ("pool_size", "db.timeout", "dry_run")] == [Origin.COMMAND_LINE] * 3
    assert (flags["colour"].held.origin, flags["password"].held.origin) == (Origin.ENVIRONMENT, Origin.DEFAULT)
    assert vars(namespace) == {}


REFUSED = [
    ("--pool-size 800", "argument --pool-size/-p: must be from 1 to 100, got 800"),
    ("--pool_size=many", "argument --pool-size/-p: 'many' is not a whole number"),
    (
        "--dry-run=maybe",
        "argument --dry-run/-n/--no-dry-run: 'maybe' is neither true nor false; write one of 1 t true 0",
    ),
    ("--colour green", "argument --colour: 'green' is not one of RED, BLUE"),
    ("--colour", "argument --colour: expected one argument"),
    ("--password ab", "argument --password: not a str that is accepted (secret, so not shown)"),
    ("--no-dry-run=1", "argument --dry-run/-n/--no-dry-run: ignored explicit argument '1'"),
    ("--unknown 1", "unrecognized arguments: --unknown 1"),
]


@pytest.mark.parametrize(("line", "told"), REFUSED)
def test_a_mistake_is_told_in_one_line_and_changes_nothing(
    line: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags, parser = service()
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["--pool-size", "9", *line.split(), "--colour", "blue"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"shop: error: {told}")
    assert (flags.generation, flags["pool_size"].get()) == (0, 4)


def test_a_reason_of_a_validator_that_names_no_value_gets_it_and_stays_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def odd(number: int) -> None:
        if number % 2 == 0:
            raise ValueError("must\nbe odd")

    flags, parser = dflag.FlagSet("test"), argparse.ArgumentParser(prog="test")
    flags.int("x", 1, validators=[odd])
    dflag.add_to(parser, flags)
    with pytest.raises(SystemExit):
        parser.parse_args(["-x", "2"])
    assert capsys.readouterr().err.splitlines()[-1] == "test: error: argument -x: '2': must be odd"


def test_the_error_can_be_had_instead_of_an_exit() -> None:
    flags, parser = dflag.FlagSet("test"), argparse.ArgumentParser(exit_on_error=False)
    flags.int("x", 1)
    dflag.add_to(parser, flags)
    with pytest.raises(argparse.ArgumentError, match="'y' is not a whole number"):
        parser.parse_args(["-x", "y"])


def test_the_help_has_defaults_and_rules_and_no_secrets() -> None:
    _, parser = service()
    told = " ".join(parser.format_help().split())
    assert "flags of shop:" in told
    assert "-p INT threads (int, from 1 to 100; default 4)" in told
    assert "--dry-run, -n, --no-dry-run 100% harmless (bool; default false)" in told
    assert "--db.timeout DURATION (duration; default 1m30s; static)" in told
    assert "--colour {RED,BLUE} (one of RED, BLUE; default RED)" in told
    assert "--password STR (str; default (secret))" in told
    assert "--password-path STR a file to read password from (str; default (empty); static)" in told
    assert "hunter2" not in told
    assert "--:" not in told
    assert "[--dry-run | -n | --no-dry-run]" in told


def test_words_that_are_not_ours_are_left_alone() -> None:
    flags, parser = service()
    parser.add_argument("--my_own")
    namespace, rest = parser.parse_known_args(["--my_own", "1", "--other_one=2", "-p5", "--", "--pool_size=9"])
    assert (namespace.my_own, rest, flags["pool_size"].get()) == ("1", ["--other_one=2", "--", "--pool_size=9"], 5)


THEIRS = ["-pool_size=9", "--pool_size", "9", "--dry-run=false", "-dry_run", "--no_dry_run", "-p=1"]


def test_the_rest_of_a_line_is_handed_on_as_it_is() -> None:
    flags, parser = service()
    parser.add_argument("command")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    namespace = parser.parse_args(["-pool_size=8", "exec", *THEIRS])
    assert (namespace.rest, flags["pool_size"].get(), flags["dry_run"].get()) == (THEIRS, 8, False)


def test_so_is_what_an_option_takes_the_rest_for() -> None:
    flags, parser = service()
    parser.add_argument("--exec", nargs=argparse.REMAINDER)
    namespace = parser.parse_args(["-pool_size=8", "--exec", *THEIRS])
    assert (namespace.exec, flags["pool_size"].get(), flags["dry_run"].get()) == (THEIRS, 8, False)


def test_a_subcommand_may_have_options_of_the_same_names() -> None:
    flags, parser = service()
    command = parser.add_subparsers(dest="command").add_parser("run")
    command.add_argument("--pool_size", type=int)
    command.add_argument("-dry_run")
    command.add_argument("--no_dry_run", action="store_true")
    namespace = parser.parse_args(["-pool_size=8", "run", "--pool_size=9", "-dry_run=maybe", "--no_dry_run"])
    assert (namespace.pool_size, namespace.dry_run, namespace.no_dry_run) == (9, "maybe", True)
    assert (flags["pool_size"].get(), flags["dry_run"].held.origin) == (8, Origin.DEFAULT)


@pytest.mark.parametrize("first", ["flags", "option"])
def test_an_option_of_the_parser_itself_that_is_spelled_otherwise_is_its_own(first: str) -> None:
    flags, parser = dflag.FlagSet("test"), argparse.ArgumentParser()
    flags.int("pool_size", 4)
    if first == "flags":
        dflag.add_to(parser, flags)
    parser.add_argument("--pool_size")
    if first == "option":
        dflag.add_to(parser, flags)
    assert parser.parse_args(["--pool_size=x", "--pool-size=5"]).pool_size == "x"
    assert flags["pool_size"].get() == 5


def test_words_that_stand_in_a_file_may_be_spelled_in_as_many_ways(tmp_path: Any) -> None:
    flags, parser = dflag.FlagSet("test"), argparse.ArgumentParser(fromfile_prefix_chars="@")
    size, dry, other = flags.int("pool_size", 4), flags.bool("dry_run", True), flags.int("other_size", 1)
    dflag.install(parser, flags)
    parser.add_argument("files", nargs="*")
    (tmp_path / "more").write_text("--other_size\n3\n-config_strict\n")
    (tmp_path / "words").write_text(f"-pool_size=8\n--dry_run=false\n@{tmp_path / 'more'}\n--\n--pool_size=9\n")
    namespace = parser.parse_args([f"@{tmp_path / 'words'}"])
    assert (size.get(), dry.get(), other.get(), flags.generation) == (8, False, 3, 1)
    assert (namespace.files, namespace.config_strict) == (["--pool_size=9"], True)


def test_the_line_of_the_process_is_read_if_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    flags, parser = service()
    monkeypatch.setattr("sys.argv", ["shop", "-pool_size=8"])
    parser.parse_args()
    assert flags["pool_size"].get() == 8


def test_flags_of_a_subcommand_and_of_the_program_are_one_generation_and_the_last_counts() -> None:
    flags, parser = service()
    command = parser.add_subparsers(dest="command").add_parser("run")
    dflag.add_to(command, flags)
    parser.parse_args(["--pool-size=7", "--dry-run", "run", "--pool_size=8", "--colour=blue"])
    assert flags.generation == 1
    assert (flags["pool_size"].get(), flags["dry_run"].get(), flags["colour"].get()) == (8, True, Colour.BLUE)


def test_a_subcommand_alone_may_have_flags() -> None:
    flags, parser = dflag.FlagSet("test"), argparse.ArgumentParser(prog="test")
    size = flags.int("size", 1)
    commands = parser.add_subparsers()
    dflag.add_to(commands.add_parser("run"), flags)
    commands.add_parser("stop")
    parser.parse_args(["run", "-size=3"])
    assert (size.get(), flags.generation) == (3, 1)
    with pytest.raises(SystemExit):
        parser.parse_args(["stop", "--size=4"])


def test_a_parser_may_be_the_parent_of_another() -> None:
    flags, parser = service()
    child = argparse.ArgumentParser(parents=[parser], add_help=False, conflict_handler="resolve")
    child.parse_args(["--pool-size", "8"])
    assert (flags["pool_size"].get(), flags["pool_size"].held.origin) == (8, Origin.COMMAND_LINE)


def test_options_may_stand_between_other_arguments() -> None:
    flags, parser = service()
    parser.add_argument("files", nargs="*")
    namespace = parser.parse_intermixed_args(["a", "-pool_size=8", "b", "--dry-run=true", "c"])
    assert (namespace.files, flags["pool_size"].get(), flags.generation) == (["a", "b", "c"], 8, 1)


def test_two_flags_that_differ_in_a_dash_keep_their_names() -> None:
    flags, parser = dflag.FlagSet("test"), argparse.ArgumentParser()
    dashed, scored, on, no = flags.int("a-b", 0), flags.int("a_b", 0), flags.bool("x-y", False), flags.int("no-x-y", 0)
    dflag.add_to(parser, flags)
    parser.parse_args(["--a-b=1", "-a_b=2", "--x_y", "--no-x-y=3"])
    assert (dashed.get(), scored.get(), on.get(), no.get()) == (1, 2, True, 3)


def test_an_option_that_the_parser_has_already_is_refused() -> None:
    flags, parser = dflag.FlagSet("test"), argparse.ArgumentParser()
    flags.bool("help", False)
    with pytest.raises(UsageError, match=r"has an option of that name already.*conflicting option string: --help"):
        dflag.add_to(parser, flags)


def test_a_static_flag_cannot_be_given_once_the_program_has_started(capsys: pytest.CaptureFixture[str]) -> None:
    flags, parser = service()
    flags.freeze()
    parser.parse_args(["--pool-size=5"])
    with pytest.raises(SystemExit):
        parser.parse_args(["--db.timeout=5s"])
    assert "it is static: it changes only before start()" in capsys.readouterr().err
    assert flags["pool_size"].get() == 5


@pytest.mark.parametrize(
    ("kind", "default", "text", "value"),
    [
        (list[int], [1], "2, 3", [2, 3]),
        (frozenset[str], frozenset(), "b,a", frozenset("ab")),
        (dict[str, float], {}, "a=0.5", {"a": 0.5}),
        (bytes, b"", "AAE=", b"\0\1"),
        (dict, {}, '{"a": [1]}', {"a": [1]}),
        (float, 1.0, "-1.5", -1.5),
    ],
)
def test_every_kind_is_read_as_the_flag_reads_it(kind: Any, default: Any, text: str, value: Any) -> None:
    flags, parser = dflag.FlagSet("test"), argparse.ArgumentParser()
    flag = flags.flag(kind, "some_flag", default)
    dflag.add_to(parser, flags)
    parser.parse_args(["--some-flag", text])
    assert flag.get() == value


def test_a_companion_names_a_file_on_the_line(tmp_path: Any) -> None:
    flags, parser = service()
    (tmp_path / "secret").write_text("sesame\n")
    parser.parse_args(["--password-path", str(tmp_path / "secret")])
    dflag.load_files(flags)
    assert (flags["password"].get(), flags["password"].held.origin) == ("sesame", Origin.FILE)
