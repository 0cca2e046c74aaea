"""Flags as options of typer, with its own runner."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.dflag.frontends.typer_options import with_flags
from wigwag.errors import UsageError

PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}


def shop() -> dflag.FlagSet:
    flags = dflag.FlagSet("shop")
    flags.int("pool_size", 4, "threads", aliases=["p"], validators=[dflag.in_range(1, 100)])
    flags.bool("dry_run", True, aliases=["n"])
    flags.duration("db.timeout", "1m30s", dynamic=False)
    flags.str("password", "hunter2", secret=True, validators=[dflag.length(3)])
    flags.str("context", "", validators=[dflag.matches("^[a-z]*$")])
    return flags


def command(flags: dflag.FlagSet, prefix: str | None = None) -> Callable[..., Any]:
    """Return what runs a command with parameters of its own."""
    app = typer.Typer()

    @app.command()
    @with_flags(flags, prefix)
    def main(file: str, loud: Annotated[bool, typer.Option("--loud")] = False) -> None:
        """Tell what was given."""
        typer.echo(f"ran {file} {loud}")

    def invoke(*line: str, env: dict[str, str] | None = None) -> Any:
        return CliRunner().invoke(app, ["x", *line], env=PLAIN | (env or {}))

    return invoke


@pytest.mark.parametrize("line", ["--pool-size 8", "--pool_size=8", "-p 8", "--pool-size 3 -p8"])
def test_an_option_sets_its_flag(line: str) -> None:
    flags = shop()
    assert command(flags)(*line.split(), "--loud").output == "ran x True\n"
    assert (flags["pool_size"].get(), flags["pool_size"].held.origin, flags.generation) == (8, Origin.COMMAND_LINE, 1)


@pytest.mark.parametrize(("line", "value"), [("--dry-run", True), ("--no-dry-run", False), ("--no-dry_run", False)])
def test_a_truth_needs_no_value(line: str, value: bool) -> None:
    flags = shop()
    flags.set_default("false" if value else "true", "dry_run")
    assert command(flags)(line).output == "ran x False\n"
    assert (flags["dry_run"].get(), flags["dry_run"].held.origin) == (value, Origin.COMMAND_LINE)


def test_a_line_is_one_generation_and_nothing_on_it_is_none() -> None:
    flags = shop()
    assert command(flags)().exit_code == 0
    assert (flags.generation, flags["dry_run"].get()) == (0, True)
    command(flags)("--db.timeout", "5s", "--no-dry-run", "-p", "2", "--context", "abc")
    assert (flags.generation, flags["dry_run"].get(), flags["context"].get()) == (1, False, "abc")


def test_variables_are_of_the_environment() -> None:
    flags = shop()
    result = command(flags, "SHOP_")("--password=open", env={"SHOP_P": "9", "SHOP_DRY_RUN": "false"})
    assert (result.exit_code, flags["pool_size"].get(), flags["dry_run"].get()) == (0, 9, False)
    told = {name: str(flags[name].held) for name in ("p", "dry_run", "password", "context")}
    assert told == {
        "p": "environment SHOP_P",
        "dry_run": "environment SHOP_DRY_RUN",
        "password": "command line",
        "context": "default",
    }


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--pool-size 800", "must be from 1 to 100, got 800"),
        ("--pool-size x", "'x' is not a whole number"),
        ("--password ab", "not a str that is accepted (secret, so not shown)"),
        ("--unknown", "No such option"),
    ],
)
def test_a_mistake_is_told_by_typer_and_changes_nothing(line: str, told: str) -> None:
    flags = shop()
    result = command(flags)("--no-dry-run", *line.split())
    text = " ".join(re.sub("[│╭╮╰╯─]", " ", result.output).split())
    assert (result.exit_code, flags.generation) == (2, 0)
    assert told in text
    assert line.split(maxsplit=1)[0] in text


def test_a_truth_may_be_refused() -> None:
    flags = dflag.FlagSet("test")
    flags.bool("flag", False, validators=[lambda value: value is False])
    result = command(flags)("--flag")
    assert (result.exit_code, flags["flag"].get()) == (2, False)
    assert "refused by <lambda>" in result.output


def test_the_help_has_defaults_and_rules_and_no_secrets() -> None:
    told = " ".join(re.sub("[│╭╮╰╯─]", " ", command(shop())("--help").output).split())
    assert "Flags of shop" in told
    assert "threads (int, from 1 to 100; default 4)" in told
    assert "(str, matched by ^[a-z]*$; default (empty))" in told
    assert "hunter2" not in told
    assert "Tell what was given." in told


def test_a_function_may_have_the_context_and_a_callback_may_have_flags() -> None:
    flags, app = shop(), typer.Typer()

    @app.callback()
    @with_flags(flags)
    def main(ctx: typer.Context) -> None:
        ctx.obj = flags["p"].get()

    @app.command()
    def run(ctx: typer.Context) -> None:
        typer.echo(f"{ctx.obj} {flags['p'].get()}")

    assert CliRunner().invoke(app, ["-p", "3", "run"], env=PLAIN).output == "3 3\n"


def test_a_function_can_run_without_an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = shop()

    def main() -> None:
        raise typer.Exit(flags["p"].get())

    monkeypatch.setattr("sys.argv", ["shop", "-p", "42"])
    with pytest.raises(SystemExit) as caught:
        typer.run(with_flags(flags)(main))
    assert caught.value.code == 42


def service(flags: dflag.FlagSet) -> Callable[..., Any]:
    """Return what runs a command that is a service."""
    app = typer.Typer()

    @app.command()
    @with_flags(flags, service="options")
    def main(file: str, options: dflag.ServiceOptions, loud: bool = False) -> None:
        with dflag.service(flags, options) as running:
            port = running.page is not None and running.page.port > 0
            typer.echo(
                f"{file} {loud} {flags['pool_size'].get()} {flags['loglevel'].get()} {port} {options.config_dir}"
            )

    return lambda *line: CliRunner().invoke(app, ["x", *line], env=PLAIN)


def test_a_service_has_its_options(tmp_path: Path, root_level: None) -> None:
    (tmp_path / "app.yaml").write_text("pool_size: 9\n")
    line = [f"--config-dir={tmp_path}", "--config_documents", "*.yaml", "--config-port=0", "--loglevel=error", "--loud"]
    result = service(shop())(*line)
    assert (result.exit_code, result.output) == (0, f"x True 9 error True {[str(tmp_path)]}\n")
    assert service(shop())("--loglevel=error").output == "x False 4 error False ()\n"


def test_a_service_that_cannot_start_ends_with_one_line(tmp_path: Path, root_level: None) -> None:
    result = service(shop())("--config-strict", "--config-dir", str(tmp_path / "none"))
    told = f"error: 1 error in the flags: {tmp_path / 'none'}: No such file or directory"
    assert (result.exit_code, result.output.strip()) == (1, told)
    assert service(shop())("--config-port=70000").exit_code == 2
    assert "--config-token-file" in service(shop())("--help").output


def test_a_service_needs_a_parameter_for_its_options(root_level: None) -> None:
    with pytest.raises(UsageError, match="the function has no parameter 'options'"):

        @with_flags(shop(), service="options")
        def main(file: str) -> None:
            """Have no such parameter."""
