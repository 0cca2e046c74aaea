"""`wigwag console`: open the console of a process on this machine in the browser."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from wigwag.errors import UsageError, WigwagError
from wigwag.options import option, positional

HELP = "open the console of an agent, a proxy, an operator or watt in the browser"
DESCRIPTION = """\
Open the console in the browser: the flags, why each answers as it does, who gets what, and what has changed.

  wigwag console                     the agent of this machine, else the proxy, watt or the operator
  wigwag console localhost:8014      a certain port
  wigwag console --print-only        print the address and open nothing

Of a pod: kubectl port-forward POD 8014, then wigwag console.

Exits with 0 if there is a console, 1 if there is none.
"""
PORTS = {8014: "agent", 8016: "proxy", 7000: "watt", 8081: "operator"}
"""Where each face has its console by default."""
SECONDS = 2.0
LARGEST = 1 << 20


class NoConsoleError(WigwagError):
    """There is no console where it was looked for."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `wigwag console`."""

    address: str | None = positional("ADDRESS", "host and port, or a port of this machine", nargs="?", default=None)
    print_only: bool = option(False, "print the address, and open no browser")


def run(options: Options) -> int:
    """Find the console, print its address, and open it."""
    address, overview = find_console(options.address)
    url = f"http://{address}/console/"
    print(f"{url}  ({overview['face']}, wigwag {overview['version']})")
    if not options.print_only:
        import webbrowser

        if not webbrowser.open(url):
            print("no browser can be opened here: open the address yourself")
    return 0


def find_console(address: str | None) -> tuple[str, dict[str, Any]]:
    """Return where the console is, and what it says about itself."""
    candidates = [_complete(address)] if address is not None else [f"localhost:{port}" for port in PORTS]
    reasons = []
    for candidate in candidates:
        try:
            return candidate, _overview(candidate)
        except (OSError, ValueError) as error:
            reasons.append(f"{candidate}: {getattr(error, 'reason', None) or error}")
    remedy = "start one with `wigwag start`" if address is None else "is that the management port?"
    raise NoConsoleError(f"no console answers ({'; '.join(reasons)}); {remedy}")


def _complete(address: str) -> str:
    """Return host and port.

    >>> _complete("8014"), _complete("http://localhost:8014/console/"), _complete("[::1]:8014")
    ('localhost:8014', 'localhost:8014', '[::1]:8014')
    """
    place = address.removeprefix("http://").partition("/")[0]
    host, colon, port = place.rpartition(":")
    if not port.isdecimal():
        raise UsageError(f"{address!r} has no port; write HOST:PORT, such as localhost:8014")
    return f"{host}:{port}" if colon and host else f"localhost:{port}"


def _overview(address: str) -> dict[str, Any]:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(f"http://{address}/console/api/v1", timeout=SECONDS) as response:
            overview = json.loads(response.read(LARGEST))
    except HTTPError as error:
        error.close()
        raise ValueError(f"it answers {error.code}") from None
    if not isinstance(overview, dict) or "face" not in overview:
        raise ValueError("it is no console of wigwag")
    return overview
