"""Flags without a name: a library makes them, and the program that uses it names them."""

from __future__ import annotations

from typing import TypeVar, Unpack

from wigwag.dflag.define import FlagOptions, with_options
from wigwag.dflag.flag import DynFlag
from wigwag.dflag.flagset import FlagSet
from wigwag.dflag.values.types import kind_of

T = TypeVar("T")


@with_options
def new(type: type[T], default: T, usage: str = "", **options: Unpack[FlagOptions[T]]) -> DynFlag[T]:
    """Make a flag that has no name yet; `FlagSet.bind` gives it one. Until then it can be used alone.

    >>> from wigwag import dflag
    >>> size = dflag.new(int, 4, "threads in the pool")
    >>> size.set("8")
    >>> flags = dflag.FlagSet("example")
    >>> flags.bind("pool_size", size) is flags["pool_size"], flags.snapshot()["pool_size"]
    (True, 8)
    """
    return FlagSet._around(kind_of(type), default, usage, options)
