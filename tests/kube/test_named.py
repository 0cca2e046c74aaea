"""A kind by its name: from before the server has it, through its versions, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kube.api import kube, refusal
from tests.kube.discovered import CORE, DiscoverableApi, Groups, discoverable, resource
from tests.pipeline.fakes import FakeClock, FakeWatcher, run
from wigwag.errors import UsageError
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import SERVICE, Kind
from wigwag.kube.named import NamedWatch, watch_named
from wigwag.kube.watch.decode import plain
from wigwag.kube.watch.listwatch import KindNotServed
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing

ONE, TWO = {("ns", "x"): 1}, {("ns", "x"): 2}
GROUP = "late.example.com"
MISSING = "the API server has no kind 'late'; it is watched as soon as it can be"


def late(*versions: str) -> Groups:
    return CORE | {GROUP: {version: [resource("lates", "Late")] for version in versions}}


class Reading:
    """A reader of a named watch, a server whose kinds the test chooses, and watches that it drives."""

    def __init__(self, api: DiscoverableApi, hub: Hub, watcher: FakeWatcher, clock: FakeClock, items: Any) -> None:
        self.api, self.hub, self.clock, self._watcher, self._items = api, hub, clock, watcher, items

    async def next(self) -> Any:
        """Return the next item, however long that takes on the clock."""
        task = asyncio.ensure_future(anext(self._items))
        while not task.done():
            await self.clock.advance(0.25)
        return task.result()

    async def push(self, watch: KubeWatch, *items: object) -> None:
        await self._watcher.push((watch, plain), *items)

    def watched(self) -> list[Any]:
        running: list[Any] = self._watcher.running()
        return [spec for spec, _ in running]


@asynccontextmanager
async def reading(spec: NamedWatch, **given: Any) -> AsyncIterator[Reading]:
    clock, watcher = FakeClock(), FakeWatcher()
    async with discoverable(**given) as api, asyncio.TaskGroup() as group:
        hub = Hub(lambda: kube(api.url, clock=clock), lambda _, *key: watcher.watch(key))
        running = group.create_task(hub.run())
        async with closing(watch_named(hub, spec, lambda _: plain)) as items:
            yield Reading(api, hub, watcher, clock, items)
        running.cancel()


def test_objects_come_with_the_kind_that_the_name_means() -> None:
    async def main() -> None:
        async with reading(NamedWatch("svc", "ns", "x", "a=b", "c=d", metadata_only=True)) as seen:
            watch = KubeWatch(SERVICE, "ns", "x", "a=b", "c=d", metadata_only=True)
            await seen.push(watch, ONE)
            kind, objects = await seen.next()
            assert (kind, kind.kind, objects) == (SERVICE, "Service", ONE)
            await seen.push(watch, Unavailable("forbidden"))
            assert await seen.next() == Unavailable("forbidden")
            await seen.push(watch, UNCHANGED)
            assert await seen.next() is UNCHANGED
            await seen.push(watch, TWO)
            assert await seen.next() == (SERVICE, TWO)
            assert [path for path, _ in seen.api.asked] == ["/api", "/apis"], "once, whatever happens to objects"

    run(main)


def test_the_namespace_does_not_matter_to_a_cluster_scoped_kind() -> None:
    async def main() -> None:
        async with reading(NamedWatch("nodes", "ns")) as seen:
            await seen.push(KubeWatch(Kind("", "v1", "nodes", namespaced=False)), ONE)
            assert (await seen.next())[1] == ONE

    run(main)


def test_a_kind_that_is_installed_later_is_watched_then() -> None:
    async def main() -> None:
        async with reading(NamedWatch("late"), groups=CORE) as seen:
            assert await seen.next() == KindNotServed(MISSING)
            waiting = asyncio.ensure_future(seen.next())
            start = seen.clock.now()
            while seen.clock.now() < start + 60:
                await seen.clock.advance(1.0)
            assert not waiting.done(), "the same reason is not told twice"
            assert 8 <= len(seen.api.asked) <= 30
            assert seen.hub.discovery.due <= seen.clock.now() + 15
            seen.api.groups = late("v1")
            await seen.push(KubeWatch(Kind(GROUP, "v1", "lates")), ONE)
            assert await waiting == (Kind(GROUP, "v1", "lates"), ONE)

    run(main)


def test_another_reason_is_told() -> None:
    async def main() -> None:
        async with reading(NamedWatch("late"), groups=CORE) as seen:
            assert await seen.next() == KindNotServed(MISSING)
            seen.api.groups = CORE | {GROUP: {"v1": [resource("later", "Later")]}}
            assert "did you mean 'later'?" in (await seen.next()).reason

    run(main)


def test_a_server_that_does_not_answer_is_told_and_asked_again() -> None:
    async def main() -> None:
        async with reading(NamedWatch("svc")) as seen:
            seen.api.faults |= dict.fromkeys(["/api", "/apis"], refusal(403, "Forbidden"))
            found = (await seen.next()).reason
            assert found.startswith(
                "the kinds of the API server cannot be fetched: GET /api: the API server answered 403"
            )
            seen.api.faults.clear()
            await seen.push(KubeWatch(SERVICE), ONE)
            assert await seen.next() == (SERVICE, ONE)

    run(main)


def test_a_version_that_is_no_longer_served_is_left_for_the_one_that_is() -> None:
    async def main() -> None:
        old, new = Kind(GROUP, "v1", "lates"), Kind(GROUP, "v2", "lates")
        async with reading(NamedWatch("late"), groups=late("v1")) as seen:
            await seen.push(KubeWatch(old), ONE)
            assert await seen.next() == (old, ONE)
            seen.api.groups = late("v2")
            await seen.clock.advance(60.0)
            await seen.push(KubeWatch(old), KindNotServed("404"))
            await seen.push(KubeWatch(new), TWO)
            assert await seen.next() == (new, TWO)
            assert seen.watched() == [KubeWatch(new)]

    run(main)


def test_a_kind_that_is_deleted_is_waited_for() -> None:
    async def main() -> None:
        kind = Kind(GROUP, "v1", "lates")
        async with reading(NamedWatch("late"), groups=late("v1")) as seen:
            await seen.push(KubeWatch(kind), ONE)
            assert await seen.next() == (kind, ONE)
            seen.api.groups = CORE
            await seen.push(KubeWatch(kind), KindNotServed("404"))
            assert await seen.next() == KindNotServed("404"), "asked a moment ago, when it was still there"
            await seen.clock.advance(60.0)
            await seen.push(KubeWatch(kind), KindNotServed("404"))
            assert await seen.next() == KindNotServed(MISSING)
            assert seen.watched() == []
            seen.api.groups = late("v1")
            await seen.push(KubeWatch(kind), TWO)
            assert await seen.next() == (kind, TWO)

    run(main)


def test_another_preferred_version_does_not_end_a_watch_that_works() -> None:
    async def main() -> None:
        kind = Kind(GROUP, "v1", "lates")
        async with reading(NamedWatch("late"), groups=late("v1")) as seen:
            await seen.push(KubeWatch(kind), ONE)
            await seen.next()
            seen.api.groups = late("v2", "v1")
            await seen.clock.advance(600.0)
            await seen.push(KubeWatch(kind), Unavailable("a broken connection"), TWO)
            assert await seen.next() == (kind, TWO)
            assert len(seen.api.asked) == 2

    run(main)


@pytest.mark.parametrize(
    "wrong", [{"kind": "pods/log"}, {"kind": ""}, {"namespace": "a/b"}, {"name": ".."}, {"labels": "a\nb"}]
)
def test_what_cannot_be_watched_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        NamedWatch(**{"kind": "pods", **wrong})
