"""Where a ConfigMap is mounted, and which flag a file in it means.

A file is named after a key of the ConfigMap, and a flag is named after the file. Between the two there may be a prefix
(one ConfigMap for several services), a namespace (one service with several ConfigMaps) and sub-directories (`items` of
a volume, or a projected volume): `db/pool/size` is the flag `db.pool.size`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.dflag.plan import Policy
    from wigwag.pipeline.spec import Trouble, Unchanged


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that flags are read from.

    >>> Directory("/etc/dflag").flag_name("db/size"), Directory("/etc/db", namespace="db.").flag_name("size")
    ('db.size', 'db.size')
    >>> shared = Directory("/etc/all", prefix="shop.")
    >>> shared.flag_name("shop.rate"), shared.flag_name("blog.rate")
    ('rate', None)
    """

    path: str
    prefix: str = ""
    """Only files whose names begin so are read; the flag's name is what follows."""
    namespace: str = ""
    """What is put before the name of a file to make the name of a flag."""
    depth: int = 3
    """How many levels of directories are read; 1: no sub-directories."""
    optional: bool = False
    """Whether it may be missing at the start, and come later."""
    largest: int = 16 << 20
    """The largest file that is read, in bytes."""
    most: int = 64 << 20
    """The largest size of all files together, in bytes."""
    position: int = 0
    """Where it stands among several; the updater numbers them."""

    def flag_name(self, key: str) -> str | None:
        """Return the name of the flag that a file sets, if it is one of ours."""
        name = key.replace("/", ".")
        return self.namespace + name.removeprefix(self.prefix) if name.startswith(self.prefix) else None

    def __str__(self) -> str:
        return f"directory:{self.path}"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Instead of a file's content: why it cannot be read."""

    reason: str


Contents: TypeAlias = Mapping[str, bytes | Unreadable]
"""What is in a directory, by path beneath it."""


class Source(Protocol):
    """How a place is read and followed. On disk it is `volume`; a ConfigMap may be had in other ways, too."""

    def read(self, place: Directory) -> Contents:
        """Return what is there now; `OSError` if that cannot be known."""
        ...

    def watch(self, place: Directory, policy: Policy) -> AsyncIterator[Contents | Trouble | Unchanged]:
        """Yield what is there whenever it changes."""
        ...
