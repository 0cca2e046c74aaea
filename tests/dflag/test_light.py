"""What importing costs: no network stack, no event loop, and no package that is not needed."""

from __future__ import annotations

import sys

import pytest

import tests.test_architecture
from tests.test_architecture import imported_by
from wigwag import dflag

HEAVY = tests.test_architecture.HEAVY - {"logging"} | {"pydantic"}
OURS = {"msgspec", "typing_extensions"}
"""What flags with a structure need; msgspec takes the last if it is there."""


@pytest.mark.parametrize(
    "code",
    [
        "from wigwag import dflag",
        "from wigwag import dflag; dflag.FlagSet('x').int('a', 1).set('2')",
        "from wigwag import dflag; dflag.Updater(dflag.FlagSet('x'), '/nowhere')",
        "from wigwag.dflag import *",
    ],
)
def test_no_network_stack_comes_with_it(code: str) -> None:
    loaded = imported_by(code)
    assert loaded & HEAVY == set()
    installed = {name for name in loaded if "." not in name and not name.startswith("_")} - sys.stdlib_module_names
    assert {name for name in installed if not name.startswith(("wigwag", "sitecustom", "usercustom"))} <= OURS


def test_plain_flags_need_no_package_at_all() -> None:
    plain = "from wigwag import dflag; flags = dflag.FlagSet('x'); flags.int('a', 1).set('2'); flags.str('b', '')"
    assert imported_by(plain) & (OURS | {"asyncio"}) == set()
    assert "msgspec" in imported_by(plain + "; flags.json('c', {'d': 1})")


def test_the_package_alone_brings_nothing_but_itself() -> None:
    assert [name for name in imported_by("import wigwag.dflag") if name.startswith("wigwag.dflag")] == ["wigwag.dflag"]


def test_the_public_names_are_few_and_all_there() -> None:
    assert len(dflag.__all__) <= 40
    assert dflag.__all__ == sorted(dflag.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert dir(dflag) == sorted(dflag.__all__)
    for name in dflag.__all__:
        assert getattr(dflag, name).__doc__ or name.isupper()
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        dflag.nope  # noqa: B018
