"""The one wiring function of `wigwag watt`: the object, its API and its port, from start to graceful end.

There is one port, as in the original: snapshots, probes, metrics and debugging. It listens on loopback. On any other
address it asks for a token, because snapshots hold all that watt may read; probes need none.
"""

from __future__ import annotations

import asyncio
import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.observe import Registry
from wigwag.serve.face.capacity import divide, needed, open_files
from wigwag.serve.face.lifecycle import Lifecycle
from wigwag.serve.face.ports import Port
from wigwag.serve.face.process import run_process
from wigwag.serve.management.process_metrics import vitals
from wigwag.watt.api import ApiSettings, SnapshotApi, protected, token_file
from wigwag.watt.report import WattReport
from wigwag.watt.watt import Watt
from wigwag.wire.limits import WireLimits
from wigwag.wire.server.listen import Listener

if TYPE_CHECKING:
    from wigwag.watt.options import WattOptions
    from wigwag.watt.snapshot import WattSnapshot

LOOPBACK = "127.0.0.1"
CONNECTIONS, RESERVED_FILES = 1000, 2000
"""Open files: of clients, and of watches, hooks and outputs."""
BODY_BYTES = 64 * 1024
log = logging.getLogger("wigwag.watt")


def run_watt(options: WattOptions) -> int:
    """Run watt until a signal stops it; return the exit code."""
    server = WattServer(options)
    return run_process(server.run, options.log_format, needed(1, CONNECTIONS, RESERVED_FILES), debug=options.debug)


class WattServer:
    """watt, and the port that serves its snapshots."""

    def __init__(self, options: WattOptions) -> None:
        self._options = options
        self._host, self._port = listen_address(options)
        if not options.token_file and not is_loopback(self._host):
            raise UsageError(
                f"snapshots hold all that watt may read, and {self._host or 'every address'} is not loopback; "
                "give --token-file, or listen on 127.0.0.1"
            )
        self.registry = Registry(vitals())
        capacity = divide(open_files(), 1, CONNECTIONS, RESERVED_FILES)
        self.lifecycle = Lifecycle("wigwag watt", log, capacity, self.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain."""
        self.watt = watt = Watt(self._options)
        watt.url = self._url
        report = WattReport(watt, asyncio.get_running_loop().time)
        report.register(self.registry)
        settings = ApiSettings(self._options.format)  # type: ignore[arg-type]
        api = SnapshotApi(watt.history, report.sources, report.page, watt.resync, settings)
        background = [*watt.background(), report.log_watches(), report.log_snapshots()]
        try:
            await self.lifecycle.run(lambda: [self._port_of(api)], background, stop, watt.end)
        finally:
            watt.close()
