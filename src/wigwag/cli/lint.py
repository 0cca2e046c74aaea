"""`wigwag lint`: check flag documents before they are deployed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wigwag.cli.documents import read_document
from wigwag.cli.options import option, positional
from wigwag.cli.terminal import remark, styled
from wigwag.flags.lint import count, lint_documents
from wigwag.flags.model import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.flags.model import Finding

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
    findings = lint_files(options.files)
    if options.json:
        print(json.dumps([finding.to_dict() for finding in findings], indent=2))
    else:
        for finding in findings:
            print(in_words(finding))
        remark(summary(findings, len(options.files)))
    counts = count(findings)
    return 1 if counts.get("error") or (options.strict and counts.get("warning")) else 0


def lint_files(paths: Sequence[str]) -> list[Finding]:
    """Lint files together."""
    return lint_documents([(path, *read_document(path)) for path in paths], Limits())


def in_words(finding: Finding) -> str:
    """Return a finding as a line, with the hint under it."""
    severity = styled(finding.severity, _STYLES[finding.severity])
    line = (
        f"{styled(finding.source, 'bold')}: {finding.path}: {severity}: {finding.message} {styled(finding.code, 'dim')}"
    )
    return f"{line}\n    {styled(finding.hint, 'dim')}" if finding.hint else line


def summary(findings: Sequence[Finding], files: int) -> str:
    """Return what came of it in one line."""
    counts = count(findings)
    found = ", ".join(f"{counts[name]} {name}{'s' if counts[name] > 1 else ''}" for name in _STYLES if counts.get(name))
    return f"{files} file{'s' if files > 1 else ''} checked: {found or 'nothing to complain about'}"
