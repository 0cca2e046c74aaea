"""`wigwag eval`: evaluate a flag of a document, once or at a prompt."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import wigwag
from wigwag.cli.documents import is_demo, parse_context, read_document, read_file, title
from wigwag.cli.prompt import converse
from wigwag.cli.show import as_json, in_words
from wigwag.cli.terminal import complain
from wigwag.errors import DocumentError, UsageError
from wigwag.flags.evaluate import TYPES
from wigwag.flags.model import child
from wigwag.options import option, positional
from wigwag.suggest import close_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.flags.model import Finding, FlagType, Fractional, Resolution

HELP = "evaluate a flag of a document, once or at a prompt"
DESCRIPTION = """\
Evaluate a flag and print its value. Without KEY, ask for flags at a prompt.

  wigwag eval demo                                            a prompt on the demo flags
  wigwag eval flags.yaml new-ui --context '{"tier": "gold"}'  one evaluation
  wigwag eval flags.json new-ui --context @user.json --explain

Exits with 0 on a value (or the caller's default), 1 on an evaluation error, 2 if the call or its input cannot be used.
"""
ALIASES = {"--json": "--output=json", "--no-json": "--output=text"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag eval`."""

    source: str = positional("SOURCE", "a JSON or YAML file, - for standard input, or demo for the embedded flags")
    key: str | None = positional("KEY", "the flag to evaluate; without it a prompt opens", nargs="?", default=None)
    type: FlagType | None = option(
        None, "the type to ask for; without it, whatever the value is", short="-t", choices=TYPES
    )
    context: str = option("{}", "the evaluation context, or @FILE to read it from", metavar="JSON", short="-c")
    explain: bool = option(False, "show how the value came about", short="-e")
    output: str = option("text", "what to print", choices=("text", "json"), short="-o")
    selector: str = option("", "evaluate among these flags only: flagSetId=ID or source=URI", metavar="SELECTOR")
    fractional: Fractional = option("v2", "the hashing version of `fractional`", choices=("v2", "v3"))
    now: str | None = option(None, "what rules see as $flagd.timestamp, in Unix seconds", metavar="SECONDS")


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
        return converse(flags, context, now, demo=is_demo(options.source))
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
    """Evaluate one flag and print what came of it, except for an error in words."""
    if options.explain:
        explanation = flags.explain(key, context, now, type=options.type)
        print(json.dumps(explanation.to_dict(), default=str) if options.output == "json" else explanation)
        return explanation.resolution
    resolution = flags.resolve(key, options.type, None, context, now)
    if options.output == "json":
        print(json.dumps(as_json(key, resolution)))
    elif resolution.error is None:
        print(in_words(resolution))
    return resolution


def read_context(text: str) -> dict[str, Any]:
    """Read an evaluation context from JSON, or from the file that @ names."""
    try:
        given = read_file(Path(text[1:]), f"the context {text[1:]}").decode() if text.startswith("@") else text
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


def remedy(flags: wigwag.FlagSet, key: str, found: Resolution) -> str:
    """Return the message of an error with what to do about it."""
    if found.error != "FLAG_NOT_FOUND":
        return found.message
    for problem in problems_of(flags, key):
        if problem.severity == "error":
            return f"{found.message}: {problem}"
    close = close_names(key, flags.keys(), 3)
    return f"{found.message}; did you mean {' or '.join(close)}?" if close else f"{found.message} in this document"


def problems_of(flags: wigwag.FlagSet, key: str) -> Iterator[Finding]:
    """Return what is wrong with one flag, which may be the reason why it is not there."""
    paths = [child("$.flags", place) for place in places_of(flags, key)]
    for problem in flags.problems:
        for path in paths:
            if problem.path.startswith(path) and problem.path[len(path) : len(path) + 1] in ("", ".", "["):
                yield problem


def places_of(flags: wigwag.FlagSet, key: str) -> Iterator[str | int]:
    """Return where flags of that name stand in the document: under the name, or in an array."""
    for layer in flags.layers:
        for place, text in layer.texts.items():
            if place == key or (place.__class__ is int and _key(text) == key):
                yield place


def _key(text: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(text, type=_Keyed).key
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class _Keyed(msgspec.Struct):
    key: Any = None
