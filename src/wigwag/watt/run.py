"""The one wiring function of `wigwag watt`: the object, its API and its port, from start to graceful end.

There is one port, as in the original: snapshots, probes, metrics and debugging. It listens on loopback. On any other
address it asks for a token, because snapshots hold all that watt may read; probes need none.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from wigwag.errors import UsageError, WigwagError
from wigwag.observe import Registry
from wigwag.options import host_and_port
from wigwag.pipeline.spec import describe
from wigwag.serve.access.guard import TokenGuard
from wigwag.serve.face.capacity import divide, needed, open_files
from wigwag.serve.face.lifecycle import Lifecycle
from wigwag.serve.face.ports import Port
from wigwag.serve.face.process import run_process
from wigwag.serve.management.manage import with_console
from wigwag.serve.management.process_metrics import vitals
from wigwag.watt.api import ApiSettings, SnapshotApi, token_file
from wigwag.watt.report import WattReport
from wigwag.watt.watt import Watt
from wigwag.wire.limits import WireLimits
from wigwag.wire.peer import is_loopback
from wigwag.wire.server.listen import Listener

if TYPE_CHECKING:
    from wigwag.watt.options import WattOptions
    from wigwag.watt.snapshots.snapshot import WattSnapshot
    from wigwag.wire.http import Handler

LOOPBACK = "127.0.0.1"
CONNECTIONS, RESERVED_FILES = 1000, 2000
"""Open files: of clients, and of watches, hooks and outputs."""
BODY_BYTES = 64 * 1024
PORT_NAME = "snapshots"
_LOCAL = {"": LOOPBACK, "0.0.0.0": LOOPBACK, "[::]": "[::1]"}  # noqa: S104
"""How to reach a port of this machine that listens on every address."""
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
        if not options.token_file and not _local(self._host):
            raise UsageError(
                f"snapshots hold all that watt may read, and {self._host or 'every address'} is not loopback; "
                "give --token-file, or listen on 127.0.0.1"
            )
        if options.token_file:
            _check_tokens(options.token_file)
        self.registry = Registry(vitals())
        capacity = divide(open_files(), 1, CONNECTIONS, RESERVED_FILES)
        self.lifecycle = Lifecycle("wigwag watt", log, capacity, self.registry)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then drain."""
        self.watt = watt = Watt(self._options)
        watt.url = self._url
        report = WattReport(watt, asyncio.get_running_loop().time)
        report.register(self.registry)
        settings = ApiSettings(self._options.format)
        api = SnapshotApi(watt.history, report.sources, report.page, watt.resync, settings)
        self._report = report
        background = [*watt.background(self.lifecycle.started), report.log_watches(), report.log_snapshots()]
        try:
            await self.lifecycle.run(lambda: [self._snapshots_port(api)], background, stop, watt.end)
        finally:
            watt.close()

    def _snapshots_port(self, api: SnapshotApi) -> Port:
        options, capacity = self._options, self.lifecycle.capacity
        guard = TokenGuard(token_file(options.token_file) if options.token_file else None)
        handler = with_console(guard.handler(api.handler(self._ready, self.registry)), partial(self._console, guard))
        limits = capacity.limits(WireLimits(body_bytes=BODY_BYTES))
        listener = Listener(host=self._host, port=self._port)
        return Port(PORT_NAME, "--port", handler, listener, limits, auth="a token" if options.token_file else "")

    def _console(self, guard: TokenGuard) -> Handler:
        from wigwag.serve.console.site import console
        from wigwag.watt.console import watt_console

        return console(watt_console(self.watt, self._report).api(), guard.handler)

    def _ready(self) -> bool:
        return self.lifecycle.serving() and self.watt.ready

    def _url(self, snapshot: WattSnapshot) -> str:
        """Return where hooks on this machine fetch a snapshot."""
        [address, *_] = self.lifecycle.addresses[PORT_NAME]
        return f"http://{reachable(address)}/snapshots/{snapshot.id}"


def reachable(address: str) -> str:
    """Return the address by which programs of this machine reach a port that listens on an address.

    >>> reachable("0.0.0.0:7000"), reachable("[::]:7000"), reachable("10.0.0.1:7000")
    ('127.0.0.1:7000', '[::1]:7000', '10.0.0.1:7000')
    """
    host, _, port = address.rpartition(":")
    return f"{_LOCAL.get(host, host)}:{port}"


def listen_address(options: WattOptions) -> tuple[str, int]:
    """Return the host and port to listen on; the host is empty for every address.

    >>> from wigwag.watt.options import WattOptions
    >>> listen_address(WattOptions()), listen_address(WattOptions(listen_address=":8002"))
    (('127.0.0.1', 7000), ('', 8002))
    """
    if not options.listen_address:
        return "::1" if options.listen_network == "tcp6" else LOOPBACK, options.port
    host, number = host_and_port(options.listen_address, "--listen-address")
    if not host and options.listen_network == "tcp4":
        host = "0.0.0.0"  # noqa: S104 - asked for, and only with a token
    return host, number


def _check_tokens(path: str) -> None:
    """Read the token file once, so that a wrong path is an error at the start and not of each request."""
    try:
        token_file(path)()
    except (OSError, WigwagError) as error:
        raise UsageError(f"--token-file: {describe(error)}") from None


def _local(host: str) -> bool:
    return host == "localhost" or is_loopback(host)
