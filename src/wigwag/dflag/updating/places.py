"""Where flags are read from, and which flag a key there sets.

    /etc/dflag            a directory in which the kubelet has mounted a ConfigMap (`Directory`)
    configmap/NS/NAME     the object itself, read from the API server (`cluster.ConfigMap`)

A place knows how it is read and watched; the updater treats all alike. A flag has the name of its key. There may be a
prefix (one ConfigMap for several services), a namespace (one service with several ConfigMaps) and sub-directories
(`items` of a volume, or a projected volume): `db/pool/size` is the flag `db.pool.size`. Or a key is a document of many
flags, if the place lists it in `documents`.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, Protocol

from wigwag.errors import UsageError
from wigwag.pipeline.spec import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from wigwag.dflag.updating.contents import Contents
    from wigwag.dflag.updating.policy import Policy
    from wigwag.dflag.updating.volume import Volume
    from wigwag.pipeline.spec import Unchanged


class Names(NamedTuple):
    """How keys become names of flags, and back.

    >>> Names().flag("db/size"), Names(namespace="db.").flag("size"), Names(namespace="db.").key("db.size")
    ('db.size', 'db.size', 'size')
    >>> Names("shop.").flag("shop.rate"), Names("shop.").flag("blog.rate"), Names("shop.").key("rate")
    ('rate', None, 'shop.rate')
    """

    prefix: str = ""
    namespace: str = ""

    def flag(self, key: str) -> str | None:
        """Return the name of the flag that a key sets, or None if the key has another prefix."""
        name = key.replace("/", ".")
        return self.namespace + name.removeprefix(self.prefix) if name.startswith(self.prefix) else None

    def key(self, flag: str) -> str | None:
        """Return the key that sets a flag, or None if the flag is in another namespace."""
        return self.prefix + flag.removeprefix(self.namespace) if flag.startswith(self.namespace) else None


class Place(Hashable, Protocol):
    """A place to read flags from: a frozen record, which is its own identity."""

    @property
    def title(self) -> str:
        """Its name in origins and problems."""
        ...

    @property
    def names(self) -> Names:
        """How its keys become names of flags."""
        ...

    @property
    def documents(self) -> tuple[str, ...]:
        """The keys that contain many flags each."""
        ...

    @property
    def position(self) -> int:
        """Its position among several places; the last wins."""
        ...

    @property
    def optional(self) -> bool:
        """Whether the program can start before it was read."""
        ...

    def numbered(self, position: int) -> Place:
        """Return a copy with a canonical name and this position."""
        ...

    def read(self) -> Contents | Unavailable | None:
        """Return its contents, or why they cannot be read; None if it is missing and optional."""
        ...

    async def look(self) -> Contents | Unavailable | None:
        """Return the same, without blocking an event loop."""
        ...

    def watch(self, policy: Policy) -> AsyncIterator[Contents | Unavailable | Unchanged]:
        """Yield its contents whenever they change."""
        ...

    def unchanging(self) -> list[str]:
        """Return the keys that can never change; an empty one stands for all."""
        ...


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory to read flags from.

    >>> Directory("/etc/all", prefix="shop.").names.flag("shop.rate")
    'rate'
    """

    path: str
    prefix: str = ""
    """Only files with this prefix are read; the name of the flag is the rest."""
    namespace: str = ""
    """Put before the name of a file to make the name of a flag."""
    depth: int = 3
    """How many levels of directories are read; 1: no sub-directories."""
    optional: bool = False
    """Whether it may be missing at the start."""
    largest: int = 16 << 20
    """The largest file that is read, in bytes."""
    most: int = 64 << 20
    """The largest size of all files together, in bytes."""
    position: int = 0
    """Its position among several places, set by the updater; the last wins."""
    documents: tuple[str, ...] = ()
    """The files that contain many flags each, by name or pattern: `("base.yaml", "*.toml")`. If two set the same flag,
    the later pattern wins, and a file of the flag's own wins over both. A prefix or namespace applies to the names in
    them."""

    def __post_init__(self) -> None:
        check_documents(self.documents)

    @property
    def title(self) -> str:
        """Its path."""
        return self.path

    @property
    def names(self) -> Names:
        """How its files become names of flags."""
        return Names(self.prefix, self.namespace)

    def numbered(self, position: int) -> Directory:
        """Return a copy with its absolute path and this position."""
        path = os.path.abspath(self.path)  # noqa: PTH100 - `Path.absolute` keeps `..`
        return replace(self, path=path, position=position)

    def read(self) -> Contents | Unavailable | None:
        """Return its contents."""
        from wigwag.dflag.updating.volume import plain

        try:
            return self._volume().read()
        except OSError as error:
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            return None if missing and self.optional else plain(Unavailable.of(error), self.path)

    async def look(self) -> Contents | Unavailable | None:
        """Return its contents; reading from a disk does not need a thread."""
        return self.read()

    def watch(self, policy: Policy) -> AsyncIterator[Contents | Unavailable | Unchanged]:
        """Yield its contents whenever they change."""
        from wigwag.dflag.updating.volume import watch_volume

        return watch_volume(self._volume(), policy)

    def _volume(self) -> Volume:
        from wigwag.dflag.updating.volume import Volume  # asyncio comes with it

        return Volume(self.path, self.depth, self.largest, self.most)

    def unchanging(self) -> list[str]:
        """Return the keys that are mounted with `subPath`."""
        from wigwag.dflag.updating.volume import frozen_here

        return frozen_here(self.path)

    def __str__(self) -> str:
        return f"directory:{self.path}"


def rank(patterns: Sequence[str], key: str) -> int:
    """Return the first pattern that a document matches; a key that is no document comes after all patterns.

    >>> rank(("base.yaml", "*.toml"), "a.toml"), rank(("base.yaml", "*.toml"), "rate")
    (1, 2)
    """
    return next((position for position, pattern in enumerate(patterns) if fnmatchcase(key, pattern)), len(patterns))


def check_documents(patterns: object) -> None:
    """Raise if it is not a tuple of patterns: a single text would be a sequence of letters."""
    if not isinstance(patterns, tuple) or not all(isinstance(each, str) and each for each in patterns):
        raise UsageError(f'`documents` is a tuple of names or patterns, such as ("app.yaml",); got {patterns!r}')
