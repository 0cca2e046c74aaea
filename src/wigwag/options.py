"""Options as one frozen dataclass per command; parser, environment names, config keys and help are derived from it.

    command line  >  environment  >  config file  >  default

A wrong value is a `UsageError` that names the option, variable or key.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, TypeVar

from wigwag.errors import UsageError
from wigwag.golang import duration_text, seconds

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

_KEY = "option"
HIGHEST_PORT = 65535
_TRUTHS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declared:
    """An option or argument of a record. Parser, help, completion and documentation are made from it."""

    help: str
    name: str = ""
    default: Any = None
    """Name and default are those of the field: `declared` fills them in."""
    group: str = ""
    """The heading in the help that begins with this option; the options after it belong to it, up to the next."""
    short: str = ""
    metavar: str | None = None
    choices: Sequence[str] | None = None
    nargs: str | None = None
    positional: bool = False
    convert: Callable[[Any], Any] = str

    @property
    def long(self) -> str:
        """Its name on the command line."""
        return f"--{long_name(self.name)}"

    @property
    def switch(self) -> bool:
        """Whether it takes no value."""
        return self.convert is boolean

    @property
    def placeholder(self) -> str:
        """The placeholder of its value in the help; empty for a switch, and where the choices are shown."""
        if self.switch or (self.choices and not self.positional):
            return ""
        return self.metavar or ("K=V" if self.convert is pairs else "TEXT")


def positional(
    metavar: str,
    help: str,
    *,
    nargs: str | None = None,
    default: Any = dataclasses.MISSING,
    choices: Sequence[str] | None = None,
) -> Any:
    """Declare a positional argument."""
    argument = Declared(help=help, metavar=metavar, nargs=nargs, positional=True, choices=choices)
    return dataclasses.field(default=default, metadata={_KEY: argument})


def option(
    default: Any,
    help: str,
    *,
    group: str = "",
    short: str = "",
    metavar: str | None = None,
    choices: Sequence[str] | None = None,
    convert: Callable[[Any], Any] | None = None,
) -> Any:
    """Declare an option; its name is the field's. Without `convert`, the type of the default says how text is read.

    `group` begins a group in the help, for this option and those after it.
    """
    known: dict[type, Callable[[Any], Any]] = {bool: boolean, int: integer, tuple: words, dict: pairs}
    chosen = convert or known.get(type(default), str)
    own = Declared(help=help, group=group, short=short, metavar=metavar, choices=choices, convert=chosen)
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata={_KEY: own})
    return dataclasses.field(default=default, metadata={_KEY: own})


def port_option(default: int | None, help: str, short: str = "", group: str = "") -> Any:
    """Declare an option that is a port."""
    return option(default, help, group=group, short=short, metavar="PORT", convert=port_number)


def declared(record: type) -> Iterator[Declared]:
    """Yield what a record declares, in its order; other fields are left out."""
    group = ""
    for field in dataclasses.fields(record):
        if _KEY not in field.metadata:
            continue
        own: Declared = field.metadata[_KEY]
        group = own.group or group
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        yield dataclasses.replace(own, name=field.name, default=default, group=group)


def add_options(parser: argparse.ArgumentParser, record: type, prefix: str = "") -> None:
    """Add the arguments of a record to a parser; with a prefix, the help names the environment variables, too."""
    groups: dict[str, Any] = {"": parser}
    for each in declared(record):
        if each.positional:
            keywords = {name: getattr(each, name) for name in ("metavar", "help", "nargs", "choices")}
            parser.add_argument(each.name, **{name: value for name, value in keywords.items() if value is not None})
        else:
            if each.group not in groups:
                groups[each.group] = parser.add_argument_group(each.group)
            _add_option(groups[each.group], each, prefix)


def help_of(each: Declared, prefix: str = "") -> str:
    """Return the help of an option: what it does, its default, and its variable in the environment.

    >>> help_of(Declared(help="where", name="port", default=8013), "FLAGD_")
    'where (default 8013, FLAGD_PORT)'
    """
    default = default_text(each)
    remarks = [f"default {default}"] * bool(default) + [f"{prefix}{each.name.upper()}"] * bool(prefix)
    return f"{each.help} ({', '.join(remarks)})" if remarks else each.help


def default_text(each: Declared) -> str:
    """Return the default as it would be written; empty if there is none."""
    default = each.default
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, float) and each.metavar == "DURATION":
        return duration_text(default)
    if default is None or default == "" or isinstance(default, tuple | dict):
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)


def _add_option(parser: Any, each: Declared, prefix: str) -> None:
    names = [name for name in (each.short, each.long) if name]
    keywords: dict[str, Any] = {"dest": each.name, "help": help_of(each, prefix).replace("%", "%%"), "default": None}
    if each.convert is boolean:
        import argparse  # a program with dynamic flags and click needs none

        keywords |= {"action": argparse.BooleanOptionalAction}
    elif each.convert in (words, pairs):
        keywords |= {"action": "append", "metavar": each.placeholder}
    else:
        keywords |= {"metavar": each.metavar, "choices": each.choices}
    parser.add_argument(
        *names, **{name: value for name, value in keywords.items() if value is not None or name == "default"}
    )


def plain_booleans(arguments: Sequence[str], record: type) -> list[str]:
    """Rewrite `--name=false`, which Go programs take for a switch, as `--no-name`."""
    switches = {each.long for each in declared(record) if each.switch}

    def rewritten(argument: str) -> str:
        name, separator, value = argument.partition("=")
        if not separator or name not in switches or value.lower() not in _TRUTHS:
            return argument
        return name if _TRUTHS[value.lower()] else f"--no-{name[2:]}"

    return [rewritten(argument) for argument in arguments]


def double_dashes(arguments: Sequence[str], record: type) -> list[str]:
    """Rewrite `-name`, which the flags of Go take, as `--name`."""
    names = {each.long for each in declared(record)}
    return [f"-{each}" if f"-{each.partition('=')[0]}" in names else each for each in arguments]


def collect(
    record: type[T],
    arguments: argparse.Namespace,
    environment: Mapping[str, str] | None = None,
    prefix: str = "",
    config: Mapping[str, Any] | None = None,
) -> T:
    """Make the record from the command line, the environment, a config file, and the defaults."""
    values: dict[str, Any] = {}
    config = {str(key).lower(): value for key, value in (config or {}).items()}
    for each in declared(record):
        name, variable = long_name(each.name), f"{prefix}{each.name.upper()}"
        given = getattr(arguments, each.name, None)
        if given is not None:
            values[each.name] = given if each.positional else _converted(each, given, each.long)
        elif prefix and environment and environment.get(variable):
            values[each.name] = _converted(each, environment[variable], variable)
        elif name in config:
            values[each.name] = _converted(each, config[name], f"{name} in the config file")
    return record(**values)


def unknown_keys(record: type, config: Mapping[str, Any]) -> list[str]:
    """Return the keys of a config file that name no option."""
    known = {long_name(each.name) for each in declared(record)}
    return [key for key in map(str, config) if key.lower() not in known]


def long_name(field: str) -> str:
    """Return the option's name on the command line and in config files."""
    return field.replace("_", "-")


