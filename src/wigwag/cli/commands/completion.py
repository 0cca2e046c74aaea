"""`wigwag completion`: a script that teaches a shell the commands and options of wigwag.

    option records ─▶ `Command`s ─▶ bash, zsh or fish

The script is static: pressing Tab starts no Python. It is made of the records that the parser and the help are made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from wigwag.cli.main import COMMANDS, module_of
from wigwag.options import declared, positional

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wigwag.options import Declared

HELP = "print a completion script for bash, zsh or fish"
DESCRIPTION = """\
Print a script that completes commands, options and their values in a shell.

  source <(wigwag completion bash)                                     in ~/.bashrc
  wigwag completion zsh > "${fpath[1]}/_wigwag"                        once; then start a new zsh
  wigwag completion fish > ~/.config/fish/completions/wigwag.fish      once
"""
_FILES = ("FILE", "PATH", "DIR", "SOURCE", "A", "B")
"""What stands for a path in the help."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag completion`."""

    shell: str = positional("SHELL", "the shell: bash, zsh or fish", choices=("bash", "zsh", "fish"))


@dataclass(frozen=True, slots=True)
class Command:
    """A command, as a shell has to know it."""

    name: str
    help: str
    options: Sequence[Declared]
    arguments: Sequence[Declared]

    @property
    def words(self) -> list[str]:
        """Everything that begins with a dash."""
        return ["--help", *chain.from_iterable(map(spellings, self.options))]

    @property
    def choices(self) -> tuple[str, ...]:
        """What the arguments may be, if that is known."""
        return tuple(chain.from_iterable(each.choices or () for each in self.arguments))

    @property
    def files(self) -> bool:
        """Whether an argument may be a file."""
        return any(is_file(each) for each in self.arguments)


def run(options: Options) -> int:
    """Print the script."""
    scripts = {"bash": bash, "zsh": zsh, "fish": fish}
    print(scripts[options.shell](commands()), end="")
    return 0


def commands() -> list[Command]:
    """Return all commands."""
    every = []
    for name in COMMANDS:
        module = module_of(name)
        parameters = list(declared(module.Options))
        options, arguments = (
            [each for each in parameters if each.positional is argument] for argument in (False, True)
        )
        every.append(Command(name, module.HELP, options, arguments))
    return every


def spellings(option: Declared) -> Iterator[str]:
    """Yield all names of an option."""
    if option.short:
        yield option.short
    yield option.long
    if option.switch:
        yield f"--no-{option.long[2:]}"


def is_file(each: Declared) -> bool:
    """Tell whether a value is a path."""
    return each.placeholder in _FILES


def bash(every: Sequence[Command]) -> str:
    """Return the script for bash 3.2 and later."""
    cases = "".join(f"    {each.name}) words='{' '.join(each.words)}' ;;\n" for each in every)
    return _BASH.format(
        commands=" ".join(each.name for each in every),
        values="".join(chain.from_iterable(map(_bash_values, every))),
        words=cases,
        arguments="".join(map(_bash_arguments, every)),
    )


_BASH = """\
# bash completion of wigwag; load it with: source <(wigwag completion bash)
_wigwag_words() {{
  local IFS=$' \\t\\n'
  COMPREPLY=($(compgen -W "$1" -- "$2"))
}}
_wigwag_files() {{
  local IFS=$'\\n'
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$1"))
}}
_wigwag() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" words=''
  COMPREPLY=()
  # bash takes --name=value apart at the equals sign
  if [[ $cur == '=' ]]; then cur=''
  elif [[ $prev == '=' ]]; then prev="${{COMP_WORDS[COMP_CWORD-2]}}"
  fi
  if (( COMP_CWORD == 1 )); then
    _wigwag_words '{commands} --help --version' "$cur"
    return
  fi
  case "${{COMP_WORDS[1]}} $prev" in
{values}  esac
  case "${{COMP_WORDS[1]}}" in
{words}  esac
  if [[ $cur == -* ]]; then
    _wigwag_words "$words" "$cur"
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{arguments}  esac
}}
complete -F _wigwag wigwag
"""


