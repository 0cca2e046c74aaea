"""What went wrong with a request of a watch, in the words that people see, and with what decides how to go on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wigwag.kube.errors import ApiError, ApiStatus
from wigwag.wire.client.errors import OversizeError

if TYPE_CHECKING:
    from wigwag.kube.watch.spec import KubeWatch

FORBIDDEN, MISSING = 403, 404
_USER = re.compile(r'User "([^"]{1,300})"')


@dataclass(frozen=True, slots=True)
class WatchFault:
    """Why a list or a watch failed."""

    text: str
    code: int = 0
    """The status; 0: there was no answer, or it broke off."""
    expired: bool = False
    """Whether the version that we asked from is too old."""
    ahead: bool = False
    """Whether it lies in the server's future."""
    oversize: bool = False
    """Whether the answer was larger than we take."""
    retry_after: float = 0.0
    """How many seconds the server asks to be left alone."""


def fault_of(error: Exception, spec: KubeWatch, verb: str) -> WatchFault:
    """Put an error into words. `verb` is what was tried: list or watch."""
    if isinstance(error, ApiError):
        return refusal(error.status, spec, verb, error.retry_after)
    return WatchFault(str(error), oversize=isinstance(error, OversizeError))


def refusal(status: ApiStatus, spec: KubeWatch, verb: str, retry_after: float | None = None) -> WatchFault:
    """Put a status into words."""
    text = f"the API server answered {status} to our {verb} of {spec}"
    if status.code == FORBIDDEN:
        text = _forbidden(status, spec, verb)
    elif status.code == MISSING:
        text = f"the API server has no {spec.kind.plural} in {spec.kind.api}; install what defines them"
    pause = retry_after if retry_after is not None else status.retry_after
    return WatchFault(text, status.code, status.expired, status.ahead, retry_after=pause or 0.0)


def _forbidden(status: ApiStatus, spec: KubeWatch, verb: str) -> str:
    found = _USER.search(status.message)
    who = found[1] if found else "we"
    where = f"in the namespace {spec.namespace}" if spec.namespace else "in all namespaces"
    role = "Role" if spec.namespace else "ClusterRole"
    place = f" {where}" if spec.kind.namespaced else ""
    return f"{who} may not {verb} {spec.kind}{place}; allow it with a {role} that has the rule {spec.rule()}"
