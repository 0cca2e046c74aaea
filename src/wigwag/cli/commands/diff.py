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

HELP = "compare two sets of flags, and what users get of them"
DESCRIPTION = """\
Tell which flags differ between A and B, in what, and which of the given contexts would get another answer.

  wigwag diff main.yaml branch.yaml
  wigwag diff main.yaml branch.yaml --contexts users.json     who gets another variant?
  wigwag diff agent://localhost:8014 flags.yaml               what would change if this were deployed?
  wigwag diff agent://localhost:8014/previous agent://localhost:8014

A and B are JSON or YAML files, - for standard input, any URI that an agent can read, or a running agent by its
management port, with the id or number of a snapshot behind it, or `previous`.

Exits with 0 if no flag differs, 1 if one does, 2 if the call or its input cannot be used.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag diff`."""

    before: str = positional("A", "the flags before: a file, -, a URI, or agent://HOST:PORT[/SNAPSHOT]")
    after: str = positional("B", "the flags after")
    contexts: str = option("", "contexts to evaluate: a JSON or YAML list, or JSON lines", metavar="FILE", short="-c")
    output: str = option("text", "what to print", choices=("text", "json"), short="-o")
    selector: str = option("", "compare these flags only: flagSetId=ID or source=URI", metavar="SELECTOR")
    fractional: Fractional | None = option(
        None,
        "the hashing version of `fractional`; without it, the agent's if one is asked, or v2",
        choices=("v2", "v3"),
    )


def run(options: Options) -> int:
    """Compare, print, and return the exit code."""
    if [options.before, options.after, options.contexts].count("-") > 1:
        raise UsageError("standard input can be read only once; put the other into a file")
    contexts = read_contexts(options.contexts) if options.contexts else []
    before, after, agents = load_sides(options.before, options.after, options.fractional)
    if options.selector:
        before, after = before.select(options.selector), after.select(options.selector)
    found = compare(before, after, contexts, sources=agents, most=MOST_CONTEXTS)
    if options.output == "json":
        print(json.dumps(found.to_dict(), ensure_ascii=False, indent=2))
    else:
        for line in found.lines(styled):
            print(line)
    return 1 if found else 0
