"""Where a ConfigMap is to be had, and which flag a key of it means.

    /etc/dflag            where the kubelet has mounted it (`Directory`)
    configmap/NS/NAME     the object itself, as the API server has it (`cluster.ConfigMap`)

A place knows how it is read and followed; the rest of the updater does not care. A flag is named after the key. Between
the two there may be a prefix (one ConfigMap for several services), a namespace (one service with several ConfigMaps)
and sub-directories (`items` of a volume, or a projected volume): `db/pool/size` is the flag `db.pool.size`. Or a key
holds a whole document of many flags, if the place says so.
"""

from __future__ import annotations

import os
import re
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
    from wigwag.pipeline.spec import Unchanged

_CONFIG_MAP = re.compile(r"configmap/([^/]+)/([^/]+)")


class Names(NamedTuple):
    """How keys and flags are named after each other.

    >>> Names().flag("db/size"), Names(namespace="db.").flag("size"), Names(namespace="db.").key("db.size")
    ('db.size', 'db.size', 'size')
    >>> Names("shop.").flag("shop.rate"), Names("shop.").flag("blog.rate"), Names("shop.").key("rate")
    ('rate', None, 'shop.rate')
    """

    prefix: str = ""
    namespace: str = ""

    def flag(self, key: str) -> str | None:
        """Return the name of the flag that a key sets, if it is one of ours."""
        name = key.replace("/", ".")
        return self.namespace + name.removeprefix(self.prefix) if name.startswith(self.prefix) else None

    def key(self, flag: str) -> str | None:
        """Return the key that sets a flag, if one can."""
        return self.prefix + flag.removeprefix(self.namespace) if flag.startswith(self.namespace) else None


class Place(Hashable, Protocol):
    """Somewhere that flags are read from: a frozen record, which is its own identity."""

    @property
    def title(self) -> str:
        """What it is called, where a value or a problem comes from it."""
        ...

    @property
    def names(self) -> Names:
        """How its keys name flags."""
        ...

    @property
    def documents(self) -> tuple[str, ...]:
        """Which keys hold many flags each."""
        ...

    @property
    def position(self) -> int:
        """Where it stands among several; the last counts."""
        ...

    @property
    def required(self) -> bool:
        """Whether there is no start without an answer from it."""
        ...

    def numbered(self, position: int) -> Place:
        """Return the same place, by the one name that it is known by, and where it stands."""
        ...

    def read(self) -> Contents | Unavailable | None:
        """Return what is there now, or why that cannot be known; None: there is nothing, and need not be."""
        ...

    async def look(self) -> Contents | Unavailable | None:
        """Return the same, in an event loop."""
        ...

    def watch(self, policy: Policy) -> AsyncIterator[Contents | Unavailable | Unchanged]:
        """Yield what is there whenever it changes."""
        ...

    def unchanging(self) -> list[str]:
        """Return the keys that will never change, though it seems so; an empty one stands for all."""
        ...


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that flags are read from.

    >>> Directory("/etc/all", prefix="shop.").names.flag("shop.rate")
    'rate'
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
    documents: tuple[str, ...] = ()
    """The files that hold many flags each, by name or pattern: `("base.yaml", "*.toml")`. Of two that set the same
    flag, the later pattern counts, and a file of the flag's own counts most. A prefix, or namespace, is that of the
    names in them."""

    def __post_init__(self) -> None:
        check_documents(self.documents)

    @property
    def title(self) -> str:
        """Its path."""
        return self.path

    @property
    def names(self) -> Names:
        """How its files name flags."""
        return Names(self.prefix, self.namespace)

    @property
    def required(self) -> bool:
        """Whether it must be there at the start."""
        return not self.optional

    def numbered(self, position: int) -> Directory:
        """Return the same, by its absolute path."""
        path = os.path.abspath(self.path)  # noqa: PTH100 - `Path.absolute` keeps `..`
        return replace(self, path=path, position=position)

    def read(self) -> Contents | Unavailable | None:
        """Return what is in it."""
        from wigwag.dflag.updating.volume import Volume, plain

        try:
            return Volume(self).read()
        except OSError as error:
            forgiven = self.optional and isinstance(error, FileNotFoundError | NotADirectoryError)
            return None if forgiven else plain(Unavailable.of(error), self.path)

    async def look(self) -> Contents | Unavailable | None:
        """Return what is in it; a disk is not worth a thread."""
        return self.read()

    def watch(self, policy: Policy) -> AsyncIterator[Contents | Unavailable | Unchanged]:
        """Yield what is in it whenever that changes."""
        from wigwag.dflag.updating.volume import watch_volume

        return watch_volume(self, policy)

    def unchanging(self) -> list[str]:
        """Return what in it is mounted in a way that never changes."""
        from wigwag.dflag.updating.mounts import frozen_here

        return frozen_here(self.path)

    def __str__(self) -> str:
        return f"directory:{self.path}"


def rank(patterns: Sequence[str], key: str) -> int:
    """Return where a document stands among others of its place; what is no document stands behind them all.

    >>> rank(("base.yaml", "*.toml"), "a.toml"), rank(("base.yaml", "*.toml"), "rate")
    (1, 2)
    """
    return next((place for place, pattern in enumerate(patterns) if fnmatchcase(key, pattern)), len(patterns))


def check_documents(patterns: object) -> None:
    """Refuse what is no tuple of patterns: a single text would be taken letter by letter."""
    if not isinstance(patterns, tuple) or not all(isinstance(each, str) and each for each in patterns):
        raise UsageError(f'`documents` is a tuple of names or patterns, such as ("app.yaml",); got {patterns!r}')


def place_of(given: str | os.PathLike[str] | Place, documents: tuple[str, ...] = ()) -> Place:
    """Return the place that is meant. A text of the form `configmap/NS/NAME` is an object; `./configmap/…` is a path.

    `documents` are those of a place that is given as text; a record says for itself.

    >>> place_of("/etc/dflag").title, place_of("configmap/shop/flags").title, place_of("./configmap/shop/flags").title
    ('/etc/dflag', 'configmap/shop/flags', './configmap/shop/flags')
    """
    if not isinstance(given, str | os.PathLike):
        return given
    found = _CONFIG_MAP.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        return Directory(os.fspath(given), documents=documents)
    from wigwag.dflag.cluster.configmap import ConfigMap

    return ConfigMap(found[1], found[2], documents=documents)
