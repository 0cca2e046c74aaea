"""Formats of a snapshot: `watt1`, as the original watt writes it, and `v2`, an envelope with states and changes.

    WattSnapshot, Projection ─▶ a tree of members ─▶ chunks of JSON

Entries are JSON already, so a document is joined, never encoded again. It is written in chunks while the reader takes
them, and no more than a chunk of it exists at a time. Objects are sorted by namespace and name: equal content has equal
text.

`watt1` has two members, `Consul` and `Kubernetes`, with four blanks of indentation. A snapshot with files, documents or
Consul KV, which the original cannot watch, has further members: `Files`, `Documents`, `Consul.KV`. The original's
readers look up members by name, so these do not disturb them. A kind without objects is `[]`, there it was `null`.

The hard case is the indentation of 10,000 objects. A batch of them is wrapped in as many brackets as it is deep,
formatted at C speed, and unwrapped again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec
from msgspec import Struct

from wigwag.watt.snapshots.projection import EVERYTHING, object_kind
from wigwag.watt.snapshots.snapshot import ENDPOINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from wigwag.watt.snapshots.projection import Projection
    from wigwag.watt.snapshots.snapshot import Delta, Key, WatchPart, WattSnapshot

Format: TypeAlias = Literal["watt1", "v2"]
FORMATS: tuple[Format, ...] = get_args(Format)
CHUNK = 64 << 10
"""Bytes of a chunk, about: an entry is never divided."""
_BATCH = 16 << 10
"""Bytes of entries that are joined at a time. Formatted with indentation, they are nearly a chunk."""
_INDENT = 4
MOST_DELTAS = 1_000

Sources: TypeAlias = "Mapping[str, Mapping[str, Any]]"
"""Title of a watch to its state, age and error."""
Node: TypeAlias = "bytes | Many | Mapping[str, Node]"
"""A value as JSON, many values, or an object."""
_encode = msgspec.json.encode


class Many(NamedTuple):
    """An array of values, or an object of `"name":value` members, each as compact JSON."""

    brackets: Literal[b"[]", b"{}"]
    items: Iterable[bytes]


class _Watt1Endpoint(Struct, rename=lambda name: {"system_id": "SystemID", "id": "ID"}.get(name, name.title())):
    """An endpoint as the original knows it."""

    system_id: str = ""
    id: str = ""
    service: str = ""
    address: str = ""
    port: int = 0
    tags: list[str] | None = None


class _Watt1Endpoints(Struct, rename="pascal"):
    """The endpoints of a service, as the original knows them."""

    id: str = ""
    service: str = ""
    endpoints: list[_Watt1Endpoint] = []


_read_endpoints = msgspec.json.Decoder(_Watt1Endpoints).decode


def document(
    snapshot: WattSnapshot, format: Format, projection: Projection = EVERYTHING, sources: Sources | None = None
) -> Iterator[bytes]:
    """Yield the chunks of a document. `sources` says how the watches are doing now; `v2` shows it."""
    if format == "watt1":
        return _chunks(_indented(_watt1(snapshot, projection), 0))
    return _chunks(_compact(_v2(snapshot, projection, sources)))


def render_files(snapshot: WattSnapshot, files: Mapping[str, tuple[Projection, Format]]) -> dict[str, bytes]:
    """Return the content of files, each a projection. That of `watt1` depends on the entries only."""
    return {name: b"".join(document(snapshot, form, part)) for name, (part, form) in files.items()}


def shown_deltas(
    snapshot: WattSnapshot, projection: Projection, deltas: Sequence[Delta], most: int = MOST_DELTAS
) -> tuple[list[dict[str, str]], bool]:
    """Return changes as plain JSON, and whether there are more than those."""
    selected = list(islice(projection.deltas(snapshot, deltas), most + 1))
    kinds = {table: _kind_fields(snapshot.tables.get(table)) for table in {delta.table for delta in selected}}
    return [_delta_fields(delta) | kinds[delta.table] for delta in selected[:most]], len(selected) > most


def rfc3339(seconds: float) -> str:
    """Return a time in UTC with milliseconds.

    >>> rfc3339(1.5)
    '1970-01-01T00:00:01.500Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _delta_fields(delta: Delta) -> dict[str, str]:
    table, (namespace, name) = delta.table, delta.key
    return {"section": table.section, "table": table.name, "namespace": namespace, "name": name, "type": delta.type}


def _kind_fields(part: WatchPart | None) -> dict[str, str]:
    if part is None or part.table.section != "Kubernetes" or not part.entries:
        return {}
    kind = object_kind(part)
    return {"kind": kind.kind, "apiVersion": kind.api_version}


# trees


def _watt1(snapshot: WattSnapshot, projection: Projection) -> dict[str, Node]:
    tables = projection.tables(snapshot)
    kinds: dict[str, WatchPart] = {}
    consul: dict[str, Node] = {ENDPOINTS.name: Many(b"{}", ())}
    for table, part in tables.items():
        if table.section == "Kubernetes":
            kinds[part.spelled if part.spelled and part.spelled not in kinds else table.name] = part
        elif table.section == "Consul":
            consul[table.name] = _members(part, projection, _watt1_endpoints if table.name == ENDPOINTS.name else None)
    lists: dict[str, Node] = {kind: _objects(part, projection) for kind, part in sorted(kinds.items())}
    others = {section: tree for section, tree in _others(tables.values(), projection).items() if tree}
    return {"Consul": consul, "Kubernetes": lists, **others}


