"""Which names in which directories decide what a path means.

Opening a path is a chain of look-ups, each of one name in one directory; a symbolic link adds more of them. If, and
only if, one of these names changes in its directory, the path may mean something else. So to follow a path is to
listen for exactly these names, whether it is a plain file, a link to another directory, a mounted ConfigMap, or does
not exist yet (then the chain ends at the first name that is missing, and listening there tells when it comes).
"""

from __future__ import annotations

import errno
import os
from pathlib import PurePosixPath
from typing import NamedTuple

EVERY = "*"
"""Instead of a name: every name that is not hidden."""
_LINKS = 40


class Lookup(NamedTuple):
    """A name looked up in a directory."""

    directory: str
    name: str
    content: bool = False
    """Whether this is what is read in the end, so that its content matters and not only its being there."""
    link: bool = False
    """Whether the name is a symbolic link."""


class Chain(NamedTuple):
    """The look-ups of a path, and the path without links if all of them were successful."""

    lookups: tuple[Lookup, ...]
    real: str | None


def chain(path: str) -> Chain:
    """Look up an absolute path, step by step."""
    found: list[Lookup] = []
    here, names, links = "/", _names(path), 0
    while names:
        name = names.pop()
        if name == "..":
            here = str(PurePosixPath(here).parent)
            continue
        full = here.rstrip("/") + "/" + name
        try:
            target = os.readlink(full)  # noqa: PTH115 - links are followed as text
        except OSError as error:
            found.append(Lookup(here, name, not names))
            if error.errno != errno.EINVAL:
                return Chain(tuple(found), None)
            here = full
            continue
        found.append(Lookup(here, name, link=True))
        links += 1
        if links > _LINKS:
            return Chain(tuple(found), None)
        here = "/" if target.startswith("/") else here
        names += _names(target)
    return Chain(tuple(found), here)


def _names(path: str) -> list[str]:
    """The names of a path, last first."""
    return [name for name in reversed(path.split("/")) if name not in {"", "."}]
