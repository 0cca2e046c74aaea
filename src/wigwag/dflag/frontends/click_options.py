"""Flags as options of a click command.

    @click.command()
    @with_flags(flags, service="options")
    def main(options: dflag.ServiceOptions) -> None:
        with dflag.service(flags, options): ...

The values go into the flags, not into parameters of the function, which would keep the values of the start for ever.
click calls back for every option, given or not, in an order of its own; the last callback sets all flags. click knows
where a value comes from: the command line, a variable, or its map of defaults, which counts as a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from wigwag.dflag.flag import Put
from wigwag.dflag.frontends.options import (
    commit,
    declared,
    help_text,
    is_switch,
    needs,
    other,
    parsed,
    placeholder,
    slot,
    variables,
)
from wigwag.dflag.startup.levels import loglevel
from wigwag.dflag.startup.options import OPTIONS, given
from wigwag.errors import FlagError
from wigwag.options import HIGHEST_PORT, boolean, port_number, words

try:
    import click
except ModuleNotFoundError as error:
    raise needs("click", "click") from error

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet

Declared: TypeAlias = tuple[list[str], dict[str, Any]]
"""The declarations of an option, and its attributes."""
Values: TypeAlias = "dict[click.Parameter, Any]"
F = TypeVar("F", bound="Callable[..., Any] | click.Command")


class FlagType(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic since click 8.4
    """The type of an option: it returns the text if the flag accepts it."""

    def __init__(self, flag: DynFlag[Any]) -> None:
        self.flag, self.name = flag, flag.kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text of a value; one that is not a text is from a map of defaults."""
        text = value if isinstance(value, str) else _written(self.flag, value)
        try:
            parsed(self.flag, text)
        except FlagError as error:
            self.fail(error.reason, param, ctx)
        return text


def _written(flag: DynFlag[Any], value: Any) -> str:
    try:
        return flag.kind.format(flag.kind.take(value))
    except (TypeError, ValueError):
        return str(value)


def params(flags: FlagSet, prefix: str | None = None, service: str | None = None) -> list[click.Parameter]:
    """Return an option for each flag, for `click.Command(params=…)`; with a prefix, also from variables.

    With `service`, there are `--loglevel` and `--config-…`, and the parameter of that name is a `ServiceOptions`.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> size = flags.int("pool_size", 4)
    >>> main = click.Command("main", params=params(flags, "APP_"), callback=lambda: print(size.get()))
    >>> main(["--pool-size", "8"], standalone_mode=False)
    8
    """
    return [click.Option(names, **attributes) for names, attributes in _all(flags, prefix, service)]


def with_flags(flags: FlagSet, prefix: str | None = None, service: str | None = None) -> Callable[[F], F]:
    """Add an option for each flag to a command, or to the function that is to become one; see `params`."""

    def decorate(command: F) -> F:
        for names, attributes in reversed(_all(flags, prefix, service)):
            command = click.option(*names, **attributes)(command)
        return command

    return decorate


def _all(flags: FlagSet, prefix: str | None, service: str | None) -> list[Declared]:
    if service is None:
        return [*_options(flags, prefix)]
    loglevel(flags)
    return [*_options(flags, prefix), *_service_options(service)]


def _service_options(service: str) -> Iterator[Declared]:
    """Return the options of `dflag.service`."""
    shapes: dict[Any, dict[str, Any]] = {
        words: {"multiple": True},
        port_number: {"type": click.IntRange(0, HIGHEST_PORT)},
        boolean: {"is_flag": True},
    }

    def finish(ctx: click.Context, values: Values) -> None:
        ctx.params[service] = given({param.name or "": value for param, value in values.items()})

    callback = _collecting(len(OPTIONS), finish)
    for option in OPTIONS:
        common = {"help": option.help, "expose_value": False, "callback": callback, "default": None}
        metavar = {} if option.switch else {"metavar": option.metavar}
        shape = shapes.get(option.convert, {})
        yield [option.name, option.long, other(option.long)], common | metavar | shape


def _options(flags: FlagSet, prefix: str | None) -> Iterator[Declared]:
    """Return the options of the flags."""
    options = declared(flags)

    def finish(ctx: click.Context, values: Values) -> None:
        given = [_put(ctx, param, options[param.name or ""][0], prefix, value) for param, value in values.items()]
        try:
            commit(filter(None, given))
        except FlagError as error:  # of a check over several flags
            raise click.UsageError(str(error), ctx) from None

    callback = _collecting(len(options), finish)
    for name, (flag, declarations) in options.items():
        yield [name, *declarations], _attributes(flag, prefix) | {"callback": callback}


def _collecting(count: int, finish: Callable[[click.Context, Values], None]) -> Callable[..., None]:
    """Return the callback of so many options; the last call finishes with the values of all."""
    key = f"{__name__}.{id(finish)}"

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        values: Values = ctx.meta.setdefault(key, {})
        values[param] = value
        if len(values) == count:
            del ctx.meta[key]
            if not ctx.resilient_parsing:  # for the completion of a shell
                finish(ctx, values)

    return callback


def _attributes(flag: DynFlag[Any], prefix: str | None) -> dict[str, Any]:
    shape = {"type": FlagType(flag), "metavar": placeholder(flag)}
    if is_switch(flag):
        shape = {"type": bool, "is_flag": True}
    common = {"default": None, "expose_value": False, "help": help_text(flag), "envvar": variables(flag, prefix)}
    return common | shape


def _put(ctx: click.Context, param: click.Parameter, flag: DynFlag[Any], prefix: str | None, value: Any) -> Put | None:
    origin = None if value is None else slot(ctx, param.name or "", variables(flag, prefix))
    try:
        return None if origin is None else Put(flag, origin, parsed(flag, value))
    except FlagError as error:
        raise click.BadParameter(error.reason, ctx, param) from None
