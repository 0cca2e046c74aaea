"""Flags that follow ConfigMaps: mounted ones, and those of the API server.

    initialize   reads every place once; static and dynamic flags may change
    start        watches them; from now on only dynamic flags change, and static ones require a restart

The watch is armed before it reads, so no change between the two is missed. The contents of all places are a picture
(`pipeline`), the picture becomes a plan (`plan`), and the plan one commit (`store`). The same picture again changes
nothing. An updater watches in a thread of its own (`start`), or in the loop of the program (`run`, `watching`). A fork
stops the thread for a moment, and it goes on in both processes.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from wigwag.dflag import fork
from wigwag.dflag.updating.places import Directory, Place
from wigwag.dflag.updating.policy import Policy
from wigwag.dflag.updating.record import SHOWN, UpdateRecord
from wigwag.errors import StartError, UsageError
from wigwag.pipeline.spec import Unavailable

if TYPE_CHECKING:
    from asyncio import Task
    from typing import Any, Self

    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.contents import Contents
    from wigwag.dflag.updating.following import Follower
    from wigwag.dflag.updating.health import Problem
    from wigwag.dflag.updating.plan import Picture
    from wigwag.loop_thread import LoopThread
    from wigwag.pipeline.status import Status

_CONFIG_MAP = re.compile(r"configmap/([^/]+)/([^/]+)")
_FORK_PATIENCE = 1.0
"""Seconds that a fork waits for the thread to stop; one that takes longer is in a notifier, and is left behind."""


class Updater:
    """Keeps a set of flags at the contents of places; if two have the same key, the last wins."""

    fork_order = 2

    def __init__(
        self,
        flags: FlagSet,
        *places: str | os.PathLike[str] | Place,
        policy: Policy = Policy(),  # noqa: B008 - a frozen value
    ) -> None:
        """`places` are directories, `configmap/NAMESPACE/NAME`, or records with options: `Directory`, `ConfigMap`."""
        if not places:
            raise UsageError("an updater needs a directory, or another place, to read from")
        self.flags, self.policy = flags, policy
        self.places = tuple(place_of(each).numbered(position) for position, each in enumerate(places))
        self._guard = threading.RLock()
        self._background: LoopThread | None = None
        self._cancel: Callable[[], object] | None = None
        self._follower: Follower | None = None
        self._resume = self._deferred = False
        self._record = UpdateRecord(flags, policy)
        fork.remember(self)

    @property
    def running(self) -> bool:
        """Whether it watches."""
        fork.catch_up()
        return self._deferred or self._cancel is not None or (self._background is not None and self._background.alive)

    @property
    def generation(self) -> int:
        """How many different contents of the places were applied."""
        return self._record.generation

    @property
    def warnings(self) -> int:
        """How many warnings there were: files that name no flag, and mounts that never change."""
        return self._record.warnings

    @property
    def errors(self) -> int:
        """How many errors there were: keys that were rejected, and places and files that could not be read."""
        return self._record.errors

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong now."""
        return self._record.problems()

    @property
    def restart_required(self) -> tuple[str, ...]:
        """The static flags that have a new value, which takes a restart."""
        return tuple(sorted(self._record.plan.restart))

    @property
    def statuses(self) -> tuple[Status[Place], ...]:
        """The status of each place."""
        return self._follower.statuses if self._follower is not None else ()

    def initialize(self) -> None:
        """Read every place once, for static and dynamic flags; apply what is good, then raise if anything is not."""
        with self._guard:
            self._refuse_if_running()
            self._apply_first({place: place.read() for place in self.places})

    async def prepare(self) -> None:
        """Do what `initialize` does, without blocking the event loop."""
        self._refuse_if_running()
        contents = {place: await place.look() for place in self.places}
        await self._record.prepare(_picture(contents))
        with self._guard:
            self._refuse_if_running()
            self._apply_first(contents)

    def _refuse_if_running(self) -> None:
        if self.running:
            raise UsageError("the updater is started already: initialize() comes before start()")

    def _apply_first(self, contents: Mapping[Place, Contents | Unavailable | None]) -> None:
        self.flags.updater = self
        self._record.note_mounts(self.places)
        failing = {place: each.reason for place, each in contents.items() if isinstance(each, Unavailable)}
        self._record.note_failing(failing)
        self._record.apply(_picture(contents), static=not self.flags.frozen)
        self._record.note_failure(None)
        errors = [problem for problem in self.problems if problem.level == "error"]
        if errors and not self.policy.tolerant:
            reasons = "; ".join(map(str, errors[:SHOWN])) + ("; …" if len(errors) > SHOWN else "")
            raise StartError(f"{len(errors)} {'error' if len(errors) == 1 else 'errors'} in the flags: {reasons}")

    def start(self) -> None:
        """Watch in a thread. Return when all places were read; raise if a required one cannot be."""
        fork.remember(self)  # once more: uWSGI's hook may have been replaced since
        with self._guard:
            self._begin()
            self._deferred = fork.deferred()
            if self._deferred:
                return
            ready = self._start_thread()
        ready.wait()
        self.check()

    def _begin(self) -> None:
        if self.running:
            raise UsageError("the updater is started already")
        self.flags.freeze()
        self.flags.updater = self
        self._record.note_mounts(self.places)

    def _start_thread(self, *, required: bool = True) -> threading.Event:
        from wigwag.loop_thread import LoopThread

        ready = threading.Event()
        self._background = LoopThread(self._new_follower(ready.set, required=required).run, "dflag updater")
        return ready

    def _new_follower(self, ready: Callable[[], object], *, required: bool = True) -> Follower:
        from wigwag.dflag.updating.following import Follower

        self._follower = Follower(self.places, self.policy, self._record, ready, required=required)
        return self._follower

    def check(self) -> None:
        """Stop and raise if a required place could not be read at the start."""
        follower = self._follower
        reason = "" if follower is None else "; ".join(follower.missing) or follower.failure
        if reason and not self.policy.tolerant:
            self.stop()
            raise StartError(f"cannot watch the flags: {reason}")

    def stop(self) -> None:
        """Stop watching. A second call does nothing; it can be started again.

        One that runs in a loop is cancelled, from any thread, and is `running` until it has ended there.
        """
        fork.catch_up()
        with self._guard:
            background, self._background, self._deferred = self._background, None, False
            if self._cancel is not None:
                try:
                    self._cancel()
                except RuntimeError:  # its loop is closed
                    self._cancel = None
        if background is not None:
            background.stop()

    def __enter__(self) -> Self:
        if not self.running:
            self.initialize()
            self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    async def run(self, ready: Callable[[], object] = lambda: None) -> None:
        """Watch in this loop, until cancelled or stopped; `ready` is called when all places were read."""
        import asyncio

        with self._guard:
            self._begin()
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            self._cancel = partial(loop.call_soon_threadsafe, _cancel_once, task)
        try:
            await self._new_follower(ready).run()
        finally:
            self._cancel = None

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Run in this loop until the end of the block. Not a task group: it would wrap the errors of the block."""
        import asyncio

        ready = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self.run(ready.set), name="dflag updater")
        try:
            await ready.wait()
            self.check()
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    def __repr__(self) -> str:
        places, wrong = ", ".join(place.title for place in self.places), len(self.problems)
        problems = f", {wrong} problem{'s' if wrong > 1 else ''}" if wrong else ""
        state = "running" if self.running else "stopped"
        return f"<Updater of {self.flags.name!r} from {places}: {state}, generation {self.generation}{problems}>"

    def before_fork(self) -> None:
        background = self._background
        if background is None or not background.alive or background.here:
            return
        self._resume = self._guard.acquire(timeout=_FORK_PATIENCE)
        if self._resume:
            background.stop(_FORK_PATIENCE)

    def after_fork_in_parent(self) -> None:
        if self._resume:
            self._resume = False
            try:
                self._start_thread(required=False)
            finally:
                self._guard.release()

    def after_fork_in_child(self) -> None:
        lost = self._background is not None and not self._background.ended  # `before_fork` was not called
        self._resume = self._resume or lost or self._deferred
        self._guard, self._cancel = threading.RLock(), None

    def go_on_in_child(self) -> None:
        resume, self._resume = self._resume, False
        if resume:
            ready = self._start_thread(required=False)
            if self._deferred:
                ready.wait(_FORK_PATIENCE)  # its values were read when the master started
        self._deferred = False


def place_of(given: str | os.PathLike[str] | Place, documents: tuple[str, ...] = ()) -> Place:
    """Return a place. A text of the form `configmap/NS/NAME` is an object; `./configmap/…` is a path.

    `documents` are those of a place that is given as text; a record has its own.

    >>> place_of("/etc/dflag").title, place_of("configmap/shop/flags").title, place_of("./configmap/shop/flags").title
    ('/etc/dflag', 'configmap/shop/flags', './configmap/shop/flags')
    """
    if not isinstance(given, str | os.PathLike):
        return given
    match = _CONFIG_MAP.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        return Directory(os.fspath(given), documents=documents)
    from wigwag.dflag.cluster.configmap import ConfigMap

    return ConfigMap(match[1], match[2], documents=documents)


def _picture(contents: Mapping[Place, Contents | Unavailable | None]) -> Picture:
    return {place: each for place, each in contents.items() if isinstance(each, Mapping)}


def _cancel_once(task: Task[Any]) -> None:
    """Cancel a task; a second time would interrupt its clean-up."""
    if not task.cancelling():
        task.cancel()


def setup(
    flags: FlagSet,
    *places: str | os.PathLike[str] | Place,
    policy: Policy = Policy(),  # noqa: B008 - a frozen value
) -> Updater:
    """Read places into flags, and follow them in a thread; raise if something is wrong at the start.

    A place is a directory, a `Directory`, `configmap/NAMESPACE/NAME` (the object, from the API server) or a
    `ConfigMap`; the last one wins.

    >>> import tempfile, pathlib
    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate = flags.int("rate", 10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "rate").write_text("20")
    ...     with dflag.setup(flags, folder) as updater:
    ...         rate.get(), updater.generation, updater.errors
    (20, 1, 0)
    """
    updater = Updater(flags, *places, policy=policy)
    updater.initialize()
    updater.start()
    return updater


@asynccontextmanager
async def watching(
    flags: FlagSet,
    *places: str | os.PathLike[str] | Place,
    policy: Policy = Policy(),  # noqa: B008 - a frozen value
) -> AsyncIterator[Updater]:
    """Read places into flags, and follow them in this loop, until the end of the block.

    >>> import asyncio, tempfile
    >>> from wigwag import dflag
    >>> async def main():
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         async with dflag.watching(dflag.FlagSet("example"), folder) as updater:
    ...             return updater.running
    >>> asyncio.run(main())
    True
    """
    updater = Updater(flags, *places, policy=policy)
    await updater.prepare()
    async with updater.beside():
        yield updater
