"""From the bytes of the API server to records: pages of a list, and events of a watch.

Every object is looked at twice: once for its name and version, and once by `decode`, which keeps what its user needs.
`plain` keeps all but what is long and of no use to anybody but the server itself; a `msgspec` type keeps its fields and
nothing else, and may keep a part as it was written (`Raw`). An object that cannot be decoded is a record with a
`problem`: it does not take its neighbours down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from wigwag.kube.errors import ApiStatus, read_status

T = TypeVar("T")
Key: TypeAlias = tuple[str, str]
"""Namespace and name."""
Decode: TypeAlias = Callable[[Raw], T]
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
END = "k8s.io/initial-events-end"
LONGEST = 16 << 20
"""The longest line of a watch, in bytes. An object of etcd has 1.5 MiB at most."""
_BAD = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class MalformedObjectError(ValueError):
    """What the server sent cannot be read."""


@dataclass(frozen=True, slots=True)
class ObjectRecord(Generic[T]):
    """One object."""

    key: Key
    version: str
    value: T | None
    """None if it cannot be decoded."""
    problem: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """A part of a list."""

    version: str
    token: str
    """What to ask for the next part with; empty: there is none."""
    records: tuple[ObjectRecord[T], ...]


@dataclass(frozen=True, slots=True)
class ObjectEvent(Generic[T]):
    """An object is there, or gone."""

    record: ObjectRecord[T]
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A bookmark: how far we are."""

    version: str
    end: bool = False
    """Whether it ends the objects that were there in the beginning."""


Event: TypeAlias = ObjectEvent[T] | Bookmark | ApiStatus


class _Meta(Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    uid: str = ""


class _Head(Struct, gc=False):
    metadata: _Meta


class _Noted(_Meta, rename="camel"):
    annotations: dict[str, str] = {}


class _Bookmark(Struct):
    metadata: _Noted


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(Struct):
    metadata: _ListMeta
    items: list[Raw] | None = None


class _Event(Struct):
    type: str
    object: Raw


_head = msgspec.json.Decoder(_Head).decode
_bookmark = msgspec.json.Decoder(_Bookmark).decode
_list = msgspec.json.Decoder(_List).decode
_event = msgspec.json.Decoder(_Event).decode
_plain = msgspec.json.Decoder(dict[str, Any]).decode


def plain(raw: Raw) -> dict[str, Any]:
    """Decode an object into plain JSON values, without `managedFields` and what kubectl applied last."""
    found = _plain(raw)
    about = found.get("metadata")
    if isinstance(about, dict):
        about.pop("managedFields", None)
        notes = about.get("annotations")
        if isinstance(notes, dict):
            notes.pop(LAST_APPLIED, None)
    return found


def metadata_only(_: Raw) -> None:
    """Decode nothing: of an object, only its name, version and uid are kept."""


def read_page(body: bytes, decode: Decode[T]) -> ListPage[T]:
    """Read a part of a list; `MalformedObjectError` if it is none."""
    try:
        found = _list(body)
        records = tuple(_record(item, decode) for item in found.items or ())
    except _BAD as error:
        raise MalformedObjectError(f"the list cannot be read: {_said(error)}") from error
    return ListPage(found.metadata.resource_version, found.metadata.continue_, records)


def read_object(body: bytes, decode: Decode[T]) -> ObjectRecord[T]:
    """Read a single object; `MalformedObjectError` if it is none."""
    try:
        return _record(Raw(body), decode)
    except _BAD as error:
        raise MalformedObjectError(f"the object cannot be read: {_said(error)}") from error


def read_event(line: bytes, decode: Decode[T]) -> Event[T] | None:
    """Read a line of a watch; None if it is of a type that we do not know."""
    try:
        found = _event(line)
        if found.type == "ERROR":
            return read_status(found.object)
        if found.type == "BOOKMARK":
            about = _bookmark(found.object).metadata
            return Bookmark(about.resource_version, about.annotations.get(END) == "true")
        if found.type in ("ADDED", "MODIFIED", "DELETED"):
            return ObjectEvent(_record(found.object, decode), found.type == "DELETED")
    except _BAD as error:
        raise MalformedObjectError(f"an event of the watch cannot be read: {_said(error)}") from error
    return None


class Lines(Generic[T]):
    """Puts the pieces of a watch together to events."""

    def __init__(self, decode: Decode[T]) -> None:
        self._decode = decode
        self._rest = bytearray()

    def feed(self, piece: bytes) -> tuple[list[Event[T]], MalformedObjectError | None]:
        """Return the events that are whole by now, up to what cannot be read, if there is such."""
        seen = len(self._rest)
        self._rest += piece
        end = self._rest.rfind(b"\n", seen)
        events: list[Event[T]] = []
        if end < 0:
            too_long = len(self._rest) > LONGEST
            return events, MalformedObjectError(f"an event has more than {LONGEST} bytes") if too_long else None
        whole, self._rest = bytes(self._rest[:end]), self._rest[end + 1 :]
        for line in whole.split(b"\n"):
            try:
                event = read_event(line, self._decode) if line.strip() else None
            except MalformedObjectError as error:
                return events, error
            if event is not None:
                events.append(event)
        return events, None

    @property
    def broken(self) -> bool:
        """Whether the last event is not whole."""
        return bool(self._rest.strip())


def _record(raw: Raw, decode: Decode[T]) -> ObjectRecord[T]:
    about = _head(raw).metadata
    key = about.namespace, about.name
    try:
        return ObjectRecord(key, about.resource_version, decode(raw), uid=about.uid)
    except _BAD as error:
        return ObjectRecord(key, about.resource_version, None, _said(error), about.uid)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.MsgspecError) else type(error).__name__
