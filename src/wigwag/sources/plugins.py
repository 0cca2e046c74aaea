"""Kinds of sources of other packages, by the entry-point group `wigwag.sources`.

    [project.entry-points."wigwag.sources"]
    redis = "wigwag_redis:KIND"        # the name of the kind, and each of its schemes: what is written before the colon
    rediss = "wigwag_redis:KIND"

An entry point is looked up by the name that a URI or `provider` has, so only the plug-in that is used is imported, and
a broken one affects nobody else. The list of entry points is read once per process, when a name is not built in: a
client that sends unknown names cannot make the process search the disk again and again.

Whatever a plug-in raises at start becomes a `UsageError` that names its package; what its `watch` raises is retried.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from wigwag.errors import UsageError
from wigwag.sources.kind import SourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from importlib.metadata import EntryPoint

P = ParamSpec("P")
T = TypeVar("T")
GROUP = "wigwag.sources"


def installed() -> tuple[str, ...]:
    """Return the names of all entry points, in order; nothing is imported."""
    return tuple(sorted({entry.name for entry in _entries()}))


def is_installed(name: str) -> bool:
    """Tell whether a package has an entry point of this name."""
    return any(entry.name == name for entry in _entries())


@cache
def load(name: str, built_in: frozenset[str]) -> SourceKind:
    """Import the kind that an entry point names; `UsageError` names the package if it cannot be used."""
    return load_from(_entries(), name, built_in)


def load_from(entries: Iterable[EntryPoint], name: str, built_in: Collection[str]) -> SourceKind:
    """Return the kind that one of these entry points names. `built_in`: names and schemes that no plug-in may have."""
    objects = {entry.name: entry for entry in entries}
    candidates = [entry for entry in entries if entry.name == name]
    if not candidates:
        raise UsageError(f"no installed package has the kind of source {name!r}; install its plug-in again")
    packages = sorted({_package(entry) for entry in candidates})
    if len(packages) > 1:
        raise UsageError(f"the plug-ins {' and '.join(packages)} both have {name!r}; uninstall all but one of them")
    try:
        kind: object = candidates[0].load()
    except Exception as error:
        raise _unusable(candidates[0], f"{type(error).__name__}: {error}") from error
    problem = _problem(kind, objects, candidates[0], built_in)
    if problem or not isinstance(kind, SourceKind):
        raise _unusable(candidates[0], problem)
    parse = kind.parse and _checked(kind.parse, "parse", packages[0])
    return replace(kind, parse=parse, prepare=_checked(kind.prepare, "prepare", packages[0]))


def _checked(function: Callable[P, T], name: str, package: str) -> Callable[P, T]:
    """Return a function of a plug-in that raises nothing but `UsageError`."""

    def call(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except UsageError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"the plug-in {package} failed in {name}: {reason}; update the package") from error

    return call


def _problem(kind: object, objects: dict[str, EntryPoint], entry: EntryPoint, built_in: Collection[str]) -> str:
    """Return why an object cannot be the kind of an entry point; empty if it can."""
    if not isinstance(kind, SourceKind):
        return f"{entry.value} is a {type(kind).__name__}, not a SourceKind"
    names = (*kind.names, *kind.schemes)
    if taken := [name for name in names if name in built_in]:
        return f"{', '.join(taken)} is built in and cannot be replaced"
    if kind.prefix or kind.internal:
        return "a plug-in has schemes only: leave out prefix and internal"
    if entry.name not in names:
        return f"its kind is {kind.name!r} and has no name or scheme {entry.name!r}"
    if kind.name not in objects or objects[kind.name].value != entry.value:
        return f"its kind is {kind.name!r}, so it needs an entry point of that name for {entry.value}, too"
    return ""


def _unusable(entry: EntryPoint, why: str) -> UsageError:
    return UsageError(
        f"the plug-in {_package(entry)} cannot be used for {entry.name!r}: {why}; update the package or uninstall it"
    )


def _package(entry: EntryPoint) -> str:
    return entry.value if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


@cache
def _entries() -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # not needed without plug-ins

    return tuple(entry_points(group=GROUP))
