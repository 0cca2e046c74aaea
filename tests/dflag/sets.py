"""The set of a flag, for tests that have only the flag."""

from __future__ import annotations

from typing import Any

from wigwag import dflag


def set_of(flag: dflag.DynFlag[Any]) -> dflag.FlagSet:
    assert isinstance(flag.owner, dflag.FlagSet)
    return flag.owner
