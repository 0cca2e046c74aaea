"""Bytes that wait for clients to take them, counted: each object once, however many streams wait with it.

A document that is sent to a thousand streams is one object, and what waits is a reference to it. So a connection
counts each object once for all of its streams, and the process counts it once for all of its connections.
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
