"""Following one ConfigMap at the API server.

The watch is `wigwag.kube`'s: it starts with the current object, goes on from its version, and retries by itself. A
single look is the start of a watch, so there is one way to ask, and one set of errors.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import MsgspecError

from wigwag.kube.client import Kube
from wigwag.kube.config.cluster import find_cluster
from wigwag.kube.watch.follow import watch_kube
from wigwag.loop_thread import LoopThread
from wigwag.pipeline.spec import Unavailable
from wigwag.pipeline.watch import closing, first
from wigwag.sources.kubernetes.objects import decode_config_map

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from msgspec import Raw

    from wigwag.kube.watch.reflector import Item
    from wigwag.kube.watch.spec import KubeWatch

T = TypeVar("T")
Decoded: TypeAlias = dict[str, bytes] | Unavailable
"""The keys of a ConfigMap, or why they cannot be decoded."""
PATIENCE = 45.0
"""Seconds that a single look may take: more than the API server gets for the first bytes of a response."""


def connect(kubeconfig: str = "", context: str = "") -> Kube:
    """Return a client of the API server that a kubeconfig, KUBECONFIG or the pod names; `UsageError` if none does."""
    return Kube(find_cluster(os.environ, kubeconfig, context))


def decode(raw: Raw) -> Decoded:
    """Decode an object. A fault is a value, because the watch would only log an exception.

    >>> from msgspec import Raw
    >>> decode(Raw(b'{"binaryData": {"a": "?"}}'))
    Unavailable(reason='binaryData is not base64')
    """
    try:
        return decode_config_map(raw)
    except (MsgspecError, RecursionError, UnicodeError) as error:
        return Unavailable(str(error) if isinstance(error, MsgspecError) else type(error).__name__)


async def watch(
    spec: KubeWatch, read: Callable[[Item[Decoded]], T], connect: Callable[[], Kube] = connect
) -> AsyncIterator[T]:
    """Yield what `read` makes of each item of a watch."""
    kube = connect()
    try:
        async with closing(watch_kube(kube, spec, decode)) as items:
            async for item in items:
                yield read(item)
    finally:
        kube.close()


async def look(kube: Kube, spec: KubeWatch, patience: float = PATIENCE) -> Item[Decoded]:
    """Return the first item of a watch, and close the client."""
    try:
        async with asyncio.timeout(patience):
            item = await first(watch_kube(kube, spec, decode))
    except TimeoutError:
        return Unavailable(
            f"the API server has not answered within {patience:g} seconds; see whether it can be reached"
        )
    finally:
        kube.close()
    return Unavailable("the watch ended") if item is None else item


def outside(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a coroutine function returns, or raise what it raises. An interrupted caller does not wait for it.

    It has a thread and a loop of its own, whether or not a loop runs in this thread.

    >>> async def answer():
    ...     return 42
    >>> outside(answer)
    42
    """
    done: Future[T] = Future()

    async def main() -> None:
        try:
            done.set_result(await work())
        except BaseException as error:  # noqa: BLE001 - is raised in the caller
            done.set_exception(error)

    thread = LoopThread(main, "dflag reader")
    try:
        return done.result()
    finally:
        thread.stop(None if done.done() else 0.0)
