"""Keeps the newest flags of every source on disk, without ever holding up the agent.

`note` says what holds now and returns at once. Writing happens in a thread, one write at a time, at most once in a
while; of what is noted meanwhile, the newest waits for the next write. The flags of a source that has not answered
since the restart stay as they were: a source that answers replaces only its own.

Flags that changed are written within a second. That they still hold is written, too, for the age after a restart, but
only every minute. A write that failed is logged and retried with the next change, or after that minute. The hard case
is a disk that hangs: shutdown waits for it, but not for long.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from wigwag.agent.state.directory import LoadedState
from wigwag.agent.state.document import document_of
from wigwag.agent.state.file import StateEntry
from wigwag.background import BackgroundWorker
from wigwag.errors import StateError
from wigwag.pipeline.clock import wait_event
from wigwag.pipeline.spec import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from wigwag.flags.flagset import FlagSet
    from wigwag.pipeline.clock import Clock

    class StateStore(Protocol):
        """Where entries outlive the process; see `StateDir`."""

        def load(self) -> LoadedState: ...
        def save(self, entries: Iterable[StateEntry]) -> int: ...


log = logging.getLogger("wigwag.agent")


@dataclass(frozen=True, slots=True, eq=False)
class KeptFlags:
    """The flags of a source, and when they were last known to hold, in Unix seconds."""

    flags: FlagSet
    at: float

    def same(self, other: KeptFlags | None) -> bool:
        """Return whether nothing is new; flags are compared by identity, which costs nothing.

        Times are differences of two clocks, so they are never quite the same: what is within a second is.
        """
        return other is not None and other.flags is self.flags and abs(other.at - self.at) < 1.0


@dataclass(frozen=True, slots=True)
class SaveTiming:
    """How often is written, in seconds."""

    change: float = 1.0
    """The shortest time between two writes."""
    refresh: float = 60.0
    """The shortest time between two, if all that is new is that the flags still hold, or if the last one failed."""
    patience: float = 3.0
    """How long the end waits for one."""


@dataclass(frozen=True, slots=True)
class KeeperStatus:
    """How saving is going."""

    last_saved: float | None = None
    """When the flags were last written, in Unix seconds."""
    last_error: str | None = None
    """Why the newest are not on disk; None: they are."""
    bytes: int = 0
    """The size of what is there, if we wrote it."""
    saves: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result of a write, with the entries it made."""

    entries: dict[str, StateEntry]
    made: dict[str, FlagSet]
    size: int | None
    error: str | None


