"""Decode the responses of the API server: pages of a list, and events of a watch.

Every object is decoded twice: once for its name and version, and once by the caller's `decode`, which keeps what the
caller needs. `plain` keeps all but the long fields that only the server itself uses; a `msgspec` type keeps its fields,
and may keep a part undecoded (`Raw`). An object that cannot be decoded is a record with a `problem`; the others of the
same response are not affected.
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
    """The server sent something that cannot be decoded."""


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
    """A page of a list."""

    version: str
    token: str
    """The continue token of the next page; empty: this is the last."""
    records: tuple[ObjectRecord[T], ...]


@dataclass(frozen=True, slots=True)
class ObjectEvent(Generic[T]):
    """An object was added, modified or deleted."""

    record: ObjectRecord[T]
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A bookmark: the version that the watch has reached."""

    version: str
    end: bool = False
    """Whether it ends the initial objects."""


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
    value = _plain(raw)
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):
            annotations.pop(LAST_APPLIED, None)
    return value


def metadata_only(_: Raw) -> None:
    """Decode nothing: only name, version and uid of an object are kept."""


def read_page(body: bytes, decode: Decode[T]) -> ListPage[T]:
    """Read a page of a list; `MalformedObjectError` if it is none."""
    try:
        page = _list(body)
        records = tuple(_record(item, decode) for item in page.items or ())
    except _BAD as error:
        raise MalformedObjectError(f"the list cannot be decoded: {_reason(error)}") from error
    return ListPage(page.metadata.resource_version, page.metadata.continue_, records)


def read_object(body: bytes, decode: Decode[T]) -> ObjectRecord[T]:
    """Read a single object; `MalformedObjectError` if it is none."""
    try:
        return _record(Raw(body), decode)
    except _BAD as error:
        raise MalformedObjectError(f"the object cannot be decoded: {_reason(error)}") from error


def read_event(line: bytes, decode: Decode[T]) -> Event[T] | None:
    """Read a line of a watch; None if its type is unknown."""
    try:
        event = _event(line)
        if event.type == "ERROR":
            return read_status(event.object)
        if event.type == "BOOKMARK":
            metadata = _bookmark(event.object).metadata
            return Bookmark(metadata.resource_version, metadata.annotations.get(END) == "true")
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            return ObjectEvent(_record(event.object, decode), event.type == "DELETED")
    except _BAD as error:
        raise MalformedObjectError(f"an event of the watch cannot be decoded: {_reason(error)}") from error
    return None


class Lines(Generic[T]):
    """Splits the chunks of a watch into events."""

    def __init__(self, decode: Decode[T]) -> None:
        self._decode = decode
        self._rest = bytearray()

    def feed(self, piece: bytes) -> tuple[list[Event[T]], MalformedObjectError | None]:
        """Return the events that are complete, up to the first that cannot be decoded, and that error."""
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
        """Whether the last event is incomplete."""
        return bool(self._rest.strip())


def _record(raw: Raw, decode: Decode[T]) -> ObjectRecord[T]:
    metadata = _head(raw).metadata
    key = metadata.namespace, metadata.name
    try:
        return ObjectRecord(key, metadata.resource_version, decode(raw), uid=metadata.uid)
    except _BAD as error:
        return ObjectRecord(key, metadata.resource_version, None, _reason(error), metadata.uid)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, msgspec.MsgspecError) else type(error).__name__
