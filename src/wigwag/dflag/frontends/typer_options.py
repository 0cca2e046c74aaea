"""Flags as options of a typer command.

    @app.command()
    @with_flags(flags, service="options")
    def main(name: str, options: dflag.ServiceOptions) -> None:
        with dflag.service(flags, options): ...

typer makes options of the parameters of a function. So the signature that typer sees has one more for each flag; the
function itself does not get them, because a parameter would keep the value of the start for ever. Before it is called,
the values are set, under one generation. Nothing here needs click, which newer versions of typer do without.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from wigwag.dflag.frontends.given import CheckedValue, needs, parsed, put, slot
from wigwag.dflag.frontends.spelling import (
    declared,
    help_text,
    identifier,
    is_switch,
    other,
    placeholder,
    spelled,
    variables,
)
from wigwag.dflag.startup.levels import loglevel
from wigwag.dflag.startup.options import OPTIONS, given
from wigwag.errors import FlagError, UsageError
from wigwag.options import HIGHEST_PORT, boolean, port_number, words

try:
    import typer
except ModuleNotFoundError as error:
    raise needs("typer", "typer") from error

if TYPE_CHECKING:
    from wigwag.dflag.flag import DynFlag
    from wigwag.dflag.flagset import FlagSet
    from wigwag.options import Declared

R = TypeVar("R")


def with_flags(
    flags: FlagSet, prefix: str | None = None, service: str | None = None
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Add an option for each flag to a typer command; with a prefix, also from variables.

    With `service`, there are `--loglevel` and `--config-…`, and the parameter of that name is a `ServiceOptions`.

    >>> from typer.testing import CliRunner
    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> size = flags.int("pool_size", 4)
    >>> app = typer.Typer()
    >>> @app.command()
    ... @with_flags(flags)
    ... def main(name: str) -> None:
    ...     print(name, size.get())
    >>> CliRunner().invoke(app, ["x", "--pool-size", "8"]).output
    'x 8\\n'
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        signature = _without(inspect.signature(function, eval_str=True), service)
        context = next((each.name for each in signature.parameters.values() if _is_context(each)), None)
        ours = context or identifier("context", signature.parameters)
        extra = [] if service is None else _service_parameters()
        taken = [*signature.parameters, ours, *(each.name for each in extra)]
        options = _options(flags, taken)

        @wraps(function)
        def command(**arguments: Any) -> R:
            values = {name: arguments.pop(name) for name in options}
            if service is not None:
                arguments[service] = given({each.name: arguments.pop(each.name) for each in extra})
            used = arguments[ours] if context else arguments.pop(ours)
            try:
                put(_given(used, options, values, prefix))
            except FlagError as error:
                raise typer.BadParameter(str(error)) from None
            return function(**arguments)

        shown = [_parameter(name, *option, prefix, _panel(flags)) for name, option in options.items()]
        command.__signature__ = _extended(signature, None if context else ours, [*shown, *extra])  # type: ignore[attr-defined]
        return command

    if service is not None:
        loglevel(flags)

    return decorate


def _without(signature: inspect.Signature, name: str | None) -> inspect.Signature:
    """Return a signature without a parameter, which typer could not fill."""
    if name is not None and name not in signature.parameters:
        raise UsageError(f"the function has no parameter {name!r} to hand the options of the service to")
    return signature.replace(parameters=[each for each in signature.parameters.values() if each.name != name])


def _service_parameters() -> list[inspect.Parameter]:
    """Return the parameters for the options of `dflag.service`."""
    return [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if option.switch else None,
            annotation=_annotation(option),
        )
        for option in OPTIONS
    ]


def _annotation(option: Declared) -> Any:
    kinds: dict[Any, Any] = {words: list[str] | None, port_number: int | None, boolean: bool}
    convert = option.convert
    port = convert is port_number
    made = typer.Option(
        option.long,
        other(option.long),
        help=_plain(option.help),
        metavar=option.metavar,
        min=0 if port else None,
        max=HIGHEST_PORT if port else None,
        show_default=False,
        rich_help_panel="Configuration",
    )
    kind: Any = kinds.get(convert, str | None)
    return Annotated[kind, made]


def _panel(flags: FlagSet) -> str:
    return f"Flags of {flags.name}" if flags.name else "Flags"


def _is_context(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, type) and issubclass(parameter.annotation, typer.Context)


def _options(flags: FlagSet, taken: list[str]) -> dict[str, tuple[DynFlag[Any], list[str]]]:
    """Return each flag with the declarations of its option, by the name of a parameter."""
    options = spelled(flags)
    named: dict[str, tuple[DynFlag[Any], list[str]]] = {}
    for option, declarations in zip(options, declared(options), strict=True):
        named[identifier(option.flag.name, [*taken, *named])] = option.flag, declarations
    return named


def _parameter(
    name: str, flag: DynFlag[Any], declarations: Sequence[str], prefix: str | None, panel: str
) -> inspect.Parameter:
    """Return the parameter that typer makes an option of."""
    shape: dict[str, Any] = {"parser": _checking(flag), "metavar": placeholder(flag)}
    option = typer.Option(
        *declarations,
        help=_plain(help_text(flag)),
        envvar=variables(flag, prefix),
        show_default=False,
        rich_help_panel=panel,
        **({} if is_switch(flag) else shape),
    )
    kind: Any = bool if is_switch(flag) else str
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _extended(
    signature: inspect.Signature, context: str | None, more: Sequence[inspect.Parameter]
) -> inspect.Signature:
    """Return a signature with more parameters, all keyword-only, as typer passes them."""
    old = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
    if context is not None:
        old.append(inspect.Parameter(context, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    return signature.replace(parameters=[*old, *more])


def _given(
    context: typer.Context,
    options: Mapping[str, tuple[DynFlag[Any], list[str]]],
    values: Mapping[str, Any],
    prefix: str | None,
) -> Iterator[CheckedValue]:
    for name, (flag, declarations) in options.items():
        origin = None if values[name] is None else slot(context, name, variables(flag, prefix))
        if origin is not None:
            yield CheckedValue(flag, _parsed(flag, values[name], declarations[0]), origin)


def _plain(text: str) -> str:
    """Escape square brackets, which are styles where typer uses rich."""
    try:
        from rich.markup import escape
    except ModuleNotFoundError:
        return text
    return escape(text)


def _checking(flag: DynFlag[Any]) -> Callable[[str], str]:
    """Return a parser that checks a text while typer still knows its option."""

    def text(value: str) -> str:
        _parsed(flag, value)
        return value

    return text


def _parsed(flag: DynFlag[Any], text: str | bool, option: str | None = None) -> Any:
    try:
        return parsed(flag, text)
    except FlagError as error:
        raise typer.BadParameter(error.reason, param_hint=option) from None
