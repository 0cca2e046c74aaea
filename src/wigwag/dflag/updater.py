"""Flags that follow mounted ConfigMaps.

    initialize   read every directory once; static and dynamic flags may change
    start        watch them; from now on only dynamic flags change, and static ones say that a restart is required

The watch is armed before it reads, so nothing that happens between the two is missed. What is read becomes a picture of
all directories (`pipeline`), the picture a plan (`plan`), and the plan one commit (`store`). The same picture again is
nothing new. An updater watches in a thread of its own (`start`), or in the loop of the program (`run`, `watching`);
a fork stops the thread for a moment, and it goes on in both processes.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from wigwag.dflag import fork
from wigwag.dflag.places import Contents, Directory, Source
from wigwag.dflag.plan import Picture, Policy, Problem
from wigwag.dflag.record import SHOWN, Record
from wigwag.errors import StartError, UsageError
from wigwag.pipeline.spec import describe

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from wigwag.dflag.background import Background
    from wigwag.dflag.flagset import FlagSet
    from wigwag.pipeline.run import Pipeline
    from wigwag.pipeline.status import Status

log = logging.getLogger("wigwag.dflag")
_THREAD = "dflag updater"


class Updater:
    """Keeps a set of flags at what is in some directories; of those that have the same key, the last counts."""

    fork_order = 2

    def __init__(
        self,
        flags: FlagSet,
        *directories: str | os.PathLike[str] | Directory,
        policy: Policy = Policy(),  # noqa: B008 - a frozen value
        source: Source | None = None,
    ) -> None:
        """`source` is for places that are not on disk; then their paths are what it takes for one."""
        if not directories:
            raise UsageError("an updater needs a directory to read from")
        self.flags, self.policy = flags, policy
        self.places = tuple(_place(each, position, source is None) for position, each in enumerate(directories))
        self._source = source
        self._guard = threading.RLock()
        self._background: Background | None = None
        self._cancel: Callable[[], object] | None = None
        self._pipeline: Pipeline[Directory, Contents, Picture] | None = None
        self._resume, self._failure = False, ""
        self._record = Record(flags, policy)
        fork.remember(self)

    @property
    def running(self) -> bool:
        """Whether it watches."""
        return self._cancel is not None or (self._background is not None and self._background.alive)

    @property
    def generation(self) -> int:
        """How many different contents of the directories were taken."""
        return self._record.generation

    @property
    def warnings(self) -> int:
        """How many warnings there were: files that name no flag, and mounts that never change."""
        return self._record.warnings

    @property
    def errors(self) -> int:
        """How many errors there were: keys that were refused, and directories and files that could not be read."""
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
    def statuses(self) -> tuple[Status[Directory], ...]:
        """How each directory is doing."""
        return self._pipeline.statuses() if self._pipeline is not None else ()

    def initialize(self) -> None:
        """Read every directory once, for static and dynamic flags; take what is good, then raise if anything is not."""
        with self._guard:
            if self.running:
                raise UsageError("the updater is started already: initialize() comes before start()")
            self._look_at_mounts()
            found = {place: self._read(place) for place in self.places}
            self._record.note_failing({place: read for place, read in found.items() if isinstance(read, str)})
            picture = {place: read for place, read in found.items() if isinstance(read, Mapping)}
            self._record.apply(picture, static=not self.flags.frozen)
            errors = [problem for problem in self.problems if problem.level == "error"]
            if errors and not self.policy.tolerant:
                told = "; ".join(map(str, errors[:SHOWN])) + ("; …" if len(errors) > SHOWN else "")
                raise StartError(f"{len(errors)} {'error' if len(errors) == 1 else 'errors'} in the flags: {told}")

    def start(self) -> None:
        """Watch, in a thread of its own. Return when all directories were read; raise if a required one cannot be."""
        from wigwag.dflag.background import Background

        with self._guard:
            if self.running:
                raise UsageError("the updater is started already")
            self.flags.freeze()
            self._look_at_mounts()
            ready = threading.Event()
            self._background = Background(lambda: self._main(ready.set), _THREAD)
        ready.wait()
        self.check()

    def check(self) -> None:
        """Raise, and stop, if a required directory could not be read at the start."""
        missing = [] if self.policy.tolerant else self._missing()
        if missing or self._failure:
            self.stop()
            raise StartError(f"cannot watch the flags: {'; '.join(missing) or self._failure}")

    def stop(self) -> None:
        """Watch no more. A second time does nothing; it can be started again."""
        with self._guard:
            background, self._background = self._background, None
            cancel, self._cancel = self._cancel, None
        if background is not None:
            background.stop()
        if cancel is not None:
            cancel()

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
        """Watch, in this loop, until cancelled or stopped; `ready` is called when all directories were read."""
        import asyncio

        with self._guard:
            if self.running:
                raise UsageError("the updater is started already")
            task = asyncio.current_task()
            assert task is not None
            self._cancel = task.cancel
        self.flags.freeze()
        self._look_at_mounts()
        try:
            await self._main(ready)
        finally:
            self._cancel = None

    async def _main(self, ready: Callable[[], object], *, required: bool = True) -> None:
        from wigwag.dflag import following

        self._failure = ""

        def take(picture: Picture) -> None:
            self._record.apply(picture, static=False)
            ready()

        def turn(statuses: tuple[Status[Directory], ...]) -> None:
            self._record.note_statuses(statuses)
            if self._missing():
                ready()

        source, required = self._where(), required and not self.policy.tolerant
        self._pipeline = following.pipeline(
            self.places, lambda place: source.watch(place, self.policy), required=required
        )
        try:
            await following.follow(self._pipeline, take, turn)
        except Exception as error:
            self._failure = describe(_first(error))
            log.exception("the updater of the flags %r has failed; they stay as they are", self.flags.name)
            raise
        finally:
            ready()

    def _where(self) -> Source:
        from wigwag.dflag.volume import Volumes

        return self._source or Volumes()

    def _read(self, place: Directory) -> Contents | str | None:
        """Return what is in a directory, or why it cannot be read, or nothing if that is all right."""
        try:
            return self._where().read(place)
        except OSError as error:
            forgiven = place.optional and isinstance(error, FileNotFoundError | NotADirectoryError)
            return None if forgiven else describe(error)

    def _look_at_mounts(self) -> None:
        if self._source is None:
            self._record.note_mounts(self.places)

    def _missing(self) -> list[str]:
        """Return what keeps the first picture from being made."""
        wanted = (status for status in self.statuses if not status.spec.optional and not status.values)
        return [status.error or "" for status in wanted if status.state == "failing"]

    def before_fork(self) -> None:
        background = self._background
        self._resume = background is not None and background.alive and not background.here
        if self._resume:
            self._guard.acquire()
            self.stop()

    def after_fork_in_parent(self) -> None:
        if self._resume:
            self._go_on()
            self._guard.release()

    def after_fork_in_child(self) -> None:
        self._guard, self._cancel = threading.RLock(), None
        if self._resume:
            self._go_on()

    def _go_on(self) -> None:
        from wigwag.dflag.background import Background

        self._background = Background(lambda: self._main(lambda: None, required=False), _THREAD)


def _first(error: Exception) -> Exception:
    """Return what went wrong first in a task group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _place(directory: str | os.PathLike[str] | Directory, position: int, on_disk: bool) -> Directory:
    """Return a directory by the one name that it is known by."""
    place = directory if isinstance(directory, Directory) else Directory(os.fspath(directory))
    path = os.path.abspath(place.path) if on_disk else place.path  # noqa: PTH100 - `Path.absolute` keeps `..`
    return replace(place, path=path, position=position)
