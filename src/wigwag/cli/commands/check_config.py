"""`wigwag check-config`: would the agent start with these options, and would it have flags?"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wigwag.agent.options import AgentOptions
from wigwag.cli.config import read_config
from wigwag.cli.findings import in_words, plural
from wigwag.cli.terminal import complain, remark, styled
from wigwag.errors import UsageError
from wigwag.options import duration, option, unknown_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.agent.check import CheckResult

HELP = "check the options of `start`, and reach every source once"
DESCRIPTION = """\
Take the options of `wigwag start`, from the same places, and tell whether the agent would start and have flags: files,
ports and certificates are looked at, and every source is reached once, all at the same time. Nothing is served, and a
port that is in use is only remarked on: it may be the agent that these options are for.

  wigwag check-config --uri file:flags.yaml
  wigwag check-config --config agent.yaml --timeout 3s
  wigwag check-config --config agent.yaml --output json      for a pipeline

Exits with 0 if all is well, 1 if a required source fails, a document has errors or the agent could not start, 2 if the
options make no sense.
"""
ENVIRONMENT = "FLAGD_"
CONFIG = True
_STYLES = {"ok": "green", "failing": "red", "skipped": "yellow"}
_HEADINGS = ("SOURCE", "PROVIDER", "STATE", "FLAGS", "PROBLEMS", "TIME", "ERROR")


@dataclass(frozen=True, kw_only=True)
class Options(AgentOptions):
    """The options of `wigwag start`, and what is done with the answer."""

    timeout: float = option(
        10.0, "how long to wait for a source", metavar="DURATION", convert=duration, group="the check"
    )
    output: str = option("text", "what to print", choices=("text", "json"))


def run(options: Options) -> int:
    """Check, print, and return the exit code."""
    import asyncio

    from wigwag.agent.check import reach
    from wigwag.agent.facts import fact_sources
    from wigwag.agent.faults import faults, repeated
    from wigwag.agent.locate import agent_sources

    if options.timeout <= 0:
        raise UsageError("--timeout: a source needs some time to answer; write a duration such as 10s")
    logging.getLogger("wigwag").addHandler(logging.NullHandler())
    remarks: list[str] = []
    sources = agent_sources(options, remarks.append)
    remarks += repeated(sources)
    facts = fact_sources(options, len(sources))
    wrong = asyncio.run(faults(options, sources, remarks.append))
    found = asyncio.run(reach((*sources, *facts), options, options.timeout, remarks.append))
    if options.output == "json":
        strange = [f"the config file says {key!r}, which is no option" for key in odd_keys(options)]
        print(json.dumps(as_json(found, wrong, [*strange, *remarks]), indent=2, ensure_ascii=False))
    else:
        tell(found, wrong, remarks)
    return verdict(found, wrong)


def odd_keys(options: Options) -> list[str]:
    """Return what the config file says that is no option. Whoever reads text has been told by now."""
    return unknown_keys(Options, read_config(options.config))


def verdict(found: Sequence[CheckResult], wrong: Sequence[str]) -> int:
    """Return the exit code."""
    if any(each.state == "skipped" for each in found):
        return 2
    return 0 if not wrong and all(each.fine for each in found) else 1


def tell(found: Sequence[CheckResult], wrong: Sequence[str], remarks: Sequence[str]) -> None:
    """Print a table, and under it what is wrong."""
    rows = [_HEADINGS, *(row(each) for each in found)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(_HEADINGS))]
    for number, line in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        style = _STYLES.get(line[2], "dim")
        cells[2] = styled(cells[2], style)
        text = "  ".join(cells).rstrip()
        print(styled(text, "dim") if not number else text)
    for each in found:
        for problem in each.problems:
            print(in_words(problem))
    for fault in wrong:
        complain(fault, "error")
    for said in remarks:
        complain(said, "warning")
    remark(summary(found, wrong))


def row(found: CheckResult) -> tuple[str, ...]:
    """Return the cells of a source."""
    answered = found.state == "ok"
    flags = found.flags if answered else None
    name = found.source.name
    if found.source.settings.selector:
        name += f" ({found.source.settings.selector})"
    if not found.source.required:
        name += " (optional)"
    return (
        name,
        found.source.provider,
        found.state,
        "-" if flags is None else str(flags),
        str(len(found.problems)) if answered or found.problems else "-",
        f"{found.seconds:.2f}s",
        found.error,
    )


def summary(found: Sequence[CheckResult], wrong: Sequence[str]) -> str:
    """Return what came of it in one line."""
    well = sum(each.state == "ok" for each in found)
    flags = sum(each.flags or 0 for each in found)
    ready = "not ready to start" if verdict(found, wrong) else "ready to start"
    return f"{well} of {plural(len(found), 'source')} answered, with {plural(flags, 'flag')}: {ready}"


def as_json(found: Sequence[CheckResult], wrong: Sequence[str], remarks: Sequence[str]) -> dict[str, Any]:
    """Return it all as plain JSON."""
    return {
        "ok": not verdict(found, wrong),
        "sources": [
            {
                "source": each.source.name,
                "provider": each.source.provider,
                "priority": each.source.position,
                "selector": each.source.settings.selector,
                "required": each.source.required,
                "state": each.state,
                "flags": each.flags,
                "problems": [problem.to_dict() for problem in each.problems],
                "seconds": round(each.seconds, 3),
                "error": each.error or None,
            }
            for each in found
        ],
        "errors": list(wrong),
        "warnings": list(remarks),
    }
