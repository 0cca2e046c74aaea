"""What an updater has taken, and what was wrong with it.

Counters only grow, as the original's do. But where that counts a bad key again whenever anything is read again, here
each is counted and logged once, until it changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from wigwag.dflag.updating.plan import Plan, Problem, plan

if TYPE_CHECKING:
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.store import Put
    from wigwag.dflag.updating.places import Place
    from wigwag.dflag.updating.plan import Picture, Policy
    from wigwag.pipeline.status import Status

log = logging.getLogger("wigwag.dflag")
SHOWN = 10
"""How many problems are told of at once."""
_FROZEN = "mounted with subPath, so it never changes while the container runs: mount the whole volume instead"


class Record:
    """The last picture, and all that is wrong."""

    def __init__(self, flags: FlagSet, policy: Policy) -> None:
        self._flags, self._policy = flags, policy
        self._picture: Picture = {}
        self._mounts: tuple[Problem, ...] = ()
        self._failing: Mapping[Place, str] = {}
        self.plan = Plan()
        self.generation = self.warnings = self.errors = 0

    def problems(self) -> tuple[Problem, ...]:
        """Return all that is wrong now."""
        failing = (Problem("error", place.title, "", reason) for place, reason in self._failing.items())
        return (*self._mounts, *failing, *self.plan.problems)

    def apply(self, picture: Picture, *, static: bool) -> None:
        """Make the flags what the places say, under one generation, and tell what is wrong.

        Of a place that is not in the picture, because it has not answered yet, the last content stays.
        """
        before, whole = self.plan, {**self._picture, **picture}
        known, fresh = set(before.problems), list[Problem]()

        def decide() -> list[Put]:
            self.plan = plan(self._flags, whole, before, self._policy, static=static)
            fresh.extend(problem for problem in self.plan.problems if problem not in known)
            self._count(fresh)
            return self.plan.puts

        def done() -> None:
            if not self.plan.refused and whole != self._picture:
                self.generation += 1
                self._picture = whole

        self._flags.commit(decide, done, wait=static)  # the thread of an updater waits for no other: it may be stopped
        self._log(fresh)
        for name in self.plan.restart.keys() - before.restart.keys():
            log.warning("the static flag %r is another in %s: restart required", name, self.plan.restart[name])

    def _count(self, problems: list[Problem]) -> None:
        self.warnings += sum(problem.level == "warning" for problem in problems)
        self.errors += sum(problem.level == "error" for problem in problems)

    def _log(self, problems: list[Problem]) -> None:
        for problem in problems[:SHOWN]:
            log.log(logging.WARNING if problem.level == "warning" else logging.ERROR, "%s", problem)
        if len(problems) > SHOWN:
            log.error("and %d more problems; see Updater.problems", len(problems) - SHOWN)

    def note_statuses(self, statuses: Iterable[Status[Place]]) -> None:
        """Note which places cannot be read; a directory that is optional may be missing until it has come once."""
        failing = {}
        for status in statuses:
            before = self._failing.get(status.spec)
            if status.state == "failing" and (status.values or status.spec.required):
                failing[status.spec] = status.error or ""
            elif status.state == "starting" and before is not None:
                failing[status.spec] = before
        self.note_failing(failing)

    def note_failing(self, failing: Mapping[Place, str]) -> None:
        """Note which places cannot be read, and why."""
        self.errors += sum(self._failing.get(place) != reason for place, reason in failing.items())
        self._failing = failing

    def note_mounts(self, places: Iterable[Place]) -> None:
        """Note what will never change."""
        found = [Problem("warning", place.title, key, _FROZEN) for place in places for key in place.unchanging()]
        fresh = [problem for problem in found if problem not in self._mounts]
        self._mounts = tuple(found)
        self._count(fresh)
        self._log(fresh)
