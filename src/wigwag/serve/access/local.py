"""Whether a request comes from this machine: debug pages are served to such requests only, unless you allow others.

The address of the peer is not enough. A browser on this machine may load a page of another site, and a proxy on this
machine passes on the requests of others: see `wigwag.origin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.origin import host_name, is_forwarded, is_own_name, is_same_origin
from wigwag.wire.peer import UNIX, host_of, is_loopback

if TYPE_CHECKING:
    from wigwag.wire.http import Request

LOCAL_ONLY = "served to this machine only; start the {} with --debug-endpoints to change that; this request is refused"


def why_not_local(request: Request) -> str:
    """Return why a request may not come from this machine; empty if it does."""
    if not is_loopback(host_of(request.peer.address) if request.peer else UNIX):
        return "it comes from another machine"
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(request.headers)}
    if is_forwarded(headers):
        return "a proxy has passed it on"
    name = host_name(headers.get("host", ""))
    if name is None or not is_own_name(name):
        return "it does not name this machine as localhost or by an address"
    return "" if is_same_origin(headers) else "a page of another site sends it"
