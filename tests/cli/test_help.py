"""The help: made of the records of options, so that none is missing, and readable."""

from __future__ import annotations

import re
from typing import Any

import pytest

from wigwag.cli.main import COMMANDS, main, module_of
from wigwag.options import Declared, declared, default_text, help_of


def shown(capsys: Any, *arguments: str) -> str:
    assert main(arguments) == 0
    return str(capsys.readouterr().out)


def options(command: str) -> list[Declared]:
    return [each for each in declared(module_of(command).Options) if not each.positional]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_tells_the_default_and_the_variable_of_every_option(capsys: Any, command: str) -> None:
    text = " ".join(shown(capsys, "help", command).split()).replace("- ", "-")
    prefix = getattr(module_of(command), "ENVIRONMENT", "")
    for each in options(command):
        assert f"{help_of(each, prefix)} ".replace("- ", "-").strip() in text, each.name


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("port", "default 8013, FLAGD_PORT"),
        ("otel_reload_interval", "default 1h, FLAGD_OTEL_RELOAD_INTERVAL"),
        ("ofrep_sse_enabled", "default on, FLAGD_OFREP_SSE_ENABLED"),
        ("strict", "default off, FLAGD_STRICT"),
        ("uri", "FLAGD_URI"),
    ],
)
def test_defaults_are_written_as_people_write_them(name: str, told: str) -> None:
    (each,) = (each for each in options("start") if each.name == name)
    assert help_of(each, "FLAGD_").endswith(f"({told})")


def test_a_command_without_variables_names_none() -> None:
    (port,) = (each for each in options("proxy") if each.name == "port")
    assert help_of(port).endswith("(default 8015)")


@pytest.mark.parametrize("command", ["start", "proxy", "check-config"])
def test_the_options_of_a_server_are_in_groups(capsys: Any, command: str) -> None:
    assert all(each.group for each in options(command))
    groups = list(dict.fromkeys(each.group for each in options(command)))
    headings = re.findall(r"^(\S.*):$", shown(capsys, command, "--help"), re.MULTILINE)
    assert [heading for heading in headings if heading in groups] == groups
    assert len(groups) >= 5
    assert max(sum(each.group == group for each in options(command)) for group in groups) <= 12


def test_the_first_line_of_the_help_is_one_line(capsys: Any) -> None:
    for command in COMMANDS:
        first, second, *_ = shown(capsys, command, "--help").splitlines()
        assert first.startswith(f"usage: wigwag {command}")
        assert second == ""


def test_help_is_a_command(capsys: Any) -> None:
    assert shown(capsys, "help", "start") == shown(capsys, "start", "--help")
    assert shown(capsys, "help") == shown(capsys, "--help")
    assert main(["help", "strat"]) == 2


def test_no_default_is_shown_where_there_is_none() -> None:
    assert [each.name for each in options("start") if each.default in ("", (), {}) and default_text(each)] == []
