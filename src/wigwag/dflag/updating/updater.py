"""Flags that follow ConfigMaps: mounted ones, and those of the API server.

    initialize   read every place once; static and dynamic flags may change
    start        watch them; from now on only dynamic flags change, and static ones say that a restart is required

The watch is armed before it reads, so nothing that happens between the two is missed. What is read becomes a picture of
all places (`pipeline`), the picture a plan (`plan`), and the plan one commit (`store`). The same picture again is
nothing new. An updater watches in a thread of its own (`start`), or in the loop of the program (`run`, `watching`);
a fork stops the thread for a moment, and it goes on in both processes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from wigwag.dflag import fork
from wigwag.dflag.updating.health import Problem
from wigwag.dflag.updating.places import Place, place_of
from wigwag.dflag.updating.plan import Picture
from wigwag.dflag.updating.policy import Policy
from wigwag.dflag.updating.record import SHOWN, UpdateRecord
from wigwag.errors import StartError, UsageError
from wigwag.pipeline.spec import Unavailable

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.contents import Contents
    from wigwag.loop_thread import LoopThread
    from wigwag.pipeline.run import Pipeline
    from wigwag.pipeline.status import Status

_THREAD = "dflag updater"
_PATIENCE = 1.0
"""Seconds that a fork waits for the thread to stop; one that takes longer is in a notifier, and is left behind."""


class Updater:
    """Keeps a set of flags at what is in some places; of those that have the same key, the last counts."""

    fork_order = 2

    def __init__(
        self,
        flags: FlagSet,
        *places: str | os.PathLike[str] | Place,
        policy: Policy = Policy(),  # noqa: B008 - a frozen value
    ) -> None:
        """`places` are directories, `configmap/NAMESPACE/NAME`, or records that say more: `Directory`, `ConfigMap`."""
        if not places:
            raise UsageError("an updater needs a directory, or another place, to read from")
        self.flags, self.policy = flags, policy
        self.places = tuple(place_of(each).numbered(position) for position, each in enumerate(places))
        self._guard = threading.RLock()
        self._background: LoopThread | None = None
        self._cancel: Callable[[], object] | None = None
        self._pipeline: Pipeline[Place, Contents, Picture] | None = None
        self._resume = self._deferred = False
        self._failure = ""
        self._record = UpdateRecord(flags, policy)
        fork.remember(self)

    @property
    def running(self) -> bool:
        """Whether it watches."""
        fork.catch_up()
        return self._deferred or self._cancel is not None or (self._background is not None and self._background.alive)

    @property
    def generation(self) -> int:
        """How many different contents of the places were taken."""
        return self._record.generation

    @property
    def warnings(self) -> int:
        """How many warnings there were: files that name no flag, and mounts that never change."""
        return self._record.warnings

    @property
    def errors(self) -> int:
        """How many errors there were: keys that were refused, and places and files that could not be read."""
        return self._record.errors

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong now."""
        return self._record.problems()

    @property
    def restart_required(self) -> tuple[str, ...]:
        """The static flags that are to be something else, which takes a restart."""
        return tuple(sorted(self._record.plan.restart))

    @property
    def statuses(self) -> tuple[Status[Place], ...]:
        """How each place is doing."""
        return self._pipeline.statuses() if self._pipeline is not None else ()

    def initialize(self) -> None:
        """Read every place once, for static and dynamic flags; take what is good, then raise if anything is not."""
        with self._guard:
            self._refuse_if_running()
            self._begin({place: place.read() for place in self.places})

    async def prepare(self) -> None:
        """Do what `initialize` does, in an event loop, which goes on while an API server is asked."""
        self._refuse_if_running()
        found = {place: await place.look() for place in self.places}
        await self._record.prepare(_picture(found))
        with self._guard:
            self._refuse_if_running()
            self._begin(found)

    def _refuse_if_running(self) -> None:
        if self.running:
            raise UsageError("the updater is started already: initialize() comes before start()")

    def _begin(self, found: Mapping[Place, Contents | Unavailable | None]) -> None:
        self.flags.updater = self
        self._record.note_mounts(self.places)
        self._record.note_failing(
            {place: read.reason for place, read in found.items() if isinstance(read, Unavailable)}
        )
        self._record.apply(_picture(found), static=not self.flags.frozen)
        self._record.note_failure(None)
        errors = [problem for problem in self.problems if problem.level == "error"]
        if errors and not self.policy.tolerant:
            told = "; ".join(map(str, errors[:SHOWN])) + ("; …" if len(errors) > SHOWN else "")
            raise StartError(f"{len(errors)} {'error' if len(errors) == 1 else 'errors'} in the flags: {told}")

    def start(self) -> None:
        """Watch, in a thread of its own. Return when all places were read; raise if a required one cannot be."""
        from wigwag.loop_thread import LoopThread

        fork.remember(self)  # once more: somebody may have taken uWSGI's hook since
        with self._guard:
            if self.running:
                raise UsageError("the updater is started already")
            self.flags.freeze()
            self.flags.updater = self
            self._record.note_mounts(self.places)
            self._deferred = fork.deferred()
            if self._deferred:
                return
            ready = threading.Event()
            self._background = LoopThread(lambda: self._main(ready.set), _THREAD)
        ready.wait()
        self.check()

    def check(self) -> None:
        """Raise, and stop, if a required place could not be read at the start."""
        missing = self._missing()
        if (missing or self._failure) and not self.policy.tolerant:
            self.stop()
            raise StartError(f"cannot watch the flags: {'; '.join(missing) or self._failure}")

    def stop(self) -> None:
        """Watch no more. A second time does nothing; it can be started again.

        One that runs in a loop is told to end, from whatever thread, and is `running` until it has ended there.
        """
        fork.catch_up()
        with self._guard:
            background, self._background, self._deferred = self._background, None, False
            if self._cancel is not None:
                self._cancel = _told_already if _succeeds(self._cancel) else None
        if background is not None:
            background.stop()

    def __enter__(self) -> Self:
        if not self.running:
            self.initialize()
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def run(self, ready: Callable[[], object] = lambda: None) -> None:
        """Watch, in this loop, until cancelled or stopped; `ready` is called when all places were read."""
        import asyncio

        with self._guard:
            if self.running:
                raise UsageError("the updater is started already")
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            self._cancel = partial(loop.call_soon_threadsafe, task.cancel)
        self.flags.freeze()
        self.flags.updater = self
        self._record.note_mounts(self.places)
        try:
            await self._main(ready)
        finally:
            self._cancel = None

    async def _main(self, ready: Callable[[], object], *, required: bool = True) -> None:
        """Follow the places. After a failure it need not wait for all of them: they have been there before."""
        from wigwag.dflag.updating import following

        self._failure = ""
        trying = tripped = frozenset[Place]()

        def take(picture: Picture) -> None:
            nonlocal trying
            trying = frozenset(picture)
            self._record.apply(picture, static=False)
            if trying >= tripped:  # without those that it failed with, it proves nothing
                self._failure = self._record.note_failure(None)
            ready()

        def turn(statuses: tuple[Status[Place], ...]) -> None:
            self._record.note_statuses(statuses)
            if self._missing():
                ready()

        async def attempt() -> None:
            wait = required and not self.policy.tolerant and not self._failure
            self._pipeline = following.pipeline(self.places, lambda place: place.watch(self.policy), required=wait)
            await following.follow(self._pipeline, self._record.prepare, take, turn)

        def failed(error: BaseException) -> None:
            nonlocal tripped
            tripped = trying
            self._failure = self._record.note_failure(error)
            ready()

        try:
            await following.persist(attempt, failed)
        finally:
            ready()

    def _missing(self) -> list[str]:
        """Return what keeps the first picture from being made."""
        wanted = (status for status in self.statuses if status.spec.required and not status.values)
        return [f"{status.spec.title}: {status.error}" for status in wanted if status.state == "failing"]

    def __repr__(self) -> str:
        places, wrong = ", ".join(place.title for place in self.places), len(self.problems)
        problems = f", {wrong} problem{'s' if wrong > 1 else ''}" if wrong else ""
        state = "running" if self.running else "stopped"
        return f"<Updater of {self.flags.name!r} from {places}: {state}, generation {self.generation}{problems}>"

    def before_fork(self) -> None:
        background = self._background
        if background is None or not background.alive or background.here:
            return
        self._resume = self._guard.acquire(timeout=_PATIENCE)
        if self._resume:
            background.stop(_PATIENCE)

    def after_fork_in_parent(self) -> None:
        if self._resume:
            self._resume = False
            try:
                self._go_on()
            finally:
                self._guard.release()

    def after_fork_in_child(self) -> None:
        lost = self._background is not None and not self._background.ended  # nobody has told of the fork before it
        self._resume = self._resume or lost or self._deferred
        self._guard, self._cancel = threading.RLock(), None

    def go_on_in_child(self) -> None:
        resume, self._resume = self._resume, False
        if resume:
            ready = self._go_on()
            if self._deferred:
                ready.wait(_PATIENCE)  # what it has was read when the master began
        self._deferred = False

    def _go_on(self) -> threading.Event:
        from wigwag.loop_thread import LoopThread

        ready = threading.Event()
        self._background = LoopThread(lambda: self._main(ready.set, required=False), _THREAD)
        return ready


def _picture(found: Mapping[Place, Contents | Unavailable | None]) -> Picture:
    return {place: read for place, read in found.items() if isinstance(read, Mapping)}


def _told_already() -> None:
    """Whoever runs in a loop is told once: a second word would cut short how it ends."""


def _succeeds(cancel: Callable[[], object]) -> bool:
    """Tell a task to end; False if its loop has closed without a word."""
    try:
        cancel()
    except RuntimeError:
        return False
    return True
