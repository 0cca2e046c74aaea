"""The method table and the codes."""

from __future__ import annotations

import pytest

from tests.wire.echo import count, echo
from wigwag.errors import UsageError, WigwagError
from wigwag.wire.http import Request
from wigwag.wire.peer import Peer
from wigwag.wire.rpc import Call, Code, Method, RpcError

HTTP = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}


def test_the_codes_are_those_of_grpc_with_connects_names_and_statuses() -> None:
    assert [code.value for code in Code] == list(range(17))
    assert {code.connect_name: code.http_status for code in Code if code} == HTTP
    assert Code(5) is Code.NOT_FOUND


def test_an_error_is_one_of_ours() -> None:
    error = RpcError(Code.NOT_FOUND, "gone")
    assert isinstance(error, WigwagError)
    assert str(error) == "gone"


def test_a_method_is_either_unary_or_a_stream() -> None:
    for wrong in ({}, {"unary": echo, "stream": count}, {"stream": count, "safe": True}):
        with pytest.raises(UsageError):
            Method(**wrong)


def test_a_call_shows_what_came_with_it() -> None:
    peer = Peer("10.0.0.1")
    request = Request(b"POST", b"/", headers=((b"a", b"1"), (b"a", b"2")), peer=peer)
    call = Call(b"", False, request, dict(reversed(request.headers)))
    assert call.header(b"a") == b"1"
    assert call.header(b"b") is None
    assert call.headers == ((b"a", b"1"), (b"a", b"2"))
    assert call.peer is peer
