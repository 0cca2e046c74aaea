"""`wigwag eval`: evaluate a flag of a document, once or at a prompt."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import wigwag
from wigwag.cli.documents import is_demo, parse_context, read_document, read_file, title
from wigwag.cli.prompt import in_words, run_prompt
from wigwag.cli.terminal import complain
from wigwag.errors import DocumentError, UsageError
from wigwag.flags.document import key_of
from wigwag.flags.evaluate import TYPES
from wigwag.flags.model import child
from wigwag.options import option, positional
from wigwag.suggest import close_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.model import Finding, FlagType, Fractional, Resolution

HELP = "evaluate a flag of a document, once or at a prompt"
DESCRIPTION = """\
Evaluate a flag and print its value. Without KEY, evaluate flags at a prompt.

  wigwag eval demo                                            a prompt on the demo flags
  wigwag eval flags.yaml new-ui --context '{"tier": "gold"}'  one evaluation
  wigwag eval flags.json new-ui --context @user.json --explain

Exits with 0 on a value (or the caller's default), 1 on an evaluation error, 2 on wrong arguments or input.
"""
ALIASES = {"--json": "--output=json", "--no-json": "--output=text"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag eval`."""

    source: str = positional("SOURCE", "a JSON or YAML file, - for standard input, or `demo` for the embedded flags")
    key: str | None = positional("KEY", "the flag to evaluate; without it, a prompt opens", nargs="?", default=None)
    type: FlagType | None = option(None, "the type to request; any type by default", short="-t", choices=TYPES)
    context: str = option("{}", "the evaluation context, or @FILE to read it from", metavar="JSON", short="-c")
    explain: bool = option(False, "explain the result", short="-e")
    output: str = option("text", "output format", choices=("text", "json"), short="-o")
    selector: str = option("", "use only these flags: flagSetId=ID or source=URI", metavar="SELECTOR")
    fractional: Fractional = option("v2", "the hashing version of `fractional`", choices=("v2", "v3"))
    now: str | None = option(None, "the time for $flagd.timestamp, in Unix seconds", metavar="SECONDS")


def run(options: Options) -> int:
    """Evaluate, print, and return the exit code."""
    text, kind = read_document(options.source)
    try:
        flags = wigwag.load(text, options.fractional, source=options.source, format=kind)
    except DocumentError as error:
        raise UsageError(f"{title(options.source)}: {error}") from error
    flags = flags.select(options.selector) if options.selector else flags
    context, now = read_context(options.context), read_time(options.now)
    if options.key is None:
        return run_prompt(flags, context, now, demo=is_demo(options.source))
    try:
        resolution = show(flags, options.key, context, now, options)
    except RecursionError as error:
        raise UsageError("the context is nested too deeply") from error
    if resolution.error and options.output == "text":
        complain(remedy(flags, options.key, resolution), resolution.error)
    return 1 if resolution.error else 0


def show(
    flags: wigwag.FlagSet, key: str, context: dict[str, Any], now: float | None, options: Options
) -> wigwag.Resolution:
    """Evaluate one flag and print the result, except for an error as text."""
    if options.explain:
        explanation = flags.explain(key, context, now, type=options.type)
        print(json.dumps(explanation.to_dict(), default=str) if options.output == "json" else explanation)
        return explanation.resolution
    resolution = flags.resolve(key, options.type, None, context, now)
    if options.output == "json":
        print(json.dumps(_as_json(key, resolution)))
    elif resolution.error is None:
        print(in_words(resolution))
    return resolution


def _as_json(key: str, resolution: Resolution) -> dict[str, Any]:
    names = ("value", "variant", "reason", *(("error", "message") if resolution.error else ()), "metadata")
    return {"key": key} | {name: getattr(resolution, name) for name in names}


def read_context(text: str) -> dict[str, Any]:
    """Read an evaluation context from JSON, or from the file that @ names."""
    try:
        given = read_file(text[1:], f"the context {text[1:]}").decode() if text.startswith("@") else text
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read the context {text[1:]}: it is not UTF-8") from error
    try:
        return parse_context(given)
    except UsageError as error:
        raise UsageError(f"the context{f' in {text[1:]}' * text.startswith('@')} {error}") from error


def read_time(text: str | None) -> float | None:
    """Read a time in Unix seconds."""
    try:
        now = None if text is None else float(text)
    except ValueError:
        now = math.nan
    if now is not None and not math.isfinite(now):
        raise UsageError(f"--now takes Unix seconds, not {text!r}")
    return now


def remedy(flags: wigwag.FlagSet, key: str, resolution: Resolution) -> str:
    """Return the message of an error with what to do about it."""
    message = resolution.message
    if resolution.error != "FLAG_NOT_FOUND":
        return message
    for problem in problems_of(flags, key):
        if problem.severity == "error":
            return f"{message}: {problem}"
    close = close_names(key, flags.keys(), 3)
    return f"{message}; did you mean {' or '.join(close)}?" if close else f"{message} in this document"


def problems_of(flags: wigwag.FlagSet, key: str) -> Iterator[Finding]:
    """Return the problems of the flags with that key; one of them may be why there is no such flag."""
    places = [place for layer in flags.layers for place, text in layer.texts.items() if key_of(place, text) == key]
    paths = [child("$.flags", place) for place in places]
    for problem in flags.problems:
        for path in paths:
            if problem.path.startswith(path) and problem.path[len(path) : len(path) + 1] in ("", ".", "["):
                yield problem
