"""watt: watch Kubernetes, Consul, directories and URIs, and act on one consistent picture of all of them.

    from wigwag.watt import Watt

    async with Watt(source=["services"]) as watt:
        async for snapshot in watt:
            print(snapshot.id, [service["metadata"]["name"] for service in snapshot.objects("services")])

May live here: what is watched, snapshots, hooks and outputs. Nothing here knows about flags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wigwag.watt.snapshots.snapshot import WattSnapshot
    from wigwag.watt.watt import Watt

__all__ = ["Watt", "WattSnapshot"]


def __getattr__(name: str) -> Any:
    """Import a name on first use: the command line needs the options only."""
    if name == "Watt":
        from wigwag.watt.watt import Watt

        return Watt
    if name == "WattSnapshot":
        from wigwag.watt.snapshots.snapshot import WattSnapshot

        return WattSnapshot
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
