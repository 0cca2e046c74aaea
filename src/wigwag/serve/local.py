"""Who sits at this machine: pages that show more than others should see are for them, unless asked otherwise."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wigwag.wire.http import Request


def is_local(request: Request) -> bool:
    """Tell whether a request comes from this machine."""
    address = request.peer.address if request.peer else "unix"
    if address == "unix":
        return True
    host = ipaddress.ip_address(address.rpartition(":")[0].strip("[]").partition("%")[0])
    mapped = getattr(host, "ipv4_mapped", None)
    return (mapped or host).is_loopback
