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

from wigwag.dflag.flag import Put
from wigwag.dflag.frontends.options import (
    commit,
    declared,
    help_text,
    identifier,
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
        own = _parameters(function, service)
        context = next((each.name for each in own.values() if _is_context(each)), None)
        ours = context or identifier("context", own)
        extra = {} if service is None else {option.name: _service_option(option) for option in OPTIONS}
        options = declared(flags, [*own, ours, *extra])

        @wraps(function)
        def command(**arguments: Any) -> R:
            values = {name: arguments.pop(name) for name in options}
            if service is not None:
                arguments[service] = given({name: arguments.pop(name) for name in extra})
            used = arguments[ours] if context else arguments.pop(ours)
            try:
                commit(_puts(used, options, values, prefix))
            except FlagError as error:
                raise typer.BadParameter(str(error)) from None
            return function(**arguments)

        more = {name: _option(*option, prefix, flags.name) for name, option in options.items()} | extra
        added = [_keyword(name, annotation, default=None) for name, annotation in more.items()]
        added += [] if context else [_keyword(ours, typer.Context)]
        signature = inspect.Signature([*own.values(), *added])
        command.__signature__ = signature  # type: ignore[attr-defined]
        return command

    if service is not None:
        loglevel(flags)
    return decorate


def _parameters(function: Callable[..., Any], service: str | None) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function as typer passes them, without the one that typer could not fill."""
    parameters = inspect.signature(function, eval_str=True).parameters
    if service is not None and service not in parameters:
        raise UsageError(f"the function has no parameter {service!r} to hand the options of the service to")
    keyword = inspect.Parameter.KEYWORD_ONLY
    return {name: each.replace(kind=keyword) for name, each in parameters.items() if name != service}


def _keyword(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _is_context(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.annotation, type) and issubclass(parameter.annotation, typer.Context)


def _service_option(option: Declared) -> Any:
    """Return the annotation of which typer makes an option of `dflag.service`."""
    kinds: dict[Any, Any] = {words: list[str], port_number: int, boolean: bool}
    kind = kinds.get(option.convert, str)
    made = typer.Option(
        option.long,
        other(option.long),
        help=_plain(option.help),
        metavar=option.metavar,
        min=0 if kind is int else None,
        max=HIGHEST_PORT if kind is int else None,
        show_default=False,
        rich_help_panel="Configuration",
    )
    return Annotated[kind | None, made]


def _option(flag: DynFlag[Any], declarations: Sequence[str], prefix: str | None, flags: str) -> Any:
    """Return the annotation of which typer makes the option of a flag; its text is checked while typer knows it."""

    def check(text: str) -> str:
        _parsed(flag, text)
        return text

    shape: dict[str, Any] = {} if is_switch(flag) else {"parser": check, "metavar": placeholder(flag)}
    option = typer.Option(
        *declarations,
        help=_plain(help_text(flag)),
        envvar=variables(flag, prefix),
        show_default=False,
        rich_help_panel=f"Flags of {flags}" if flags else "Flags",
        **shape,
    )
    kind: Any = bool if is_switch(flag) else str
    return Annotated[kind | None, option]


def _puts(
    context: typer.Context,
    options: Mapping[str, tuple[DynFlag[Any], list[str]]],
    values: Mapping[str, Any],
    prefix: str | None,
) -> Iterator[Put]:
    for name, (flag, declarations) in options.items():
        origin = None if values[name] is None else slot(context, name, variables(flag, prefix))
        if origin is not None:
            yield Put(flag, origin, _parsed(flag, values[name], declarations[0]))


def _plain(text: str) -> str:
    """Escape square brackets, which are styles where typer uses rich."""
    try:
        from rich.markup import escape
    except ModuleNotFoundError:
        return text
    return escape(text)


def _parsed(flag: DynFlag[Any], text: str | bool, option: str | None = None) -> Any:
    try:
        return parsed(flag, text)
    except FlagError as error:
        raise typer.BadParameter(error.reason, param_hint=option) from None
