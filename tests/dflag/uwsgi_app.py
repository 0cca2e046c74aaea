"""A small WSGI service for uWSGI, whose flags follow a directory since before it forks. It only reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from wigwag import dflag

flags = dflag.FlagSet("service")
rate, told = flags.int("rate", 10), [0]
rate.on_change(lambda old, new: told.append(new))
updater = dflag.setup(flags, os.environ["CONFIG_DIR"])


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer with the process, the value, and what its notifier was told."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {rate.get()} {told[-1]} True".encode()]
