"""The help text about flags. It never raises."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import indent
from typing import TYPE_CHECKING

from wigwag.dflag.values.validators import wishes

if TYPE_CHECKING:
    from wigwag.dflag.flag import AnyFlag

_LONGEST = 128


def usage(flags: Iterable[AnyFlag]) -> str:
    """Return a paragraph for each flag, in order.

    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> _ = flags.int("rate", 10, "requests per second", aliases=["r"], validators=[dflag.in_range(0, 100)])
    >>> _ = flags.str("name", "x", dynamic=False)
    >>> print(flags.usage())
    name  str, static, default x
    rate, r  int, dynamic, default 10
        requests per second
        must be from 0 to 100
    """
    return "\n".join(map(_paragraph, flags))


def _paragraph(flag: AnyFlag) -> str:
    head = f"{', '.join(flag.names)}  {flag.kind.name}, {'dynamic' if flag.dynamic else 'static'}"
    default = shown_default(flag)
    lines = [flag.usage] if flag.usage else []
    lines += [f"must be {wish}" for wish in shown_wishes(flag)]
    return "\n".join([f"{head}, default {default}" if default else head, *(indent(line, "    ") for line in lines)])


def shown_wishes(flag: AnyFlag) -> list[str]:
    """Return what the validators of a flag accept; not of a secret one, which a list of choices would give away."""
    return [] if flag.secret else wishes(flag.traits.validators)


def shown_default(flag: AnyFlag) -> str:
    """Return the default as text for people; a long one is cut."""
    text = flag.show(flag.default)
    return text if len(text) <= _LONGEST else "{ ... truncated ... }" if flag.kind.is_json else text[:_LONGEST] + "…"
