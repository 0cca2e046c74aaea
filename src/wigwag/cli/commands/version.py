"""`wigwag version`: which one this is."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from wigwag.version import __version__

HELP = "print the version"
DESCRIPTION = """\
Print the version of wigwag and of the Python it runs on.

  wigwag version
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """There are none."""


def run(options: Options) -> int:
    """Print it."""
    print(f"wigwag: {__version__} (Python {platform.python_version()})")
    return 0
