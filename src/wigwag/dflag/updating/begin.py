"""Reading and following in one call: for a program with an event loop, and for one without."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from wigwag.dflag.updating.policy import Policy
from wigwag.dflag.updating.updater import Updater

if TYPE_CHECKING:
    from wigwag.dflag.flagset import FlagSet
    from wigwag.dflag.updating.places import Place


def setup(
    flags: FlagSet,
    *places: str | os.PathLike[str] | Place,
    policy: Policy = Policy(),  # noqa: B008 - a frozen value
) -> Updater:
    """Read places into flags, and keep them so in a thread of its own; raise if something is wrong at the start.

    A place is a directory, a `Directory`, `configmap/NAMESPACE/NAME` (the object, from the API server) or a
    `ConfigMap`; of several, the last counts.

    >>> import tempfile, pathlib
    >>> from wigwag import dflag
    >>> flags = dflag.FlagSet("example")
    >>> rate = flags.int("rate", 10)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "rate").write_text("20")
    ...     with dflag.setup(flags, folder) as updater:
    ...         rate.get(), updater.generation, updater.errors
    (20, 1, 0)
    """
    updater = Updater(flags, *places, policy=policy)
    updater.initialize()
    updater.start()
    return updater


@asynccontextmanager
async def watching(
    flags: FlagSet,
    *places: str | os.PathLike[str] | Place,
    policy: Policy = Policy(),  # noqa: B008 - a frozen value
) -> AsyncIterator[Updater]:
    """Read places into flags, and keep them so in this loop, until the end of the block.

    >>> import asyncio, tempfile
    >>> from wigwag import dflag
    >>> async def main():
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         async with dflag.watching(dflag.FlagSet("example"), folder) as updater:
    ...             return updater.running
    >>> asyncio.run(main())
    True
    """
    from wigwag.dflag.updating.following import beside

    updater = Updater(flags, *places, policy=policy)
    await updater.prepare()
    async with beside(updater):
        yield updater
