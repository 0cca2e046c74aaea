"""The objects of a watch, as far as they are known: changed by events, replaced by lists, published as a whole.

Events may come twice, late, or in another order than they happened. So each object has the version it is of, and one
that went leaves its last version behind for a while: what is older than that does not bring it back. Versions are
compared only where they can be (decimal numbers, of one kind); otherwise the event that comes last counts. A list is
the truth whatever its versions are, because a restored server counts from an earlier number.

Every object the server has told of has an identity here (uid and version), also one that cannot be decoded: that is
what `differing` compares with a list of metadata.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.kube.watch.decode import Key, ObjectRecord

T = TypeVar("T")
GONE = 1000
"""How many objects that went are remembered."""


def newer(version: str, than: str) -> bool | None:
    """Compare two versions; None if they cannot be compared.

    >>> newer("10", "9"), newer("9", "9"), newer("x", "9"), newer("10", "")
    (True, False, None, None)
    """
    if not (_number(version) and _number(than)):
        return None
    return (len(version), version) > (len(than), than)


def latest(version: str, known: str) -> str:
    """Return the later of two versions; if they cannot be compared, the first."""
    return known if not version or newer(known, version) else version


def _number(version: str) -> bool:
    return version.isascii() and version.isdigit() and (version[0] != "0" or version == "0")


class ObjectVersion(NamedTuple):
    """Which object it is, and in which version."""

    version: str = ""
    uid: str = ""


NOBODY = ObjectVersion()
"""The identity of an object that is not known."""


class ObjectStore(Generic[T]):
    """Objects by namespace and name."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._known: dict[Key, ObjectVersion] = {}
        self._gone: dict[Key, str] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def snapshot(self) -> Mapping[Key, T]:
        """Return the objects as they are now; what comes later does not change them."""
        return MappingProxyType(self._objects.copy())

    def put(self, record: ObjectRecord[T]) -> bool:
        """Take in an object, and tell whether that changed anything. One that cannot be decoded stays as it was."""
        key, value = record.key, record.value
        known = self.identity(key).version or self._gone.get(key, "")
        if newer(record.version, known) is False:
            return False
        self._gone.pop(key, None)
        self._known[key] = ObjectVersion(record.version, record.uid)
        if value is None or self._objects.get(key) == value:
            return False
        self._objects[key] = value
        return True

    def remove(self, record: ObjectRecord[T]) -> bool:
        """Take out an object, and tell whether that changed anything."""
        key = record.key
        if newer(self.identity(key).version, record.version):
            return False
        self._gone[key] = latest(record.version, self._gone.get(key, ""))
        if len(self._gone) > GONE:
            del self._gone[next(iter(self._gone))]
        self._known.pop(key, None)
        return self._objects.pop(key, None) is not None

    def replace(self, records: Iterable[ObjectRecord[T]]) -> bool:
        """Have these objects and no others, and tell whether that changed anything."""
        before = self._objects
        objects: dict[Key, T] = {}
        known: dict[Key, ObjectVersion] = {}
        for record in records:
            known[record.key] = ObjectVersion(record.version, record.uid)
            value = before.get(record.key) if record.value is None else record.value
            if value is not None:
                objects[record.key] = value
        self._known = known
        self._gone.clear()
        if objects == before:
            return False
        self._objects = objects
        return True

    def identity(self, key: Key) -> ObjectVersion:
        """Return the identity of an object; `NOBODY` if there is none."""
        return self._known.get(key, NOBODY)

    def differing(self, records: Mapping[Key, ObjectRecord[None]], since: str, *, whole: bool) -> dict[Key, str]:
        """Return the objects that a list shows in another version than they have here, with that version.

        What has changed here `since` a version is no difference. An object that the list does not show has an empty
        version; if the list is not `whole`, that means nothing.
        """
        found = {
            record.key: record.version
            for record in records.values()
            if ObjectVersion(record.version, record.uid) != self.identity(record.key)
            and not newer(self.identity(record.key).version or self._gone.get(record.key, ""), since)
        }
        if whole:
            gone = (key for key in self._known if key not in records)
            found |= {key: "" for key in gone if not newer(self.identity(key).version, since)}
        return found
