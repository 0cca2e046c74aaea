"""The picture: every watched thing in one immutable snapshot, assembled at the cost of what has changed.

    WatchPart of each watch ─▶ Assembler ─▶ WattSnapshot      a table per kind, an entry per object: JSON and digest

Whatever a watch yields is a `WatchPart`: entries by key, for one table. An entry is JSON that is written once, when the
object arrives. A snapshot shares its entries with the snapshots before it, and so does a table whose parts are the
same. The digest of a table is the sum of the digests of its entries, so one change costs one subtraction and one
addition, not a pass over ten thousand objects.

The hard case is an object that two watches of the same kind match: it is one entry of the table, and counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, json

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from wigwag.pipeline.aggregate import Values
    from wigwag.pipeline.spec import S

Key: TypeAlias = tuple[str, str]
"""Namespace and name; what has no namespace, has an empty one."""
Section: TypeAlias = Literal["Kubernetes", "Consul", "Files", "Documents"]
DeltaType: TypeAlias = Literal["add", "update", "delete"]
_BITS = 128
_MASK = (1 << _BITS) - 1
_SHALLOW, _MARGIN = 200, 200
"""Brackets of JSON that cannot be deep, and levels that are kept free."""


class Entry(Struct, frozen=True, eq=False, gc=False):
    """One thing of a table, as compact JSON. Entries with the same digest are equal, whatever their text."""

    body: bytes
    digest: int

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Entry) and self.digest == other.digest)

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct has an inequality of its own

    def __hash__(self) -> int:
        return hash(self.digest)


def entry(name: object, body: bytes, significant: bytes | None = None) -> Entry:
    """Return an entry for what `name` names; `significant` is the content that counts, if that is not the whole body.

    >>> entry("a", b"{}") == entry("a", b"{}"), entry("a", b"{}") == entry("b", b"{}")
    (True, False)
    >>> entry("a", b'{"version":1}', b"{}") == entry("a", b'{"version":2}', b"{}")
    True
    """
    content = blake2b(repr(name).encode(), digest_size=_BITS // 8)
    content.update(b"\0")
    content.update(body if significant is None else significant)
    return Entry(body, int.from_bytes(content.digest()))


def check_depth(body: bytes) -> None:
    """Raise `RecursionError` for JSON that is nested so deeply that a document around it could not be written.

    Who writes documents may be deeper in calls, which count: a margin is kept.

    >>> check_depth(b"[" * 500 + b"]" * 500)
    >>> check_depth(b"[" * 900 + b"]" * 900)
    Traceback (most recent call last):
    RecursionError: maximum recursion depth exceeded while deserializing an object
    """
    if body.count(b"[") + body.count(b"{") > _SHALLOW:
        json.format(b"[" * _MARGIN + body + b"]" * _MARGIN)


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table of a snapshot, by its canonical name: `services`, `mappings.getambassador.io`, a path."""

    section: Section
    name: str


ENDPOINTS = TableName("Consul", "Endpoints")
"""The endpoints of services, one entry per watch."""


@dataclass(frozen=True, slots=True, eq=False)
class WatchPart:
    """What one watch knows: entries of a table."""

    table: TableName
    entries: Mapping[Key, Entry]
    spelled: str = ""
    """The name of the table as the user wrote it; empty: the canonical one."""
    total: int = 0
    """The sum of the digests."""
    size: int = 0
    """The bytes of all entries."""
    parts: tuple[WatchPart, ...] = ()
    """The parts that it was merged from."""

    @classmethod
    def of(
        cls, table: TableName, entries: Mapping[Key, Entry], spelled: str = "", before: WatchPart | None = None
    ) -> WatchPart:
        """Return a part; with the part `before` it, at the cost of what has changed since."""
        old: Mapping[Key, Entry] = {} if before is None else before.entries
        total, size = (0, 0) if before is None else (before.total, before.size)
        for key in changed_keys(old, entries):
            gone, new = old.get(key), entries.get(key)
            total += (0 if new is None else new.digest) - (0 if gone is None else gone.digest)
            size += (0 if new is None else len(new.body)) - (0 if gone is None else len(gone.body))
        return cls(table, entries, spelled, total & _MASK, size)

    def is_called(self, name: str) -> bool:
        """Tell whether this is a name of the table: the canonical one, or as one of its watches has it."""
        return name in (self.table.name, self.spelled, *(part.spelled for part in self.parts))


@dataclass(frozen=True, slots=True)
class Delta:
    """What has happened to one entry."""

    table: TableName
    key: Key
    type: DeltaType


