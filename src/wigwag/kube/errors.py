"""The errors of an API server, as one branch of the tree in `wigwag.errors`.

    ApiError            the server refused a request; `status` is the `Status` object that it sent
    UnknownKindError    no kind of the server has this name, or none that can be watched

The server's message is meant for people and names the account that it saw, so it is shown, up to a length.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from wigwag.errors import WigwagError

LONGEST = 1000
"""The most characters of a server's message that are kept."""
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
    """The `Status` object that the API server sends with an error."""

    code: int = 0
    reason: str = ""
    """One word: `NotFound`, `Forbidden`, `Conflict`, `Expired` …"""
    message: str = ""
    details: Details | None = None

    @property
    def about(self) -> Details:
        """The details, which may be empty."""
        return self.details or Details()

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The single faults."""
        return self.about.causes or ()

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before a retry, if the server names them."""
        return self.about.retry_after_seconds or None

    @property
    def expired(self) -> bool:
        """Whether the requested version is too old."""
        return self.code == HTTPStatus.GONE or self.reason in ("Expired", "Gone")

    @property
    def ahead(self) -> bool:
        """Whether the requested version is newer than the server's."""
        return any(cause.reason == "ResourceVersionTooLarge" for cause in self.causes) or _TOO_LARGE in self.message

    def __str__(self) -> str:
        return ": ".join(text for text in (f"{self.code} {self.reason}".strip(), self.message) if text)


class ApiError(WigwagError):
    """The API server refused a request."""

    def __init__(self, what: str, status: ApiStatus, retry_after: float | None = None) -> None:
        super().__init__(f"{what}: the API server answered {status}")
        self.status = status
        self.retry_after = retry_after if retry_after is not None else status.retry_after
        """Seconds to wait before a retry, if the server names them."""

    @property
    def not_found(self) -> bool:
        """Whether there is nothing at this path."""
        return self.status.code == HTTPStatus.NOT_FOUND

    @property
    def conflict(self) -> bool:
        """Whether the object has changed meanwhile, or another field manager owns a field: read it again."""
        return self.status.code == HTTPStatus.CONFLICT and not self.already_exists

    @property
    def already_exists(self) -> bool:
        """Whether an object that was to be created exists."""
        return self.status.reason == "AlreadyExists"

    @property
    def forbidden(self) -> bool:
        """Whether the account lacks a right, or an admission plugin refuses."""
        return self.status.code == HTTPStatus.FORBIDDEN

    @property
    def invalid(self) -> bool:
        """Whether the object would not be valid, or a `test` of a JSON patch has failed."""
        return self.status.code == HTTPStatus.UNPROCESSABLE_ENTITY

    @property
    def terminating(self) -> bool:
        """Whether the namespace of an object that was to be created is being deleted."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.status.causes)

    @property
    def busy(self) -> bool:
        """Whether the server asks to come back later."""
        return self.status.code in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class UnknownKindError(WigwagError):
    """The API server has no kind of this name; it may get one later."""


def read_status(body: bytes | msgspec.Raw, code: int = 0) -> ApiStatus:
    """Read a `Status`; of anything else, make one from the HTTP status code.

    >>> print(read_status(b'{"kind":"Status","code":409,"reason":"Conflict","message":"try again"}'))
    409 Conflict: try again
    >>> print(read_status(b"<html>", 502))
    502 Bad Gateway
    """
    try:
        status: Any = msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        status = ApiStatus()
    code = status.code or code
    phrase = HTTPStatus(code).phrase if code in HTTPStatus._value2member_map_ else ""
    return ApiStatus(code, status.reason[:LONGEST] or phrase, status.message[:LONGEST], status.details)
