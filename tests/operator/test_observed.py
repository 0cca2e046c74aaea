"""What admission answers from: both kinds of sources as one, also where the cluster has only one of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.test_hub import hub
from tests.operator.known import settings
from tests.pipeline.fakes import run, settle
from wigwag.kube.kinds import CLUSTER_FEATURE_FLAG_SOURCE
from wigwag.kube.watch.listwatch import KindNotServed, WatchForbidden
from wigwag.kube.watch.objects import Objects
from wigwag.kube.watch.spec import KubeWatch
from wigwag.operator.observed import NAMESPACES, SOURCES, watch, watches
from wigwag.operator.resources.unreadable import decode_cluster_source, decode_source
from wigwag.pipeline.spec import Unavailable
from wigwag.pipeline.watch import closing

OWN, SHARED = (SOURCES, decode_source), (KubeWatch(CLUSTER_FEATURE_FLAG_SOURCE), decode_cluster_source)


def objects(*key: str) -> Objects[Any]:
    return Objects({(key[0], key[1]): "source"})


def test_sources_of_namespaces_and_of_the_cluster_are_one() -> None:
    async def main() -> None:
        async with hub() as made, closing(watch(made, settings(), SOURCES)) as items:
            await made.watcher.push(OWN, objects("team-a", "flags"))
            await made.watcher.push(SHARED, objects("", "shared"))
            assert (await anext(items)).keys() == {("team-a", "flags"), ("", "shared")}  # type: ignore[union-attr]

    run(main)


@pytest.mark.parametrize("trouble", [KindNotServed("no such kind"), WatchForbidden("no right")])
def test_an_older_installation_has_no_shared_sources_and_works(trouble: Unavailable) -> None:
    async def main() -> None:
        async with hub() as made, closing(watch(made, settings(), SOURCES)) as items:
            await made.watcher.push(OWN, objects("team-a", "flags"))
            await made.watcher.push(SHARED, trouble)
            assert (await anext(items)).keys() == {("team-a", "flags")}  # type: ignore[union-attr]

    run(main)


def test_sources_of_namespaces_are_waited_for_whatever_the_reason() -> None:
    async def main() -> None:
        async with hub() as made, closing(watch(made, settings(), SOURCES)) as items:
            await made.watcher.push(SHARED, objects("", "shared"))
            await made.watcher.push(OWN, WatchForbidden("no right"))
            assert await anext(items) == Unavailable("no right")

    run(main)


def test_an_operator_of_some_namespaces_asks_for_nothing_of_the_cluster() -> None:
    async def main() -> None:
        given = settings(namespaces=("team-a",))
        assert NAMESPACES not in watches(given)
        assert all(spec.kind.namespaced for spec in watches(given))
        async with hub() as made, closing(watch(made, given, SOURCES)) as items:
            await made.watcher.push(OWN, objects("team-a", "flags"))
            await anext(items)
            await settle()
            assert made.watcher.started == [OWN]

    run(main)
