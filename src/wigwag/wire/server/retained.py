"""What waits for slow clients: how many bytes, and whether a client takes them at all.

A document that is sent to a thousand streams is one object, and what waits is a reference to it. So a connection
counts each object once for all of its streams, and the process counts it once for all of its connections. Whether a
client makes progress is judged by amount: a byte now and then is none.
"""

from __future__ import annotations


class Retained:
    """The objects that one connection keeps alive, or those of all connections, whose `parent` is None."""

    __slots__ = ("_objects", "_parent", "size")

    def __init__(self, parent: Retained | None = None) -> None:
        self._parent = parent
        self._objects: dict[int, tuple[int, int]] = {}
        """By identity, which cannot change while the object is alive: how often it is held, and its size."""
        self.size = 0
        """Bytes of all objects."""

    def add(self, data: bytes) -> None:
        """Hold an object once more."""
        held, size = self._objects.get(id(data), (0, len(data)))
        self._objects[id(data)] = held + 1, size
        if not held:
            self.size += size
            if self._parent is not None:
                self._parent.add(data)

    def remove(self, data: bytes) -> None:
        """Hold an object once less."""
        held, size = self._objects[id(data)]
        if held > 1:
            self._objects[id(data)] = held - 1, size
            return
        del self._objects[id(data)]
        self.size -= size
        if self._parent is not None:
            self._parent.remove(data)

    def exclusive(self) -> int:
        """Return the bytes that would be free if this connection were closed."""
        others = self._parent._objects if self._parent is not None else {}
        return sum(size for key, (_, size) in self._objects.items() if others.get(key, (1, 0))[0] == 1)


class Progress:
    """What a client had taken when it last made progress, and when that was."""

    __slots__ = ("_mark", "since")

    def __init__(self) -> None:
        self._mark, self.since = -1, 0.0

    def stalled(self, taken: int, now: float, least: int) -> float:
        """Return for how long less than `least` bytes were taken; `taken` is how much was so far."""
        if self._mark < 0 or taken < self._mark or taken - self._mark >= max(1, least):
            self._mark, self.since = taken, now
        return now - self.since