def _bash_values(command: Command) -> Iterator[str]:
    """Yield what follows an option that takes a value: its choices, a file, or nothing that is known."""
    for option in command.options:
        if not option.switch:
            pattern = "|".join(f"'{command.name} {name}'" for name in spellings(option))
            yield f"    {pattern}) {_bash_value(option.choices, files=is_file(option))}return ;;\n"


def _bash_arguments(command: Command) -> str:
    action = _bash_value(command.choices, files=command.files)
    return f"    {command.name}) {action};;\n" if action else ""


def _bash_value(choices: Sequence[str] | None, *, files: bool) -> str:
    if choices:
        return f"_wigwag_words '{' '.join(choices)}' \"$cur\"; "
    return '_wigwag_files "$cur"; ' if files else ""


def zsh(every: Sequence[Command]) -> str:
    """Return the script for zsh."""
    lines = ["#compdef wigwag", "_wigwag() {", "  local -a commands=("]
    lines += [f"    {_quoted(f'{each.name}:{each.help}')}" for each in every]
    lines += [
        "  )",
        "  if (( CURRENT == 2 )); then",
        "    _describe -t commands command commands",
        "    return",
        "  fi",
    ]
    lines += ["  local name=$words[2]", "  shift words", "  (( CURRENT-- ))", "  case $name in"]
    for each in every:
        lines.append(f"    {each.name})")
        lines.append(" \\\n        ".join(["      _arguments '--help[show the help]'", *_zsh_arguments(each)]))
        lines.append("      ;;")
    lines += ["  esac", "}", "if [[ $funcstack[1] == _wigwag ]]; then _wigwag; else compdef _wigwag wigwag; fi"]
    return "\n".join(lines) + "\n"


def _zsh_arguments(command: Command) -> Iterator[str]:
    for option in command.options:
        text = "".join(f"\\{letter}" if letter in r"[]:\\" else letter for letter in option.help)
        for name in spellings(option):
            equals = "=" if name.startswith("--") and not option.switch else ""
            yield _quoted(f"*{name}{equals}[{text}]{'' if option.switch else _zsh_value(option)}")
    for argument in command.arguments:
        many = "*" if argument.nargs == "+" else ""
        yield _quoted(f"{many}{_zsh_value(argument)}")


def _zsh_value(each: Declared) -> str:
    action = f"({' '.join(each.choices)})" if each.choices else "_files" if is_file(each) else " "
    return f":{each.name.replace('_', ' ')}:{action}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish(every: Sequence[Command]) -> str:
    """Return the script for fish."""
    lines = ["# fish completion of wigwag", "complete -c wigwag -f"]
    first = "complete -c wigwag -n __fish_use_subcommand -a"
    lines += [f"{first} {each.name} -d {_fish_quoted(each.help)}" for each in every]
    for each in every:
        lines += [f"complete -c wigwag -n '__fish_seen_subcommand_from {each.name}' {rest}" for rest in _fish(each)]
    return "\n".join(lines) + "\n"


def _fish(command: Command) -> Iterator[str]:
    for option in command.options:
        names = f"-s {option.short[1:]} -l {option.long[2:]}" if option.short else f"-l {option.long[2:]}"
        yield f"{names} {'' if option.switch else _fish_value(option)}-d {_fish_quoted(option.help)}"
        if option.switch:
            yield f"-l no-{option.long[2:]}"
    if command.choices:
        yield f"-a {_fish_quoted(' '.join(command.choices))}"
    elif command.files:
        yield "-F"


def _fish_value(option: Declared) -> str:
    if option.choices:
        return f"-x -a {_fish_quoted(' '.join(option.choices))} "
    return "-r -F " if is_file(option) else "-x "


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
