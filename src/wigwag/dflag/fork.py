"""What happens to flags when the process forks, as gunicorn and uwsgi do to make their workers.

Of a fork, only the thread that called it lives on in the child, and locks stay as they were at that moment. So before
a fork the watcher threads are stopped and the flag sets are locked; after it, both sides go on: the parent as before,
the child with locks and threads of its own. A notifier that was being called meanwhile is called again in the child,
for nobody knows how far it came. `os.register_at_fork` cannot be undone, hence one hook for all, and the
only list in this package that belongs to nobody; it keeps nothing alive.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something that must know of a fork. Lower ones are the first to go on, and the last to stop."""

    fork_order: int

    def before_fork(self) -> None:
        """Come to rest."""

    def after_fork_in_parent(self) -> None:
        """Go on as before."""

    def after_fork_in_child(self) -> None:
        """Go on in a new process, without the threads that there were."""


_known: WeakSet[Forkable] = WeakSet()
_lock = Lock()


def remember(one: Forkable) -> None:
    """Have something told of forks for as long as it lives."""
    with _lock:
        _known.add(one)


def _before() -> None:
    _lock.acquire()
    for one in _ordered(reverse=True):
        one.before_fork()


def _in_parent() -> None:
    for one in _ordered():
        one.after_fork_in_parent()
    _lock.release()


def _in_child() -> None:
    for one in _ordered():
        one.after_fork_in_child()
    _lock.release()


def _ordered(*, reverse: bool = False) -> list[Forkable]:
    return sorted(_known, key=lambda one: one.fork_order, reverse=reverse)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
