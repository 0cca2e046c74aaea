"""Publishing: `Broadcast` holds the newest value and notifies any number of subscribers when there is another one.

    publish ─▶ Broadcast ─▶ notify each subscriber ─▶ it reads `value` when it is able to

A broadcast has one value and a serial that counts up. A subscriber is a function without arguments. The publisher
replaces the value and calls each subscriber; it never waits, and nothing is queued. A subscriber remembers only the
serial that it read last. So it may skip values, but it cannot miss the last one: before it waits, it compares serials.

The hard case is a subscriber that leaves, or makes others leave, while all are being notified: `publish` goes through a
copy, so a subscriber must be able to ignore a call that comes after it has left.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

T = TypeVar("T")


class Broadcast(Generic[T]):
    """The newest value and its subscribers.

    >>> broadcast = Broadcast[str]()
    >>> broadcast.subscribe(lambda: print(broadcast.serial, broadcast.value))
    >>> broadcast.publish("a"); broadcast.publish("b")
    1 a
    2 b
    """

    __slots__ = ("_subscribers", "error", "serial", "value")

    def __init__(self, first: T | None = None) -> None:
        """`first` is the value before any is published."""
        self.value: T = first  # type: ignore[assignment]  # None until there is one
        self.serial = 0
        """How many values have been published."""
        self.error: Exception | None = None
        """Why the broadcast has ended; None: it goes on."""
        self._subscribers: dict[Callable[[], None], None] = {}

    def current(self) -> T:
        """Return the newest value."""
        return self.value

    @property
    def subscribers(self) -> int:
        """How many subscribers there are."""
        return len(self._subscribers)

    def subscribe(self, notify: Callable[[], None]) -> None:
        """Have a function called whenever a value is published, and at the end, in the order of subscription."""
        self._subscribers[notify] = None

    def unsubscribe(self, notify: Callable[[], None]) -> None:
        """Call a function no longer."""
        self._subscribers.pop(notify, None)

    def publish(self, value: T) -> None:
        """Replace the value and notify the subscribers."""
        self.value = value
        self.serial += 1
        self._notify()

    def end(self, error: Exception) -> None:
        """End the streams of clients with an error, and iterations without one. The first error counts."""
        self.error = self.error or error
        self._notify()

    def _notify(self) -> None:
        for notify in list(self._subscribers):
            notify()

    async def changed(self, serial: int, until: float | None = None) -> None:
        """Wait until the serial is another one than that given, until the end, or until a time of the loop."""
        if self.serial != serial or self.error is not None:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        wake = partial(_wake, waiter)
        timer = None if until is None else loop.call_at(until, wake)
        self.subscribe(wake)
        try:
            await waiter
        finally:
            self.unsubscribe(wake)
            if timer is not None:
                timer.cancel()

    async def after(self, serial: int) -> tuple[int, T]:
        """Return the newest serial and value, as soon as the serial is another one than that given."""
        while self.serial in (0, serial):
            if self.error is not None:
                raise self.error
            await self.changed(self.serial)
        return self.serial, self.value

    async def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over the current value, if one was published, and then over what follows, until the end."""
        serial = 0
        while True:
            await self.changed(serial)
            if self.serial == serial:
                return
            serial = self.serial
            yield self.value


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
