"""What was heard about some names, and when it is quiet enough to look.

Whoever writes a file in place writes it in pieces, and tells when it is done (`CLOSE_WRITE`); whoever puts a new file
in place of an old one does so in one step (`MOVED_TO`). Both are taken at once. Anything else about a content, a bare
write, a new name, a name that went, may be the middle of something: then nothing further must be heard about that
name for a moment. Someone who never stops writing is looked at nevertheless, once his time is up.

Without inotify nothing is heard, and `blind` says so: then only looking helps.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from wigwag.pipeline.clock import heard
from wigwag.sources import notify
from wigwag.sources.lookup import EVERY
from wigwag.sources.notify import Inotify, Notice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.pipeline.clock import Clock
    from wigwag.sources.lookup import Lookup

_PLACE = notify.CREATE | notify.DELETE | notify.MOVED_FROM | notify.MOVED_TO | notify.DELETE_SELF | notify.MOVE_SELF
_CONTENT = _PLACE | notify.MODIFY | notify.CLOSE_WRITE | notify.ATTRIB
_DONE = notify.CLOSE_WRITE | notify.MOVED_TO
_LOST = notify.OVERFLOW | notify.IGNORED | notify.UNMOUNT | notify.DELETE_SELF | notify.MOVE_SELF
_PATIENCE = 50
"""How many times the moment of quiet someone may go on writing before he is looked at nevertheless."""


class Listener:
    """Listens for names. Close it."""

    def __init__(self, clock: Clock, settle: float, deaf: bool = False) -> None:
        self._clock, self._settle = clock, settle
        self._woken = asyncio.Event()
        self._names: dict[int, dict[str, bool]] = {}
        self._quiet: dict[str, float] = {}
        self._moved = False
        self._patience: float | None = None
        self.done: set[str] = set()
        """The contents that were finished since the last `attend`."""
        self.blind = True
        """Whether something may happen without being heard."""
        self._inotify = None if deaf else self._open()

    def close(self) -> None:
        """Stop listening."""
        if self._inotify is not None:
            self._inotify.close()

    def arm(self, lookups: Iterable[Lookup]) -> None:
        """Listen for exactly these names, from now on. What cannot be listened for makes it blind."""
        if self._inotify is None:
            return
        wanted: dict[str, dict[str, bool]] = defaultdict(dict)
        for lookup in lookups:
            names = wanted[lookup.directory]
            names[lookup.name] = lookup.content or names.get(lookup.name, False)
        before, self._names, self.blind = self._names, {}, False
        for directory, names in wanted.items():
            self._add(self._inotify, directory, names)
        for watch in before.keys() - self._names.keys():
            self._inotify.remove(watch)

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
            await heard(self._clock, self._woken, when)

    def _patient(self) -> bool:
        return self._patience is not None and self._clock.now() < self._patience

    def _due(self) -> float | None:
        if not self._quiet:
            return None
        quiet = self._clock.now() if self._moved else max(self._quiet.values())
        return quiet if self._patience is None else min(quiet, self._patience)

    def _hear(self, notice: Notice) -> None:
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

    def _heed(self, notice: Notice, content: bool, now: float) -> None:
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
        if self._inotify is not None:
            self._inotify.drain()

    def _open(self) -> Inotify | None:
        try:
            return Inotify(self._hear)
        except OSError:
            return None

    def _add(self, inotify: Inotify, directory: str, names: dict[str, bool]) -> None:
        try:
            watch = inotify.add(directory, _CONTENT if any(names.values()) else _PLACE)
        except (FileNotFoundError, NotADirectoryError):
            return  # it went while we came; whoever follows looks up the path again
        except OSError:
            self.blind = True
            return
        self._names.setdefault(watch, {}).update(names)
