"""`wigwag diff`: what differs between two sets of flags, and for whom."""

from __future__ import annotations

import json
from dataclasses import dataclass

from wigwag.cli.documents import MOST_CONTEXTS, read_contexts
from wigwag.cli.sides import load_sides
from wigwag.cli.terminal import styled
from wigwag.errors import UsageError
from wigwag.flags.diff.compare import compare
from wigwag.flags.model import Fractional
from wigwag.options import option, positional

HELP = "compare two sets of flags, and their results for users"
DESCRIPTION = """\
Show which flags differ between A and B, how, and which of the given contexts get another result.

  wigwag diff main.yaml branch.yaml
  wigwag diff main.yaml branch.yaml --contexts users.json     who gets another variant?
  wigwag diff agent://localhost:8014 flags.yaml               what would change if this were deployed?
  wigwag diff agent://localhost:8014/previous agent://localhost:8014

A and B are JSON or YAML files, - for standard input, any URI that an agent can read, or the management port of a
running agent, optionally followed by the id or number of a snapshot, or `previous`.

Exits with 0 if no flag differs, 1 if one does, 2 on wrong arguments or input.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag diff`."""

    before: str = positional("A", "the flags before: a file, -, a URI, or agent://HOST:PORT[/SNAPSHOT]")
    after: str = positional("B", "the flags after")
    contexts: str = option("", "contexts to evaluate: a JSON or YAML list, or JSON lines", metavar="FILE", short="-c")
    output: str = option("text", "output format", choices=("text", "json"), short="-o")
    selector: str = option("", "compare only these flags: flagSetId=ID or source=URI", metavar="SELECTOR")
    fractional: Fractional | None = option(
        None,
        "the hashing version of `fractional`; that of the agent by default, or v2",
        choices=("v2", "v3"),
    )


def run(options: Options) -> int:
    """Compare, print, and return the exit code."""
    if [options.before, options.after, options.contexts].count("-") > 1:
        raise UsageError("standard input can be read only once; use a file for the other")
    contexts = read_contexts(options.contexts) if options.contexts else []
    before, after, agents = load_sides(options.before, options.after, options.fractional)
    if options.selector:
        before, after = before.select(options.selector), after.select(options.selector)
    comparison = compare(before, after, contexts, sources=agents, most=MOST_CONTEXTS)
    if options.output == "json":
        print(json.dumps(comparison.to_dict(), ensure_ascii=False, indent=2))
    else:
        for line in comparison.lines(styled):
            print(line)
    return 1 if comparison else 0
