"""What the Secret of the webhook certificates should hold now. One call takes one step; call it until it says KEEP.

    START ─▶ KEEP ─▶ RENEW ─▶ KEEP …              the certificate that is served, every two months
               └───▶ INTRODUCE ─▶ SEEN ─▶ ACTIVATE ─▶ RETIRE     the CA, every 16 months

A call of the API server succeeds if the bundle that it has, perhaps an old one, trusts what a replica serves, perhaps
with an old Secret. Two rules make that so:

- A new CA signs nothing that is served before its certificate has been in every webhook configuration for `settle`.
- The old CA stays in the bundle until the last certificate that it has signed has ended, so that a replica that cannot
  reach the API server for weeks is still trusted.

The hard case is somebody who writes an old `caBundle` back (GitOps does). Then the new CA is no longer seen, the wait
begins anew, and the old CA goes on signing. A Secret that is deleted, or that cannot be read, starts over: the old CA
is trusted no longer, which is what deleting it is good for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING

from wigwag.operator.certificates import secret
from wigwag.operator.certificates.authority import (
    UNREADABLE,
    CertificatePolicy,
    belong_together,
    facts,
    is_signed_by,
    new_authority,
    sign,
    split,
)
from wigwag.operator.certificates.secret import KeyPair, is_foreign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wigwag.operator.certificates.secret import SecretData

DEFAULTS = CertificatePolicy()


class RotationStep(Enum):
    """What there is to do, and why."""

    KEEP = "the certificates are as they should be"
    FOREIGN = "somebody else issues the certificates"
    START = "there is no usable CA: a new one signs from now on"
    RENEW = "the certificate that is served ends soon, is for other names, or cannot be used"
    INTRODUCE = "the CA ends soon: its successor is published"
    SEEN = "the next CA is in all webhook configurations"
    UNSEEN = "the next CA is no longer in all webhook configurations: the wait begins anew"
    ACTIVATE = "the next CA is trusted everywhere: it signs from now on"
    RETIRE = "nothing that the previous CA has signed is valid any more: it is trusted no longer"


@dataclass(frozen=True, slots=True)
class WebhookCertificates:
    """The parts of a Secret that is ours."""

    authority: KeyPair
    serving: KeyPair
    next: KeyPair | None = None
    seen: datetime | None = None
    """Since when the next CA is published."""
    previous: str = ""
    until: datetime | None = None
    """When the previous CA retires."""

    def data(self) -> dict[str, str]:
        """Return them as the data of the Secret."""
        trusted = self.authority.certificate, self.next.certificate if self.next else "", self.previous
        return {
            secret.CA: "".join(trusted),
            secret.CA_KEY: self.authority.key,
            secret.SERVED: self.serving.certificate,
            secret.SERVED_KEY: self.serving.key,
            **({secret.NEXT_KEY: self.next.key} if self.next else {}),
            **({secret.NEXT_PUBLISHED: self.seen.isoformat()} if self.seen else {}),
            **({secret.PREVIOUS_UNTIL: self.until.isoformat()} if self.until else {}),
        }


def read(data: SecretData) -> WebhookCertificates | None:
    """Return what is in a Secret; None if it has no usable CA. What else is unusable is left out, and made anew."""
    try:
        authority, *others = split(data.get(secret.CA, ""))
        held = KeyPair(authority, data.get(secret.CA_KEY, ""))
        if not belong_together(held):
            return None
    except UNREADABLE:
        return None
    serving = KeyPair(data.get(secret.SERVED, ""), data.get(secret.SERVED_KEY, ""))
    coming = next((pair for each in others if (pair := _usable(each, data.get(secret.NEXT_KEY, "")))), None)
    previous = next((each for each in others if coming is None or each != coming.certificate), "")
    seen = _time(data.get(secret.NEXT_PUBLISHED, "")) if coming else None
    until = _time(data.get(secret.PREVIOUS_UNTIL, "")) if previous else None
    return WebhookCertificates(held, serving, coming, seen, previous if until else "", until)


def advance(
    data: SecretData, names: Sequence[str], published: str, now: datetime, policy: CertificatePolicy = DEFAULTS
) -> tuple[RotationStep, dict[str, str]]:
    """Return the next step and the data of the Secret after it.

    `published` has the CAs that are in the `caBundle` of all webhook configurations, as the API server has them.
    """
    if is_foreign(data):
        return RotationStep.FOREIGN, dict(data)
    held = read(data)
    step = _next_step(held, names, published, now, policy)
    if step is RotationStep.KEEP:
        return step, dict(data)
    others = {name: value for name, value in data.items() if name not in secret.OURS}
    return step, others | _after(step, held, names, now, policy).data()


def _next_step(
    held: WebhookCertificates | None, names: Sequence[str], published: str, now: datetime, policy: CertificatePolicy
) -> RotationStep:
    """Decide. What repairs comes before what improves."""
    if held is None:
        return RotationStep.START
    if held.next is not None and (step := _of_next(held.next, held.seen, published, now, policy)):
        return step
    if facts(held.authority.certificate).ends <= now:  # a successor that nobody has seen is better than one of now
        return RotationStep.START if held.next is None else RotationStep.ACTIVATE
    if not _serves(held, names, now, policy):
        return RotationStep.RENEW
    if held.until is not None:
        return RotationStep.RETIRE if held.until <= now else RotationStep.KEEP  # one rotation at a time
    due = facts(held.authority.certificate).renewed_at(policy) <= now
    return RotationStep.INTRODUCE if due and held.next is None else RotationStep.KEEP


def _of_next(
    coming: KeyPair, seen: datetime | None, published: str, now: datetime, policy: CertificatePolicy
) -> RotationStep | None:
    """Return the step of the CA that signs next; None if it has to wait."""
    try:
        is_published = coming.certificate in split(published)
    except UNREADABLE:
        is_published = False
    if seen is None:
        return RotationStep.SEEN if is_published else None
    if not is_published:
        return RotationStep.UNSEEN
    return RotationStep.ACTIVATE if seen + policy.settle <= now else None


def _serves(held: WebhookCertificates, names: Sequence[str], now: datetime, policy: CertificatePolicy) -> bool:
    """Tell whether what is served can stay."""
    try:
        if not (belong_together(held.serving) and is_signed_by(held.serving.certificate, held.authority.certificate)):
            return False
        served = facts(held.serving.certificate)
    except UNREADABLE:
        return False
    longest = facts(held.authority.certificate).ends
    due = served.renewed_at(policy) <= now and served.ends < longest  # a new one would not end later
    return served.names == frozenset(names) and not due


def _after(
    step: RotationStep, held: WebhookCertificates | None, names: Sequence[str], now: datetime, policy: CertificatePolicy
) -> WebhookCertificates:
    """Take a step."""
    if held is None or step is RotationStep.START:
        authority = new_authority(now, policy)
        return WebhookCertificates(authority, sign(authority, names, now, policy))
    if step is RotationStep.RENEW:
        return replace(held, serving=sign(held.authority, names, now, policy))
    if step is RotationStep.INTRODUCE:
        return replace(held, next=new_authority(now, policy))
    if step is RotationStep.SEEN or step is RotationStep.UNSEEN:
        return replace(held, seen=now if step is RotationStep.SEEN else None)
    if step is RotationStep.RETIRE or held.next is None:
        return replace(held, previous="", until=None)
    last = min(now + policy.serving, facts(held.authority.certificate).ends) + policy.skew  # of all that it has signed
    return WebhookCertificates(
        held.next, sign(held.next, names, now, policy), previous=held.authority.certificate, until=last
    )


def _usable(certificate: str, key: str) -> KeyPair | None:
    pair = KeyPair(certificate, key)
    try:
        return pair if key and belong_together(pair) else None
    except UNREADABLE:
        return None


def _time(text: str) -> datetime | None:
    """Return a time with its zone; None for any other text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else None
