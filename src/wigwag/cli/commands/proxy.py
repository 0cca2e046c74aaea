"""`wigwag proxy start`: the proxy, with the command line of `flagd-proxy start`."""

from __future__ import annotations

from wigwag.cli.main import without_gc
from wigwag.proxy.options import ProxyOptions

Options = ProxyOptions

HELP = "start the proxy: a drop-in for flagd-proxy"
DESCRIPTION = """\
Start the proxy: watch each FeatureFlag or file once, and send it to all clients that subscribe to it.

  wigwag proxy start                                flag documents on port 8015, probes and metrics on 8016
  wigwag proxy start --file-root /etc/flags         only files in that directory
  wigwag start --sources '[{"uri": "localhost:8015", "provider": "grpc", "selector": "file:/etc/flags/a.json"}]'

A client subscribes to a target by its selector: core.openfeature.dev/NAMESPACE/NAME or file:PATH.
"""
CONFIG = True


def run(options: ProxyOptions) -> int:
    """Run the proxy until a signal stops it."""
    with without_gc():
        from wigwag.proxy.run import run_proxy  # the server is imported only where it is started

    return run_proxy(options)
