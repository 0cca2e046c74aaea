"""Projections: the part of a snapshot that a reader wants, and the digest of that part.

    ?kind=services&namespace=shop&service=web ─▶ Projection ─▶ tables, keys, digest

Each filter belongs to a section: kinds, namespaces and names choose Kubernetes objects, services those of Consul.
Without `sections`, the sections are those that filters belong to; without any filter, all of them. So a hook for
Services is not run because of Consul.

The digest of a whole table is known, so an unfiltered part costs one step per table. A filter by namespace or name adds
up the digests of the entries that match.

The hard case is a kind by its many names: the canonical name, the name that the user wrote, and the `kind` of the
objects all match, in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from wigwag.errors import UsageError
from wigwag.suggest import suggest
from wigwag.watt.snapshots.snapshot import Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from wigwag.watt.snapshots.snapshot import Delta, Key, TableName, WatchPart, WattSnapshot

SECTIONS: tuple[Section, ...] = get_args(Section)
PARAMETERS = {
    "kind": "kinds",
    "namespace": "namespaces",
    "ns": "namespaces",
    "name": "names",
    "service": "services",
    "section": "sections",
}
"""Parameters of a query, and the members of a projection that they add to; `deltas` is the one without a value."""
_QUERY = {name: member for name, member in PARAMETERS.items() if name != "ns"}
_DELTAS = "deltas"
MOST_VALUES = 1_000
_BITS = 128


class ObjectKind(Struct, frozen=True, rename={"api_version": "apiVersion"}):
    """What a Kubernetes object says it is."""

    kind: str = ""
    api_version: str = ""


_read_kind = msgspec.json.Decoder(ObjectKind).decode


def object_kind(part: WatchPart | None) -> ObjectKind:
    """Return the kind of the objects in a table, which is that of any of them; empty for an empty table."""
    some = next(iter(part.entries.values()), None) if part is not None else None
    return ObjectKind() if some is None else _read_kind(some.body)


@dataclass(frozen=True, slots=True)
class Projection:
    """Which part of a snapshot; by default all of it."""

    kinds: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Names of Kubernetes objects."""
    services: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    deltas_only: bool = False
    """Only what has changed, without the objects."""

    @classmethod
    def from_query(cls, pairs: Sequence[tuple[str, str]]) -> Projection:
        """Return the projection of a query; values are separated by commas, and parameters may be repeated."""
        values: dict[str, list[str]] = {}
        for name, value in pairs:
            if name != _DELTAS:
                values.setdefault(PARAMETERS[name], []).extend(value.split(","))
        return _projection(values, any(name == _DELTAS for name, _ in pairs))

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str = "projection") -> Projection:
        """Return the projection that a mapping describes: `{kinds: [services], namespaces: shop}`.

        >>> Projection.from_config({"kind": ["services"]})
        Traceback (most recent call last):
        wigwag.errors.UsageError: projection.kind: unknown member; did you mean `kinds`?
        """
        known, values = [*dict.fromkeys(PARAMETERS.values()), _DELTAS], dict(config)
        deltas = values.pop(_DELTAS, False)
        for name, value in values.items():
            if name not in known:
                hint = suggest(str(name), known) or f"one of {', '.join(known)}"
                raise UsageError(f"{where}.{name}: unknown member; {hint}")
            values[name] = [value] if isinstance(value, str) else value
        try:
            return _projection(msgspec.convert(values, dict[str, list[str]]), msgspec.convert(deltas, bool))
        except (UsageError, msgspec.ValidationError) as error:
            raise UsageError(f"{where}: {error}") from None

    def query(self) -> str:
        """Return it as the query of a URL.

        >>> Projection(kinds=("services", "cm"), namespaces=("shop",)).query()
        'kind=services&kind=cm&namespace=shop'
        """
        pairs = [(name, value) for name, member in _QUERY.items() for value in getattr(self, member)]
        return urlencode(pairs + [(_DELTAS, "")] * self.deltas_only)

    def section(self, section: Section) -> bool:
        """Tell whether anything of a section can be in it."""
        if self.sections:
            return section in self.sections
        kubernetes, consul = bool(self.kinds or self.namespaces or self.names), bool(self.services)
        return {"Kubernetes": kubernetes, "Consul": consul}.get(section, False) or not (kubernetes or consul)

    def table(self, table: TableName, part: WatchPart | None) -> bool:
        """Tell whether a table, or some of it, is in it; `part` is the table's content, if there is any."""
        if not self.section(table.section) or table.section != "Kubernetes" or not self.kinds:
            return self.section(table.section)
        spelled = {each.spelled.lower() for each in (part, *part.parts)} if part is not None else set()
        known = {table.name.lower(), object_kind(part).kind.lower(), *spelled}
        return any(kind.lower() in known for kind in self.kinds)

    def tables(self, snapshot: WattSnapshot) -> dict[TableName, WatchPart]:
        """Return the tables of a snapshot that it selects from, sorted."""
        return {table: part for table, part in sorted(snapshot.tables.items()) if self.table(table, part)}

    def whole(self, table: TableName) -> bool:
        """Tell whether all entries of its tables of that section are in it."""
        if table.section == "Kubernetes":
            return not (self.namespaces or self.names)
        return table.section != "Consul" or not self.services

    def keys(self, part: WatchPart) -> Iterable[Key]:
        """Return the keys of the entries that it selects from a table, in any order."""
        table, entries = part.table, part.entries
        if self.whole(table):
            return entries
        namespaces, names = self._filters(table)
        if not namespaces:
            return [key for key in entries if key[1] in names]
        return [key for key in entries if key[0] in namespaces and (not names or key[1] in names)]

    def deltas(self, snapshot: WattSnapshot, deltas: Sequence[Delta]) -> Iterator[Delta]:
        """Yield the changes that concern it."""
        selected: dict[TableName, bool] = {}
        for delta in deltas:
            table = delta.table
            if table not in selected:
                selected[table] = self.table(table, snapshot.tables.get(table))
            if selected[table] and self._selects(table, delta.key):
                yield delta

    def _selects(self, table: TableName, key: Key) -> bool:
        namespaces, names = self._filters(table)
        return (not namespaces or key[0] in namespaces) and (not names or key[1] in names)

    def _filters(self, table: TableName) -> tuple[frozenset[str], frozenset[str]]:
        """Return the namespaces and names that it selects in a table; empty: all of them."""
        if table.section == "Kubernetes":
            return frozenset(self.namespaces), frozenset(self.names)
        return frozenset(), frozenset(self.services) if table.section == "Consul" else frozenset()


