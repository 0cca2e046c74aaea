"""`wigwag watt`: watch everything, act on one consistent picture; with the command line of the original."""

from __future__ import annotations

from wigwag.cli.main import without_gc
from wigwag.version import __version__
from wigwag.watt.options import WattOptions

Options = WattOptions

HELP = "watch Kubernetes and Consul, and run hooks on snapshots: a drop-in for watt"
DESCRIPTION = """\
Watch Kubernetes objects, Consul services, directories and URIs. Keep one snapshot of all of them, serve it at
/snapshots/, and call hooks when it changes.

  wigwag watt -s service -s configmap --notify ./sync.sh        ./sync.sh http://127.0.0.1:7000/snapshots/1
  wigwag watt -s ingresses -n shop -w ./watch-hook.py           watch what the hook derives from each snapshot
  wigwag watt --config watt.yaml                                everything from a file; see docs/guides/watt.md

Nothing is published, and no hook is called, before everything that is watched has answered once.
"""
CONFIG = STRICT_CONFIG = True
"""A misspelt `notify` would be no hook at all, so an unknown key is an error."""


def run(options: WattOptions) -> int:
    """Run watt until a signal stops it."""
    if options.version:
        print(f"wigwag watt {__version__}")
        return 0
    with without_gc():
        from wigwag.watt.run import run_watt  # the server is imported only where it is started

    return run_watt(options)
