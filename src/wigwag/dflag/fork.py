"""What happens to flags when the process forks, as gunicorn and uWSGI do to make their workers.

Of a fork, only the thread that called it lives on in the child, and locks stay as they were at that moment. So before
a fork the watcher threads are stopped and the flag sets are locked; after it, both sides go on: the parent as before,
the child with locks and threads of its own. A notifier that was being called meanwhile is called again in the child,
for nobody knows how far it came; unless it is the one that forked.

The hard case is a fork that Python is not told of: uWSGI makes its own, in C. Then nothing came to rest before it. The
child finds out by its process number: uWSGI calls a hook of ours in each worker, and elsewhere whoever changes a flag
or asks an updater looks (`catch_up`). Reading a flag does not: that stays one attribute. And if a thread of uWSGI's
master has or wants the interpreter's lock at that moment, the worker waits for it for ever; so we have no threads there
(`deferred`), and begin in each worker.

`os.register_at_fork` cannot be undone, hence one hook for all, and the only list in this package that belongs to
nobody; it keeps nothing alive.
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
_UWSGI_TELLS = "py-call-uwsgi-fork-hooks"
"""The option with which it tells Python of its forks."""


class Forkable(Protocol):
    """Something that must know of a fork. Lower ones are the first to go on, and the last to stop."""

    fork_order: int

    def before_fork(self) -> None:
        """Come to rest. It is not called before a fork that Python is not told of."""

    def after_fork_in_parent(self) -> None:
        """Go on as before."""

    def after_fork_in_child(self) -> None:
        """Have locks of one's own in a new process, without the threads that there were."""

    def go_on_in_child(self) -> None:
        """Go on there, now that everybody has locks of his own."""


class Forks:
    """Who must know of a fork, and which process it was that they know of."""

    def __init__(self) -> None:
        self._known: WeakSet[Forkable] = WeakSet()
        self._lock = RLock()
        self._process = self._beginning = os.getpid()
        self._beginnings: dict[int, RLock] = {}

    def remember(self, one: Forkable) -> None:
        """Have something told of forks for as long as it lives."""
        self.catch_up()
        with self._lock:
            self._known.add(one)
        _hook_uwsgi(self.catch_up)

    def catch_up(self) -> None:
        """Go on as a child does, if this is one and nobody has said so."""
        if self._process != os.getpid():
            self.in_child()

    def before(self) -> None:
        """Have everybody come to rest."""
        self._lock.acquire()
        for one in reversed(self._ordered()):
            _attempt(one.before_fork)

    def in_parent(self) -> None:
        """Have everybody go on."""
        for one in self._ordered():
            _attempt(one.after_fork_in_parent)
        self._lock.release()

    def in_child(self) -> None:
        """Have everybody go on in a new process; once in each, though several threads find out."""
        here = os.getpid()
        with self._beginnings.setdefault(here, RLock()):  # `_lock` may be held by a thread that is not here
            if self._beginning == here:
                return
            self._beginning, self._lock = here, RLock()
            known = self._ordered()
            for one in known:
                _attempt(one.after_fork_in_child)
            self._process = here
            for one in known:
                _attempt(one.go_on_in_child)

    def _ordered(self) -> list[Forkable]:
        return sorted(self._known, key=lambda one: one.fork_order)


def _attempt(task: Callable[[], None]) -> None:
    """One that fails must not keep the others from going on."""
    try:
        task()
    except Exception:
        log.exception("a fork could not be dealt with: %s", task.__qualname__)


class _Hook:
    """Called by uWSGI in each new worker; whatever was to be called before still is."""

    def __init__(self, call: Callable[[], None], before: Callable[[], object] | None) -> None:
        self._call, self._before = call, before

    def __call__(self) -> None:
        self._call()
        if self._before is not None:
            self._before()


def deferred() -> bool:
    """Tell whether this is the master of uWSGI, which makes workers and does nothing else, and does not tell of it."""
    uwsgi = sys.modules.get("uwsgi")
    return uwsgi is not None and uwsgi.masterpid() == os.getpid() and _UWSGI_TELLS not in uwsgi.opt


def _hook_uwsgi(call: Callable[[], None]) -> None:
    """Within uWSGI there is a module of that name from the start; nowhere else, so nothing is imported for it."""
    uwsgi = sys.modules.get("uwsgi")
    before = getattr(uwsgi, _UWSGI_HOOK, None)
    if uwsgi is not None and not isinstance(before, _Hook):
        setattr(uwsgi, _UWSGI_HOOK, _Hook(call, before))


_forks = Forks()
remember, catch_up = _forks.remember, _forks.catch_up
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forks.before, after_in_parent=_forks.in_parent, after_in_child=_forks.in_child)
