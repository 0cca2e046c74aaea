"""How a program uses dynamic flags, as type checkers see it: mypy and pyright, both strict, have nothing to say.

Each line that must be an error is marked, and both complain about a mark that is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic

from wigwag import dflag


class Colour(Enum):
    """An enumeration."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Limits:
    """A dataclass."""

    rate: int


class Sizes(TypedDict):
    """A TypedDict."""

    small: int


class Point(msgspec.Struct):
    """A Struct."""

    x: int


class Model(pydantic.BaseModel):
    """A model."""

    x: int = 0


flags = dflag.FlagSet("example")
rate = flags.int("rate", 10, "requests per second", validators=[dflag.in_range(0, 100)])
name = flags.str("name", "x", dynamic=False, validators=[dflag.matches("^x"), dflag.length(1), dflag.not_blank])
share = flags.float("share", 0.5, validators=[dflag.in_range(0.0, 1.0)])
one = flags.int("one", 10, validators=dflag.in_range(0, 100))
pause = flags.duration("pause", timedelta(seconds=1), validators=[dflag.in_range(timedelta(0), timedelta(hours=1))])
hosts = flags.list("hosts", ["a"], validators=[dflag.length(1), dflag.each(dflag.not_blank)])
ports = flags.list("ports", [80], item=int)
users = flags.set("users", {"a"}, mutator=lambda value: value | {"root"})
codes = flags.set("codes", {1}, item=int)
labels = flags.mapping("labels", {"a": "b"})
weights = flags.mapping("weights", {"a": 0.5}, item=float)
tree = flags.json("tree", {"a": [1]})
limits = flags.json("limits", Limits(1), validators=[lambda value: value.rate > 0])
sizes = flags.json("sizes", Sizes(small=1), type=Sizes)
late = dflag.new(Decimal, Decimal(1), input_mutator=str.strip)

assert_type(flags.bool("flag", True), dflag.DynFlag[bool])
assert_type(rate, dflag.DynFlag[int])
assert_type(rate.get(), int)
assert_type(rate(), int)
assert_type(share.value, float)
assert_type(pause.get(), timedelta)
assert_type(flags.bytes("raw", b"").get(), bytes)
assert_type(flags.path("path", "/etc").get(), Path)
assert_type(flags.decimal("decimal", Decimal(1)).get(), Decimal)
assert_type(flags.enum("colour", Colour.RED), dflag.DynFlag[Colour])
assert_type(flags.enum("second", Colour.RED, validators=[lambda value: value is Colour.RED]).get(), Colour)
assert_type(hosts.get(), list[str])
assert_type(ports.get(), list[int])
assert_type(users.get(), frozenset[str])
assert_type(codes.get(), frozenset[int])
assert_type(labels.get(), Mapping[str, str])
assert_type(weights.get(), Mapping[str, float])
assert_type(tree.get(), dict[str, list[int]])
assert_type(limits.get(), Limits)
assert_type(sizes.get(), Sizes)
assert_type(flags.json("strict", Limits(1), unknown_fields="error").get(), Limits)
assert_type(flags.flag(tuple[int, int], "pair", (1, 2)).get(), tuple[int, int])
assert_type(flags.json("point", Point(1)).get(), Point)
assert_type(flags.json("model", Model()).get(), Model)
assert_type(flags.flag(int, "typed", 1).get(), int)
assert_type(late.get(), Decimal)
assert_type(flags.bind("late", late), dflag.DynFlag[Decimal])
assert_type(flags.snapshot()[rate], int)
assert_type(flags["rate"], dflag.DynFlag[Any])


def wrong() -> None:
    """What must not pass. Nobody calls this."""
    flags.int("a", "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flags.int("b", 1, dynamc=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    flags.str("d", "", validators=dflag.in_range(0, 1))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = rate == 10  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison]
    flags.str("c", "", validators=[dflag.in_range(0, 1)])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    flags.enum("d", "red")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    rate.set_value("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    rate.on_change(lambda old: None)  # type: ignore[misc, arg-type]  # pyright: ignore[reportArgumentType]


def changed(old: int, new: int) -> None:
    """Hear of a change."""


async def changed_later(old: int, new: int) -> None:
    """Hear of a change, in a loop."""


def main() -> None:
    """Run with a thread of its own."""
    with rate.on_change(changed) as subscription:
        assert_type(subscription.errors, int)
    flags.check(lambda found: found[rate] < found[share], "rate must be less than share")
    flags.assign("rate", "5", dflag.Origin.HTTP, ttl="10m")
    flags.clear(dflag.Origin.ENVIRONMENT)
    with dflag.setup(flags, "/etc/dflag", policy=dflag.Policy(on_missing="keep")) as updater:
        assert_type(updater.generation + updater.errors + updater.warnings, int)
        with flags.pinned() as snapshot, flags.override(rate=3), rate.override(5):
            assert_type(snapshot[pause], timedelta)


async def main_in_a_loop() -> None:
    """Run in a loop."""
    rate.on_change(changed_later)
    places = dflag.Directory("/etc/dflag", optional=True), dflag.ConfigMap("shop", "flags", documents=("*.yaml",))
    async with dflag.watching(flags, *places, "configmap/shop/more") as updater:
        assert_type(updater, dflag.Updater)
        assert_type(await rate.wait_for(lambda value: value > 3), int)
        async for value in hosts.changes():
            assert_type(value, list[str])
