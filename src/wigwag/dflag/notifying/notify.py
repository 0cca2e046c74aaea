"""Notifiers: functions that are called with the old and the new value of a flag.

    thread   (the default) in a thread of the pool, so that a slow one delays no other flag
    sync     in the thread that makes the change, before `set` returns
    async    in an event loop, one call after the other; the default for coroutine functions

Each gets every change once, in order; setting an equal value is no change. One that raises is logged and counted, and
called again for the next change. Ctrl-C in the middle of a `sync` one is raised after the others have been called.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from threading import Lock, current_thread, main_thread
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from wigwag.dflag.notifying.notifiers import BACKLOG, NotifierPool, NotifierQueue, ValueChange, push
from wigwag.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Awaitable, Callable
    from typing import Self

How: TypeAlias = Literal["thread", "sync", "async"]
log = logging.getLogger("wigwag.dflag")


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
        if step.equal and not self.always:
            return
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
        ways = {each.how for each in self._subscriptions if each.always or not step.equal}
        if "thread" in ways:
            self.notifiers.submit(self._queue, step)
        for each in self._subscriptions:
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
