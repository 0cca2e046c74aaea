"""wigwag as a library: load, merge and check flag documents. The functions are attributes of `wigwag`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.flags import store
from wigwag.flags.flag import LoadSettings
from wigwag.flags.model import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wigwag.flags.document import Format, Input
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Finding, Fractional, Numbers


def load(
    document: Input,
    fractional: Fractional = "v2",
    strict: bool = False,
    source: str = "",
    *,
    numbers: Numbers = "truncate",
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
    format: Format | None = None,
    previous: FlagSet | None = None,
    clock: Callable[[], float] = time.time,
) -> FlagSet:
    """Load a flag document: JSON or YAML text, or the objects it stands for.

    A bad flag is left out and listed in `FlagSet.problems`; `strict` rejects the document instead. With `previous`, the
    set loaded before from the same source, unchanged flags are taken over and a flag that went bad keeps its last good
    definition. `fractional` is the hashing version, `numbers` what an integer request makes of 3.5: `truncate` to 3 as
    flagd does, or a TYPE_MISMATCH (`lossless`).

    >>> import wigwag
    >>> flags = wigwag.load({"flags": {"good": {"state": "ENABLED", "variants": {"on": 1}}, "bad": {"variants": []}}})
    >>> flags.keys()
    ('good',)
    >>> print(flags.problems[0])
    $.flags.bad.variants: error: must be an object, not an array; the flag is not loaded (flag-shape)
    """
    if fractional not in ("v2", "v3"):
        raise UsageError(f"unknown fractional version {fractional!r}: use v2 or v3")
    if numbers not in ("truncate", "lossless"):
        raise UsageError(f"unknown value {numbers!r} of `numbers`: use truncate or lossless")
    options = LoadSettings(fractional, numbers, limits)
    return store.load(
        document, source=source, options=options, strict=strict, format=format, previous=previous, clock=clock
    )


def merge(sets: Iterable[FlagSet]) -> FlagSet:
    """Put sets of flags on top of each other; the last wins, and what it hides takes over when it goes.

    >>> import wigwag
    >>> def one(value): return {"flags": {"a": {"state": "ENABLED", "variants": {"on": value}, "defaultVariant": "on"}}}
    >>> low, high = wigwag.load(one("low"), source="base"), wigwag.load(one("high"), source="override")
    >>> wigwag.merge([low, high]).resolve("a").value
    'high'
    >>> wigwag.merge([low, wigwag.load({"flags": {}}, source="override")]).resolve("a").value
    'low'
    """
    return store.merge(sets, time.time)


def lint(document: Input, *more: Input, limits: Limits = Limits(), format: Format | None = None) -> list[Finding]:  # noqa: B008
    """Check documents for what is wrong and for what looks wrong; several are taken as sources, the last on top.

    >>> import wigwag
    >>> rule = {"if": [True, "purple"]}
    >>> flag = {"state": "ENABLED", "variants": {"red": 1, "blue": 2}, "defaultVariant": "red", "targeting": rule}
    >>> [finding.code for finding in wigwag.lint({"flags": {"colour": flag}})]
    ['variant-unknown']
    """
    from wigwag.flags.checks.lint import lint_documents

    documents = [document, *more]
    names = [f"#{position}" for position in range(1, len(documents) + 1)] if more else [""]
    return lint_documents([(name, text, format) for name, text in zip(names, documents, strict=True)], limits)
