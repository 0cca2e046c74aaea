"""Answers to admission requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from wigwag.operator.injection.patch import Patch

BAD_REQUEST, FORBIDDEN, NOT_FOUND, INTERNAL = 400, 403, 404, 500


class Allowed(Struct, frozen=True):
    """The object is accepted, with these changes."""

    message: str = ""
    patch: Patch = ()
    warnings: tuple[str, ...] = ()
    """Shown by kubectl."""


class Denied(Struct, frozen=True):
    """The object is refused; the controller that creates it tries again later."""

    code: int
    message: str


Verdict: TypeAlias = Allowed | Denied
