"""What happens to flags when the process forks, as gunicorn and uWSGI do to make their workers.

In the child of a fork only the calling thread exists, and locks stay as they were. So before a fork the watcher threads
are stopped and the flag sets are locked; after it, both sides go on: the parent as before, the child with new locks and
threads. A notifier that another thread was calling is called again in the child, because nobody knows how far it got.

The hard case is a fork that Python does not know of: uWSGI forks in C. Then nothing was stopped before it. The child is
recognised by its process id: uWSGI calls our hook in each worker, and elsewhere a change of a flag, or a question to an
updater, compares the ids (`catch_up`). Reading a flag does not: that stays one attribute. And if a thread of uWSGI's
master has or wants the interpreter lock during the fork, the worker waits for it for ever; so there are no threads in
the master (`deferred`), and each worker starts its own.

`os.register_at_fork` cannot be undone, hence one hook for all, and the only global list in this package; its references
are weak.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from threading import RLock
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger("wigwag.dflag")
_UWSGI_HOOK = "post_fork_hook"
_UWSGI_HOOKS = "py-call-uwsgi-fork-hooks"
"""The option with which uWSGI runs the fork hooks of Python."""


class Forkable(Protocol):
    """Something that a fork affects. The lowest `fork_order` is the last to stop, and the first to go on."""

    fork_order: int

    def before_fork(self) -> None:
        """Stop. Not called before a fork that Python does not know of."""

    def after_fork_in_parent(self) -> None:
        """Go on as before."""

    def after_fork_in_child(self) -> None:
        """Replace locks, and forget threads, which only exist in the parent."""

    def go_on_in_child(self) -> None:
        """Go on in the child, when all have replaced their locks."""


class Forks:
    """What a fork affects, and the process in which it was last prepared."""

    def __init__(self) -> None:
        self._known: WeakSet[Forkable] = WeakSet()
        self._lock = RLock()
        self._process = self._started = os.getpid()
        self._start_locks: dict[int, RLock] = {}
        self._count = 0

    def remember(self, one: Forkable) -> None:
        """Add something, for as long as it exists."""
        self.catch_up()
        with self._lock:
            self._known.add(one)
        _hook_uwsgi(self.catch_up)

    def catch_up(self) -> None:
        """Go on as a child, if this is one and no hook was called."""
        if self._process != os.getpid():
            self.in_child()

    def count(self) -> int:
        """Return how many forks this process has made, or has come from; to tell whether there was one meanwhile."""
        self.catch_up()
        return self._count

    def before(self) -> None:
        """Stop all."""
        self._lock.acquire()
        for one in reversed(self._ordered()):
            _attempt(one.before_fork)

    def in_parent(self) -> None:
        """Let all go on."""
        self._count += 1
        for one in self._ordered():
            _attempt(one.after_fork_in_parent)
        self._lock.release()

    def in_child(self) -> None:
        """Let all go on in a child; once, also if several threads call this."""
        here = os.getpid()
        with self._start_locks.setdefault(here, RLock()):  # `_lock` may be held by a thread of the parent
            if self._started == here:
                return
            self._started, self._lock = here, RLock()
            self._count += 1
            known = self._ordered()
            for one in known:
                _attempt(one.after_fork_in_child)
            self._process = here
            for one in known:
                _attempt(one.go_on_in_child)

    def _ordered(self) -> list[Forkable]:
        return sorted(self._known, key=lambda one: one.fork_order)


def _attempt(task: Callable[[], None]) -> None:
    """Call something; a failure must not keep the others from going on."""
    try:
        task()
    except Exception:
        log.exception("%s failed at a fork", task.__qualname__)


def deferred() -> bool:
    """Tell whether this is a master of uWSGI, which only makes workers, by forks that Python does not know of."""
    uwsgi = sys.modules.get("uwsgi")
    return uwsgi is not None and uwsgi.masterpid() == os.getpid() and _UWSGI_HOOKS not in uwsgi.opt


def _hook_uwsgi(call: Callable[[], None]) -> None:
    """Have uWSGI call us in each new worker, before its previous hook. Within uWSGI its module is always loaded."""
    uwsgi = sys.modules.get("uwsgi")
    previous: Callable[[], object] | None = getattr(uwsgi, _UWSGI_HOOK, None)
    if uwsgi is None or getattr(previous, "calls_wigwag", False):
        return

    def hook() -> None:
        call()
        if previous is not None:
            previous()

    hook.calls_wigwag = True  # type: ignore[attr-defined]
    setattr(uwsgi, _UWSGI_HOOK, hook)


_forks = Forks()
remember, catch_up, count = _forks.remember, _forks.catch_up, _forks.count
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forks.before, after_in_parent=_forks.in_parent, after_in_child=_forks.in_child)
