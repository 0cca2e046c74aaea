"""Which of an API server's kinds a name means: the names that kubectl accepts, by its rules. Pure.

| name | means |
|---|---|
| `services`, `service`, `Service`, `svc` | plural, singular, kind or short name, in any case |
| `ingresses.networking.k8s.io` | in a group; the beginning of its name is enough, unless another group has that name |
| `ingresses.v1.networking.k8s.io` | in one version of a group; `services.v1.` in one of the core group |

If several kinds match, the first wins: those of the core group, then those of other groups in the server's order, each
group with its preferred version first. Plural and singular names come before short names, and these before kinds.

The hard case is a group whose own API server is down: then its kinds are not in discovery. The last known ones stay
(`GroupVersion.or_last`), and the other groups are not affected.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from wigwag.kube.errors import UnknownKindError
from wigwag.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from wigwag.kube.kinds import Kind

_LONGEST_NAME, _LONGEST_FAULT, _MOST_FAULTS = 100, 300, 3
"""Of an error message."""


class ServedKind(NamedTuple):
    """A kind that the server has."""

    kind: Kind
    singular: str = ""
    short_names: tuple[str, ...] = ()
    watchable: bool = True
    """Whether it can be listed and watched."""


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """The kinds in one version of a group."""

    group: str
    version: str
    kinds: tuple[ServedKind, ...] | None = None
    """None: they are still to be fetched."""
    fault: str = ""
    """Why the kinds are not known, or may be out of date."""

    def __str__(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def or_last(self, last: KindTable, fault: str) -> GroupVersion:
        """Return it with the kinds that were known last, if it has none."""
        known = (each.kinds for each in last.versions if str(each) == str(self))
        return replace(self, kinds=self.kinds or next(known, ()), fault=fault)


class KindName(NamedTuple):
    """A name in its parts, in lower case."""

    name: str
    version: str = ""
    group: str = ""

    def chosen(self, candidates: Iterable[ServedKind]) -> list[ServedKind]:
        """Return those in the group and version."""
        served = [each for each in candidates if self.version in ("", each.kind.version)]
        exact = [each for each in served if self.group in ("", each.kind.group)]
        return exact if exact or self.version else [e for e in served if e.kind.group.startswith(self.group)]


def spellings(name: str) -> list[KindName]:
    """Return how a name can be understood, the first choice first.

    >>> [tuple(spelling) for spelling in spellings("Mapping.v2.getambassador.io")]
    [('mapping', 'v2', 'getambassador.io'), ('mapping', '', 'v2.getambassador.io')]
    >>> [tuple(spelling) for spelling in spellings("services.v1.")], tuple(spellings("svc")[0])
    ([('services', 'v1', ''), ('services', '', 'v1.')], ('svc', '', ''))
    """
    first, _, group = name.lower().partition(".")
    version, dot, rest = group.partition(".")
    return [*([KindName(first, version, rest)] if dot else []), KindName(first, group=group)]


@dataclass(frozen=True)
class KindTable:
    """The kinds of a server, in the order in which they are looked through."""

    versions: tuple[GroupVersion, ...] = ()
    faults: tuple[str, ...] = ()
    """What the server could not be asked for, beside the faults of single versions."""

    def resolve(self, name: str) -> Kind:
        """Return the kind that a name means; `UnknownKindError` if there is none that can be watched."""
        matches = list(self._matches(name))
        watchable = [each.kind for each in matches if each.watchable]
        if watchable:
            return watchable[0]
        if matches:
            raise UnknownKindError(f"{matches[0].kind} cannot be listed and watched on this API server")
        raise UnknownKindError(f"the API server has no kind {name[:_LONGEST_NAME]!r}{self._hint(name)}")

    def _matches(self, name: str) -> Iterator[ServedKind]:
        plurals, short_names, kinds = self._indexes
        for indexes in ((plurals, short_names), (kinds,)):
            for spelling in spellings(name):
                for index in indexes:
                    yield from spelling.chosen(index.get(spelling.name, ()))

    @cached_property
    def _indexes(self) -> tuple[Mapping[str, list[ServedKind]], ...]:
        """By plural and singular, by short name, by kind."""
        plurals, short_names, kinds = (defaultdict[str, list[ServedKind]](list) for _ in range(3))
        for served in (each for version in self.versions for each in version.kinds or ()):
            for name in {served.kind.plural, served.singular}:
                plurals[name.lower()].append(served)
            for name in served.short_names:
                short_names[name.lower()].append(served)
            kinds[served.kind.kind.lower()].append(served)
        return plurals, short_names, kinds

    def _hint(self, name: str) -> str:
        """Return what was probably meant, and what could not be asked."""
        wanted = spellings(name)[0]
        other = [served.kind for served in self._matches(f"{wanted.name}.{wanted.group}") if wanted.group]
        if other:
            hint = f"; of {other[0]} it has {', '.join(dict.fromkeys(kind.version for kind in other))}"
        else:
            short = [each for index in self._indexes for each in index]
            full = [str(served.kind) for candidates in self._indexes[0].values() for served in candidates]
            near = closest(name.lower(), dict.fromkeys(full if "." in name else short))
            hint = f" (did you mean {near!r}?)" if near else ""
        faults = [*self.faults, *(each.fault for each in self.versions if each.fault)]
        told = "; ".join(fault[:_LONGEST_FAULT] for fault in faults[:_MOST_FAULTS])
        return f"{hint}; not all kinds are known: {told}" if told else hint
