"""Notifiers: functions that are called with the old and the new value of a flag.

    thread   (the default) in a thread of the pool, so that a slow one delays no other flag
    sync     in the thread that makes the change, before `set` returns
    async    in an event loop, one call after the other; the default for coroutine functions

Each gets every change once, in order; setting an equal value is no change. One that raises is logged and counted, and
called again for the next change. Ctrl-C in the middle of a `sync` one is raised after the others have been called.

Each flag has a queue for the pool. Any free thread takes the first change of a queue; so one flag's changes come in
order, and a notifier that blocks delays its own flag only, until as many block as there are threads. A queue that is
too long is shortened at its end: the last two changes become one, from the first's old value to the second's new one,
so the chain of values never breaks. Threads start when there is work and end after a while without. They are daemons: a
notifier that never returns must not keep the process alive. If no thread can be started, the next change tries again.

The hard case is a fork. Only the thread that forked survives in the child, if it is one of these; it recognises the
child because the condition there is a new one, and ends. `resume` schedules the queues for new threads. Where threads
must not exist because of forks to come (`fork.deferred`), calls are made in each child, and here only by `flush`.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections import deque
from threading import Lock, current_thread, get_ident, main_thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from wigwag.dflag.fork import deferred
from wigwag.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Awaitable, Callable
    from typing import Self

How: TypeAlias = Literal["thread", "sync", "async"]
BACKLOG = 1000
"""How many changes may wait for the notifiers of one flag."""
_THREADS = 8
_LINGER = 5.0
log = logging.getLogger("wigwag.dflag")


class ValueChange(NamedTuple):
    """A change from one value to the next."""

    old: Any
    new: Any
    equal: bool = False


class NotifierQueue:
    """The changes for the notifiers of one flag."""

    __slots__ = ("busy", "by", "call", "steps")

    def __init__(self, call: Callable[[ValueChange], None]) -> None:
        self.call, self.busy = call, False
        self.by: int | None = None
        """The thread that is calling the first of them."""
        self.steps: deque[ValueChange] = deque()


def push(steps: deque[ValueChange], step: ValueChange, most: int) -> None:
    """Append a change; if there are too many, merge it into the last one."""
    if len(steps) >= most:
        step = ValueChange(steps.pop().old, step.new)
    steps.append(step)


class NotifierPool:
    """At most `threads` threads, and the queues that are ready for them."""

    def __init__(self, threads: int = _THREADS, backlog: int = BACKLOG, linger: float = _LINGER) -> None:
        self._most, self._backlog, self._linger = threads, max(backlog, 2), linger
        self.errors = 0
        """How many times a notifier has raised."""
        self.reset()

    def reset(self) -> None:
        """Start without threads, as in the child of a fork."""
        self._changed = threading.Condition()
        self._ready: deque[NotifierQueue] = deque()
        self._threads: set[int] = set()
        self._running = self._idle = self._unfinished = 0
        self._failed_to_start = False

    def count_error(self) -> None:
        """Count a notifier that raised."""
        with self._changed:
            self.errors += 1

    def submit(self, queue: NotifierQueue, step: ValueChange) -> None:
        """Queue a change."""
        with self._changed:
            push(queue.steps, step, self._backlog)
            self._schedule(queue)

    def resume(self, queue: NotifierQueue) -> None:
        """Schedule a queue after `reset`. A call that was under way is made again, because nobody knows how far it got.

        But not one that this thread is making: it has forked, and would fork again.
        """
        with self._changed:
            if queue.by == get_ident():
                queue.steps.popleft()
            queue.busy, queue.by = False, None
            if queue.steps:
                self._schedule(queue)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all calls have been made; return False if the timeout comes first."""
        if get_ident() in self._threads:
            raise UsageError("flush() waits for the notifiers, so a notifier that calls it would wait for itself")
        with self._changed:
            self._wake()
        if deferred():
            self._work_here()
        with self._changed:
            return self._changed.wait_for(lambda: not self._unfinished, timeout)

    def _schedule(self, queue: NotifierQueue) -> None:
        if queue.busy and self._running:
            return
        if not queue.busy:
            queue.busy = True
            self._unfinished += 1
            self._ready.append(queue)
        self._wake()

    def _wake(self) -> None:
        """Wake a thread, or start one, for the queues that are ready."""
        if not self._ready:
            return
        if self._idle >= len(self._ready):
            self._changed.notify_all()
        elif self._running < self._most and not deferred():
            self._start_thread()

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name="dflag notifiers", daemon=True).start()
        except RuntimeError as error:
            if not self._failed_to_start:
                log.error("no thread can be started for notifiers, so they are delayed: %s", error)  # noqa: TRY400
            self._failed_to_start = True
        else:
            self._running += 1
            self._failed_to_start = False

    def _work(self) -> None:
        changed, threads = self._changed, self._threads
        threads.add(get_ident())
        while (queue := self._next(changed)) is not None:
            queue.by = get_ident()
            queue.call(queue.steps[0])
            if self._changed is not changed:
                return
            self._finish(queue, changed)
        threads.discard(get_ident())

    def _work_here(self) -> None:
        """Make the calls in this thread."""
        changed = self._changed
        while self._ready:
            queue = self._ready.popleft()
            queue.by = get_ident()
            queue.call(queue.steps[0])
            self._finish(queue, changed)

    def _finish(self, queue: NotifierQueue, changed: threading.Condition) -> None:
        with changed:
            queue.by = None
            queue.steps.popleft()
            if queue.steps:
                self._ready.append(queue)
            else:
                queue.busy = False
                self._unfinished -= 1
                changed.notify_all()

    def _next(self, changed: threading.Condition) -> NotifierQueue | None:
        with changed:
            self._idle += 1
            ready = changed.wait_for(lambda: self._ready, self._linger)
            self._idle -= 1
            if ready:
                return self._ready.popleft()
            self._running -= 1
            return None


