"""The live stream of the console: server-sent events when there is something new to fetch.

    event: snapshot      another snapshot is published; its number and id
    event: status        the state of a source or target has changed
    event: evaluations   there is another sample of the counters

Events carry no flags, so there is nothing in them to keep from a caller, and a slow console costs nothing: it may miss
events, but the next one says the newest state. The stream begins with all that holds, so a console that reconnects
after a restart needs no memory of what it saw last.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.errors import UsageError
from wigwag.wire.http import Headers, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from wigwag.pipeline.broadcast import Broadcast

HEARTBEAT_SECONDS = 10.0
MOST_CONSOLES = 100
_EVENTS: Headers = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"))


class LiveStreams:
    """The streams of open consoles."""

    def __init__(
        self, topics: Mapping[str, Broadcast[Any]], state: Callable[[str], Any], most: int = MOST_CONSOLES
    ) -> None:
        """`topics`: what may change, by the name of its event; `state` returns what an event says."""
        self._topics, self._state, self._most = topics, state, most
        self.open = 0

    def response(self) -> Stream:
        """Return a stream as a response; `UsageError` if there are too many."""
        if self.open >= self._most:
            raise UsageError(f"{self._most} consoles are open already; close one")
        return Stream(200, _EVENTS, self.events())

    async def events(self, heartbeat: float = HEARTBEAT_SECONDS) -> AsyncIterator[bytes]:
        """Yield the current state, and an event for each topic that changes, until one of them ends."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        seen = dict.fromkeys(self._topics, -1)
        self.open += 1
        for topic in self._topics.values():
            topic.subscribe(changed.set)
        try:
            while not any(topic.error for topic in self._topics.values()):
                changed.clear()
                for name, topic in self._topics.items():
                    if topic.serial != seen[name]:
                        seen[name] = topic.serial
                        yield event(name, self._state(name))
                timer = loop.call_later(heartbeat, changed.set)
                await changed.wait()
                timer.cancel()
                if all(topic.serial == seen[name] for name, topic in self._topics.items()):
                    yield b": heartbeat\n\n"
        finally:
            self.open -= 1
            for topic in self._topics.values():
                topic.unsubscribe(changed.set)


def event(name: str, data: Any) -> bytes:
    """Return a server-sent event.

    >>> event("snapshot", {"number": 1})
    b'event: snapshot\\ndata: {"number":1}\\n\\n'
    """
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
