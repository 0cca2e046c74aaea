"""Flags as options of click, with its own runner."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.dflag.frontends.click_options import params, with_flags

Invoke = Callable[..., Any]


def shop() -> dflag.FlagSet:
    flags = dflag.FlagSet("shop")
    flags.int("pool_size", 4, "threads", aliases=["p"], validators=[dflag.in_range(1, 100)])
    flags.bool("dry_run", True, aliases=["n"])
    flags.duration("db.timeout", "1m30s", dynamic=False)
    flags.str("password", "hunter2", secret=True, validators=[dflag.length(3)])
    return flags


def command(flags: dflag.FlagSet, prefix: str | None = None) -> Invoke:
    """Return what runs a command that tells what it was given, and is told nothing of flags."""

    @click.command("shop", context_settings={"show_default": True})
    @with_flags(flags, prefix)
    @click.argument("file", default="")
    def main(file: str) -> None:
        click.echo(f"ran {file}")

    return lambda *line, **options: CliRunner().invoke(main, line, **options)


@pytest.mark.parametrize("line", ["--pool-size 8", "--pool_size=8", "-p 8", "--pool-size 3 -p8"])
def test_an_option_sets_its_flag(line: str) -> None:
    flags = shop()
    assert command(flags)(*line.split(), "x").output == "ran x\n"
    assert (flags["pool_size"].get(), flags["pool_size"].held.origin, flags.generation) == (8, Origin.COMMAND_LINE, 1)


@pytest.mark.parametrize(
    ("line", "value"), [("--dry-run", True), ("--no-dry-run", False), ("--no-dry_run", False), ("-n", True)]
)
def test_a_truth_needs_no_value(line: str, value: bool) -> None:
    flags = shop()
    flags.set_default("false" if value else "true", "dry_run")
    assert command(flags)(line, "x").output == "ran x\n"
    assert (flags["dry_run"].get(), flags["dry_run"].held.origin) == (value, Origin.COMMAND_LINE)


def test_nothing_on_the_line_is_nothing_new() -> None:
    flags = shop()
    assert command(flags)().exit_code == 0
    assert (flags.generation, flags["dry_run"].get()) == (0, True)


def test_a_line_is_one_generation() -> None:
    flags = shop()
    command(flags)("--db.timeout", "5s", "--no-dry-run", "-p", "2")
    assert (flags.generation, flags["dry_run"].get(), flags["p"].get()) == (1, False, 2)


def test_each_value_is_from_where_click_found_it() -> None:
    flags = shop()
    variables = {"SHOP_POOL_SIZE": "9", "SHOP_DRY_RUN": "false", "SHOP_P": "7"}
    defaults = {"db_timeout": "10s", "password": "sesame"}
    result = command(flags, "SHOP_")("--password=open", env=variables, default_map=defaults)
    assert result.exit_code == 0
    assert flags.generation == 1
    told = {flag.name: str(flag.held) for flag in flags}
    assert told == {
        "pool_size": "environment SHOP_POOL_SIZE",
        "dry_run": "environment SHOP_DRY_RUN",
        "db.timeout": "file default_map",
        "password": "command line",
    }
    assert (flags["pool_size"].get(), flags["dry_run"].get(), flags["password"].get()) == (9, False, "open")


def test_a_map_of_defaults_may_hold_values_that_are_no_texts() -> None:
    flags = shop()
    command(flags)(default_map={"pool_size": 12})
    assert (flags["pool_size"].get(), flags["pool_size"].held.origin) == (12, Origin.FILE)
    refused = command(flags)(default_map={"pool_size": [1]})
    assert (refused.exit_code, flags["pool_size"].get()) == (2, 12)
    assert "'[1]' is not a whole number" in refused.output


def test_the_prefix_that_click_makes_by_itself_is_understood() -> None:
    flags = shop()
    command(flags)(env={"AUTO_DB_TIMEOUT": "7s"}, auto_envvar_prefix="AUTO")
    assert str(flags["db.timeout"].held) == "environment AUTO_DB_TIMEOUT"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--pool-size 800", "must be from 1 to 100, got 800"),
        ("--pool-size x", "'x' is not a whole number"),
        ("--password ab", "not a str that is accepted (secret, so not shown)"),
        ("--unknown", "No such option"),
    ],
)
def test_a_mistake_is_told_by_click_and_changes_nothing(line: str, told: str) -> None:
    flags = shop()
    result = command(flags)("--no-dry-run", *line.split())
    assert result.exit_code == 2
    assert told in result.output
    assert (line.split(maxsplit=1)[0] in result.output, flags.generation) == (True, 0)


def test_a_truth_may_be_refused() -> None:
    flags = dflag.FlagSet("test")
    flags.bool("x", False, validators=[lambda value: value is False])
    result = command(flags)("-x")
    assert (result.exit_code, flags["x"].get()) == (2, False)
    assert "'true': refused by <lambda>" in result.output


def test_the_help_has_defaults_and_rules_and_no_secrets() -> None:
    told = " ".join(command(shop())("--help").output.split())
    assert "-p, --pool-size, --pool_size INT threads (int, from 1 to 100; default 4)" in told
    assert "(duration; default 1m30s; static)" in told
    assert "-n, --dry-run, --dry_run / --no-dry-run, --no-dry_run (bool; default true)" in told
    assert "hunter2" not in told


def test_options_may_be_had_as_a_list_and_for_a_command_that_is_made_already() -> None:
    flags = shop()
    made = click.Command("shop", params=params(flags), callback=lambda: None)
    CliRunner().invoke(made, ["-p", "3"])
    assert flags["p"].get() == 3
    late = with_flags(flags)(click.Command("shop", callback=lambda: None))
    CliRunner().invoke(late, ["-p", "5"])
    assert flags["p"].get() == 5


def test_a_group_and_its_command_may_both_have_flags() -> None:
    flags, more = shop(), dflag.FlagSet("more")
    size = more.int("size", 1)

    @click.group()
    @with_flags(flags)
    def main() -> None:
        pass

    @main.command()
    @with_flags(flags)
    @with_flags(more)
    def run() -> None:
        click.echo(f"{flags['p'].get()} {size.get()}")

    assert CliRunner().invoke(main, ["-p", "2", "run", "-p", "3", "--size", "4"]).output == "3 4\n"
    assert CliRunner().invoke(main, ["-p", "6", "run"]).output == "6 4\n"


def service(flags: dflag.FlagSet) -> Invoke:
    """Return what runs a command that is a service."""

    @click.command("shop")
    @with_flags(flags, service="options")
    @click.argument("file", default="x")
    def main(file: str, options: dflag.ServiceOptions) -> None:
        seen.append(options)
        with dflag.service(flags, options) as running:
            port = running.page is not None and running.page.port > 0
            click.echo(f"{file} {flags['pool_size'].get()} {flags['loglevel'].get()} {port}")

    seen: list[dflag.ServiceOptions] = []
    return lambda *line: (CliRunner().invoke(main, line), seen[-1] if seen else None)


def test_a_service_has_its_options(tmp_path: Path, root_level: None) -> None:
    (tmp_path / "app.yaml").write_text("pool_size: 9\n")
    line = [f"--config-dir={tmp_path}", "--config_documents", "*.yaml", "--config-port=0", "--loglevel=error"]
    result, options = service(shop())(*line)
    assert (result.exit_code, result.output) == (0, "x 9 error True\n")
    assert options == dflag.ServiceOptions(
        config_dir=(str(tmp_path),), config_documents=("*.yaml",), config_port=0, command_line=True
    )
    assert service(shop())()[1] == dflag.ServiceOptions(command_line=True)


def test_a_service_that_cannot_start_ends_with_one_line(tmp_path: Path, root_level: None) -> None:
    result, _ = service(shop())("--config-strict", "--config-dir", str(tmp_path / "none"))
    told = f"error: 1 error in the flags: {tmp_path / 'none'}: No such file or directory"
    assert (result.exit_code, result.output.strip()) == (1, told)
    result, _ = service(shop())("--config-port=70000")
    assert (result.exit_code, "--config-port" in result.output) == (2, True)
    assert "--config-token-file, --config_token_file FILE" in service(shop())("--help")[0].output


def test_options_of_a_service_may_be_had_as_a_list(root_level: None) -> None:
    made = click.Command("shop", params=params(shop(), service="it"), callback=lambda it: click.echo(it.config_bind))
    assert CliRunner().invoke(made, ["--config-bind=::1"]).output == "::1\n"


def test_a_shell_that_asks_how_a_word_may_end_changes_nothing() -> None:
    flags = shop()
    made: Any = click.Command("shop", params=params(flags))
    made.make_context("shop", ["-p", "3", "--pool-size", "bad"], resilient_parsing=True)
    assert flags.generation == 0


def test_names_that_are_alike_as_identifiers_are_told_apart() -> None:
    flags = dflag.FlagSet("test")
    names = ("a.b", "a-b", "a_b", "a:b")
    for name in names:
        flags.int(name, 0)
    command(flags)("--a.b=1", "--a-b=2", "--a_b=3", "--a:b=4")
    assert [flags[name].get() for name in names] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("click_options", "click", "click"), ("typer_options", "typer", "typer"), ("abseil", "absl", "absl")],
)
def test_a_package_that_is_not_there_is_named(module: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import wigwag.dflag.frontends.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"flags as options of {extra} need the package" in done.stderr
    assert f"install wigwag[{extra}]" in done.stderr
