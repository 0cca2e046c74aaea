"""Flags as options of a click command.

    @click.command()
    @with_flags(flags, service="options")
    def main(options: dflag.ServiceOptions) -> None:
        with dflag.service(flags, options): ...

The values go into the flags, and into no parameter of the function: that would keep the value of the start for ever.
Every option reports when click is done with it, given or not, in an order of click's own; the last of them puts all in
place. click knows where a value comes from: the command line, a variable, or its map of defaults, a file in our terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from wigwag.dflag.frontends.clicklike import declared, slot, variables
from wigwag.dflag.frontends.given import CheckedValue, judged, needs, put, told
from wigwag.dflag.frontends.spelling import help_text, identifier, is_switch, other, placeholder, spelled
from wigwag.dflag.startup.levels import loglevel
from wigwag.dflag.startup.options import OPTIONS, given
from wigwag.dflag.values.numerals import format_bool
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
"""What an option is called, and all else about it."""
F = TypeVar("F", bound="Callable[..., Any] | click.Command")


class FlagType(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic since click 8.4
    """What a flag accepts, as click asks for it: the text is returned if the flag takes it."""

    def __init__(self, flag: DynFlag[Any]) -> None:
        self.flag, self.name = flag, flag.kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text for a value; one that is no text is from a map of defaults."""
        text = value if isinstance(value, str) else _written(self.flag, value)
        try:
            judged(self.flag, text)
        except FlagError as error:
            self.fail(told(self.flag, text, error), param, ctx)
        return text


def _written(flag: DynFlag[Any], value: Any) -> str:
    try:
        return flag.kind.format(flag.kind.take(value))
    except (TypeError, ValueError):
        return str(value)


def params(flags: FlagSet, prefix: str | None = None, service: str | None = None) -> list[click.Parameter]:
    """Return an option for each flag, for `click.Command(params=…)`; with a prefix, variables are read, too.

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
    return [*_options(flags, prefix), *_asking(service)]


def _asking(service: str) -> Iterator[Declared]:
    """Return the options that ask for a service."""
    shapes: dict[Any, dict[str, Any]] = {
        words: {"multiple": True},
        port_number: {"type": click.IntRange(0, HIGHEST_PORT)},
        boolean: {"is_flag": True},
    }
    asking = _Asking(service)
    for option in OPTIONS:
        common = {"help": option.setting.help, "expose_value": False, "callback": asking, "default": None}
        metavar = {} if option.switch else {"metavar": option.setting.metavar}
        shape = shapes.get(option.setting.convert, {})
        yield [option.name, option.long, other(option.long)], common | metavar | shape


class _Asking:
    """What click calls for each option that asks for a service; the last of them makes the parameter."""

    def __init__(self, service: str) -> None:
        self._service, self._key = service, f"{__name__}.{id(self)}"

    def __call__(self, ctx: click.Context, param: click.Parameter, value: Any) -> None:
        values: dict[str, Any] = ctx.meta.setdefault(self._key, {})
        values[param.name or ""] = value
        if len(values) == len(OPTIONS):
            ctx.params[self._service] = given(ctx.meta.pop(self._key))


def _options(flags: FlagSet, prefix: str | None) -> Iterator[Declared]:
    options = spelled(flags)
    names: dict[str, DynFlag[Any]] = {}
    for option in options:
        names[identifier(option.flag.name, names)] = option.flag
    taking = _Taking(names, prefix)
    for (name, flag), declarations in zip(names.items(), declared(options), strict=True):
        yield [name, *declarations], _attributes(flag, prefix) | {"callback": taking}


def _attributes(flag: DynFlag[Any], prefix: str | None) -> dict[str, Any]:
    shape = {"type": FlagType(flag), "metavar": placeholder(flag)}
    if is_switch(flag):
        shape = {"type": bool, "is_flag": True}
    common = {"default": None, "expose_value": False, "help": help_text(flag), "envvar": variables(flag, prefix)}
    return common | shape


class _Taking:
    """What click calls for each option; it is one object for all of them."""

    def __init__(self, flags: dict[str, DynFlag[Any]], prefix: str | None) -> None:
        self._flags, self._prefix, self._key = flags, prefix, f"{__name__}.{id(self)}"

    def __call__(self, ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if ctx.resilient_parsing:  # a shell wants to know how a word may end
            return
        name = param.name or ""
        given: dict[str, CheckedValue | None] = ctx.meta.setdefault(self._key, {})
        given[name] = None if value is None else self._given(ctx, param, self._flags[name], value)
        if len(given) == len(self._flags):
            del ctx.meta[self._key]
            try:
                put(filter(None, given.values()))
            except FlagError as error:  # of a check over several flags
                raise click.UsageError(str(error), ctx) from None

    def _given(self, ctx: click.Context, param: click.Parameter, flag: DynFlag[Any], value: Any) -> CheckedValue | None:
        found = slot(ctx, param.name or "", variables(flag, self._prefix))
        if found is None:
            return None
        text = format_bool(value) if isinstance(value, bool) else value
        try:
            return CheckedValue(flag, judged(flag, text), found)
        except FlagError as error:
            raise click.BadParameter(told(flag, text, error), ctx, param) from None
