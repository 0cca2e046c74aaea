"""Telling everyone the newest value: `Topic`, and `History`, a topic that remembers.

A topic holds one value and a serial that counts up. The writer swaps the value and wakes whoever waits; it never waits
and keeps nothing per reader but a future while that reader waits. A reader remembers only the serial it saw last, so it
may skip values, but it cannot miss the last one: before it waits, it compares serials.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Topic(Generic[T]):
    """The latest value.

    >>> topic = Topic[str]()
    >>> topic.value, topic.serial
    (None, 0)
    >>> topic.set("a"); topic.set("b"); topic.value, topic.serial
    ('b', 2)
    """

    def __init__(self) -> None:
        self.value: T | None = None
        self.serial = 0
        """How many values there have been; 0: none yet."""
        self._listener: Callable[[T], None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def listen(self, listener: Callable[[T], None]) -> None:
        """Have one function called with each value, before anybody else knows: for whoever hands it on to many."""
        assert self._listener is None, "there is one already"
        self._listener = listener

    def set(self, value: T) -> None:
        """Replace the value and wake the readers."""
        self.value = value
        self.serial += 1
        if self._listener is not None:
            self._listener(value)
        waiting, self._waiting = self._waiting, set()
        for reader in waiting:
            if not reader.done():
                reader.set_result(None)

    async def after(self, serial: int) -> tuple[int, T]:
        """Return the newest serial and value, as soon as the serial is another one than that given."""
        while self.serial == serial or not self.serial:
            reader = asyncio.get_running_loop().create_future()
            self._waiting.add(reader)
            try:
                await reader
            finally:
                self._waiting.discard(reader)
        return self.serial, self.value  # type: ignore[return-value]  # serial > 0: a value has been set

    def __aiter__(self) -> TopicSubscription[T]:
        """Iterate over the current value, if there is one, and then over what follows, for ever."""
        return TopicSubscription(self)


class TopicSubscription(Generic[T]):
    """One reader of a topic, and how far it has read. It may be dropped at any time."""

    __slots__ = ("_topic", "serial")

    def __init__(self, topic: Topic[T], serial: int = 0) -> None:
        self._topic, self.serial = topic, serial

    def __aiter__(self) -> TopicSubscription[T]:
        return self

    async def __anext__(self) -> T:
        self.serial, value = await self._topic.after(self.serial)
        return value


class History(Topic[T]):
    """A topic that keeps the last values by serial.

    >>> history = History[str](2)
    >>> for value in "abc":
    ...     history.set(value)
    >>> history.serials(), history.get(3), history.get(1)
    ((2, 3), 'c', None)
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._kept: dict[int, T] = {}

    def set(self, value: T) -> None:
        self._kept[self.serial + 1] = value
        self._kept.pop(self.serial + 1 - self._size, None)
        super().set(value)

    def get(self, serial: int) -> T | None:
        """Return the value with that serial, if it is still kept."""
        return self._kept.get(serial)

    def serials(self) -> tuple[int, ...]:
        """Return the serials that are kept, oldest first."""
        return tuple(self._kept)
