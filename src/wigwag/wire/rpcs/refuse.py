"""Answers that no handler gave: too large, malformed, failed. A gRPC client gets them as a status that it can read."""

from __future__ import annotations

from http import HTTPStatus

from wigwag.wire.http import Headers, Reply

RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE, UNKNOWN = 8, 13, 14, 2
GRPC_STATUS = {413: RESOURCE_EXHAUSTED, 431: RESOURCE_EXHAUSTED, 500: INTERNAL, 503: UNAVAILABLE}


def refusal(status: int, headers: Headers = ()) -> Reply:
    """Return the answer with that status to a request with those headers."""
    phrase = HTTPStatus(status).phrase
    kind = next((value for name, value in headers if name == b"content-type"), b"")
    if kind.startswith(b"application/grpc") and not kind.startswith(b"application/grpc-web"):
        code = b"%d" % GRPC_STATUS.get(status, UNKNOWN)
        return Reply(200, ((b"content-type", kind), (b"grpc-status", code), (b"grpc-message", phrase.encode())))
    return Reply(status, ((b"content-type", b"text/plain; charset=utf-8"),), f"{phrase}\n".encode())
