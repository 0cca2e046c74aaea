"""Flags in an annotation: a whole flag document as JSON, checked as a FeatureFlag is.

The limit is a quarter of what Kubernetes allows for all annotations of an object (256 KiB): `kubectl apply` keeps a
copy of the manifest in another annotation, and there each quote takes two bytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from wigwag.operator.impact import impact
from wigwag.operator.injection.verdict import FORBIDDEN, Allowed, Denied
from wigwag.operator.names import INLINE_FLAGS
from wigwag.operator.validation import LIMITS, first, flag_findings, is_refused, lines
from wigwag.sources.kubernetes.references import ORDERS

if TYPE_CHECKING:
    from wigwag.operator.injection.verdict import Verdict

Json: TypeAlias = Any
MOST_BYTES = 64 * 1024
PLACE = f"metadata.annotations[{INLINE_FLAGS}]"
ROOT = f"{PLACE}: $"
DIGITS = 16
_NO_DOCUMENT = "document-rejected"


def check_inline(text: str, before: str = "", *, lint: bool = True) -> Verdict:
    """Decide about the flags in an annotation; `before` are those that they replace, if any.

    Without `lint`, only what is no flag document at all is refused.

    >>> check_inline('{"flags": {"new-ui": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "x"}}}').message
    "metadata.annotations[openfeature.dev/flags]: $.flags.new-ui.defaultVariant: the default variant 'x' is not one of the variants: on"
    """  # noqa: E501
    document = text.encode()
    if len(document) > MOST_BYTES:
        size = f"the flags take {len(document)} bytes, and an annotation may have {MOST_BYTES}"
        return Denied(FORBIDDEN, f"{PLACE}: {size}; put them into a FeatureFlag, and name it by {ORDERS[0]}")
    findings = flag_findings(document)
    if not lint:
        findings = [each for each in findings if each.code == _NO_DOCUMENT]
    if errors := [each for each in findings if is_refused(each)]:
        return Denied(FORBIDDEN, "\n".join(lines(errors, ROOT)))
    changes = impact(before.encode(), document, LIMITS, f"{ROOT}.flags")
    return Allowed(warnings=(*lines(findings, ROOT), *first(changes)))


def flag_spec(text: str) -> dict[str, Json]:
    """Return the `flagSpec` of the FeatureFlag with these flags, which were checked; null is the same as nothing."""
    document: dict[str, Json] = msgspec.json.decode(text)
    return {**document, "flags": {key: _without_nulls(flag) for key, flag in (document.get("flags") or {}).items()}}


def _without_nulls(flag: Json) -> Json:
    return {name: value for name, value in flag.items() if value is not None} if isinstance(flag, dict) else flag


def text_digest(text: str) -> str:
    """Return a digest, by which a change is noticed."""
    return sha256(text.encode()).hexdigest()[:DIGITS] if text else ""
