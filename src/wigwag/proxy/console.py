"""What the console of a proxy shows: its targets, and who subscribes to each and what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wigwag.serve.console.tables import Column, TableConsole, TableView

if TYPE_CHECKING:
    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.proxy.report import ProxyReport
    from wigwag.proxy.targets import Targets


def proxy_console(report: ProxyReport, targets: Targets) -> TableConsole:
    """Return the console of a proxy."""
    watched = TableView(
        "targets",
        "Targets",
        (
            Column("target", "Target"),
            Column("provider", "Kind"),
            Column("state", "State", "state"),
            Column("subscribers", "Subscribers", "number"),
            Column("sent", "Sent the newest", "number"),
            Column("ageSeconds", "Last answer", "age"),
            Column("updates", "Updates", "number"),
            Column("lastError", "Last error", "error"),
        ),
        report.targets,
        "Nobody subscribes to anything yet.",
    )
    streams = TableView(
        "subscribers",
        "Subscribers",
        (
            Column("target", "Target"),
            Column("seconds", "Connected", "age"),
            Column("sent", "Document sent", "number"),
            Column("waits", "Waits for"),
        ),
        targets.described_streams,
        "Nobody subscribes to anything yet.",
    )
    topics: dict[str, Broadcast[Any]] = {
        "status": targets.pipeline.status_changes,
        "documents": targets.pipeline.published,
    }
    return TableConsole("proxy", (watched, streams), topics)
