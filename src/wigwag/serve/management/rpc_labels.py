"""What a request was as a remote procedure call, from its route and the answer's headers and trailers.

Those are the same few tuples again and again, so a counter of requests works this out once for each. The hard case is
gRPC-Web, which says in the body how a call ended: then there is no status code. Connect says it by its HTTP status;
where several codes share one, the first counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from wigwag.wire.http import Stream
from wigwag.wire.rpc import Code

if TYPE_CHECKING:
    from wigwag.wire.http import Response

RpcLabels: TypeAlias = tuple[str, str, str, str]
"""System, service, method, status code."""
NAMES = ("rpc.system", "rpc.service", "rpc.method", "rpc.grpc.status_code")
NO_RPC: RpcLabels = ("", "", "", "")
_BY_STATUS = {code.http_status: str(int(code)) for code in reversed(Code)}


def no_rpc(route: str, answer: Response) -> RpcLabels:
    """Return nothing: for ports without remote procedure calls."""
    return NO_RPC


def rpc_labels(route: str, answer: Response) -> RpcLabels:
    """Return the labels of a unary call; streams have metrics of their own."""
    _, _, rest = route.partition("/")
    service, separator, method = rest.partition("/")
    fields = dict(answer.headers)
    content_type = fields.get(b"content-type", b"")
    if not separator or not content_type or isinstance(answer, Stream):
        return NO_RPC
    if content_type.startswith(b"application/grpc-web"):
        return "grpc_web", service, method, ""
    if content_type.startswith(b"application/grpc"):
        fields.update(answer.trailers or ())
        return "grpc", service, method, fields.get(b"grpc-status", b"").decode("ascii", "replace")
    return "connect_rpc", service, method, _BY_STATUS.get(answer.status, "")
