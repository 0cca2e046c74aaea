"""wigwag: cloud-native feature flags.

>>> import wigwag
>>> hello = {"state": "ENABLED", "variants": {"on": "world"}, "defaultVariant": "on"}
>>> flags = wigwag.load({"flags": {"hello": hello}})
>>> flags.resolve("hello", "string", "nobody").value
'world'

Each name is imported on first use: `from wigwag import dflag` and `wigwag start` do not pay for what they do not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wigwag.errors import DocumentError, RuleError, SelectorError, UsageError, WigwagError
    from wigwag.flags.explain import Explanation
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Finding, Limits, Resolution
    from wigwag.flags.store import Diff, diff
    from wigwag.library import lint, load, merge
    from wigwag.version import __version__
    from wigwag.watched import WatchedFile, load_file, watch_file

__all__ = [
    "Diff",
    "DocumentError",
    "Explanation",
    "Finding",
    "FlagSet",
    "Limits",
    "Resolution",
    "RuleError",
    "SelectorError",
    "UsageError",
    "WatchedFile",
    "WigwagError",
    "__version__",
    "diff",
    "lint",
    "load",
    "load_file",
    "merge",
    "watch_file",
]
_NAMES_BY_MODULE = {
    "wigwag.errors": "DocumentError RuleError SelectorError UsageError WigwagError",
    "wigwag.flags.explain": "Explanation",
    "wigwag.flags.flagset": "FlagSet",
    "wigwag.flags.model": "Finding Limits Resolution",
    "wigwag.flags.store": "Diff diff",
    "wigwag.library": "lint load merge",
    "wigwag.version": "__version__",
    "wigwag.watched": "WatchedFile load_file watch_file",
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
