"""What the API server says when it does not do what it was asked, as one branch of the tree in `wigwag.errors`.

    ApiError    the server answered, but not with what was asked for; `status` is its own account of that

The server's words are meant for people and say whom it took us for, so they are shown, up to a length.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from wigwag.errors import WigwagError

LONGEST = 1000
"""Characters of a server's message that are kept."""
_TOO_LARGE = "Too large resource version"


class Cause(Struct, frozen=True):
    """One thing that is wrong, and where."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(Struct, frozen=True, rename="camel"):
    """More about a failure."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: float = 0.0


class ApiStatus(Struct, frozen=True):
    """The API server's account of a failure."""

    code: int = 0
    reason: str = ""
    """One word: `NotFound`, `Forbidden`, `Conflict`, `Expired` …"""
    message: str = ""
    details: Details | None = None

    @property
    def about(self) -> Details:
        """More about it, if only in empty fields."""
        return self.details or Details()

    @property
    def causes(self) -> tuple[Cause, ...]:
        """What exactly is wrong."""
        return self.about.causes or ()

    @property
    def retry_after(self) -> float | None:
        """How many seconds the server asks to be left alone, if it does."""
        return self.about.retry_after_seconds or None

    @property
    def expired(self) -> bool:
        """Whether what was asked for lies too far back."""
        return self.code == HTTPStatus.GONE or self.reason in ("Expired", "Gone")

    @property
    def ahead(self) -> bool:
        """Whether what was asked for lies in the future of this server."""
        return any(cause.reason == "ResourceVersionTooLarge" for cause in self.causes) or _TOO_LARGE in self.message

    def __str__(self) -> str:
        return ": ".join(text for text in (f"{self.code} {self.reason}".strip(), self.message) if text)


class ApiError(WigwagError):
    """The API server refused a request."""

    def __init__(self, what: str, status: ApiStatus, retry_after: float | None = None) -> None:
        super().__init__(f"{what}: the API server answered {status}")
        self.status = status
        self.retry_after = retry_after if retry_after is not None else status.retry_after
        """How many seconds the server asks to be left alone, if it does."""


def read_status(body: bytes | msgspec.Raw, code: int = 0) -> ApiStatus:
    """Read a Status; whatever else it is, it becomes one, with the code it came with.

    >>> print(read_status(b'{"kind":"ApiStatus","code":409,"reason":"Conflict","message":"try again"}'))
    409 Conflict: try again
    >>> print(read_status(b"<html>", 502))
    502 Bad Gateway
    """
    try:
        found: Any = msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        found = ApiStatus()
    code = found.code or code
    return ApiStatus(code, found.reason[:LONGEST] or _phrase(code), found.message[:LONGEST], found.details)


def _phrase(code: int) -> str:
    return HTTPStatus(code).phrase if code in HTTPStatus._value2member_map_ else ""
