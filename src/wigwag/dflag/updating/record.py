"""What an updater has applied, and the problems it had.

Counters only grow, as in the original. But the original counts a bad key again whenever anything is read; here each is
counted and logged once, until it changes. When it is good again, that is logged, too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from wigwag.dflag.updating.health import Problem
from wigwag.dflag.updating.places import Directory
from wigwag.dflag.updating.plan import Plan, plan
from wigwag.dflag.values.numerals import shown
from wigwag.errors import FlagError
from wigwag.pipeline.spec import describe

if TYPE_CHECKING:
    from wigwag.dflag.flag import Put
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.places import Place
    from wigwag.dflag.updating.plan import Picture
    from wigwag.dflag.updating.policy import Policy
    from wigwag.pipeline.status import Status

log = logging.getLogger("wigwag.dflag")
SHOWN = 10
"""How many problems are logged at once."""
_FROZEN = "mounted with subPath, so it never changes while the container runs: mount the whole volume instead"


class UpdateRecord:
    """The last picture, and all problems."""

    def __init__(self, flags: FlagSet, policy: Policy) -> None:
        self._flags, self._policy = flags, policy
        self._picture: Picture = {}
        self._mounts: tuple[Problem, ...] = ()
        self._failing: Mapping[Place, str] = {}
        self._failure: tuple[Problem, ...] = ()
        self.plan = Plan()
        self.generation = self.warnings = self.errors = 0

    def problems(self) -> tuple[Problem, ...]:
        """Return all current problems."""
        failing = (Problem("error", place.title, "", reason) for place, reason in self._failing.items())
        return (*self._failure, *self._mounts, *failing, *self.plan.problems)

    async def prepare(self, picture: Picture) -> None:
        """Parse large documents of a picture in a thread before it is applied, so that they do not block the loop.

        The result depends on nothing but the name and content of a document, so it does not matter when it is parsed.
        """
        from asyncio import to_thread

        plan, large = self.plan, self.plan.large_documents(picture)
        if large:
            documents = await to_thread(lambda: [plan.document(*each) for each in large])
            opened = {(place, key): document for (place, key, _), document in zip(large, documents, strict=True)}
            self.plan = replace(plan, opened=plan.opened | opened)

    def apply(self, picture: Picture, *, static: bool) -> None:
        """Set the flags from a picture, under one generation, and log problems.

        The last contents of a place that is not in the picture, because it could not be read, stay.
        """
        before, whole = self.plan, {**self._picture, **picture}
        known, fresh = set(before.problems), list[Problem]()

        def decide() -> list[Put]:
            self.plan = plan(self._flags, whole, before, self._policy, static=static)
            fresh.extend(self._count(self.plan.problems, known))
            return self.plan.puts

        def done() -> None:
            if not self.plan.refused and whole != self._picture:
                self.generation += 1
                self._picture = whole

        try:  # the thread of an updater does not wait for others: it may be stopped
            self._flags.commit(decide, done, wait=static)
        except FlagError as error:
            self._reject(error.reason)
            fresh += self._count(self.plan.problems[-1:], known)
        self._log(fresh)
        self._log_mended(before)
        self._log_restarts(before.restart, self.plan.restart)

    def _reject(self, reason: str) -> None:
        """Note that a check over several flags rejects the change. The next change tries again."""
        places = ", ".join(sorted({put.slot.place for put in self.plan.puts}))
        self.plan.puts, self.plan.refused = [], True
        self.plan.problems.append(Problem("error", places, "", f"refused as a whole: {reason}"))

    def _count(self, problems: Iterable[Problem], known: Collection[Problem]) -> list[Problem]:
        """Count the problems that are new, and return them."""
        fresh = [problem for problem in problems if problem not in known]
        self.warnings += sum(problem.level == "warning" for problem in fresh)
        self.errors += sum(problem.level == "error" for problem in fresh)
        return fresh

    def _log(self, problems: list[Problem]) -> None:
        flags = {each.problem: each.flag for each in self.plan.outcomes.values()} if problems else {}
        for problem in problems[:SHOWN]:
            flag = flags.get(problem)
            stays = "" if flag is None else f"; {flag.name} stays {shown(flag.shown)}"
            log.log(logging.WARNING if problem.level == "warning" else logging.ERROR, "%s%s", problem, stays)
        if len(problems) > SHOWN:
            log.error("and %d more problems; see Updater.problems", len(problems) - SHOWN)

    def _log_mended(self, before: Plan) -> None:
        """Log the problems that are over."""
        wrong = {(problem.place, problem.key) for problem in self.plan.problems}
        mended = {(problem.place, problem.key) for problem in before.problems} - wrong
        there = {(place.title, key) for place, key in (*self.plan.outcomes, *self.plan.opened)} if mended else set()
        for where in sorted(mended)[:SHOWN]:
            news = "it is good again" if where in there or not where[1] else "it is gone, and the problem with it"
            log.info("%s", Problem("warning", *where, news))
        if len(mended) > SHOWN:
            log.info("and %d more problems are over", len(mended) - SHOWN)

    def _log_restarts(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        for name in sorted(now.keys() - before.keys()):
            log.warning("restart required: the static flag %r stays as it is, but %s", name, now[name])
        for name in sorted(before.keys() - now.keys()):
            log.info("no restart required any more: the static flag %r has the value that is configured", name)

    def note_statuses(self, statuses: Iterable[Status[Place]]) -> None:
        """Note which places cannot be read; an optional directory may be missing until it was read once."""
        failing = {}
        for status in statuses:
            before = self._failing.get(status.spec)
            awaited = isinstance(status.spec, Directory) and status.spec.optional and not status.values
            if status.state == "failing" and not awaited:
                failing[status.spec] = status.error or ""
            elif status.state in ("starting", "stopped") and before is not None:
                failing[status.spec] = before
        self.note_failing(failing)

    def note_failing(self, failing: Mapping[Place, str]) -> None:
        """Note which places cannot be read, and why."""
        self.errors += sum(self._failing.get(place) != reason for place, reason in failing.items())
        for place in self._failing.keys() - failing.keys():
            log.info("%s: it can be read again", place.title)
        self._failing = failing

    def note_failure(self, error: BaseException | None) -> str:
        """Note that the updater itself has failed, or that it works; return why, without text if a flag is secret."""
        has_secrets = any(flag.secret for flag in self._flags)
        reason = "" if error is None else type(error).__name__ if has_secrets else describe(error)
        text = f"it has failed, and is restarted; the flags keep their values: {reason}"
        now = () if error is None else (Problem("error", f"the updater of {self._flags.name!r}", "", text),)
        before, self._failure = self._failure, now
        for problem in self._count(now, before):
            log.error("%s", problem, exc_info=None if has_secrets else error)
        if before and not now:
            log.info("%s: it works again", before[0].place)
        return reason

    def note_mounts(self, places: Iterable[Place]) -> None:
        """Note the keys that can never change."""
        before = self._mounts
        frozen = ((place.title, key) for place in places for key in place.unchanging())
        self._mounts = tuple(Problem("warning", *where, _FROZEN) for where in frozen)
        self._log(self._count(self._mounts, before))
