"""Checks FeatureFlags when they are written, with the parser and the linter that agents use.

Refused is what the linter calls an error, what departs from flagd's schema, what breaks a test of the object, and a
remote that agents could not use, or that has secrets in its address. Other
findings are warnings, which kubectl shows, and so is what a change means for users. Each line begins with the path in
the object, such as `spec.flagSpec.flags.new-ui.targeting`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from wigwag.flags.checks.catalogue import CATALOGUE, Effect
from wigwag.flags.checks.lint import lint_documents
from wigwag.flags.model import Limits
from wigwag.operator.flagtests import failing_tests
from wigwag.operator.impact import impact
from wigwag.operator.injection.verdict import BAD_REQUEST, FORBIDDEN, Allowed, Denied
from wigwag.operator.remoteflags import read_remote
from wigwag.operator.resources.featureflag import FlagTest
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.sources.kubernetes.names import CRITICAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from wigwag.flags.model import Finding
    from wigwag.operator.injection.verdict import Verdict

ROOT = "spec.flagSpec"
MOST = 20
"""Lines of one answer; the API server cuts long ones."""
SCHEMA_CODES = frozenset(
    (
        "state-unknown",
        "variants-missing",
        "variants-mixed",
        "variant-type",
        "metadata-value",
        "rule-shape",
        "operator-data",
        "operand-count",
        "operand-type",
        "fractional-bucketing",
        "fractional-share",
        "fractional-weight",
        "semver-operator",
        "semver-version",
        "flagd-property",
    )
)
"""Warnings of the linter that flagd's schema has no place for."""
LIMITS = Limits(document_bytes=4 * 1024 * 1024)
"""The API server accepts less."""


class _WrittenSpec(Struct):
    flagSpec: Raw = Raw()  # noqa: N815 - the name in the object
    tests: list[FlagTest] = []
    remoteFlagProvider: Raw = Raw()  # noqa: N815 - the name in the object


class _Written(Struct):
    metadata: ObjectMeta = ObjectMeta()
    spec: _WrittenSpec | None = None


_decode = msgspec.json.Decoder(_Written).decode


def validate_feature_flag(text: bytes, before: bytes = b"") -> Verdict:
    """Decide about a FeatureFlag, given as the JSON of the object; `before` is the object that it replaces, if any.

    >>> flag = b'{"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "off"}'
    >>> validate_feature_flag(b'{"spec": {"flagSpec": {"flags": {"new-ui": ' + flag + b"}}}}").message
    "spec.flagSpec.flags.new-ui.defaultVariant: the default variant 'off' is not one of the variants: on"
    """
    try:
        written = _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return Denied(BAD_REQUEST, f"the object is not a FeatureFlag: {error}")
    spec = written.spec
    if spec is None:
        return Allowed()
    remote = read_remote(spec.remoteFlagProvider)
    if remote.problems:
        return Denied(FORBIDDEN, "\n".join(remote.problems))
    if not bytes(spec.flagSpec):
        return Allowed(warnings=remote.warnings)
    document = bytes(spec.flagSpec)
    findings = flag_findings(document)
    errors = [each for each in findings if is_refused(each)]
    if errors:
        return Denied(FORBIDDEN, "\n".join(lines(errors)))
    if failures := failing_tests(document, spec.tests, LIMITS):
        return Denied(FORBIDDEN, "\n".join(first(failures)))
    changes = first(impact(_document(before), document, LIMITS))
    return Allowed(warnings=(*critical_mark(written), *lines(findings), *remote.warnings, *changes))


def critical_mark(written: _Written) -> Iterator[str]:
    """Report an annotation that looks as if it marked critical flags, and does not."""
    value = (written.metadata.annotations or {}).get(CRITICAL)
    if value not in (None, "true", "false"):
        yield f'metadata.annotations.{CRITICAL}: {value!r} marks nothing as critical; write "true"'


def _document(text: bytes) -> bytes:
    """Return the flags of an object that is in the cluster; none if there are none."""
    try:
        spec = _decode(text).spec if text else None
    except (msgspec.DecodeError, RecursionError):
        return b""
    return bytes(spec.flagSpec) if spec else b""


def flag_findings(document: bytes) -> list[Finding]:
    """Return what the linter finds in the flags of an object, the worst first."""
    return lint_documents([("", document, "json")], LIMITS, merge=False)


def is_refused(finding: Finding) -> bool:
    """Tell whether an object with this finding is refused."""
    return finding.severity == "error" or finding.code in SCHEMA_CODES


def lines(findings: Sequence[Finding], root: str = ROOT) -> tuple[str, ...]:
    """Return findings as lines; the first of them, if there are very many. `root` is where the document is."""
    return first([_line(each, root) for each in findings])


def first(texts: Sequence[str]) -> tuple[str, ...]:
    """Return lines; the first of them, if there are very many."""
    more = len(texts) - MOST
    return (*texts[:MOST], *([f"and {more} more"] if more > 0 else ()))


def _line(finding: Finding, root: str) -> str:
    message = finding.message
    if CATALOGUE[finding.code].effect is Effect.QUARANTINE:
        message = message.partition("; ")[0]  # behind it: what becomes of a flag that is in force somewhere
    hint = f"; {finding.hint}" if finding.hint else ""
    return f"{root}{finding.path.removeprefix('$')}: {message}{hint}"
