"""Last known good: the flags that an agent starts with when no source answers, and what is saved for the next start.

Each source has an entry of its own, by what it is and not by where it stands in the list, so sources may be added and
reordered between two starts. Flags that were restored stay in force until their own source answers, and are stale until
then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from wigwag.observe import Gauge
from wigwag.pipeline.clock import sleep_until
from wigwag.pipeline.spec import Restored, describe
from wigwag.sources.document import Document
from wigwag.wire.client.shown import unsigned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from wigwag.agent.assemble import Loader
    from wigwag.agent.facts import Value
    from wigwag.agent.state.directory import StateDir
    from wigwag.agent.state.keeper import Keeper, KeptFlags
    from wigwag.flags.flagset import FlagSet
    from wigwag.observe import Registry
    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.pipeline.clock import Clock
    from wigwag.pipeline.run import Pipeline
    from wigwag.serve.snapshot import Snapshot
    from wigwag.sources.source import Source

CONFIRM_SECONDS = 20.0
"""How often the state records that flags still hold."""
log = logging.getLogger("wigwag.agent")


def keys_of(sources: Iterable[Source]) -> dict[Source, str]:
    """Return the key of each source across restarts: what it asks for, not its place, nor a password.

    Of sources that are alike but for a password, the password tells which is which: it may be what decides about the
    answer. Then a new one makes a new source; better no flags from before than another's.
    """
    asked = {source: _asked(source) for source in sources}
    alike = Counter(asked.values())
    return {source: _digest(key, *_secrets(source) if alike[key] > 1 else ()) for source, key in asked.items()}


def _asked(source: Source) -> str:
    settings = source.settings
    names = sorted(name.lower() for name, _ in settings.headers)
    what = unsigned(settings.address) if settings.address else source.name
    return _digest(source.provider, what, settings.selector, settings.provider_id, names)


def _secrets(source: Source) -> tuple[object, ...]:
    settings = source.settings
    return settings.address, settings.auth_header, sorted(settings.headers), msgspec.to_builtins(settings.oauth)


def _digest(*parts: object) -> str:
    return blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


class LastGood:
    """The flags that outlive the process. Without a directory there are none, and nothing is done."""

    def __init__(
        self, directory: str, clock: Clock, wall: Callable[[], float], open: Callable[[str], StateDir] | None
    ) -> None:
        self._clock, self._wall = clock, wall
        self._state: StateDir | None = None
        self._keeper: Keeper | None = None
        if directory:
            from wigwag.agent.state.directory import StateDir
            from wigwag.agent.state.keeper import Keeper

            self._state = (open or StateDir)(directory)
            self._keeper = Keeper(self._state, clock, wall)
        self._note: Callable[[], None] = lambda: None
        self._keys: dict[Source, str] = {}

    def restore(self, sources: Iterable[Source], loader: Loader) -> dict[Source, Restored[FlagSet]]:
        """Return what is known of these sources from before. What cannot be used is settings, and never in the way."""
        if self._keeper is None:
            return {}
        self._keys = keys_of(sources)
        by_key = {key: source for source, key in self._keys.items()}
        loaded = self._keeper.restore(by_key.keys())
        for problem in loaded.problems:
            log.warning("state: %s", problem)
        restored: dict[Source, Restored[FlagSet]] = {}
        for entry in loaded.entries:
            source = by_key[entry.key]
            try:
                flags = loader.parse(source, Document(entry.document, "json"))
            except ValueError as error:
                log.warning("state: the flags of %s are not used: %s", source.name, describe(error))
                continue
            restored[source] = Restored(flags, max(0.0, self._wall() - entry.saved))
            log.info("state: restored %d flags of %s, saved %.0f s ago", len(flags), source.name, restored[source].age)
        return restored

    async def run(self, pipeline: Pipeline[Source, Value, Snapshot], flags: Mapping[Source, FlagSet]) -> None:
        """Keep what sources said last, until cancelled; `flags` always has the newest of each."""
        keeper = self._keeper
        if keeper is None:
            return

        def note() -> None:
            keeper.note(self._held(pipeline, flags))

        self._note = note
        async with asyncio.TaskGroup() as group:
            group.create_task(keeper.run())
            group.create_task(self._confirm(note))
            group.create_task(_each(pipeline.status_changes, note))
            await _each(pipeline.published, note)

    def _held(
        self, pipeline: Pipeline[Source, Value, Snapshot], flags: Mapping[Source, FlagSet]
    ) -> dict[str, KeptFlags]:
        """Return what each source that has answered says, and until when that was known to hold."""
        from wigwag.agent.state.keeper import KeptFlags

        held, now, wall = {}, self._clock.now(), self._wall()
        for status in pipeline.statuses():
            age = status.age(now)
            if status.values and age is not None and status.spec in flags:  # facts are not kept: they are of the moment
                held[self._keys[status.spec]] = KeptFlags(flags[status.spec], wall - age)
        return held

    async def _confirm(self, note: Callable[[], None]) -> None:
        while True:
            await sleep_until(self._clock, self._clock.now() + CONFIRM_SECONDS)
            note()

    async def close(self) -> None:
        """Write what is not written yet, and leave the directory to others."""
        if self._keeper is not None and self._state is not None:
            self._note()  # not all that sources say is published: a definition that another one hides is not
            if await self._keeper.close():  # otherwise a thread still uses it
                self._state.close()

    def register(self, registry: Registry) -> None:
        """Write out how it goes."""
        keeper = self._keeper
        if keeper is None:
            return
        registry.add(
            Gauge(
                "wigwag_state_saved_seconds",
                "When the flags were last saved, in Unix time.",
                lambda: [((), keeper.status.last_saved or 0.0)],
            ),
            Gauge("wigwag_state_size_bytes", "Size of the saved flags.", lambda: [((), keeper.status.bytes)]),
            Gauge("wigwag_state_failures", "Times the flags were not saved.", lambda: [((), keeper.status.failures)]),
        )


async def _each(broadcast: Broadcast[Any], note: Callable[[], None]) -> None:
    async for _ in broadcast:
        note()
