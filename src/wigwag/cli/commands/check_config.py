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

HELP = "check the options of `start`, and read every source once"
DESCRIPTION = """\
Check whether the agent would start with these options of `wigwag start`, and whether it would have flags. Options also
come from the environment and the config file. Files, ports and certificates are checked, and every source is read once,
all in parallel. Nothing is served. A port in use is a warning: it may be in use by the agent that you are checking.

  wigwag check-config --uri file:flags.yaml
  wigwag check-config --config agent.yaml --timeout 3s
  wigwag check-config --config agent.yaml --output json      for a pipeline

Exits with 0 if the agent would start, 1 if a required source fails, a document has errors or the agent could not start,
2 on wrong options.
"""
ENVIRONMENT = "FLAGD_"
CONFIG = True
_STYLES = {"ok": "green", "failing": "red", "skipped": "yellow"}
_HEADINGS = ("SOURCE", "PROVIDER", "STATE", "FLAGS", "PROBLEMS", "TIME", "ERROR")


@dataclass(frozen=True, kw_only=True)
class Options(AgentOptions):
    """The options of `wigwag start`, and those of the check."""

    timeout: float = option(
        10.0, "how long to wait for a source", metavar="DURATION", convert=duration, group="the check"
    )
    output: str = option("text", "output format", choices=("text", "json"))


def run(options: Options) -> int:
    """Check, print, and return the exit code."""
    import asyncio

    from wigwag.agent.annotations import agent_sources
    from wigwag.agent.check import faults, reach, repeated
    from wigwag.agent.facts import fact_sources

    if options.timeout <= 0:
        raise UsageError("--timeout: a source needs some time to answer; write a duration such as 10s")
    logging.getLogger("wigwag").addHandler(logging.NullHandler())
    remarks: list[str] = []
    sources = agent_sources(options, remarks.append)
    remarks += repeated(sources)
    facts = fact_sources(options, len(sources))
    errors = asyncio.run(faults(options, sources, remarks.append))
    results = asyncio.run(reach((*sources, *facts), options, options.timeout, remarks.append))
    if options.output == "json":
        unknown = unknown_keys(Options, read_config(options.config))  # for text, `main` has printed them
        warnings = [f"the config file has {key!r}, which is not an option" for key in unknown] + remarks
        print(json.dumps(as_json(results, errors, warnings), indent=2, ensure_ascii=False))
    else:
        print_results(results, errors, remarks)
    return exit_code(results, errors)


def exit_code(results: Sequence[CheckResult], errors: Sequence[str]) -> int:
    """Return the exit code."""
    if any(each.state == "skipped" for each in results):
        return 2
    return 0 if not errors and all(each.fine for each in results) else 1


def print_results(results: Sequence[CheckResult], errors: Sequence[str], remarks: Sequence[str]) -> None:
    """Print a table, and under it the errors and warnings."""
    rows = [_HEADINGS, *(row(each) for each in results)]
    widths = [max(len(line[column]) for line in rows) for column in range(len(_HEADINGS))]
    for number, line in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        style = _STYLES.get(line[2], "dim")
        cells[2] = styled(cells[2], style)
        text = "  ".join(cells).rstrip()
        print(styled(text, "dim") if not number else text)
    for each in results:
        for problem in each.problems:
            print(in_words(problem))
    for error in errors:
        complain(error, "error")
    for warning in remarks:
        complain(warning, "warning")
    remark(summary(results, errors))


def row(result: CheckResult) -> tuple[str, ...]:
    """Return the cells of a source."""
    answered = result.state == "ok"
    flags = result.flags if answered else None
    name = result.source.name
    if result.source.settings.selector:
        name += f" ({result.source.settings.selector})"
    if not result.source.required:
        name += " (optional)"
    return (
        name,
        result.source.provider,
        result.state,
        "-" if flags is None else str(flags),
        str(len(result.problems)) if answered or result.problems else "-",
        f"{result.seconds:.2f}s",
        result.error,
    )


def summary(results: Sequence[CheckResult], errors: Sequence[str]) -> str:
    """Return the result in one line."""
    answered = sum(each.state == "ok" for each in results)
    flags = sum(each.flags or 0 for each in results)
    ready = "not ready to start" if exit_code(results, errors) else "ready to start"
    return f"{answered} of {plural(len(results), 'source')} answered, with {plural(flags, 'flag')}: {ready}"


def as_json(results: Sequence[CheckResult], errors: Sequence[str], remarks: Sequence[str]) -> dict[str, Any]:
    """Return the results as plain JSON."""
    return {
        "ok": not exit_code(results, errors),
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
            for each in results
        ],
        "errors": list(errors),
        "warnings": list(remarks),
    }
