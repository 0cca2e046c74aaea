"""A small WSGI service whose flags follow a directory since before gunicorn forks its workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from wigwag import dflag


def make() -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Make the service; with `--preload`, gunicorn does so in the parent of its workers."""
    flags = dflag.FlagSet("service")
    rate = flags.int("rate", 10)
    told: list[int] = []
    rate.on_change(lambda old, new: told.append(new))
    updater = dflag.setup(flags, os.environ["CONFIG_DIR"])

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer with the process, the value, what its notifier was told, and whether its updater runs."""
        start_response("200 OK", [("Content-Type", "text/plain")])
        flags.flush(5.0)
        return [f"{os.getpid()} {rate.get()} {told[-1] if told else None} {updater.running}".encode()]

    return app
