"""Changes of a watch as keys in a queue, and its newest objects to read.

    hub.watch ─▶ Objects, whole ─▶ which keys have changed since the last ─▶ mappings: whom does that concern ─▶ queue

A mapping says which keys a changed object concerns: its own, its owner's, the one that a label names. It is asked for
the object as it was and as it is, so that an owner who has lost an object is told, too. A queue gets keys, not changes:
a value that was skipped is harmless, because `Objects.changed_since` covers all that happened since the last one read.

An `Index` answers the other way round: which objects lead to a key, without looking at all of them.

`only_objects` reads a watch without its status items. The hard case is a watch that is opened again, after an error
or by another hub: its first value is compared with the last one as a whole, so nothing that happened between is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from wigwag.kube.watch.decode import Key
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from wigwag.kube.kinds import Kind
    from wigwag.kube.watch.objects import Objects
    from wigwag.kube.watch.reflector import Item
    from wigwag.pipeline.clock import Clock

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Concerns: TypeAlias = Callable[[Key, T], Iterable[K]]
"""Which keys an object with this namespace and name concerns."""


def own_key(key: Key, _: Any) -> Iterable[Key]:
    """The object itself."""
    return (key,)


def owner_key(owner: Kind) -> Concerns[Any, Key]:
    """Return a mapping to the owners of one kind, of objects that are plain JSON. Versions of the kind do not matter.

    >>> from wigwag.kube.kinds import DEPLOYMENT
    >>> reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}
    >>> owner_key(DEPLOYMENT)(("team-a", "shop-1"), {"metadata": {"ownerReferences": [reference]}})
    [('team-a', 'shop')]
    """

    def concerns(key: Key, value: Any) -> list[Key]:
        namespace = key[0] if owner.namespaced else ""
        return [
            (namespace, reference["name"])
            for reference in value["metadata"].get("ownerReferences") or ()
            if reference["kind"] == owner.kind and reference["apiVersion"].rpartition("/")[0] == owner.group
        ]

    return concerns


def label_key(name: str, namespace: str = "") -> Concerns[Any, Key]:
    """Return a mapping to the object that a label names, in the namespace that another label names or in its own.

    >>> label_key("example.org/source")(("team-a", "x"), {"metadata": {"labels": {"example.org/source": "flags"}}})
    [('team-a', 'flags')]
    """

    def concerns(key: Key, value: Any) -> list[Key]:
        labels = value["metadata"].get("labels") or {}
        return [(labels.get(namespace, key[0]), labels[name])] if name in labels else []

    return concerns


def changed_keys(before: Objects[T] | None, after: Objects[T], *mappings: Concerns[T, K]) -> set[K]:
    """Return the keys that the changes between two values concern; all objects are new if there was none before."""
    keys: set[K] = set()
    for changed in after.changed_since(before):
        for objects in (before, after):
            value = None if objects is None else objects.get(changed)
            if value is not None:
                keys.update(key for mapping in mappings for key in mapping(changed, value))
    return keys


async def only_objects(
    items: AsyncIterator[Item[T]], status: Callable[[Unavailable | None], object] = lambda _: None
) -> AsyncIterator[Objects[T]]:
    """Yield the objects of a watch. `status` is called with why there are none at present, and with None afterwards."""
    async for item in items:
        status(item if isinstance(item, Unavailable) else None)
        if not isinstance(item, Unavailable | Unchanged):
            yield item


async def reopened(
    open_watch: Callable[[], AsyncIterator[Item[T]]], clock: Clock, random: Callable[[], float]
) -> AsyncIterator[Item[T]]:
    """Yield the items of a watch for ever: one that ends or fails is `Unavailable`, and opened again after a pause."""
    retry = Retry(Backoff(), random)
    while True:
        reason = Unavailable("the watch ended")
        try:
            async with closing(open_watch()) as items:
                async for item in items:
                    retry.succeeded()
                    yield item
        except Exception as error:  # noqa: BLE001 - it may fail in any way: that is its status
            reason = Unavailable.of(error)
        yield reason
        await sleep_until(clock, retry.next(clock.now()))


class Informer(Generic[T]):
    """The newest objects of a watch. Changes go to functions such as `WorkQueue.add`.

    informer.feed(queue.add, owner_key(DEPLOYMENT))
    await informer.follow(reopened(lambda: hub.watch(KubeWatch(CONFIG_MAP), plain), clock, random))
    """

    def __init__(self) -> None:
        self.objects: Objects[T] | None = None
        """None until the watch has answered."""
        self.trouble: Unavailable | None = None
        """Why the objects may be out of date."""
        self._read = asyncio.Event()
        self._handlers: list[Callable[[Objects[T] | None, Objects[T]], None]] = []

    def on_change(self, handle: Callable[[Objects[T] | None, Objects[T]], None]) -> None:
        """Have a function called with the objects before (None: never read) and after a change, in this order."""
        self._handlers.append(handle)

    def feed(self, add: Callable[[K], object], *mappings: Concerns[T, K]) -> None:
        """Have `add` called with each key that a change concerns."""

        def handle(before: Objects[T] | None, after: Objects[T]) -> None:
            for key in changed_keys(before, after, *mappings):
                add(key)

        self.on_change(handle)

    def get(self, key: Key) -> T | None:
        """Return an object, if there is one as far as is known."""
        value: T | None = None if self.objects is None else self.objects.get(key)
        return value

    def put(self, objects: Objects[T]) -> None:
        """Replace the objects, and have the changes handled; for a pipeline that does the watching."""
        before, self.objects = self.objects, objects
        for handle in self._handlers:
            handle(before, objects)
        self._read.set()

    async def synced(self) -> None:
        """Wait until all objects have been read once."""
        await self._read.wait()

    async def follow(self, items: AsyncIterator[Item[T]]) -> None:
        """Read a watch to its end. May be called again with another watch of the same objects."""
        async for objects in only_objects(items, self._note):
            self.put(objects)

    def _note(self, trouble: Unavailable | None) -> None:
        self.trouble = trouble


class Index(Generic[T, K]):
    """The objects of an informer by the keys that mappings give them. Make it before feeds that look something up."""

    def __init__(self, informer: Informer[T], *mappings: Concerns[T, K]) -> None:
        self._mappings = mappings
        self._entries: dict[K, set[Key]] = {}
        informer.on_change(self._update)

    def __getitem__(self, key: K) -> frozenset[Key]:
        """Return the objects that lead to a key: their namespaces and names."""
        return frozenset(self._entries.get(key, ()))

    def __iter__(self) -> Iterator[K]:
        return iter(list(self._entries))

    def _update(self, before: Objects[T] | None, after: Objects[T]) -> None:
        for changed in after.changed_since(before):
            for key in self._keys(before, changed):
                entry = self._entries[key]
                entry.discard(changed)
                if not entry:
                    del self._entries[key]
            for key in self._keys(after, changed):
                self._entries.setdefault(key, set()).add(changed)

    def _keys(self, objects: Objects[T] | None, name: Key) -> set[K]:
        value = None if objects is None else objects.get(name)
        return set() if value is None else {key for mapping in self._mappings for key in mapping(name, value)}
