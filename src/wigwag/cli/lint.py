"""`wigwag lint`: check flag documents before they are deployed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wigwag.cli.documents import read_document
from wigwag.cli.terminal import remark, styled
from wigwag.errors import UsageError
from wigwag.flags.lint import in_order, lint_documents
from wigwag.flags.model import Finding, Limits
from wigwag.options import option, positional

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = "check flag documents for mistakes"
DESCRIPTION = """\
Check flag documents: against the schema, and for what loads but looks wrong.

  wigwag lint flags.yaml
  wigwag lint base.json team.json      several files are sources; the last one has the highest priority
  wigwag lint --strict --json *.json   for a pipeline

Exits with 1 if there are errors (with --strict: or warnings), 2 if a file cannot be read.
"""
_STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag lint`."""

    files: Sequence[str] = positional("FILE", "JSON or YAML files, - for standard input", nargs="+")
    strict: bool = option(False, "warnings count as errors")
    json: bool = option(False, "print the findings as a JSON array")


def run(options: Options) -> int:
    """Lint, print, and return the exit code."""
    findings, unreadable = lint_files(options.files)
    if options.json:
        print(json.dumps([finding.to_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            print(in_words(finding))
        remark(summary(findings, len(options.files)))
    if unreadable:
        return 2
    counts = _count(findings)
    return 1 if counts["error"] or (options.strict and counts["warning"]) else 0


def lint_files(paths: Sequence[str]) -> tuple[list[Finding], int]:
    """Lint files together; return the findings, and how many files could not be read."""
    documents, unreadable = [], []
    for path in paths:
        try:
            documents.append((path, *read_document(path)))
        except UsageError as error:
            unreadable.append(Finding("document-rejected", "$", "error", str(error), source=path))
    return in_order([*unreadable, *lint_documents(documents, Limits())]), len(unreadable)


def in_words(finding: Finding) -> str:
    """Return a finding as a line, with the hint under it."""
    severity = styled(finding.severity, _STYLES[finding.severity])
    line = (
        f"{styled(finding.source, 'bold')}: {finding.path}: {severity}: {finding.message} {styled(finding.code, 'dim')}"
    )
    return f"{line}\n    {styled(finding.hint, 'dim')}" if finding.hint else line


def summary(findings: Sequence[Finding], files: int) -> str:
    """Return what came of it in one line."""
    counts = _count(findings)
    found = ", ".join(f"{counts[name]} {name}{'s' if counts[name] > 1 else ''}" for name in _STYLES if counts[name])
    return f"{files} file{'s' if files > 1 else ''} checked: {found or 'nothing to complain about'}"


def _count(findings: Sequence[Finding]) -> Counter[str]:
    return Counter(finding.severity for finding in findings)