EVERYTHING = Projection()


def projected_digest(snapshot: WattSnapshot, projection: Projection = EVERYTHING) -> str:
    """Return a digest of the part: equal for equal content, also across restarts."""
    content = blake2b(digest_size=_BITS // 8)
    for table, part in projection.tables(snapshot).items():
        if projection.whole(table):
            total = part.total
        else:
            total = sum(part.entries[key].digest for key in projection.keys(part)) % (1 << _BITS)
        content.update(f"{table.section}/{table.name}\0{part.spelled}\0{total:x}\0".encode())
    return content.hexdigest()


def _projection(values: Mapping[str, Sequence[str]], deltas_only: bool) -> Projection:
    if sum(map(len, values.values())) > MOST_VALUES:
        raise UsageError(f"more than {MOST_VALUES} values in one projection")
    for name, each in values.items():
        if "" in each:
            raise UsageError(f"{name}: a value is empty; leave it out to select everything")
    plain = {name: tuple(dict.fromkeys(each)) for name, each in values.items() if name != "sections"}
    return Projection(**plain, sections=tuple(map(_section, values.get("sections", ()))), deltas_only=deltas_only)


def _section(text: str) -> Section:
    for section in SECTIONS:
        if section.lower() == text.lower():
            return section
    hint = suggest(text, SECTIONS) or f"one of {', '.join(SECTIONS)}"
    raise UsageError(f"unknown section {text[:60]!r}; {hint}")
