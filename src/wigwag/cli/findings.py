"""Findings as people and programs want to see them: text, JSON, SARIF for code scanning, annotations for GitHub."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from wigwag.cli.terminal import styled
from wigwag.flags.checks.catalogue import CATALOGUE
from wigwag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wigwag.flags.model import Finding

STYLES = {"error": "red", "warning": "yellow", "info": "cyan"}
_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_GITHUB_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_text(findings: Sequence[Finding]) -> str:
    """Return a line for each finding, with the hint under it."""
    return "\n".join(map(in_words, findings))


def in_words(finding: Finding) -> str:
    """Return a finding as a line that editors understand, with the hint under it."""
    severity = styled(finding.severity, STYLES[finding.severity])
    where, code = styled(finding.place, "bold"), styled(f"({finding.code})", "dim")
    line = f"{where}: {severity}: {finding.path}: {finding.message} {code}"
    return f"{line}\n    {styled(finding.hint, 'dim')}" if finding.hint else line


def as_json(findings: Sequence[Finding]) -> str:
    """Return an array of objects."""
    return json.dumps([finding.to_dict() for finding in findings], indent=2)


def as_sarif(findings: Sequence[Finding]) -> str:
    """Return a log of SARIF 2.1.0 with one run."""
    codes = sorted({finding.code for finding in findings})
    rules = [
        {
            "id": code,
            "shortDescription": {"text": CATALOGUE[code].meaning},
            "defaultConfiguration": {"level": _SARIF_LEVELS[CATALOGUE[code].severity]},
        }
        for code in codes
    ]
    driver = {"name": "wigwag", "version": __version__, "rules": rules}
    results = [_result(finding, codes.index(finding.code)) for finding in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(finding: Finding, index: int) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": quote(finding.source, safe="/:")}}
    if finding.line:
        physical["region"] = {"startLine": finding.line, "startColumn": finding.column}
    location = {"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": finding.path}]}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{finding.message}; {finding.hint}" if finding.hint else finding.message},
        "locations": [location],
    }


def as_github(findings: Sequence[Finding]) -> str:
    """Return a workflow command for each finding, which GitHub shows as an annotation of the line."""
    return "\n".join(map(_annotation, findings))


def _annotation(finding: Finding) -> str:
    place = {"file": finding.source, "line": finding.line, "col": finding.column, "title": finding.code}
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in place.items() if value)
    message = f"{finding.path}: {finding.message}" + (f"; {finding.hint}" if finding.hint else "")
    return f"::{_GITHUB_LEVELS[finding.severity]} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


FORMATS: dict[str, Callable[[Sequence[Finding]], str]] = {
    "text": as_text,
    "json": as_json,
    "sarif": as_sarif,
    "github": as_github,
}


def counted(findings: Sequence[Finding]) -> Counter[str]:
    """Return how many findings there are of each severity."""
    return Counter(finding.severity for finding in findings)


def plural(count: int, noun: str) -> str:
    """Return a number of things.

    >>> plural(1, "flag"), plural(0, "flag")
    ('1 flag', '0 flags')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"
