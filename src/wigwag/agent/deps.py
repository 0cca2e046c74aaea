"""What an agent takes from the machine it runs on: time, random numbers, documents, a disk, ports.

The options decide everything else. So a test that passes other dependencies (a clock that it moves, sources that fail
on demand) runs the agent itself, and not something wired like it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING

from wigwag.pipeline.watch import WatchPolicy
from wigwag.serve.face.capacity import open_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from wigwag.agent.facts import Stream
    from wigwag.agent.state.directory import StateDir
    from wigwag.serve.face.ports import Serve
    from wigwag.sources.kind import Documents
    from wigwag.sources.source import Source


def open_state(path: str) -> StateDir:
    """Open the directory in which the last good flags are kept; most agents have none, and load no code for it."""
    from wigwag.agent.state.directory import StateDir

    return StateDir.open(path)


@dataclass(frozen=True, slots=True)
class AgentDeps:
    """The dependencies of an agent; by default, the real ones."""

    policy: WatchPolicy = field(default_factory=WatchPolicy)
    wall: Callable[[], float] = time
    """The time in Unix seconds."""
    documents: Callable[[Source], Documents] | None = None
    """What yields the documents of a source; None: the sources themselves."""
    facts: Callable[[Source], Stream] | None = None
    """Yields facts; None: the real ones."""
    state: Callable[[str], StateDir] = open_state
    """Opens the directory in which the last good flags are kept."""
    serve: Serve | None = None
    """Opens a port; None: a server that shares its scheduler and its bound on memory with the other ports."""
    open_files: Callable[[], int] = open_files
    """How many files the process may open, which is divided among the ports."""
    settled: Callable[[], None] = lambda: None
    """Called when the first flags are loaded and checked: most of what is in memory then stays."""