@dataclass(frozen=True, slots=True, eq=False)
class WattSnapshot:
    """All that is watched, at one moment."""

    tables: Mapping[TableName, WatchPart] = field(default_factory=dict)
    unresolved: tuple[str, ...] = ()
    """The watches that have not answered yet."""
    digest: str = ""
    """Equal for equal content, also across restarts."""
    id: int = 0
    """1 for the first; 0: not published yet."""
    created: float = 0.0
    """Seconds since the epoch."""
    deltas: tuple[Delta, ...] = ()
    """What has changed since the snapshot before it."""

    @property
    def complete(self) -> bool:
        """Whether every watch has answered."""
        return not self.unresolved

    @property
    def size(self) -> int:
        """The bytes of all entries."""
        return sum(part.size for part in self.tables.values())

    def objects(self, kind: str) -> list[dict[str, Any]]:
        """Return the Kubernetes objects of a kind, sorted; `kind` is written as for the watch, or canonically."""
        parts = (part for table, part in self.tables.items() if table.section == "Kubernetes" and part.is_called(kind))
        return [json.decode(part.entries[key].body) for part in parts for key in sorted(part.entries)]

    def endpoints(self, service: str) -> list[dict[str, Any]]:
        """Return the endpoints of a Consul service, in all datacenters that are watched."""
        entries = self.tables[ENDPOINTS].entries if ENDPOINTS in self.tables else {}
        services = (json.decode(entries[key].body) for key in sorted(entries) if key[1] == service)
        return [endpoint for each in services for endpoint in each["Endpoints"]]

    def files(self, directory: str) -> dict[str, Any]:
        """Return the contents of the files of a directory by name; `directory` is written as for the watch."""
        part = self.tables.get(TableName("Files", directory))
        return {} if part is None else {name: json.decode(each.body) for (_, name), each in part.entries.items()}

    def numbered(self, number: int, created: float, before: WattSnapshot | None) -> WattSnapshot:
        """Return the snapshot as the next one after another."""
        return replace(self, id=number, created=created, deltas=tuple(deltas(before, self)))


def changed_keys(before: Mapping[Key, Entry], after: Mapping[Key, Entry]) -> Collection[Key]:
    """Return the keys whose entries differ; a mapping that remembers its changes (`changed_since`) is asked."""
    since: Callable[[Mapping[Key, Entry]], Collection[Key]] | None = getattr(after, "changed_since", None)
    if since is not None:
        return since(before)
    return {key for key in before.keys() | after.keys() if _differ(before.get(key), after.get(key))}


def deltas(before: WattSnapshot | None, after: WattSnapshot) -> Iterator[Delta]:
    """Yield the changes from one snapshot to another, table by table."""
    old: Mapping[TableName, WatchPart] = {} if before is None else before.tables
    for table in sorted(old.keys() | after.tables.keys()):
        one, other = old.get(table), after.tables.get(table)
        if one is other:
            continue
        gone: Mapping[Key, Entry] = {} if one is None else one.entries
        new: Mapping[Key, Entry] = {} if other is None else other.entries
        for key in sorted(_changed(one, other)):
            kind: DeltaType = "add" if key not in gone else "delete" if key not in new else "update"
            yield Delta(table, key, kind)


def _changed(before: WatchPart | None, after: WatchPart | None) -> Collection[Key]:
    """Return the keys that differ; of tables merged from the same watches, only the watches that changed are read."""
    gone: Mapping[Key, Entry] = {} if before is None else before.entries
    new: Mapping[Key, Entry] = {} if after is None else after.entries
    if before is None or after is None or not after.parts or len(before.parts) != len(after.parts):
        return changed_keys(gone, new)
    pairs = ((one, other) for one, other in zip(before.parts, after.parts, strict=True) if one is not other)
    candidates = {key for one, other in pairs for key in changed_keys(one.entries, other.entries)}
    return {key for key in candidates if _differ(gone.get(key), new.get(key))}


def _differ(one: Entry | None, other: Entry | None) -> bool:
    return one is not other and one != other


class Assembler:
    """Makes snapshots; remembers the last one, to share its tables."""

    def __init__(self, title: Callable[[Hashable], str] = str) -> None:
        """`title` returns how a watch is named in `unresolved`."""
        self._title = title
        self._parts: dict[TableName, tuple[WatchPart, ...]] = {}
        self._tables: dict[TableName, WatchPart] = {}

    def __call__(self, values: Values[S, WatchPart]) -> WattSnapshot:
        """Return a snapshot of the parts. In a table with several parts, the order is that of the watches."""
        grouped: dict[TableName, list[WatchPart]] = {}
        table, group = None, list[WatchPart]()
        for part in values.values():
            if part.table is not table:  # neighbours mostly share a table, and then it is not hashed again
                table, group = part.table, grouped.setdefault(part.table, [])
            group.append(part)
        parts = {table: tuple(group) for table, group in grouped.items()}
        self._tables = {table: self._table(table, group) for table, group in parts.items()}
        self._parts = parts
        unresolved = tuple(self._title(spec) for spec in values.waiting)
        return WattSnapshot(self._tables, unresolved, _digest(self._tables, unresolved))

    def _table(self, table: TableName, parts: tuple[WatchPart, ...]) -> WatchPart:
        before = self._parts.get(table, ())
        if len(before) == len(parts) and all(one is other for one, other in zip(before, parts, strict=True)):
            return self._tables[table]
        return parts[0] if len(parts) == 1 else _merged(parts)


def _merged(parts: tuple[WatchPart, ...]) -> WatchPart:
    entries: dict[Key, Entry] = {}
    for part in parts:
        entries |= part.entries
    if len(entries) == sum(len(part.entries) for part in parts):
        total, size = sum(part.total for part in parts), sum(part.size for part in parts)
    else:  # watches overlap
        total = sum(entry.digest for entry in entries.values())
        size = sum(len(entry.body) for entry in entries.values())
    return WatchPart(parts[0].table, entries, parts[0].spelled, total & _MASK, size, parts)


def _digest(tables: Mapping[TableName, WatchPart], unresolved: tuple[str, ...]) -> str:
    content = blake2b(digest_size=16)
    for table in sorted(tables):
        content.update(f"{table.section}/{table.name}\0{tables[table].total:x}\0".encode())
    content.update("\0".join(sorted(unresolved)).encode())
    return content.hexdigest()
