"""Writers of state that can be killed: a process that forks one for every line it is given.

A line is [directory, first generation, call]. The writer saves generation after generation, says so each time, and goes
on until it is killed; with a `call` it saves one, and kills itself before that system call of the next. Starting Python
anew for each of them would take longer than everything else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from wigwag.agent.state.directory import StateDir
from wigwag.agent.state.file import StateEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS = ("open", "read", "write", "fsync", "rename", "unlink", "close", "stat", "fstat", "mkdir")
"""The system calls of `statefolder`, and of what it uses."""


def generation(number: int) -> tuple[StateEntry, ...]:
    """Entries that can be told from those of any other generation, some large and some small."""
    flag = {"key": "n", "state": "ENABLED", "variants": {"on": number}, "defaultVariant": "on"}
    padding = "x" * (number * 7919 % 150_000)
    documents = [{"flags": [flag]}, {"metadata": {"padding": padding}, "flags": [flag]}]
    return tuple(
        StateEntry(f"key-{place}", f"source-{place}", json.dumps(document).encode(), float(number))
        for place, document in enumerate(documents)
    )


@contextmanager
def intercepted(before: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Put something in front of every system call."""
    real = {name: getattr(os, name) for name in CALLS}
    for name, call in real.items():
        setattr(os, name, before(name, call))
    try:
        yield
    finally:
        for name, call in real.items():
            setattr(os, name, call)


def _work(folder: str, first: int, fatal: int) -> None:
    store, write = StateDir(folder), os.write
    for number in count(first):
        store.save(generation(number))
        write(1, b"saved %d\n" % number)
        if fatal:
            break
    calls = count(1)

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **named: Any) -> Any:
            if next(calls) == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return instead

    with intercepted(dying):
        store.save(generation(first + 1))
    write(1, b"saved %d\n" % (first + 1))


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                _work(*json.loads(line))
            finally:
                os._exit(0)
        os.write(1, b"pid %d\n" % pid)
        os.write(1, b"dead %d\n" % os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
