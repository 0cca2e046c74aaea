"""Flags of ours in absl, and flags of absl as ours; at last in a real program."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from absl import flags as typed_absl
from absl.testing import flagsaver

from tests.dflag.kubelet import Volume
from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.dflag.frontends.abseil import define, dynamic

absl: Any = typed_absl
"""Half of it has no types, and what has some refuses to have a flag set."""


def shop() -> tuple[dflag.FlagSet, Any]:
    flags, values = dflag.FlagSet("shop"), absl.FlagValues()
    flags.int("pool_size", 4, "threads", aliases=["p"], validators=[dflag.in_range(1, 100)])
    flags.bool("dry_run", True)
    flags.duration("db.timeout", "1m30s", dynamic=False)
    flags.str("password", "hunter2", secret=True, validators=[dflag.length(3)])
    define(flags, values)
    return flags, values


@pytest.mark.parametrize("line", ["--pool_size=8", "-pool_size 8", "-p 8", "--pool_size 3 --p=8"])
def test_an_option_of_absl_sets_our_flag(line: str) -> None:
    flags, values = shop()
    assert values(["shop", *line.split(), "x"]) == ["shop", "x"]
    assert (flags["p"].get(), str(flags["p"].held), values.pool_size, values.p) == (8, "command line", 8, 8)
    assert flags["password"].held.origin is Origin.DEFAULT


@pytest.mark.parametrize(("option", "value"), [("--dry_run", True), ("--nodry_run", False), ("--dry_run=F", False)])
def test_a_truth_has_the_options_that_absl_gives_it(option: str, value: bool) -> None:
    flags, values = shop()
    values(["shop", option])
    assert (flags["dry_run"].get(), values.dry_run, values["dry_run"].present) == (value, value, 1)


def test_options_may_stand_in_a_file(tmp_path: Path) -> None:
    flags, values = shop()
    absl.DEFINE_string("flagfile", "", "", flag_values=values)
    (tmp_path / "flags").write_text("--pool_size=9\n# a comment\n--nodry_run\n")
    values(["shop", f"--flagfile={tmp_path / 'flags'}"])
    assert (flags["p"].get(), flags["dry_run"].get()) == (9, False)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--pool_size=800", r"flag --pool_size: must be from 1 to 100, got 800$"),
        ("--pool_size=x", r"flag --pool_size: 'x' is not a whole number$"),
        ("--password=ab", r"flag --password: not a str that is accepted \(secret, so not shown\)$"),
    ],
)
def test_what_is_refused_is_an_illegal_flag_value(option: str, told: str) -> None:
    flags, values = shop()
    with pytest.raises(absl.IllegalFlagValueError, match=told):
        values(["shop", option])
    assert flags.generation == 0


def test_absl_reads_the_value_of_now_and_only_after_parsing() -> None:
    flags, values = shop()
    with pytest.raises(absl.UnparsedFlagAccessError):
        values.pool_size  # noqa: B018
    values(["shop"])
    flags.assign("pool_size", "20", Origin.CONFIGMAP, "here")
    assert (values.pool_size, values["p"].value, values["pool_size"].default) == (20, 20, 4)


def test_what_a_program_sets_in_absl_is_of_the_program() -> None:
    flags, values = shop()
    values(["shop", "--pool_size=8"])
    values.pool_size = 9
    assert (flags["p"].get(), flags["p"].held.origin) == (9, Origin.PROGRAM)
    with pytest.raises(absl.IllegalFlagValueError, match="must be from 1 to 100, got 900"):
        values.pool_size = 900
    assert (values.pool_size, flags["p"].held.origin) == (9, Origin.PROGRAM)
    values.pool_size = 8
    assert flags["p"].held.origin is Origin.COMMAND_LINE


def test_a_validator_of_absl_takes_back_what_it_refuses() -> None:
    flags, values = shop()
    absl.register_validator("pool_size", lambda value: value != 13, "unlucky", flag_values=values)
    values(["shop"])
    with pytest.raises(absl.IllegalFlagValueError, match="unlucky"):
        values.pool_size = 13
    assert (flags["p"].get(), flags["p"].held.origin) == (4, Origin.DEFAULT)


def test_defaults_are_one_and_what_was_parsed_can_be_forgotten() -> None:
    flags, values = shop()
    values.set_default("pool_size", 5)
    assert (flags["p"].get(), flags["p"].default, flags["p"].held.origin) == (5, 5, Origin.DEFAULT)
    values(["shop", "--pool_size=8"])
    values.unparse_flags()
    assert (flags["p"].get(), flags["p"].held.origin) == (5, Origin.DEFAULT)
    with pytest.raises(absl.IllegalFlagValueError):
        values.set_default("pool_size", 500)


def test_what_a_test_saves_is_restored() -> None:
    flags, values = shop()
    values(["shop", "--pool_size=8"])
    saved = flagsaver.save_flag_values(values)
    values.pool_size = 9
    assert flags["p"].get() == 9
    flagsaver.restore_flag_values(saved, values)
    assert (flags["p"].get(), flags["p"].held.origin) == (8, Origin.COMMAND_LINE)


def test_the_help_and_the_flags_as_text_have_no_secrets() -> None:
    _, values = shop()
    told = " ".join(values.get_help().split())
    assert "--pool_size: threads (int, from 1 to 100) (default: '4')" in told
    assert "--[no]dry_run: (bool) (default: 'true')" in told
    assert "--password: (str) (default: '(secret)')" in told
    values(["shop", "--password=sesame", "--nodry_run"])
    written = values.flags_into_string()
    assert "--pool_size=4\n" in written
    assert "--nodry_run\n" in written
    assert "sesame" not in written + told
    assert "hunter2" not in told


def theirs() -> tuple[dflag.FlagSet, Any, Any]:
    flags, values = dflag.FlagSet("shop"), absl.FlagValues()
    holder = absl.DEFINE_integer("port", 80, "where to listen", lower_bound=1, flag_values=values)
    return flags, values, holder


@pytest.mark.parametrize("first", ["parsed", "made dynamic"])
def test_a_flag_of_absl_becomes_ours_before_or_after_parsing(first: str) -> None:
    flags, values, holder = theirs()
    line = ["shop", "--port=8080"]
    if first == "parsed":
        values(line)
    port = dynamic(flags, holder, values)
    if first == "made dynamic":
        values(line)
    assert (port.get(), port.held.origin, port.default, port.usage) == (
        8080,
        Origin.COMMAND_LINE,
        80,
        "where to listen",
    )
    values.port = 9000
    assert (port.get(), port.held.origin) == (9000, Origin.PROGRAM)


def test_a_config_map_changes_what_absl_sees(tmp_path: Path) -> None:
    flags, values, holder = theirs()
    port = dynamic(flags, holder, values)
    values(["shop"])
    assert port.held.origin is Origin.DEFAULT
    volume = Volume(tmp_path / "dflag", {"port": "8443\n"})
    with dflag.setup(flags, volume.path) as updater:
        assert (values.port, holder.value, port.get(), updater.errors) == (8443, 8443, 8443, 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0", "0 is not a positive integer"),
        ("x", "invalid literal"),
        ("13", "unlucky"),
        ("14", "even so"),
        ("9999", "more than the limit"),
    ],
)
def test_what_absl_would_refuse_is_refused(text: str, reason: str) -> None:
    flags, values, holder = theirs()
    absl.DEFINE_integer("limit", 9000, "", flag_values=values)

    def explained(value: int) -> bool:
        if value == 14:
            raise absl.ValidationError("even so")
        return True

    port = dynamic(flags, holder, values)
    absl.register_validator("port", lambda value: value != 13, "unlucky", flag_values=values)
    absl.register_validator("port", explained, flag_values=values)
    absl.register_multi_flags_validator(
        ["port", "limit"], lambda both: both["port"] <= both["limit"], "more than the limit", flag_values=values
    )
    values(["shop"])
    with pytest.raises(dflag.FlagError, match=reason):
        port.set(text)
    assert (values.port, port.get()) == (80, 80)
    port.set("15")
    assert values.port == 15


def test_what_we_refuse_is_refused_by_absl() -> None:
    flags, values, holder = theirs()
    port = dynamic(flags, holder, values, validators=[dflag.in_range(1, 65535)])
    with pytest.raises(absl.IllegalFlagValueError, match="must be from 1 to 65535, got 70000"):
        values(["shop", "--port=70000"])
    values(["shop", "--port=443"])
    with pytest.raises(absl.IllegalFlagValueError, match="must be from 1 to 65535"):
        values.port = 70001
    assert (values.port, port.get()) == (443, 443)


def test_a_stronger_value_stays_on_both_sides() -> None:
    flags, values, holder = theirs()
    port = dynamic(flags, holder, values)
    values(["shop"])
    flags.assign("port", "7", Origin.HTTP)
    values.port = 8
    assert (values.port, port.get()) == (7, 7)


def test_a_static_flag_of_absl_stays_once_the_program_has_started() -> None:
    flags, values, holder = theirs()
    port = dynamic(flags, holder, values, dynamic=False)
    values(["shop", "--port=81"])
    flags.freeze()
    with pytest.raises(absl.IllegalFlagValueError, match="it is static"):
        values.port = 82
    assert (values.port, port.get()) == (81, 81)


def test_flags_of_many_sorts_have_their_own_texts() -> None:
    flags, values = dflag.FlagSet("test"), absl.FlagValues()
    made: list[tuple[Any, str, Any]] = [
        (absl.DEFINE_list("list", ["a"], "", flag_values=values), "b,c", ["b", "c"]),
        (absl.DEFINE_multi_integer("multi", [1], "", flag_values=values), "2, 3", [2, 3]),
        (absl.DEFINE_enum("enum", "x", ["x", "y"], "", flag_values=values), "y", "y"),
        (absl.DEFINE_bool("bool", False, "", flag_values=values), "true", True),
        (absl.DEFINE_string("none", None, "", flag_values=values), "text", "text"),
    ]
    twins = [dynamic(flags, holder, values) for holder, _, _ in made]
    values(["test"])
    for twin, (holder, text, value) in zip(twins, made, strict=True):
        before = twin.get()
        twin.set(text)
        assert (holder.value, twin.get(), twin.text.replace(" ", "")) == (value, value, text.replace(" ", ""))
        twin.reset()
        assert holder.value == before
    assert flags["none"].text == ""


def lists() -> tuple[dflag.FlagSet, Any]:
    flags, values = dflag.FlagSet("test"), absl.FlagValues()
    for holder in (
        absl.DEFINE_list("list", ["a"], "", flag_values=values),
        absl.DEFINE_multi_string("multi", ["a"], "", flag_values=values),
        absl.DEFINE_multi_integer("numbers", None, "", flag_values=values),
    ):
        dynamic(flags, holder, values)
    return flags, values


@pytest.mark.parametrize("name", ["list", "multi"])
@pytest.mark.parametrize("set_by", ["default", "line", "program", "text", "value"])
def test_who_reads_a_list_cannot_change_it_for_all(name: str, set_by: str) -> None:
    flags, values = lists()
    twin = flags[name]
    values(["test", f"--{name}=a"] if set_by == "line" else ["test"])
    given = ["a"]
    if set_by == "program":
        setattr(values, name, given)
    if set_by == "text":
        twin.set("a")
    if set_by == "value":
        twin.set_value(given)
    with pytest.raises(TypeError, match="this list is the value of a flag"):
        twin.get().append("b")
    getattr(values, name).append("c")
    values[name].default.append("d")
    given.append("e")
    assert (twin.get(), twin.default) == (["a"], ["a"])


def test_a_flag_that_is_given_several_times_still_has_all_of_it() -> None:
    flags, values = lists()
    flags.assign("multi", "x,y", Origin.ENVIRONMENT)
    values(["test", "--multi=b", "--multi=c,d", "--numbers=1", "--numbers=2"])
    assert (values.multi, flags["multi"].get()) == (["b", "c,d"], ["b", "c,d"])
    assert (values.numbers, flags["numbers"].get()) == ([1, 2], [1, 2])


def test_the_text_of_a_list_is_read_as_the_same_list() -> None:
    flags, values = lists()
    values(["test"])
    multi, numbers = flags["multi"], flags["numbers"]
    for value in (["a", "b"], ["a,b"], [], ["[a"], [" a "]):
        multi.set_value(value)
        text = multi.text
        multi.set("other")
        multi.set(text)
        assert multi.get() == values.multi == value
    assert numbers.text == ""
    numbers.set('["1", "2"]')
    assert values.numbers == [1, 2]
    with pytest.raises(dflag.FlagError, match="expected str"):
        numbers.set("[1.5]")


def secrets() -> tuple[dflag.FlagSet, Any]:
    flags, values = dflag.FlagSet("test"), absl.FlagValues()
    flags.str("password", "hunter2", secret=True)
    flags.bool("vip", True, secret=True)
    flags.int("rate", 1)
    define(flags, values)
    dynamic(flags, absl.DEFINE_string("token", "hunter3", "", flag_values=values), values, secret=True)
    dynamic(flags, absl.DEFINE_multi_string("keys", ["hunter4"], "", flag_values=values), values, secret=True)
    absl.DEFINE_string("flagfile", "", "", flag_values=values)
    return flags, values


def test_a_file_of_flags_has_no_secrets_and_gives_none_a_value(tmp_path: Path) -> None:
    _, values = secrets()
    values(["test", "--password=hunter5", "--token=hunter6", "--keys=hunter7", "--rate=3"])
    values.append_flags_into_file(str(tmp_path / "flags"))
    written = (tmp_path / "flags").read_text()
    assert "--rate=3\n" in written
    assert [line for line in written.splitlines() if "secret" in line] == [
        f"# --{name} is secret, and left out" for name in ("keys", "password", "token", "vip")
    ]
    assert "hunter" not in written
    again, others = secrets()
    others(["test", f"--flagfile={tmp_path / 'flags'}"])
    assert [again[name].get() for name in ("rate", "password", "vip", "token", "keys")] == [
        3,
        "hunter2",
        True,
        "hunter3",
        ["hunter4"],
    ]
    assert again["password"].held.origin is Origin.DEFAULT


def test_no_help_has_secrets() -> None:
    _, values = secrets()
    values.set_default("token", "hunter8")
    values(["test", "--password=hunter5", "--novip"])
    values.write_help_in_xml_format(xml := io.StringIO())
    assert xml.getvalue().count("<default>(secret)</default>") == 4
    assert xml.getvalue().count("<current>(secret)</current>") == 4
    assert "hunter" not in xml.getvalue() + values.get_help()


def test_a_flag_that_must_be_given_may_be_ours() -> None:
    flags, values = dflag.FlagSet("test"), absl.FlagValues()
    holder = absl.DEFINE_string("name", None, "", required=True, flag_values=values)
    twin = dynamic(flags, holder, values)
    with pytest.raises(absl.IllegalFlagValueError, match="must have a value other than None"):
        values(["test"])
    values(["test", "--name=x"])
    assert (twin.get(), twin.held.origin) == ("x", Origin.COMMAND_LINE)


PROGRAM = """
from absl import app, flags as absl
from wigwag import dflag
from wigwag.dflag.frontends.abseil import define, dynamic

PORT = absl.DEFINE_integer("port", 80, "where to listen")
flags = dflag.FlagSet("shop")
rate = flags.int("rate", 10, "requests per second", validators=[dflag.in_range(0, 100)])
flags.bool("dry_run", True)
define(flags)
port = dynamic(flags, PORT)

def main(argv):
    with dflag.setup(flags, argv[1]):
        print(rate.get(), absl.FLAGS.dry_run, port.get(), PORT.value)

if __name__ == "__main__":
    app.run(main)
"""


def test_a_real_program(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    volume = Volume(tmp_path / "dflag", {"rate": "30", "port": "8443"})

    def run(*line: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(tmp_path / "shop.py"), *line]
        return subprocess.run(command, capture_output=True, text=True)

    assert run(str(volume.path)).stdout == "30 True 8443 8443\n"
    assert run("--nodry_run", "--rate=7", str(volume.path)).stdout == "7 False 8443 8443\n"
    refused = run("--rate=700", str(volume.path))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "FATAL Flags parsing error: flag --rate: must be from 0 to 100, got 700" in refused.stderr
    told = " ".join(run("--help").stdout.split())
    assert "requests per second (int, from 0 to 100) (default: '10')" in told
    assert "where to listen" in told
