"""Tests in a FeatureFlag: contexts and the variants that they must get. A change that breaks one is refused.

    spec:
      tests:
        - {name: gold customers, flag: new-ui, context: {tier: gold}, variant: "on"}

They are evaluated as agents do, before the object is stored. The hard case is a rule that takes long: all tests share
one budget of steps, so the answer comes in time; a test that has none left fails and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from wigwag.library import load
from wigwag.operator.resources.featureflag import MOST_TESTS
from wigwag.suggest import close_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wigwag.flags.flag import Flag
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Limits, Resolution
    from wigwag.operator.resources.featureflag import FlagTest

ROOT = "spec.tests"
_LONGEST = 200
"""Characters of a context that are shown."""
_MOST_VARIANTS = 10
"""Variants that are shown."""


def failing_tests(document: bytes, tests: Sequence[FlagTest], limits: Limits) -> list[str]:
    """Return a line for each test that fails. The document has no errors.

    >>> from wigwag.flags.model import Limits
    >>> from wigwag.operator.resources.featureflag import FlagTest
    >>> ui = b'{"flags": {"ui": {"state": "ENABLED", "variants": {"on": 1, "off": 0}, "defaultVariant": "off"}}}'
    >>> failing_tests(ui, [FlagTest(flag="ui", variant="on", name="everybody")], Limits())
    ["spec.tests[0] (everybody): flag ui gives the variant 'off' for {}, not 'on'"]
    """
    return list(_failures(load(document, limits=limits), tests[:MOST_TESTS])) if tests else []


def _failures(flags: FlagSet, tests: Sequence[FlagTest]) -> Iterator[str]:
    budget = flags.budget()
    for number, test in enumerate(tests):
        named = f" ({test.name})" if test.name else ""
        resolution = flags.resolve(test.flag, None, None, test.context or {}, test.timestamp, budget)
        if test.flag not in flags:
            known = close_names(test.flag, flags.keys(), 2)
            hint = f"; did you mean {' or '.join(known)}?" if known else ""
            yield f"{ROOT}[{number}]{named}: there is no flag {test.flag}{hint}"
        elif resolution.error or resolution.variant != test.variant:
            what = f"fails with {resolution.error}" if resolution.error else f"gives {_said(resolution)}"
            expected = _expected(test.variant, flags.flag(test.flag))
            yield f"{ROOT}[{number}]{named}: flag {test.flag} {what} for {_shown(test)}, not {expected}"


def _said(resolution: Resolution) -> str:
    variant = resolution.variant
    return f"no variant ({resolution.reason})" if variant is None else f"the variant {variant!r}"


def _expected(variant: str | None, flag: Flag | None) -> str:
    if variant is None:
        return "none"
    known = list(flag.variants) if flag else []
    if variant in known:
        return repr(variant)
    shown = ", ".join([*known[:_MOST_VARIANTS], *(["…"] if len(known) > _MOST_VARIANTS else [])])
    return f"{variant!r}, which is none of its variants: {shown}"


def _shown(test: FlagTest) -> str:
    text = msgspec.json.encode(test.context or {}).decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
