"""AdmissionReview of `admission.k8s.io/v1`: bytes to a request, and a response to bytes.

    decode_review(body) ─▶ AdmissionRequest ─▶ a webhook ─▶ AdmissionResponse ─▶ encode_review(uid, response)

The object under review stays as raw JSON: a webhook decodes the part that it needs, so an object that it does not
understand in full still passes unchanged. What cannot be decoded is a `msgspec.DecodeError` with the path of the fault.

The hard case is what the API server does with a response that breaks its rules: a patch beside a refusal and a uid that
is not the request's fail the whole call, and of warnings that are too long it cuts or drops some without a word. So
`encode_review` keeps the rules itself, and the last warning says how many were left out.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

API, KIND = "admission.k8s.io/v1", "AdmissionReview"
Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
MALFORMED = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
"""What decoding raises if the bytes are not what they should be. Deep nesting ends in a RecursionError."""
LONGEST_MESSAGE = 8 * 1024
"""Characters of a message; `kubectl` shows all of them."""
LONGEST_WARNING, LONGEST_WARNINGS = 256, 4096
"""Characters of one warning, and of all: beyond these, the API server cuts and drops them."""
_ABSENT = Raw(b"null")
_REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 422: "Invalid", 429: "TooManyRequests"}
_REASONS |= {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


class ReviewedKind(Struct, frozen=True):
    """Group, version and kind of the object under review."""

    group: str
    version: str
    kind: str


class Requester(Struct, frozen=True):
    """Who sent the object to the API server."""

    username: str = ""
    groups: tuple[str, ...] = ()


class AdmissionRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the API server asks. Only what reviews need is decoded."""

    uid: str
    kind: ReviewedKind
    operation: Operation
    name: str = ""
    """Empty for an object whose name the API server is still to generate."""
    namespace: str = ""
    """Of the object; its own `metadata.namespace` may be empty."""
    object: Raw = _ABSENT
    """JSON; `null` on DELETE."""
    old_object: Raw = _ABSENT
    """JSON; `null` on CREATE."""
    dry_run: bool | None = None
    user_info: Requester = Requester()


class AdmissionResponse(Struct, frozen=True, kw_only=True):
    """What a webhook decides. `allowed`, `patched` and `denied` make one."""

    allowed: bool
    code: int = 200
    message: str = ""
    patch: Sequence[object] = ()
    """Operations of JSON Patch, in order, as anything that msgspec encodes to them; none if it is not allowed."""
    warnings: Sequence[str] = ()
    """What `kubectl` shows to the user, though the object is accepted or refused for other reasons."""
    audit_annotations: Mapping[str, str] = {}
    """For the audit log of the API server, which puts the name of the webhook before each key."""


class _Envelope(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest


class _Status(Struct, omit_defaults=True):
    code: int
    message: str = ""
    reason: str = ""


class _Response(Struct, omit_defaults=True, rename="camel"):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch_type: str = ""
    patch: str = ""
    warnings: list[str] = []
    audit_annotations: dict[str, str] = {}


class _Answer(Struct, rename="camel"):
    api_version: str
    kind: str
    response: _Response


_decode = msgspec.json.Decoder(_Envelope).decode
_encode = msgspec.json.Encoder().encode


def allowed(message: str = "", *, warnings: Sequence[str] = ()) -> AdmissionResponse:
    """Accept the object as it is."""
    return AdmissionResponse(allowed=True, message=message, warnings=warnings)


def patched(patch: Sequence[object], *, warnings: Sequence[str] = ()) -> AdmissionResponse:
    """Accept the object with these operations of JSON Patch applied to it."""
    return AdmissionResponse(allowed=True, patch=patch, warnings=warnings)


def denied(code: int, message: str, *, warnings: Sequence[str] = ()) -> AdmissionResponse:
    """Refuse the object. The client of the API server gets this status code and message."""
    return AdmissionResponse(allowed=False, code=code, message=message, warnings=warnings)


def decode_review(body: bytes) -> AdmissionRequest:
    """Return the request in a body; one of `MALFORMED` if it holds none of `admission.k8s.io/v1`."""
    review: _Envelope = _decode(body)
    if (review.api_version, review.kind) != (API, KIND):
        named = f"{review.kind} of {review.api_version}"
        raise msgspec.ValidationError(f"the body is {named}; this server reviews {KIND} of {API}")
    if not review.request.uid:
        raise msgspec.ValidationError("the uid is empty - at `$.request.uid`")
    return review.request


def encode_review(uid: str, response: AdmissionResponse) -> bytes:
    """Return the body that answers the request with that uid."""
    message, code = _cut(response.message, LONGEST_MESSAGE), response.code
    reason = "" if response.allowed else _REASONS.get(code, "")
    encoded = _Response(uid, response.allowed, _Status(code, message, reason))
    if response.patch and response.allowed:
        encoded.patch_type, encoded.patch = "JSONPatch", b64encode(_encode(response.patch)).decode()
    if response.warnings:
        encoded.warnings = shown(response.warnings)
    if response.audit_annotations:
        encoded.audit_annotations = dict(response.audit_annotations)
    return _encode(_Answer(API, KIND, encoded))


def shown(warnings: Iterable[str]) -> list[str]:
    """Return warnings that the API server passes on in full: each on one line, not too long, not too many.

    >>> shown(["two\\nlines", "", "two lines", "x" * 300])[0]
    'two lines'
    >>> shown(f"{number:0200}" for number in range(30))[-1]
    'and 10 more warnings'
    """
    lines = list(dict.fromkeys(filter(None, (_cut(_line(each), LONGEST_WARNING) for each in warnings))))
    if sum(map(len, lines)) <= LONGEST_WARNINGS:
        return lines
    room, kept = LONGEST_WARNINGS - len(f"and {len(lines)} more warnings"), 0
    while len(lines[kept]) <= room:
        room -= len(lines[kept])
        kept += 1
    return [*lines[:kept], f"and {len(lines) - kept} more warnings"]


def _line(text: str) -> str:
    """Return a text on one line, without what a header cannot carry."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