def _converted(each: Declared, value: Any, where: str) -> Any:
    try:
        converted = each.convert(value)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from error
    if each.choices and converted not in each.choices:
        raise UsageError(f"{where}: {converted!r} is not one of {', '.join(each.choices)}")
    return converted


def as_it_is(value: Any) -> Any:
    """Return the value unread: text from the command line, any value from a config file."""
    return value


def boolean(value: Any) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    if str(value).lower() not in _TRUTHS:
        raise ValueError(f"{value!r} is neither true nor false")
    return _TRUTHS[str(value).lower()]


def integer(value: Any) -> int:
    """Read a whole number."""
    try:
        return int(str(value))
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number") from None


def natural(value: Any) -> int:
    """Read a whole number that is not negative."""
    return _within(value, 0, None, "is negative")


def positive(value: Any) -> int:
    """Read a whole number of at least 1."""
    return _within(value, 1, None, "is not at least 1")


def port_number(value: Any) -> int:
    """Read a port number; 0 lets the system choose."""
    return _within(value, 0, HIGHEST_PORT, "is not a port")


def host_and_port(text: str, option: str) -> tuple[str, int]:
    """Read `HOST:PORT`; the host may be empty, and an IPv6 address is in brackets. Errors name the option.

    >>> host_and_port(":8002", "--x"), host_and_port("[::1]:80", "--x")
    (('', 8002), ('::1', 80))
    """
    host, colon, port = text.rpartition(":")
    try:
        number = port_number(port)
    except ValueError as error:
        raise UsageError(f"{option}: {error}; write HOST:PORT") from None
    if not colon:
        raise UsageError(f"{option}: {text!r} has no port; write HOST:PORT")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise UsageError(f"{option}: {text!r} may mean two things; write [ADDRESS]:PORT")
    return host.strip("[]"), number


def _within(value: Any, lowest: int, highest: int | None, complaint: str) -> int:
    number = integer(value)
    if number < lowest or (highest is not None and number > highest):
        raise ValueError(f"{value!r} {complaint}")
    return number


def file_mode(value: Any) -> int:
    """Read the permissions of a file in octal, as `chmod` does.

    >>> oct(file_mode("0660")), oct(file_mode("0o600")), oct(file_mode(432))
    ('0o660', '0o600', '0o660')
    """
    if isinstance(value, int) and not isinstance(value, bool):
        mode = value  # YAML reads 0660 as an octal number
    else:
        try:
            mode = int(str(value), 8)
        except ValueError:
            raise ValueError(f"{value!r} is not a file mode such as 0660") from None
    if not 0 <= mode <= 0o777:
        raise ValueError(f"{value!r} is not a file mode from 0000 to 0777")
    return mode


def duration(value: Any) -> float:
    """Read a duration as Go writes it, in seconds."""
    return seconds(str(value))


def duration_or_seconds(value: Any) -> float:
    """Read a time: a number of seconds, or a duration as Go writes it.

    >>> duration_or_seconds("5"), duration_or_seconds("1m30s")
    (5.0, 90.0)
    """
    try:
        number = float(value)
    except ValueError:
        number = duration(value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{value!r} is not a number of seconds")
    return number


def words(value: Any) -> tuple[str, ...]:
    """Read a list: repeated, separated by commas, by white space in the environment, or a list in a config file."""
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(part for item in value for part in str(item).split(",") if part)


def pairs(value: Any) -> dict[str, str]:
    """Read a map: `k=v` repeated or separated by commas, or a JSON object."""
    if isinstance(value, dict):
        return {str(key): _plain(str(key), item) for key, item in value.items()}
    if isinstance(value, str):
        if not value.lstrip().startswith("{"):
            return pairs([value])
        return pairs(json.loads(value))
    mapping = {}
    for part in (part for item in value for part in str(item).split(",") if part):
        key, separator, item = part.partition("=")
        if not separator:
            raise ValueError(f"{part!r} is not of the form key=value")
        mapping[key] = item
    return mapping


def _plain(key: str, item: Any) -> str:
    """Write a value as text, the way it would stand in a config file."""
    if item is None:
        return ""
    if isinstance(item, list | dict):
        raise UsageError(f"the value of {key!r} must be plain, not a list or a map")
    return (
        item
        if isinstance(item, str)
        else json.dumps(int(item) if isinstance(item, float) and item.is_integer() else item)
    )
