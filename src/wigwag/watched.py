"""A flag document on disk, for programs that use wigwag as a library: loaded once, or watched.

    file ─▶ sources.disk.file ─▶ parse with the set before ─▶ WatchedState ─▶ `flags`, `error`, `changes()`, `on_change`

The watch is that of the agent (`sources.disk.file` and `pipeline.watch`). A state is one immutable pair of the newest
good set and the error since; it is replaced as a whole, so a reader in any thread sees a consistent pair, and takes no
lock.

Importing this module loads no event loop: `asyncio` comes with the first watch.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

from wigwag.errors import DocumentError, UsageError

if TYPE_CHECKING:
    from asyncio import Task, TaskGroup
    from collections.abc import AsyncIterator, Callable
    from typing import Self, TypeAlias

    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Fractional, Limits, Numbers
    from wigwag.loop_thread import LoopThread
    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.pipeline.watch import Watch
    from wigwag.sources.disk.file import FileWatch

    StrPath: TypeAlias = str | os.PathLike[str]

_FORKED = "the process has forked: the flags stay as they were; open the file again in the child"
_CLOSED = "the file is no longer watched: the flags stay as they were"


class LoadOptions(TypedDict, total=False):
    """How a file is loaded: the options of `wigwag.load`."""

    fractional: Fractional
    strict: bool
    numbers: Numbers
    limits: Limits
    clock: Callable[[], float]


class WatchedState(NamedTuple):
    """The newest good set of flags, and why a newer content of the file is not in force."""

    flags: FlagSet
    error: str | None = None


def load_file(path: StrPath, **options: Unpack[LoadOptions]) -> FlagSet:
    """Load a flag document from a file; its extension (.json, .yaml, .yml) says what it is, without one its text.

    The options are those of `load`. `OSError` if the file cannot be read, `DocumentError` if it cannot be used.

    >>> import tempfile, pathlib, wigwag
    >>> path = pathlib.Path(tempfile.mkdtemp(), "flags.yaml")
    >>> _ = path.write_text("flags: {new-ui: {state: ENABLED, variants: {on: true}, defaultVariant: on}}")
    >>> wigwag.load_file(path).boolean("new-ui", False)
    True
    """
    from wigwag.sources.disk.read import read

    name = os.fspath(path)
    return _parse(name, read(name, _largest(options)), None, options)


def watch_file(
    path: StrPath,
    on_change: Callable[[WatchedState], object] | None = None,
    **options: Unpack[LoadOptions],
) -> WatchedFile:
    """Watch a flag document on disk: `flags` of the result is always the newest good set.

    Use it as a context manager: `with` watches in a thread that ends with the block, `async with` in the running loop.
    It starts as `load_file` does, and raises what that raises. A later edit that cannot be used leaves the last good
    set in force; `error` says why, and so does the log. `on_change` is called with each new state, in that thread or
    loop; a coroutine reads `changes()` instead.

    >>> import queue, tempfile, pathlib, wigwag
    >>> path = pathlib.Path(tempfile.mkdtemp(), "flags.yaml")
    >>> def save(value):
    ...     _ = path.write_text(f"flags: {{size: {{state: ENABLED, variants: {{a: {value}}}, defaultVariant: a}}}}")
    >>> states = queue.SimpleQueue()
    >>> save(1)
    >>> with wigwag.watch_file(path, on_change=states.put) as watched:
    ...     before = watched.flags.integer("size", 0)
    ...     save(2)
    ...     _ = states.get(timeout=10)
    ...     before, watched.flags.integer("size", 0)
    (1, 2)
    """
    return WatchedFile(path, on_change, options)


def _parse(name: str, content: bytes, previous: FlagSet | None, options: LoadOptions) -> FlagSet:
    from wigwag.flags.document import format_of
    from wigwag.library import load

    try:
        return load(content, source=name, format=format_of(name), previous=previous, **options)
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}", error.findings) from error


def _largest(options: LoadOptions) -> int:
    from wigwag.flags.model import Limits

    return options.get("limits", Limits()).document_bytes


class WatchedFile:
    """A file of flags that is followed while the block runs; what `wigwag.watch_file` returns.

    >>> import tempfile, pathlib, wigwag
    >>> path = pathlib.Path(tempfile.mkdtemp(), "flags.yaml")
    >>> _ = path.write_text("flags: {new-ui: {state: ENABLED, variants: {on: true}, defaultVariant: on}}")
    >>> with wigwag.watch_file(path) as watched:
    ...     watched.flags.boolean("new-ui", False), watched.error
    (True, None)
    """

    def __init__(self, path: StrPath, on_change: Callable[[WatchedState], object] | None, options: LoadOptions) -> None:
        self.path = os.fspath(path)
        self._options, self._on_change = options, on_change
        self._state: WatchedState | None = None
        self._states: Broadcast[WatchedState] | None = None
        self._watch: Watch[FileWatch, FlagSet] | None = None
        self._process = os.getpid()
        self._background: LoopThread | None = None
        self._tasks: TaskGroup | None = None
        self._following: Task[None] | None = None

    @property
    def state(self) -> WatchedState:
        """The flags and the error of one moment."""
        if self._state is None:
            raise UsageError(f"{self.path} is not watched yet: read it inside `with wigwag.watch_file(…) as watched:`")
        return self._state

    @property
    def flags(self) -> FlagSet:
        """The newest good set. It never changes: take it once for what must agree, ask again for what is new."""
        return self.state.flags

    @property
    def error(self) -> str | None:
        """Why the newest content of the file is not in force; None: it is."""
        if self._process != os.getpid():
            return _FORKED
        return self.state.error if self.watching else _CLOSED

    @property
    def watching(self) -> bool:
        """Whether the file is watched: inside the block."""
        return self._background is not None or self._tasks is not None

    def start(self) -> Self:
        """Load the file, and watch it in a thread until `close`: for a program that has no block to do it in."""
        from wigwag.loop_thread import LoopThread

        self._load()
        self._background = LoopThread(self._follow, f"wigwag watch {self.path}")
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Watch no more, and wait for the end of the thread. A second time does nothing."""
        background, self._background = self._background, None
        if background is not None:
            background.stop()

    async def __aenter__(self) -> Self:
        import asyncio

        self._load()
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._following = self._tasks.create_task(self._follow(), name=f"watch {self.path}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is not None and self._following is not None:
            self._following.cancel()
            await tasks.__aexit__(None, None, None)  # an exception of the block is raised as it is, not in a group

    async def changes(self) -> AsyncIterator[WatchedState]:
        """Yield the state of now, and each that follows; a slow reader may skip states, but never ends on an old one.

        It is for a program that watches with `async with`.
        """
        if self._states is None or self._tasks is None:
            raise UsageError("changes() is for `async with wigwag.watch_file(…)`; in a thread, give it `on_change`")
        async for state in self._states:
            yield state

    def _load(self) -> None:
        """Load what is there now, in the caller: a file that cannot be used raises where it is opened."""
        if self.watching:
            raise UsageError(f"{self.path} is watched already; call wigwag.watch_file once more for a second watch")
        from wigwag.pipeline.broadcast import Broadcast

        self._process, self._states = os.getpid(), Broadcast()
        self._state = WatchedState(load_file(self.path, **self._options))
        self._states.publish(self._state)

    async def _follow(self) -> None:
        from wigwag.pipeline.parse import parsed
        from wigwag.pipeline.watch import Watch, WatchPolicy
        from wigwag.sources.disk import file

        spec = file.FileWatch(self.path, _largest(self._options))
        self._watch = Watch(spec, parsed(file.watch_file, self._parse), self._take, self._turned, WatchPolicy())
        await self._watch.run()

    def _parse(self, spec: FileWatch, content: bytes) -> FlagSet:
        return _parse(spec.path, content, self.flags, self._options)

    def _take(self, _: FileWatch, flags: FlagSet) -> None:
        self._become(WatchedState(flags))

    def _turned(self) -> None:
        """Called when the watch fails or recovers; a recovery comes with flags, and is published with them."""
        status = self._watch.status if self._watch else None
        if status is not None and status.state == "failing":
            self._become(WatchedState(self.flags, status.error))

    def _become(self, state: WatchedState) -> None:
        if _content(state) == _content(self.state):
            return
        self._state = state
        if self._states is not None:
            self._states.publish(state)
        if self._on_change is not None:
            try:
                self._on_change(state)
            except Exception:
                import logging

                log = logging.getLogger("wigwag.watched")
                log.exception(
                    "on_change of %s failed; the new flags are in force, and the next change calls it again", self.path
                )

    def __repr__(self) -> str:
        return f"<WatchedFile {self.path!r}: {self.error or 'watching'}>"


def _content(state: WatchedState) -> tuple[object, ...]:
    """Return what makes a state worth publishing: its flags, those in quarantine, and the error."""
    return state.flags.id, [layer.problems for layer in state.flags.layers], state.error