def _v2(snapshot: WattSnapshot, projection: Projection, sources: Sources | None) -> dict[str, Node]:
    head = {
        "id": snapshot.id,
        "created": rfc3339(snapshot.created),
        "digest": snapshot.digest,
        "complete": snapshot.complete,
        "unresolved": snapshot.unresolved,
    } | ({} if sources is None else {"sources": sources})
    sections: dict[str, Node] = {} if projection.deltas_only else _v2_sections(snapshot, projection)
    shown, truncated = shown_deltas(snapshot, projection, snapshot.deltas)
    tail = {"Deltas": shown} | ({"deltas_truncated": True} if truncated else {})
    return {**_encoded(head), **sections, **_encoded(tail)}


def _v2_sections(snapshot: WattSnapshot, projection: Projection) -> dict[str, Node]:
    tables = projection.tables(snapshot)
    kinds: dict[str, Node] = {}
    consul: dict[str, Node] = {ENDPOINTS.name: Many(b"[]", ())}
    for table, part in tables.items():
        if table.section == "Kubernetes":
            kinds[table.name] = _objects(part, projection)
        elif table.section == "Consul":
            consul[table.name] = (_objects if table.name == ENDPOINTS.name else _members)(part, projection)
    sections: dict[str, Node] = {"Kubernetes": kinds, "Consul": consul, **_others(tables.values(), projection)}
    return {section: tree for section, tree in sections.items() if projection.section(section)}  # type: ignore[arg-type]


def _others(parts: Iterable[WatchPart], projection: Projection) -> dict[str, dict[str, Node]]:
    """Return files by directory, and documents by URI. A document is the one entry of its table."""
    sections: dict[str, dict[str, Node]] = {"Files": {}, "Documents": {}}
    for part in parts:
        if part.table.section == "Files":
            sections["Files"][part.table.name] = _members(part, projection)
        elif part.table.section == "Documents":
            sections["Documents"][part.table.name] = next((each.body for each in part.entries.values()), b"null")
    return sections


def _objects(part: WatchPart, projection: Projection) -> Many:
    return Many(b"[]", (part.entries[key].body for key in sorted(projection.keys(part))))


def _members(part: WatchPart, projection: Projection, body: Callable[[bytes], bytes] | None = None) -> Many:
    """Return entries by their names, each with its body, or what `body` makes of that."""
    whole = _watch_id if part.table.name == ENDPOINTS.name else "|".join
    named = _named(sorted(projection.keys(part)), whole)
    bodies = ((name, part.entries[key].body) for name, key in named)
    return Many(b"{}", (b"%b:%b" % (_encode(name), body(text) if body else text) for name, text in bodies))


def _named(keys: Iterable[Key], whole: Callable[[Key], str]) -> Iterator[tuple[str, Key]]:
    """Yield keys by name. A name that another has, such as a service of two datacenters, becomes that of its watch."""
    seen: set[str] = set()
    for key in keys:
        yield whole(key) if key[1] in seen else key[1], key
        seen.add(key[1])


def _watch_id(key: Key) -> str:
    """Return which watch the endpoints of a service are from: `ADDRESS|DATACENTER|SERVICE`."""
    return key[0]


def _watt1_endpoints(body: bytes) -> bytes:
    return _encode(_read_endpoints(body))


def _encoded(members: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: _encode(value) for name, value in members.items()}


# text


def _compact(node: Node) -> Iterator[bytes]:
    if isinstance(node, bytes):
        yield node
    elif isinstance(node, Many):
        yield node.brackets[:1]
        for at, batch in enumerate(_batches(node.items)):
            yield b"," * (at > 0) + batch
        yield node.brackets[1:]
    else:
        yield b"{"
        for at, (name, value) in enumerate(node.items()):
            yield b"%b%b:" % (b"," * (at > 0), _encode(name))
            yield from _compact(value)
        yield b"}"


def _indented(node: Node, depth: int) -> Iterator[bytes]:
    """Yield a node that is `depth` levels deep."""
    if isinstance(node, bytes):
        yield msgspec.json.format(node, indent=_INDENT).replace(b"\n", _line(depth))
    elif isinstance(node, Many):
        begun = False
        for batch in _batches(node.items):
            yield b"," if begun else node.brackets[:1]
            yield _indented_items(batch, node.brackets, depth)
            begun = True
        yield _line(depth) + node.brackets[1:] if begun else node.brackets
    elif not node:
        yield b"{}"
    else:
        for at, (name, value) in enumerate(node.items()):
            yield b"%b%b%b: " % (b"," if at else b"{", _line(depth + 1), _encode(name))
            yield from _indented(value, depth + 1)
        yield _line(depth) + b"}"


def _indented_items(batch: bytes, brackets: bytes, depth: int) -> bytes:
    """Return the items of an array or object that is `depth` levels deep, each on lines of its own."""
    wrapped = b"%b%b%b%b%b" % (b"[" * depth, brackets[:1], batch, brackets[1:], b"]" * depth)
    before = sum(1 + len(_line(level)) for level in range(1, depth + 1)) + 1
    after = sum(len(_line(level)) + 1 for level in range(depth + 1))
    return msgspec.json.format(wrapped, indent=_INDENT)[before:-after]


def _line(depth: int) -> bytes:
    return b"\n" + b" " * (_INDENT * depth)


def _batches(items: Iterable[bytes]) -> Iterator[bytes]:
    """Join items with commas, up to the size of a batch."""
    batch: list[bytes] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item)
        if size >= _BATCH:
            yield b",".join(batch)
            batch, size = [], 0
    if batch:
        yield b",".join(batch)


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join pieces up to the size of a chunk. While it is being sent, nothing else is held."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= CHUNK:
            del piece
            yield _taken(gathered)
            size = 0
    yield _taken(gathered)


def _taken(pieces: list[bytes]) -> bytes:
    joined = b"".join(pieces)
    pieces.clear()
    return joined
