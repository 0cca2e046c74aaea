"""What the console of watt shows: the watches and who wants each, whether there is a snapshot, hooks and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wigwag.serve.console.tables import Column, TableConsole, TableView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.watt.report import WattReport
    from wigwag.watt.watt import Watt


def watt_console(watt: Watt, report: WattReport) -> TableConsole:
    """Return the console of watt."""
    watches = TableView(
        "watches",
        "Watches",
        (
            Column("watch", "Watch"),
            Column("wanted", "Wanted by", "list"),
            Column("state", "State", "state"),
            Column("gate", "Gate"),
            Column("ageSeconds", "Last answer", "age"),
            Column("updates", "Updates", "number"),
            Column("restarts", "Restarts", "number"),
            Column("lastError", "Last error", "error"),
        ),
        lambda: _watches(watt, report),
        "Nothing is watched.",
    )
    hooks = TableView(
        "hooks",
        "Hooks",
        (
            Column("hook", "Hook"),
            Column("type", "Type"),
            Column("state", "State", "state"),
            Column("runs", "Runs", "number"),
            Column("failures", "Failures", "number"),
            Column("lastSnapshot", "Last good snapshot", "number"),
            Column("lastSeconds", "Last run", "seconds"),
            Column("runningSeconds", "Runs for", "seconds"),
            Column("error", "Error", "error"),
        ),
        lambda: _hooks(report),
        "There are no hooks.",
    )
    snapshots = TableView(
        "snapshots",
        "Snapshots",
        (
            Column("id", "Snapshot", "number"),
            Column("created", "Made", "time"),
            Column("digest", "Digest"),
            Column("state", "State", "state"),
            Column("changes", "Changes", "list"),
            Column("bytes", "Bytes", "number"),
        ),
        lambda: _snapshots(watt),
        "There is no snapshot yet: not every watch has answered.",
    )
    outputs = TableView(
        "outputs",
        "Outputs",
        (Column("directory", "Directory"), Column("writes", "Writes", "number"), Column("error", "Error", "error")),
        lambda: report.page()["outputs"],
        "Nothing is written to directories.",
    )
    topics: dict[str, Broadcast[Any]] = {"status": watt.pipeline.status_changes, "snapshot": watt.history.snapshots}
    return TableConsole("watt", (watches, hooks, snapshots, outputs), topics)


def _watches(watt: Watt, report: WattReport) -> Iterator[dict[str, Any]]:
    page, wanted = report.page(), watt.wanted_by()
    waiting = set(page["waiting"])
    for each in page["watches"]:
        gate = "the snapshot waits for it" if each["watch"] in waiting else "has answered"
        yield each | {"wanted": wanted.get(each["watch"], ["the options"]), "gate": gate}


def _hooks(report: WattReport) -> Iterator[dict[str, Any]]:
    page = report.page()
    for kind in ("watch", "notify"):
        yield from (each | {"type": kind} for each in page[f"{kind}-hooks"])


def _snapshots(watt: Watt) -> Iterator[dict[str, Any]]:
    history = watt.history
    for number in reversed(history.ids()):
        snapshot = history.get(number)
        if snapshot is not None:
            changes = [f"{delta.type} {'/'.join(filter(None, delta.key))}" for delta in snapshot.deltas[:20]]
            more = len(snapshot.deltas) - len(changes)
            yield {
                "id": snapshot.id,
                "created": snapshot.created,
                "digest": snapshot.digest[:12],
                "state": "complete" if snapshot.complete else "incomplete",
                "changes": changes + ([f"and {more} more"] if more > 0 else []),
                "bytes": snapshot.size,
            }
