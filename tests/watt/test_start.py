"""watt with its port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.pipeline.fakes import run
from tests.watt.processes import until
from wigwag.serve.face.lifecycle import Lifecycle
from wigwag.watt.options import WattOptions
from wigwag.watt.run import WattServer
from wigwag.watt.snapshots.snapshot import WattSnapshot
from wigwag.wire.server.server import serve

HOOKED: list[int] = []


async def notified(snapshot: WattSnapshot) -> None:
    HOOKED.append(snapshot.id)


def test_notify_hooks_are_called_when_the_port_is_open_and_not_before(tmp_path: Path) -> None:
    """They fetch the snapshot from there. A port whose host has to be looked up may take longer than a directory."""
    (tmp_path / "file").write_text("1")
    watches = [{"source": "directory", "path": str(tmp_path)}]
    hook = {"python": f"{__name__}:notified"}
    server = WattServer(WattOptions(watches=watches, notify=(hook,), port=0))

    @asynccontextmanager
    async def slow(*port: Any) -> AsyncIterator[Any]:
        await until(lambda: server.watt.history.latest)
        assert HOOKED == []
        async with serve(*port) as opened:
            yield opened

    async def main() -> None:
        HOOKED.clear()
        lifecycle = server.lifecycle
        log, capacity = logging.getLogger(__name__), lifecycle.capacity
        server.lifecycle = Lifecycle("watt", log, capacity, server.registry, open_port=slow)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(server.run(stop))
            await until(lambda: HOOKED)
            stop.set()
        assert HOOKED == [1]

    run(main)
