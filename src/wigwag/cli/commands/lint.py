"""`wigwag lint`: check flag documents before they are deployed."""

from __future__ import annotations

from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from wigwag.cli.documents import is_demo, read_document
from wigwag.cli.findings import FORMATS, STYLES, counted, plural
from wigwag.cli.terminal import remark
from wigwag.errors import UsageError
from wigwag.flags.checks.catalogue import finding
from wigwag.flags.checks.lint import in_order, lint_documents
from wigwag.flags.document import format_of
from wigwag.flags.model import Limits
from wigwag.options import option, positional

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wigwag.flags.model import Finding

HELP = "check flag documents for mistakes"
DESCRIPTION = """\
Check flag documents against the schema, and for mistakes that the schema does not catch.

  wigwag lint flags.yaml
  wigwag lint flags/ 'teams/**/*.yaml'   directories (all .json, .yaml and .yml files below them) and patterns
  wigwag lint --merge base.json team.json   sources of one agent, the last one on top
  wigwag lint --strict -o sarif flags/   for a pipeline; or -o github, -o json

Each file is checked on its own, unless --merge is given. Exits with 1 if there are errors (or warnings, with --strict),
2 if a file cannot be read.
"""
ALIASES = {"--json": "--output=json", "--no-json": "--output=text"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag lint`."""

    files: Sequence[str] = positional(
        "FILE", "JSON or YAML files, directories, patterns, - for standard input", nargs="+"
    )
    strict: bool = option(False, "treat warnings as errors")
    merge: bool = option(False, "treat the files as sources of one agent, the last one on top")
    output: str = option("text", "output format", choices=tuple(FORMATS), short="-o")


def run(options: Options) -> int:
    """Lint, print, and return the exit code."""
    files = list(dict.fromkeys(name for given in options.files for name in expanded(given)))
    findings, unreadable = lint_files(files, merge=options.merge)
    if (text := FORMATS[options.output](findings)) or options.output != "text":
        print(text)
    if options.output == "text":
        remark(summary(findings, len(files)))
    if unreadable:
        return 2
    counts = counted(findings)
    return 1 if counts["error"] or (options.strict and counts["warning"]) else 0


def expanded(name: str) -> Iterator[str]:
    """Return the files that an argument names: itself, what matches a pattern, what is below a directory."""
    if name == "-" or is_demo(name):
        yield name
        return
    path = Path(name.removeprefix("file:"))
    if has_magic(name) and not path.exists():
        matches = sorted(glob(str(path), recursive=True))  # noqa: PTH207 - a pattern may begin at the root
        if not matches:
            raise UsageError(f"no file matches {name}")
        for match in matches:
            yield from expanded(match)
    elif path.is_dir():
        documents = sorted(each for each in path.rglob("*") if _is_document(each.relative_to(path)) and each.is_file())
        if not documents:
            raise UsageError(f"{name}: no .json, .yaml or .yml files in this directory")
        yield from map(str, documents)
    else:
        yield name


def _is_document(path: Path) -> bool:
    """Whether a file below a directory is looked at; what is hidden is not, such as `..data` of a mounted ConfigMap."""
    return format_of(path.name) is not None and not any(part.startswith(".") for part in path.parts)


def lint_files(paths: Sequence[str], *, merge: bool) -> tuple[list[Finding], int]:
    """Lint files; return the findings, and how many files could not be read."""
    documents, unreadable = [], []
    for path in paths:
        try:
            documents.append((path, *read_document(path)))
        except UsageError as error:
            unreadable.append(finding("document-rejected", "$", str(error), source=path))
    return in_order([*unreadable, *lint_documents(documents, Limits(), merge=merge)]), len(unreadable)


def summary(findings: Sequence[Finding], files: int) -> str:
    """Return the result in one line."""
    counts = counted(findings)
    totals = ", ".join(plural(counts[name], name) for name in STYLES if counts[name])
    return f"{plural(files, 'file')} checked: {totals or 'no problems'}"
