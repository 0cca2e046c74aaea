"""Listen for changes of a path: which names in which directories matter, what happened to them, and when to look.

Opening a path is a chain of look-ups, each of one name in one directory; a symbolic link adds more. The path can change
its meaning only if one of these names changes in its directory. So a listener watches exactly these names, whether the
path is a plain file, a link, a mounted ConfigMap, or does not exist yet (then the chain ends at the first missing name,
and its creation is an event).

The hard case is a writer that is not finished. `CLOSE_WRITE` (written in place) and `MOVED_TO` (replaced) are final and
are handled at once. Any other event about a content (a write, a new name, a deletion) may be the middle of something:
then that name must be quiet for a moment. A writer that never stops is read nevertheless, once its patience is used up.

Without inotify there are no events, and `must_poll` says so.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from wigwag.pipeline.clock import wait_event
from wigwag.sources.disk import notify
from wigwag.sources.disk.notify import EVERY
from wigwag.sources.disk.read import MOST_LINKS, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.pipeline.clock import Clock
    from wigwag.sources.disk.notify import FileEvent, Notifier, PathSubscription

_PLACE = notify.CREATE | notify.DELETE | notify.MOVED_FROM | notify.MOVED_TO | notify.DELETE_SELF | notify.MOVE_SELF
_CONTENT = _PLACE | notify.MODIFY | notify.CLOSE_WRITE | notify.ATTRIB
_DONE = notify.CLOSE_WRITE | notify.MOVED_TO
_LOST = notify.OVERFLOW | notify.IGNORED | notify.UNMOUNT | notify.DELETE_SELF | notify.MOVE_SELF
_PATIENCE = 50
"""A file that is written without pause is read after this many settle times."""


class Lookup(NamedTuple):
    """A name looked up in a directory."""

    directory: str
    name: str
    content: bool = False
    """Whether this is the file that is read, so that its content matters and not only its existence."""
    link: bool = False
    """Whether the name is a symbolic link."""


class Chain(NamedTuple):
    """The look-ups of a path, and the path without links if all of them succeeded."""

    lookups: tuple[Lookup, ...]
    real: str | None


def chain(path: str) -> Chain:
    """Look up an absolute path, step by step."""
    lookups: list[Lookup] = []
    here, names, links = "/", names_of(path), 0
    while names:
        name = names.pop()
        if name == "..":
            here = str(PurePosixPath(here).parent)
            continue
        full = here.rstrip("/") + "/" + name
        try:
            target = os.readlink(full)  # noqa: PTH115 - links are followed as text
        except OSError as error:
            lookups.append(Lookup(here, name, not names))
            if error.errno != errno.EINVAL:
                return Chain(tuple(lookups), None)
            here = full
            continue
        lookups.append(Lookup(here, name, link=True))
        links += 1
        if links > MOST_LINKS:
            return Chain(tuple(lookups), None)
        here = "/" if target.startswith("/") else here
        names += names_of(target)
    return Chain(tuple(lookups), here)


class PathListener:
    """Listens for the names of one path. Close it."""

    def __init__(self, clock: Clock, settle: float, notifier: Notifier | None) -> None:
        """Without a notifier, there are no events."""
        self._clock, self._settle, self._notifier = clock, settle, notifier
        self._woken = asyncio.Event()
        self._names: dict[int, dict[str, bool]] = {}
        self._quiet: dict[str, float] = {}
        """The names with events since `attend`, and until when each must be quiet."""
        self._moved = False
        self._patience: float | None = None
        self.done: set[str] = set()
        """The files whose writers have finished since the last `attend`."""
        self.must_poll = True
        """Whether changes may happen without an event."""
        self._subscription: PathSubscription | None = None

    def close(self) -> None:
        """Stop listening."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def arm(self, lookups: Iterable[Lookup]) -> None:
        """Listen for exactly these names from now on. A name that cannot be watched must be polled."""
        if self._subscription is None and self._notifier is not None:
            self._subscription = self._notifier.subscribe(self._on_event)  # an instance may be free now
        if self._subscription is None:
            return
        wanted: dict[str, dict[str, bool]] = defaultdict(dict)
        for lookup in lookups:
            names = wanted[lookup.directory]
            names[lookup.name] = lookup.content or names.get(lookup.name, False)
        self._names, self.must_poll = {}, False
        for directory, names in wanted.items():
            self._add(self._subscription, directory, names)
        self._subscription.retain(self._names)

    def attend(self) -> set[str]:
        """Begin to look: forget the events so far. Return the files whose writers have finished."""
        self._drain()
        self._quiet.clear()
        self._moved = False
        done, self.done = self.done, set()
        return done

    def disturbed(self) -> bool:
        """Return whether there were events since `attend`, so that it is better to look again."""
        self._drain()
        return bool(self._quiet) and self._patient()

    def suspect(self) -> bool:
        """Require a moment of quiet without an event; False if the patience is used up."""
        self._require_quiet("", self._clock.now() + self._settle)
        return self._patient()

    def satisfied(self) -> None:
        """The look succeeded: reset the patience."""
        self._patience = None

    async def wait(self, until: float) -> bool:
        """Wait until there was an event and all is quiet, which is True, or until a time."""
        while True:
            due = self._due()
            when = until if due is None else due
            if self._clock.now() >= when:
                return due is not None
            await wait_event(self._clock, self._woken, when)

    def _patient(self) -> bool:
        return self._patience is not None and self._clock.now() < self._patience

    def _due(self) -> float | None:
        if not self._quiet:
            return None
        quiet = self._clock.now() if self._moved else max(self._quiet.values())
        return quiet if self._patience is None else min(quiet, self._patience)

    def _on_event(self, event: FileEvent) -> None:
        names = self._names.get(event.watch)
        now = self._clock.now()
        if event.mask & notify.OVERFLOW or (names is not None and event.mask & _LOST):
            self._on_move()
        if names is None or not event.name:
            return
        content = names.get(event.name)
        if content is None and not event.name.startswith("."):
            content = names.get(EVERY)
        if content is not None:
            self._on_name(event, content, now)

    def _on_name(self, event: FileEvent, content: bool, now: float) -> None:
        if content and event.mask & _DONE:
            self.done.add(event.name)
        else:
            self.done.discard(event.name)
        if content:
            self._require_quiet(event.name, now if event.mask & _DONE else now + self._settle)
        else:
            self._on_move()

    def _on_move(self) -> None:
        """The path leads somewhere else: look there at once, whatever happens at the old place."""
        self._moved = True
        self._require_quiet("", self._clock.now())

    def _require_quiet(self, name: str, until: float) -> None:
        if self._patience is None:
            self._patience = self._clock.now() + _PATIENCE * self._settle
        self._quiet[name] = until
        self._woken.set()

    def _drain(self) -> None:
        if self._notifier is not None:
            self._notifier.drain()

    def _add(self, subscription: PathSubscription, directory: str, names: dict[str, bool]) -> None:
        try:
            watch = subscription.add(directory, _CONTENT if any(names.values()) else _PLACE, names)
        except (FileNotFoundError, NotADirectoryError):
            return  # deleted meanwhile; the follower looks the path up again
        except OSError as error:
            self.must_poll = True
            if self._notifier is not None and error.errno != errno.EACCES:
                self._notifier.warn(error)
            return
        self._names.setdefault(watch, {}).update(names)
