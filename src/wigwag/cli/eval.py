"""`wigwag eval`: evaluate a flag of a document, once or at a prompt."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wigwag
from wigwag.cli.documents import read_document
from wigwag.cli.options import option, positional
from wigwag.cli.prompt import converse
from wigwag.cli.show import as_json, in_words
from wigwag.cli.terminal import styled
from wigwag.errors import UsageError
from wigwag.flags.evaluate import TYPES

if TYPE_CHECKING:
    from wigwag.flags.model import Fractional, Resolution

HELP = "evaluate a flag of a document, once or at a prompt"
DESCRIPTION = """\
Evaluate a flag and print its value. Without KEY, ask for flags at a prompt.

  wigwag eval demo                                            a prompt on the demo flags
  wigwag eval flags.yaml new-ui --context '{"tier": "gold"}'  one evaluation
  wigwag eval flags.json new-ui --context @user.json --explain

Exits with 0 on a value (or the caller's default), 1 on an evaluation error, 2 if the call or its input cannot be used.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag eval`."""

    source: str = positional("SOURCE", "a JSON or YAML file, - for standard input, or demo for the embedded flags")
    key: str | None = positional("KEY", "the flag to evaluate; without it a prompt opens", nargs="?", default=None)
    type: str | None = option(None, "the type to ask for; without it, whatever the value is", short="-t", choices=TYPES)
    context: str = option("{}", "the evaluation context, or @FILE to read it from", metavar="JSON", short="-c")
    explain: bool = option(False, "show how the value came about", short="-e")
    json: bool = option(False, "print JSON")
    selector: str = option("", "evaluate among these flags only: flagSetId=ID or source=URI", metavar="SELECTOR")
    fractional: Fractional = option("v2", "the hashing version of `fractional`", choices=("v2", "v3"))
    now: str | None = option(None, "what rules see as $flagd.timestamp, in Unix seconds", metavar="SECONDS")


def run(options: Options) -> int:
    """Evaluate, print, and return the exit code."""
    text, kind = read_document(options.source)
    flags = wigwag.load(text, options.fractional, source=options.source, format=kind)
    flags = flags.select(options.selector) if options.selector else flags
    context, now = read_context(options.context), read_time(options.now)
    if options.key is None:
        return converse(flags, context, now)
    resolution = flags.resolve(options.key, options.type, None, context, now)
    if options.explain:
        explanation = flags.explain(options.key, context, now)
        print(json.dumps(explanation.to_dict(), default=str) if options.json else explanation)
    elif options.json:
        print(json.dumps(as_json(options.key, resolution)))
    elif resolution.error is None:
        print(in_words(resolution))
    if resolution.error and not options.json:
        print(
            f"{styled(resolution.error, 'red', sys.stderr)}: {remedy(flags, options.key, resolution)}", file=sys.stderr
        )
    return 1 if resolution.error else 0


def read_context(text: str) -> dict[str, Any]:
    """Read an evaluation context from JSON, or from the file that @ names."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the context: {error}") from error
    try:
        context = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the context is not valid JSON: {error}") from error
    if not isinstance(context, dict):
        raise UsageError('the context must be a JSON object, such as {"targetingKey": "user-1"}')
    return context


def read_time(text: str | None) -> float | None:
    """Read a time in Unix seconds."""
    try:
        return None if text is None else float(text)
    except ValueError as error:
        raise UsageError(f"--now takes Unix seconds, not {text!r}") from error


def remedy(flags: wigwag.FlagSet, key: str, found: Resolution) -> str:
    """Return the message of an error with what to do about it."""
    if found.error != "FLAG_NOT_FOUND":
        return found.message
    quarantined = [
        problem for problem in flags.problems if f".{key}." in f"{problem.path}." and problem.severity == "error"
    ]
    if quarantined:
        return f"{found.message}: {quarantined[0]}"
    close = get_close_matches(key, flags.keys(), n=3)
    return f"{found.message}; did you mean {' or '.join(close)}?" if close else f"{found.message} in this document"
