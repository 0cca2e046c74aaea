"""Completion scripts: asked as a shell asks them, where there is that shell; else by their shape."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from wigwag.cli.commands.completion import bash, commands, fish, spellings, zsh
from wigwag.cli.main import COMMANDS

COMPLETE = """
source {script}
COMP_WORDS=({words})
COMP_CWORD={position}
_wigwag 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completions(tmp_path: Path, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    script = tmp_path / "completion.bash"
    script.write_text(bash(commands()))
    quoted = " ".join(f"'{word}'" for word in words)
    program = COMPLETE.format(script=script, words=quoted, position=len(words) - 1)
    done = subprocess.run(
        ["bash", "--norc", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def test_bash_completes_commands(tmp_path: Path) -> None:
    assert completions(tmp_path, "wigwag", "") == [*COMMANDS, "--help", "--version"]
    assert completions(tmp_path, "wigwag", "che") == ["check-config"]


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_completes_every_option_of_every_command(tmp_path: Path, command: str) -> None:
    (known,) = (each for each in commands() if each.name == command)
    expected = {"--help", *(name for option in known.options for name in spellings(option))}
    assert set(completions(tmp_path, "wigwag", command, "-")) == expected


def test_bash_completes_a_part_of_an_option(tmp_path: Path) -> None:
    assert completions(tmp_path, "wigwag", "start", "--log") == ["--log-format"]
    assert completions(tmp_path, "wigwag", "start", "--no-str") == ["--no-strict"]


@pytest.mark.parametrize("words", [("--log-format", ""), ("-z", ""), ("--log-format", "="), ("--log-format", "=", "")])
def test_bash_completes_the_values_of_an_option(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert completions(tmp_path, "wigwag", "start", *words) == ["console", "json"]


def test_bash_completes_files_where_files_are_meant_and_nothing_where_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "my flags.yaml").touch()
    assert completions(tmp_path, "wigwag", "lint", "my") == ["my flags.yaml"]
    assert completions(tmp_path, "wigwag", "start", "--config", "my") == ["my flags.yaml"]
    assert completions(tmp_path, "wigwag", "start", "--port", "") == []


@pytest.mark.parametrize(
    ("command", "expected"), [("proxy", ["start"]), ("completion", ["bash", "zsh", "fish"]), ("help", list(COMMANDS))]
)
def test_bash_completes_arguments_of_which_all_are_known(tmp_path: Path, command: str, expected: list[str]) -> None:
    assert completions(tmp_path, "wigwag", command, "") == expected


@pytest.mark.parametrize("shell", [shell for shell in ("bash", "zsh", "fish") if shutil.which(shell)])
def test_a_shell_that_is_here_takes_its_script(tmp_path: Path, shell: str) -> None:
    """Of a shell that is not here, the tests below look at every line of its script."""
    script = tmp_path / "script"
    script.write_text({"bash": bash, "zsh": zsh, "fish": fish}[shell](commands()))
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def fish_words(line: str) -> list[str]:
    """Take a line of fish apart: in single quotes, only a quote and a backslash can be escaped."""
    token = re.compile(r"\s*(?:'((?:[^'\\]|\\['\\])*)'|([^\s']+))(?=\s|$)")
    found, position = [], 0
    while position < len(line.rstrip()):
        match = token.match(line, position)
        assert match, f"unbalanced: {line}"
        quoted, plain = match.groups()
        found.append(re.sub(r"\\(['\\])", r"\1", quoted) if quoted is not None else plain)
        position = match.end()
    return found


def test_the_script_for_fish_has_every_option_with_its_help_and_values() -> None:
    lines = [fish_words(line) for line in fish(commands()).splitlines() if line.startswith("complete")]
    rest = {tuple(line[5:]) for line in lines if line[3:4] == ["-n"] and line[4].endswith(" start")}
    assert ("-s", "p", "-l", "port", "-x", "-d", "evaluation: gRPC, gRPC-Web and Connect") in rest
    assert ("-s", "z", "-l", "log-format", "-x", "-a", "console json", "-d", "the format of the log") in rest
    offered = {line[line.index("-l") + 1] for line in rest}
    (start,) = (each for each in commands() if each.name == "start")
    assert offered == {name[2:] for each in start.options for name in spellings(each) if name.startswith("--")}
    assert [line[6] for line in lines if line[4:5] == ["__fish_use_subcommand"]] == list(COMMANDS)


def test_the_script_for_zsh_has_every_option_with_its_help_and_values() -> None:
    text = zsh(commands())
    assert text.startswith("#compdef wigwag\n")
    assert (text.count("{"), text.count("case "), text.count("if ((")) == (text.count("}"), text.count("esac"), 1)
    for line in text.splitlines():
        assert line.replace("'\\''", "").count("'") % 2 == 0, line
    for command in commands():
        section = text.partition(f"\n    {command.name})\n")[2].partition("      ;;\n")[0]
        assert all(re.search(rf"'\*{name}=?\[", section) for option in command.options for name in spellings(option))
    assert "'*--log-format=[the format of the log]:log format:(console json)'" in text
    assert "'*--server-cert-path=[" in text
    assert "]:server cert path:_files'" in text
