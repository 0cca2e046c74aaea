"""Following a ConfigMap at the API server: what the object means, whenever something is heard of it.

The watch is `wigwag.kube`'s: it begins with what is there, goes on from its version, and retries by itself. Here is
decided what an object that is missing, too large or unreadable comes to. A single look is the beginning of a watch, so
there is one way to ask, and one to be refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, TypeAlias

from msgspec import MsgspecError

from wigwag.dflag.updating.contents import MOST_KEYS
from wigwag.errors import WigwagError
from wigwag.kube.client import Kube
from wigwag.kube.config.cluster import find_cluster
from wigwag.kube.watch.follow import watch_kube
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing, first
from wigwag.sources.kubernetes.objects import decode_config_map

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from msgspec import Raw

    from wigwag.dflag.cluster.configmap import ConfigMap
    from wigwag.dflag.updating.contents import Contents
    from wigwag.kube.watch.decode import Key
    from wigwag.kube.watch.reflector import Item

    Held: TypeAlias = dict[str, bytes] | Unavailable
log = logging.getLogger("wigwag.dflag")
PATIENCE = 45.0
"""The seconds that a single look may take: more than the API server gets for the beginning of an answer."""


def connect(place: ConfigMap) -> Kube:
    """Make a client of the API server that a place, KUBECONFIG or the pod names; `UsageError` if there is none."""
    return Kube(find_cluster(os.environ, place.kubeconfig, place.context))


async def watch(
    place: ConfigMap, connect: Callable[[ConfigMap], Kube] = connect
) -> AsyncIterator[Contents | Unavailable | Unchanged]:
    """Yield what a ConfigMap holds whenever that changes, that it has not, or why that cannot be told at present."""
    judge, kube = ConfigMapReader(place), connect(place)
    try:
        async with closing(watch_kube(kube, place.watched(), decode)) as items:
            async for item in items:
                yield judge(item)
    finally:
        kube.close()


def decode(raw: Raw) -> Held:
    """Return what an object holds, or why that cannot be known. A watch would log that, and nobody else would know.

    >>> from msgspec import Raw
    >>> decode(Raw(b'{"binaryData": {"a": "?"}}'))
    Unavailable(reason='binaryData is not base64')
    """
    try:
        return decode_config_map(raw)
    except (MsgspecError, RecursionError, UnicodeError) as error:
        return Unavailable(str(error) if isinstance(error, MsgspecError) else type(error).__name__)


async def look(place: ConfigMap, patience: float = PATIENCE) -> Contents | Unavailable | None:
    """Return what a ConfigMap holds now, or why that cannot be known.

    If it is optional, a server that does not answer is no reason not to start: None, and the watch goes on asking.
    """
    try:
        kube = connect(place)
    except WigwagError as error:
        return Unavailable(str(error))
    try:
        async with asyncio.timeout(patience):
            found = await first(watch_kube(kube, place.watched(), decode))
    except TimeoutError:
        found = Unavailable(
            f"the API server has not answered within {patience:g} seconds; see whether it can be reached"
        )
    finally:
        kube.close()
    if not isinstance(found, Unavailable | None):
        heard = ConfigMapReader(place)(found)
        return None if isinstance(heard, Unchanged) else heard
    trouble = found or Unavailable("the watch ended")
    if not place.optional:
        return trouble
    log.warning("%s: %s; it is optional: flags keep their defaults until it can be read", place, trouble.reason)
    return None


class ConfigMapReader:
    """Decides what is heard of an object means; remembers whether there was one."""

    def __init__(self, place: ConfigMap) -> None:
        self._place, self._seen = place, False
        self._trouble: Unavailable | None = None

    def __call__(self, item: Item[Held]) -> Contents | Unavailable | Unchanged:
        """Return what it comes to. What is missing stays missing, though all else is well again."""
        if isinstance(item, Unavailable):
            return item
        if isinstance(item, Unchanged):
            return self._trouble or item
        found = self._contents(item)
        self._trouble = found if isinstance(found, Unavailable) else None
        return found

    def _contents(self, objects: Mapping[Key, Held]) -> Contents | Unavailable:
        place = self._place
        held = objects.get((place.namespace, place.name))
        if held is None:
            return {} if place.optional else self._missing()
        self._seen = True
        if isinstance(held, Unavailable):
            return Unavailable(f"it cannot be read, and what it held stays: {held.reason}")
        visible = {key: content for key, content in held.items() if not key.startswith(".")}
        if sum(map(len, visible.values())) > place.most or len(visible) > MOST_KEYS:
            return Unavailable(f"{place} is larger than the limit of {place.most} bytes or {MOST_KEYS} keys")
        return visible

    def _missing(self) -> Unavailable:
        what = f"ConfigMap {self._place.name} in the namespace {self._place.namespace}"
        if self._seen:
            return Unavailable(f"there is no {what} any more; what it held stays until it is back")
        return Unavailable(f"there is no {what}; create it, check the name, or call it optional")
