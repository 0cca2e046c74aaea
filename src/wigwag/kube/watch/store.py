"""The objects of a watch: changed by events, replaced by lists, published as a whole.

Events may arrive twice, late, or out of order. So each object is kept with its version, and the version of a deleted
one is remembered for a while: an older event does not bring it back. Versions are compared only where they can be
(decimal numbers of one kind); otherwise the last event wins. A list always wins, because a restored server counts from
an earlier number.

Each change of an object is noted in a journal, which the published mappings share (see `objects`). An object that a
list has as it was stays the same Python object, so readers can tell by identity, too.

Every object has an identity here (uid and version), also one that cannot be decoded: `differing` compares that with a
list of metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from wigwag.kube.watch.objects import ChangeJournal, Objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.kube.watch.decode import Key, ObjectRecord

T = TypeVar("T")
GONE = 1000
"""How many deleted objects are remembered."""


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
    """The identity of an object: its version and uid."""

    version: str = ""
    uid: str = ""


UNKNOWN = ObjectVersion()


class ObjectStore(Generic[T]):
    """Objects by namespace and name."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._known: dict[Key, ObjectVersion] = {}
        self._gone: dict[Key, str] = {}
        self._journal = ChangeJournal()

    def snapshot(self) -> Objects[T]:
        """Return the objects as they are now; later events do not change it."""
        return Objects(self._objects, self._journal)

    def put(self, record: ObjectRecord[T]) -> bool:
        """Add or update an object; return whether that changed anything. One that cannot be decoded stays as it was."""
        key, value = record.key, record.value
        known = self.identity(key).version or self._gone.get(key, "")
        if newer(record.version, known) is False:
            return False
        self._gone.pop(key, None)
        self._known[key] = ObjectVersion(record.version, record.uid)
        if value is None or self._objects.get(key) == value:
            return False
        self._objects[key] = value
        self._journal.add(key)
        return True

    def remove(self, record: ObjectRecord[T]) -> bool:
        """Remove an object; return whether that changed anything."""
        key = record.key
        if newer(self.identity(key).version, record.version):
            return False
        self._gone[key] = latest(record.version, self._gone.get(key, ""))
        if len(self._gone) > GONE:
            del self._gone[next(iter(self._gone))]
        self._known.pop(key, None)
        if self._objects.pop(key, None) is None:
            return False
        self._journal.add(key)
        return True

    def replace(self, records: Iterable[ObjectRecord[T]]) -> bool:
        """Replace all objects; return whether that changed anything."""
        before = self._objects
        objects: dict[Key, T] = {}
        known: dict[Key, ObjectVersion] = {}
        for record in records:
            key, value, held = record.key, record.value, before.get(record.key)
            known[key] = ObjectVersion(record.version, record.uid)
            value = held if value is None or value == held else value
            if value is not None:
                objects[key] = value
        changed = [key for key, value in objects.items() if before.get(key) is not value]
        changed += [key for key in before if key not in objects]
        for key in changed:
            self._journal.add(key)
        self._objects, self._known = objects, known
        self._gone.clear()
        return bool(changed)

    def identity(self, key: Key) -> ObjectVersion:
        """Return the identity of an object; `UNKNOWN` if there is none."""
        return self._known.get(key, UNKNOWN)

    def differing(self, records: Mapping[Key, ObjectRecord[None]], since: str, *, whole: bool) -> dict[Key, str]:
        """Return the objects whose version in a list differs from the one here, with the version in the list.

        An object that has changed here `since` a version does not count. One that is missing in a `whole` list has an
        empty version.
        """
        differences = {
            record.key: record.version
            for record in records.values()
            if ObjectVersion(record.version, record.uid) != self.identity(record.key)
            and not newer(self.identity(record.key).version or self._gone.get(record.key, ""), since)
        }
        if whole:
            gone = (key for key in self._known if key not in records)
            differences |= {key: "" for key in gone if not newer(self.identity(key).version, since)}
        return differences
