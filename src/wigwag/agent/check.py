"""Checks every source, and everything that facts come from, by asking it once; nothing is served.

A source is watched exactly as the agent does it, up to its first answer. All are asked at the same time, so the slowest
decides how long it takes, and one that fails does not keep the others from being checked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from wigwag.agent.annotations import documents
from wigwag.agent.assemble import Loader
from wigwag.agent.facts import FACTS, Facts, watch_facts
from wigwag.agent.freshness import too_strict
from wigwag.errors import DocumentError, UsageError
from wigwag.flags.checks.lint import lint_documents
from wigwag.flags.model import Limits
from wigwag.kube.hub import Hub
from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.pipeline.spec import Unavailable, describe
from wigwag.pipeline.watch import first
from wigwag.sources.document import Document, Merged
from wigwag.sources.kinds import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.agent.options import AgentOptions
    from wigwag.flags.model import Finding
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.source import Source


class CheckResult(Struct, frozen=True):
    """The result of asking a source."""

    source: Source
    state: Literal["ok", "failing", "skipped"]
    """Skipped: it cannot even be asked, in this installation or environment."""
    flags: int | None = 0
    """None: it has facts, and no flags."""
    problems: tuple[Finding, ...] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def fine(self) -> bool:
        """Whether nothing has to be done about it before the agent is started."""
        bad = self.state != "ok" and (self.source.required or self.state == "skipped")
        return not bad and not any(problem.severity == "error" for problem in self.problems)


async def reach(
    sources: Sequence[Source],
    options: AgentOptions,
    patience: float,
    remark: Callable[[str], object],
    clock: Clock = LoopClock(),  # noqa: B008 - it has no state
) -> list[CheckResult]:
    """Ask every source once, all at the same time."""

    async def asked(source: Source) -> CheckResult:
        began = clock.now()
        facts = source.provider in FACTS
        try:
            prepare([] if facts else [source], remark)
        except UsageError as error:
            return CheckResult(source, "skipped", error=str(error).removeprefix(f"source {source.name}: "))
        for warning in too_strict([] if facts else [source], options.stale_after):
            remark(warning)
        answer = await _first(source, hub, patience)
        seconds = clock.now() - began
        if isinstance(answer, Document | Merged):
            return _checked(source, answer, options, seconds)
        if isinstance(answer, Facts):
            return CheckResult(source, "ok", None, seconds=seconds)
        return CheckResult(source, "failing", None if facts else 0, seconds=seconds, error=answer)

    hub = Hub()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(hub.run())
        tasks = [group.create_task(asked(source)) for source in sources]
        await asyncio.wait(tasks)
        running.cancel()
    return [task.result() for task in tasks]


async def _first(source: Source, hub: Hub, patience: float) -> AnyDocument | Facts | str:
    """Return the first document or facts of a source, or why there are none."""
    try:
        async with asyncio.timeout(patience):
            item: AnyDocument | Facts | Unavailable | None
            if source.provider in FACTS:
                item = await first(watch_facts(source, hub=hub))
            else:
                item = await first(documents(source, hub))
    except TimeoutError:
        return f"no answer within {patience:g} s; look at the network, or give it more time with --timeout"
    except Exception as error:  # noqa: BLE001 - a watcher may fail in any way: that is the answer
        return describe(error)
    if item is None:
        return "it ended without an answer"
    return item.reason if isinstance(item, Unavailable) else item


def _checked(source: Source, document: AnyDocument, options: AgentOptions, seconds: float) -> CheckResult:
    try:
        flags = Loader(options.fractional, strict=options.strict).parse(source, document, strict=options.strict)
    except DocumentError as error:
        findings = lint_documents([(source.name, document.content, document.format)], Limits())
        return CheckResult(source, "failing", problems=tuple(findings), seconds=seconds, error=str(error))
    findings = lint_documents([(source.name, document.content, document.format)], Limits())
    return CheckResult(source, "ok", len(flags), tuple(findings), seconds)
