"""`wigwag migrate`: manifests of open-feature-operator's alpha versions, as v1beta1."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from wigwag.cli.documents import read_document, title
from wigwag.cli.findings import STYLES, plural
from wigwag.cli.terminal import complain, remark, styled
from wigwag.errors import DocumentError, UsageError
from wigwag.flags.checks.positions import locate
from wigwag.flags.model import Limits
from wigwag.operator.migration.migrate import migrate
from wigwag.options import option, positional

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wigwag.operator.migration.remarks import Migrated

HELP = "turn manifests of open-feature-operator's alpha versions into v1beta1"
DESCRIPTION = """\
Write manifests with FeatureFlagConfiguration and FlagSourceConfiguration (v1alpha1 to v1alpha3) as FeatureFlag and
FeatureFlagSource (v1beta1), and replace the old annotations of pod templates.

  wigwag migrate flags.yaml deployment.yaml > new.yaml
  kubectl get featureflagconfigurations,flagsourceconfigurations -A -o yaml | wigwag migrate -
  wigwag migrate --strict old/*.yaml > new.yaml          fail if anything is lost

Give all files at once: a workload that names flags gets a FeatureFlagSource, which has what the flags' old objects say
about the agent. What cannot be carried over is said on standard error, with its line and what to do. Documents of other
kinds are written as they are. Comments of migrated documents are lost.

Exits with 1 if an object could not be migrated (or if something is lost, with --strict), 2 if a file cannot be read.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag migrate`."""

    files: Sequence[str] = positional(
        "FILE", "YAML or JSON files with any number of documents, - for standard input", nargs="+"
    )
    strict: bool = option(False, "treat warnings as errors")


_END = re.compile(r"^\.\.\.\s*\Z", re.MULTILINE)
"""The end of a document, where it is marked."""


class _Document(NamedTuple):
    """A document of a file: where it begins, its text, and its value."""

    source: str
    line: int
    text: str
    value: Any


def run(options: Options) -> int:
    """Migrate, print, and return the exit code."""
    if list(options.files).count("-") > 1:
        raise UsageError("standard input can be read only once; use a file for the other")
    documents = [document for name in options.files for document in _documents(name)]
    results = migrate([each.value for each in documents])
    print("---\n".join(text for pair in zip(documents, results, strict=True) for text in _written(*pair)), end="")
    counts: Counter[str] = Counter()
    for document, result in zip(documents, results, strict=True):
        counts.update(each.severity for each in result.remarks)
        _report(document, result)
    changed = sum(result.objects is not None for result in results)
    remark(f"{plural(len(documents), 'document')} read, {changed} changed")
    return 1 if counts["error"] or (options.strict and counts["warning"]) else 0


def _documents(name: str) -> Iterator[_Document]:
    from wigwag.yaml import Bounds, load_all

    text, limits = read_document(name)[0].removeprefix(b"\xef\xbb\xbf"), Limits()
    if len(text) > limits.document_bytes:
        raise UsageError(f"{title(name)} has more than {limits.document_bytes} bytes; split it")
    try:
        found, lines = load_all(text, Bounds(limits.document_bytes, limits.depth)), text.decode().splitlines(True)
    except (DocumentError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, DocumentError) else "it is not UTF-8"
        raise UsageError(f"{title(name)} cannot be read: {reason}") from error
    starts = [0, *(line - 1 for line, _ in found[1:]), len(lines)]
    for (start, end), (_, value) in zip(pairwise(starts), found, strict=False):
        yield _Document(title(name), start + 1, "".join(lines[start:end]), value)


def _written(document: _Document, result: Migrated) -> Iterator[str]:
    """Yield the documents to write; one that stays as it is keeps its text, and with it its comments."""
    from wigwag.yaml import dump

    if result.objects is not None:
        yield from map(dump, result.objects)
    elif document.text.startswith("%"):  # a directive, which may stand at the beginning of a file only
        yield dump(document.value)
    elif document.value is not None:
        text = document.text.removeprefix("---").lstrip("\r\n")
        yield f"{_END.sub('', text).rstrip()}\n"


def _report(document: _Document, result: Migrated) -> None:
    if not result.remarks:
        return
    places = locate(document.text, "yaml", [each.path for each in result.remarks])
    for each in result.remarks:
        line = document.line + places[each.path][0] - 1
        severity = styled(each.severity, STYLES[each.severity])
        complain(f"{severity}: {each.message}", f"{document.source}:{line}")
