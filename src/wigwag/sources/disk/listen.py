"""What was heard about some names, and when it is quiet enough to look.

Whoever writes a file in place writes it in pieces, and tells when it is done (`CLOSE_WRITE`); whoever puts a new file
in place of an old one does so in one step (`MOVED_TO`). Both are taken at once. Anything else about a content, a bare
write, a new name, a name that went, may be the middle of something: then nothing further must be heard about that
name for a moment. Someone who never stops writing is looked at nevertheless, once his time is up.

Without inotify nothing is heard, and `blind` says so: then only looking helps.
"""

from __future__ import annotations

import asyncio
import errno
from collections import defaultdict
from typing import TYPE_CHECKING

from wigwag.pipeline.clock import wait_event
from wigwag.sources.disk import notify
from wigwag.sources.disk.lookup import EVERY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.pipeline.clock import Clock
    from wigwag.sources.disk.lookup import Lookup
    from wigwag.sources.disk.notify import FileEvent, Notifier, PathSubscription

_PLACE = notify.CREATE | notify.DELETE | notify.MOVED_FROM | notify.MOVED_TO | notify.DELETE_SELF | notify.MOVE_SELF
_CONTENT = _PLACE | notify.MODIFY | notify.CLOSE_WRITE | notify.ATTRIB
_DONE = notify.CLOSE_WRITE | notify.MOVED_TO
_LOST = notify.OVERFLOW | notify.IGNORED | notify.UNMOUNT | notify.DELETE_SELF | notify.MOVE_SELF
_PATIENCE = 50
"""How many times the moment of quiet someone may go on writing before he is looked at nevertheless."""


class PathListener:
    """Listens for names. Close it."""

    def __init__(self, clock: Clock, settle: float, notifier: Notifier | None) -> None:
        """Without a notifier, nothing is heard."""
        self._clock, self._settle, self._notifier = clock, settle, notifier
        self._woken = asyncio.Event()
        self._names: dict[int, dict[str, bool]] = {}
        self._quiet: dict[str, float] = {}
        self._moved = False
        self._patience: float | None = None
        self.done: set[str] = set()
        """The contents that were finished since the last `attend`."""
        self.blind = True
        """Whether something may happen without being heard."""
        self._subscription: PathSubscription | None = None

    def close(self) -> None:
        """Stop listening."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def arm(self, lookups: Iterable[Lookup]) -> None:
        """Listen for exactly these names, from now on. What cannot be listened for makes it blind."""
        if self._subscription is None and self._notifier is not None:
            self._subscription = self._notifier.subscribe(self._hear)  # there may be an instance now
        if self._subscription is None:
            return
        wanted: dict[str, dict[str, bool]] = defaultdict(dict)
        for lookup in lookups:
            names = wanted[lookup.directory]
            names[lookup.name] = lookup.content or names.get(lookup.name, False)
        self._names, self.blind = {}, False
        for directory, names in wanted.items():
            self._add(self._subscription, directory, names)
        self._subscription.retain(self._names)

    def attend(self) -> set[str]:
        """Begin to look: what was heard so far is dealt with. Return the contents that are known to be finished."""
        self._drain()
        self._quiet.clear()
        self._moved = False
        done, self.done = self.done, set()
        return done

    def disturbed(self) -> bool:
        """Tell whether something was heard since `attend`, so that it is better to look again."""
        self._drain()
        return bool(self._quiet) and self._patient()

    def suspect(self) -> bool:
        """Ask for a moment of quiet though nothing was heard; False if there has been enough of that."""
        self._hush("", self._clock.now() + self._settle)
        return self._patient()

    def satisfied(self) -> None:
        """The look was good for something: the next writer has all his time again."""
        self._patience = None

    async def wait(self, until: float) -> bool:
        """Wait until something was heard and it is quiet, which is True, or until a time."""
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

    def _hear(self, notice: FileEvent) -> None:
        names = self._names.get(notice.watch)
        now = self._clock.now()
        if notice.mask & notify.OVERFLOW or (names is not None and notice.mask & _LOST):
            self._elsewhere()
        if names is None or not notice.name:
            return
        content = names.get(notice.name)
        if content is None and not notice.name.startswith("."):
            content = names.get(EVERY)
        if content is not None:
            self._heed(notice, content, now)

    def _heed(self, notice: FileEvent, content: bool, now: float) -> None:
        if content and notice.mask & _DONE:
            self.done.add(notice.name)
        else:
            self.done.discard(notice.name)
        if content:
            self._hush(notice.name, now if notice.mask & _DONE else now + self._settle)
        else:
            self._elsewhere()

    def _elsewhere(self) -> None:
        """The path leads somewhere else: look there at once, whatever is going on where it led before."""
        self._moved = True
        self._hush("", self._clock.now())

    def _hush(self, name: str, until: float) -> None:
        if self._patience is None:
            self._patience = self._clock.now() + _PATIENCE * self._settle
        self._quiet[name] = until
        self._woken.set()

    def _drain(self) -> None:
        if self._subscription is not None:
            self._subscription.drain()

    def _add(self, subscription: PathSubscription, directory: str, names: dict[str, bool]) -> None:
        try:
            watch = subscription.add(directory, _CONTENT if any(names.values()) else _PLACE, names)
        except (FileNotFoundError, NotADirectoryError):
            return  # it went while we came; whoever follows looks up the path again
        except OSError as error:
            self.blind = True
            if self._notifier is not None and error.errno != errno.EACCES:
                self._notifier.warn(error)
            return
        self._names.setdefault(watch, {}).update(names)