class Keeper:
    """Writes what is noted to a store: `restore` first, then `note` at any time while `run` runs, and `close` last."""

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        wall: Callable[[], float],
        timing: SaveTiming = SaveTiming(),  # noqa: B008 - a frozen value
    ) -> None:
        self._store, self._clock, self._wall, self._timing = store, clock, wall, timing
        self._entries: dict[str, StateEntry] = {}
        self._made: dict[str, FlagSet] = {}
        self._held: dict[str, KeptFlags] = {}
        self._tried: dict[str, FlagSet] = {}
        self._written: dict[str, KeptFlags] = {}
        self._last = float("-inf")
        self._worker = BackgroundWorker("wigwag-state")
        self._writing: asyncio.Future[_Outcome] | None = None
        self._news = asyncio.Event()
        self._closed = False
        self.status = KeeperStatus()
        """How saving is going."""

    def restore(self, keys: Collection[str]) -> LoadedState:
        """Return what was kept of these sources. What was kept of others is forgotten with the next write."""
        loaded = self._store.load()
        self._entries = {entry.key: entry for entry in loaded.entries if entry.key in keys}
        return LoadedState(tuple(self._entries.values()), loaded.problems)

    def note(self, held: Mapping[str, KeptFlags]) -> None:
        """Note the current flags of sources. A source that is not named keeps its flags."""
        self._held = {**self._held, **held}
        self._news.set()

    async def run(self) -> None:
        """Write what is noted, until cancelled or closed."""
        while not self._closed:
            due = self._due()
            if due is None:
                await self._news.wait()
                self._news.clear()
            elif due > self._clock.now():
                await wait_event(self._clock, self._news, due)
            else:
                self._begin()
                if self._writing is not None:
                    await asyncio.shield(self._writing)  # if this is cancelled the thread goes on; `close` waits for it

    async def close(self) -> bool:
        """Write what is not written yet, once `run` is over or about to be; tell whether the store is at rest."""
        self._closed = True
        self._news.set()
        try:
            if await self._rest() and self._unwritten():
                self._begin()
                await self._rest()
            if self._writing is not None:
                log.warning("the flags were not saved: the disk has not answered for %g s", self._timing.patience)
        finally:  # dismiss the thread, whatever it does; its result is ignored
            if self._writing is not None:
                self._writing.cancel()
            self._worker.dismiss()
        return self._writing is None

    def _due(self) -> float | None:
        """Return when to write next; None if there is nothing to write."""
        if any(self._tried.get(key) is not item.flags for key, item in self._held.items()):
            return self._last + self._timing.change
        return self._last + self._timing.refresh if self._unwritten() else None

    def _unwritten(self) -> bool:
        return any(not item.same(self._written.get(key)) for key, item in self._held.items())

    def _begin(self) -> None:
        """Begin to write in a thread."""
        self._last, held = self._clock.now(), self._held
        self._tried = {key: item.flags for key, item in held.items()}
        try:
            self._writing = asyncio.get_running_loop().run_in_executor(self._worker, self._save, held)
        except RuntimeError as error:  # there can be no more threads, at present
            self._record(held, _Outcome(self._entries, self._made, None, _message(error)))
        else:
            self._writing.add_done_callback(partial(self._settle, held))

    async def _rest(self) -> bool:
        """Wait for the write under way, but not for ever; tell whether there is none any more."""
        if self._writing is not None:
            over = asyncio.Event()
            self._writing.add_done_callback(lambda _: over.set())
            await wait_event(self._clock, over, self._clock.now() + self._timing.patience)
        return self._writing is None

    def _save(self, held: Mapping[str, KeptFlags]) -> _Outcome:
        """Make the entries and write them, in the thread. The event loop does not change what this reads."""
        entries, made, errors = dict(self._entries), dict(self._made), []
        for key, item in held.items():
            try:
                if made.get(key) is item.flags:
                    entries[key] = replace(entries[key], saved=item.at)
                else:
                    source = item.flags.layers[0].setting.source
                    entries[key] = StateEntry(key, source, document_of(item.flags), item.at)
                made[key] = item.flags
            except Exception as error:  # noqa: BLE001 - what was kept of it before stays, and so do the others
                errors.append(_message(error))
        size = None
        try:
            size = self._store.save(entries.values())
        except Exception as error:  # noqa: BLE001 - a disk may fail in any way: the agent goes on
            errors.append(_message(error))
        return _Outcome(entries, made, size, "; ".join(errors) or None)

    def _settle(self, held: dict[str, KeptFlags], writing: asyncio.Future[_Outcome]) -> None:
        """Record the result of a write, unless it was given up."""
        if not writing.cancelled():
            self._writing = None
            self._record(held, writing.result())

    def _record(self, held: dict[str, KeptFlags], outcome: _Outcome) -> None:
        """Update the state and the status after a write."""
        before, error = self.status, outcome.error
        self._entries, self._made = outcome.entries, outcome.made
        saved = outcome.size is not None
        if error is None:
            self._written = held
        self.status = KeeperStatus(
            self._wall() if saved else before.last_saved,
            error,
            before.bytes if outcome.size is None else outcome.size,
            before.saves + saved,
            before.failures + (error is not None),
        )
        if error is not None and error != before.last_error:
            log.warning("%s", error)
        elif error is None and before.last_error is not None:
            log.info("the flags are saved again")


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, StateError) else f"the flags could not be saved: {describe(error)}"