class Subscription:
    """One notifier, until `cancel`; as a context manager, until the end of the block."""

    def __init__(self, event: ChangeEvent, callback: Callable[[Any, Any], object], how: How, always: bool) -> None:
        self._event, self.callback, self.how, self.always = event, callback, how, always
        self.errors = 0
        """How many times it has raised."""

    def cancel(self) -> None:
        """End the subscription. Calls that are queued may still be made."""
        self._event.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.cancel()

    def call(self, step: ValueChange) -> None:
        """Call it; an exception is logged and counted."""
        if step.equal and not self.always:
            return
        try:
            self.callback(step.old, step.new)
        except BaseException as error:  # a notifier may fail in any way; the flag and the other notifiers go on
            if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
                raise
            self.failed(error)

    def renew(self) -> bool:
        """Replace locks after a fork; return False if it cannot be called in the child."""
        return True

    def failed(self, error: BaseException) -> None:
        """Log and count a failure; of a secret flag, without the exception, which may contain the value."""
        self.errors += 1
        self._event.notifiers.count_error()
        name = getattr(self.callback, "__qualname__", repr(self.callback))
        shown = None if self._event.secret else error
        log.error("%s: the notifier %s raised %s", self._event.name, name, type(error).__name__, exc_info=shown)


class AsyncSubscription(Subscription):
    """One notifier in an event loop, with its queue."""

    def __init__(
        self, event: ChangeEvent, callback: Callable[[Any, Any], Any], always: bool, loop: AbstractEventLoop
    ) -> None:
        super().__init__(event, callback, "async", always)
        self._loop, self._steps, self._guard = loop, deque[ValueChange](), Lock()
        self._task: Task[None] | None = None

    def send(self, step: ValueChange) -> None:
        """Queue a call in its loop; a closed loop ends the subscription."""
        with self._guard:
            push(self._steps, step, BACKLOG)
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            self.cancel()

    def renew(self) -> bool:
        """Return False if the loop was running: it runs in the parent, and waking it here would wake it there."""
        self._guard = Lock()
        return not self._loop.is_running()

    def _wake(self) -> None:
        if self._task is None and self._steps:
            self._task = self._loop.create_task(self._run(), name=f"dflag notifier of {self._event.name}")

    async def _run(self) -> None:
        try:
            while self._steps:
                await self._call(self._steps[0])
                with self._guard:
                    self._steps.popleft()
        finally:
            self._task = None

    async def _call(self, step: ValueChange) -> None:
        """Call it. A `CancelledError` is a failure like any other, unless this task itself is being cancelled."""
        from asyncio import CancelledError

        try:
            await cast("Awaitable[object]", self.callback(step.old, step.new))
        except (CancelledError, Exception) as error:
            if self._task is not None and self._task.cancelling():
                raise
            self.failed(error)


class ChangeEvent:
    """The notifiers of a flag, or of a flag set. The tuple is replaced, never changed, so posting needs no lock."""

    def __init__(self, name: str, notifiers: NotifierPool, secret: bool = False) -> None:
        self.name, self.notifiers, self.secret = name, notifiers, secret
        self._queue = NotifierQueue(self._call)
        self._subscriptions: tuple[Subscription, ...] = ()
        self._guard = Lock()

    def add(
        self, callback: Callable[[Any, Any], object], how: How | None, loop: AbstractEventLoop | None, always: bool
    ) -> Subscription:
        """Add a notifier."""
        if how is None:
            how = "async" if _is_async(callback) else "thread"
        if how not in ("thread", "sync", "async"):
            raise UsageError(f"a notifier is called by thread, sync or async, not {how!r}")
        if how != "async" and _is_async(callback):
            raise UsageError(f"a coroutine function is awaited in a loop: leave out how={how!r}, or say 'async'")
        subscription = (
            AsyncSubscription(self, callback, always, loop or _running_loop())
            if how == "async"
            else Subscription(self, callback, how, always)
        )
        with self._guard:
            self._subscriptions += (subscription,)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """Remove a notifier, if it is there."""
        with self._guard:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)

    def post(self, step: ValueChange) -> bool:
        """Queue the calls of threads and loops; tell whether there are `sync` ones, for `call`."""
        wanted = [each for each in self._subscriptions if each.always or not step.equal]
        ways = {each.how for each in wanted}
        if "thread" in ways:
            self.notifiers.submit(self._queue, step)
        for each in wanted:
            if isinstance(each, AsyncSubscription):
                each.send(step)
        return "sync" in ways

    def call(self, step: ValueChange) -> None:
        """Call the `sync` notifiers; all of them, also if Ctrl-C interrupts one."""
        interrupt: KeyboardInterrupt | None = None
        for each in self._subscriptions:
            if each.how == "sync":
                try:
                    each.call(step)
                except KeyboardInterrupt as error:
                    interrupt = error
        if interrupt is not None:
            raise interrupt

    def renew(self) -> None:
        """Replace locks after a fork, and keep only notifiers that can be called in the child."""
        self._guard = Lock()
        self._subscriptions = tuple([each for each in self._subscriptions if each.renew()])

    def resume(self) -> None:
        """Resume the queue in the child."""
        self.notifiers.resume(self._queue)

    def _call(self, step: ValueChange) -> None:
        for each in self._subscriptions:
            if each.how == "thread":
                each.call(step)


def _is_async(callback: object) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004


def _running_loop() -> AbstractEventLoop:
    from asyncio import get_running_loop

    try:
        return get_running_loop()
    except RuntimeError:
        raise UsageError(
            "no event loop is running here in which a notifier could be awaited: call on_change from a coroutine, "
            "or name the loop with loop="
        ) from None
