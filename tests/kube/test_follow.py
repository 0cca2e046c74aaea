"""The watcher over real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tests.kube.api import (
    HEAD,
    QUICK,
    SPEC,
    Api,
    bookmark,
    cluster,
    event,
    followed,
    kube,
    listing,
    obj,
    one,
    refusal,
    status,
    watch,
)
from tests.tunnel import Passing
from tests.wire.served import LOOPS, run
from wigwag.kube.kinds import CONFIG_MAP, FEATURE_FLAG
from wigwag.kube.watch.listwatch import KindNotServed, WatchForbidden
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.kubernetes.objects import decode_flag

loops = pytest.mark.parametrize("loop", LOOPS)
NO_STREAM = refusal(422, "Invalid")


def contents(found: Any) -> dict[str, str]:
    assert all("managedFields" not in each["metadata"] for each in found.values())
    return {"/".join(key): each["data"]["content"] for key, each in found.items()}


@loops
def test_objects_come_by_one_stream_and_changes_follow(loop: str) -> None:
    async def main() -> None:
        begin = event("ADDED", obj("a", 1)) + bookmark(5, end=True)
        async with cluster(watch(begin, 0.01, event("MODIFIED", obj("a", 6)), 0.01, bookmark(7))) as api:
            async with followed(api.kube()) as item:
                assert contents(await item()) == {"ns/a": "a1"}
                assert contents(await item()) == {"ns/a": "a6"}
                assert await item() is UNCHANGED
            [query] = api.queries
            assert query["sendInitialEvents"] == "true"
            assert api.asked[0].target.startswith("/api/v1/namespaces/ns/configmaps?")

    run(main, loop)


@loops
def test_a_server_without_that_is_listed_in_pages_and_then_watched(loop: str) -> None:
    async def main() -> None:
        pages = listing(5, obj("a", 1), token="t"), listing(5, obj("b", 2))
        async with cluster(NO_STREAM, *pages, watch(event("DELETED", obj("a", 6)))) as api:
            client = api.kube()
            async with followed(client) as item:
                assert contents(await item()) == {"ns/a": "a1", "ns/b": "b2"}
                assert contents(await item()) == {"ns/b": "b2"}
            assert [query.get("continue", query.get("resourceVersion")) for query in api.queries] == [
                None,
                "0",
                "t",
                "5",
            ]
            assert not client.capabilities.watch_list

    run(main, loop)


@loops
def test_a_stream_that_ends_goes_on_from_the_last_version(loop: str) -> None:
    async def main() -> None:
        first = watch(event("ADDED", obj("a", 1)) + bookmark(5, end=True), 0.05, bookmark(8), end=True)
        async with cluster(first, watch(event("ADDED", obj("b", 9)))) as api, followed(api.kube()) as item:
            assert contents(await item()) == {"ns/a": "a1"}
            assert await item() is UNCHANGED
            assert contents(await item()) == {"ns/a": "a1", "ns/b": "b9"}
            assert api.queries[1]["resourceVersion"] == "8"
            assert api.server is not None
            assert api.server.connections == 1, "a stream that ended in good order leaves its connection behind"

    run(main, loop)


@pytest.mark.parametrize("gone", [refusal(410, "Expired"), watch(event("ERROR", status(410, "Expired")))])
def test_what_is_too_old_is_listed_anew_and_what_went_is_found(gone: Any) -> None:
    async def main() -> None:
        script = NO_STREAM, listing(5, obj("a", 1), obj("b", 2)), gone, listing(9, obj("b", 2)), watch()
        async with cluster(*script) as api, followed(api.kube()) as item:
            assert contents(await item()) == {"ns/a": "a1", "ns/b": "b2"}
            assert contents(await item()) == {"ns/b": "b2"}
            assert api.queries[3]["resourceVersionMatch"] == "NotOlderThan"

    run(main)


@pytest.mark.parametrize(
    "broken",
    [
        watch(event("ADDED", obj("b", 6)), event("ADDED", obj("c", 7))[:40], drop=True),
        watch(event("ADDED", obj("b", 6)), event("ADDED", obj("c", 7))[:40], end=True),
        watch(event("ADDED", obj("b", 6)) + b'{"type":"ADD\n'),
    ],
    ids=["broken off", "ended in an event", "no JSON"],
)
def test_a_stream_that_breaks_keeps_what_came_and_goes_on_from_there(broken: Any) -> None:
    async def main() -> None:
        script = NO_STREAM, listing(5, obj("a", 1)), broken, watch(event("ADDED", obj("c", 7)))
        async with cluster(*script) as api, followed(api.kube()) as item:
            assert contents(await item()) == {"ns/a": "a1"}
            assert contents(await item()) == {"ns/a": "a1", "ns/b": "b6"}
            assert contents(await item()) == {"ns/a": "a1", "ns/b": "b6", "ns/c": "c7"}
            assert api.queries[3]["resourceVersion"] == "6"

    run(main)


@loops
def test_trouble_is_told_and_over_when_a_watch_stays_open(loop: str) -> None:
    async def main() -> None:
        script = NO_STREAM, listing(5, obj("a", 1)), refusal(500, "InternalError"), refusal(429), watch()
        same = listing(5, obj("a", 1))
        async with cluster(*script, compared=[same]) as api, followed(api.kube()) as item:
            assert contents(await item()) == {"ns/a": "a1"}
            assert await item() == Unavailable("the API server answered 500 InternalError to watch configmaps ns/*")
            assert isinstance(await item(), Unavailable)
            assert await item() is UNCHANGED
            assert [query["resourceVersion"] for query in api.queries[2:]] == ["5", "5", "5"]

    run(main, loop)


def test_whoever_may_not_watch_is_told_what_to_allow_and_goes_on_when_it_is_allowed() -> None:
    async def main() -> None:
        spec = KubeWatch(FEATURE_FLAG, "ns", "flags")
        said = 'featureflags is forbidden: User "system:serviceaccount:ns:app" cannot watch resource'
        begin = event("ADDED", obj("flags", 1)) + bookmark(5, end=True)
        async with cluster(refusal(403, "Forbidden", said), watch(begin)) as api:
            async with followed(api.kube(), spec) as item:
                assert await item() == WatchForbidden(
                    "system:serviceaccount:ns:app may not watch featureflags.core.openfeature.dev in the namespace ns; "
                    "allow it with a Role that has the rule {apiGroups: [core.openfeature.dev], "
                    "resources: [featureflags], resourceNames: [flags], verbs: [get, list, watch]}"
                )
                assert contents(await item()) == {"ns/flags": "flags1"}
            assert api.queries[0]["fieldSelector"] == "metadata.name=flags"

    run(main)


def test_a_kind_that_is_not_installed_is_waited_for() -> None:
    async def main() -> None:
        async with cluster(whole404(), watch(bookmark(5, end=True))) as api:
            async with followed(api.kube(), KubeWatch(FEATURE_FLAG)) as item:
                assert await item() == KindNotServed(
                    "the API server has no featureflags in core.openfeature.dev/v1beta1; install their definition (CRD)"
                )
                assert await item() == {}
            assert api.asked[0].target.startswith("/apis/core.openfeature.dev/v1beta1/featureflags?")

    run(main)


def whole404() -> bytes:
    """What the API server says of a group that it does not know; that is no Status."""
    return b"HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\nContent-Type: text/plain\r\n\r\n404 page not found\n"


def test_a_server_that_is_not_there_is_trouble_with_its_address() -> None:
    async def main() -> None:
        async with cluster(watch()) as api:
            url = api.url
        async with followed(kube(url)) as item:
            said = await item()
            assert said.reason == (
                f"{url.removeprefix('http://')}: no connection: Connection refused; "
                "see that the server is up and the port is right"
            )

    run(main)


def test_a_server_that_ignores_the_wish_for_a_beginning_is_listed() -> None:
    async def main() -> None:
        script = watch(), listing(5, obj("a", 1)), watch()
        async with cluster(*script) as api, followed(api.kube()) as item:
            assert contents(await item()) == {"ns/a": "a1"}
            assert api.queries[1]["limit"] == "500"

    run(main)


def test_metadata_alone_is_asked_for_by_a_media_type() -> None:
    async def main() -> None:
        spec = KubeWatch(CONFIG_MAP, metadata_only=True, labels="app in (a,b)")
        begin = event("ADDED", {"metadata": obj("a", 1)["metadata"]}) + bookmark(5, end=True)
        async with cluster(NO_STREAM, listing(5), watch(begin)) as api:
            async with followed(api.kube(), spec) as item:
                assert await item() == {}
            accepts = [asked.headers["accept"].split(",") for asked in api.asked[:2]]
            assert accepts[0] == [
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
                "application/json",
            ]
            assert accepts[1][0] == "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            assert api.queries[0]["labelSelector"] == "app in (a,b)"

    run(main)


def test_a_flag_document_is_kept_as_it_was_written() -> None:
    async def main() -> None:
        text = b'{"flags": {"f":{"state":"ENABLED" , "variants":{"on":true}}}}'
        about = b'{"metadata":{"name":"a","namespace":"ns","resourceVersion":"1"},"spec":{"flagSpec":%b}}' % text
        begin = b'{"type":"ADDED","object":%b}\n' % about + bookmark(5, end=True)
        async with (
            cluster(watch(begin)) as api,
            followed(api.kube(), KubeWatch(FEATURE_FLAG, "ns"), decode_flag) as item,
        ):
            [found] = (await item()).values()
            assert found == {"": text}

    run(main)


def test_a_watcher_that_is_closed_lets_go_of_its_connection() -> None:
    async def main() -> None:
        async with cluster(watch(bookmark(5, end=True))) as api:
            async with followed(api.kube()) as item:
                assert await item() == {}
            await api.left.wait()

    run(main)


# comparisons beside the watch


PROBING = replace(QUICK, probe=0.05, answer=20.0)
ONE = KubeWatch(CONFIG_MAP, "ns", "a")
BEGIN = event("ADDED", obj("a", 1)) + bookmark(5, end=True)


@loops
def test_a_silent_watch_of_one_object_is_compared_by_a_get_of_its_metadata(loop: str) -> None:
    async def main() -> None:
        async with cluster(watch(BEGIN), compared=[one(obj("a", 1))]) as api:
            async with followed(api.kube(), ONE, timing=PROBING) as item:
                assert contents(await item()) == {"ns/a": "a1"}
                assert await item() is UNCHANGED
                assert await item() is UNCHANGED
            assert {each.target for each in api.comparisons} == {"/api/v1/namespaces/ns/configmaps/a"}
            assert len(api.queries) == 1, "and the watch goes on"

    run(main, loop)


def test_of_several_objects_a_silent_watch_asks_for_one_of_them() -> None:
    async def main() -> None:
        async with cluster(watch(BEGIN), compared=[listing(5, obj("a", 1), token="more")]) as api:
            async with followed(api.kube(), timing=PROBING) as item:
                assert contents(await item()) == {"ns/a": "a1"}
                assert await item() is UNCHANGED
            assert api.comparisons[0].target == "/api/v1/namespaces/ns/configmaps?limit=1"

    run(main)


@pytest.mark.parametrize("answer", [one(obj("a", 4)), refusal(404, "NotFound", name="a")], ids=["older", "gone"])
def test_an_object_that_is_not_as_the_watch_has_shown_it_is_listed(answer: bytes) -> None:
    async def main() -> None:
        begin = event("ADDED", obj("a", 8)) + bookmark(9, end=True)
        again = bookmark(6, end=True)
        timing = replace(PROBING, settle=0.02)
        async with cluster(watch(begin), watch(again), compared=[answer]) as api:
            async with followed(api.kube(), ONE, timing=timing) as item:
                assert contents(await item()) == {"ns/a": "a8"}
                assert await item() == {}
            assert "resourceVersion" not in api.queries[1], "whatever is the newest"

    run(main)


def test_who_may_not_get_the_object_compares_by_a_list() -> None:
    async def main() -> None:
        async with cluster(watch(BEGIN), compared=[refusal(403), listing(5, obj("a", 1))]) as api:
            async with followed(api.kube(), ONE, timing=PROBING) as item:
                assert contents(await item()) == {"ns/a": "a1"}
                assert await item() is UNCHANGED
                assert await item() is UNCHANGED
            first, *others = (each.target for each in api.comparisons)
            assert first == "/api/v1/namespaces/ns/configmaps/a"
            assert set(others) == {"/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Da&limit=1"}

    run(main)


@loops
def test_events_do_not_wait_for_a_comparison_and_what_is_closed_ends_it(loop: str) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def hang(_: Api) -> bool:
            asked.set()
            await asyncio.Event().wait()
            return False

        def comparing() -> int:
            return sum("Follower._compare" in repr(task.get_coro()) for task in asyncio.all_tasks())

        async def begin(api: Api) -> bool:
            assert api.server is not None
            await api.server.write(HEAD)
            await api.chunk(BEGIN)
            await asked.wait()
            await api.chunk(event("MODIFIED", obj("a", 6)))
            await api.server.gone()
            return False

        async with cluster(begin, compared=[hang]) as api:
            async with followed(api.kube(), ONE, timing=PROBING) as item:
                assert contents(await item()) == {"ns/a": "a1"}
                assert contents(await item()) == {"ns/a": "a6"}
                assert comparing() == 1
            assert comparing() == 0

    run(main, loop)


@loops
def test_a_way_to_the_server_that_passes_nothing_on_any_more_is_noticed_by_the_silence(loop: str) -> None:
    """The kernel at the other end still acknowledges, as that of a load balancer does: no keep-alive finds that."""

    async def main() -> None:
        async with (
            cluster(watch(BEGIN), compared=[one(obj("a", 1))]) as api,
            Passing(api.url) as way,
            followed(api.kube(url=way.url), ONE, timing=replace(PROBING, answer=1.0)) as item,
        ):
            assert contents(await item()) == {"ns/a": "a1"}
            assert await item() is UNCHANGED
            way.stop()
            while (said := await item()) is UNCHANGED:  # it was under way
                pass
            assert isinstance(said, Unavailable)
            assert "does not answer in time" in said.reason
            way.go_on()
            while await item() is not UNCHANGED:
                pass

    run(main, loop)


def test_what_happens_to_a_watch_is_in_the_debug_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        begin = NO_STREAM, listing(5, obj("a", 8)), watch(drop=True), watch()
        old = listing(3, obj("a", 2))
        gone = watch(event("ERROR", status(410)))
        async with cluster(*begin, old, gone, old, watch(), compared=[old]) as api, followed(api.kube()) as item:
            assert contents(await item()) == {"ns/a": "a8"}
            assert contents(await item()) == {"ns/a": "a2"}
            assert await item() is UNCHANGED

    with caplog.at_level("DEBUG", "wigwag.kube"):
        run(main)
    for words in (
        "configmaps ns/*: list from version 0",
        "configmaps ns/*: list from version newest",
        "configmaps ns/*: watch from version 5",
        "configmaps ns/*: the watch failed: ",
        "configmaps ns/*: compared with the server, which is at 3: the server's version went from 5 back to 3",
        "configmaps ns/*: the server's version went from 5 back to 3; listing again",
        "configmaps ns/*: the watch failed: the API server answered 410",
        "configmaps ns/*: listing again from version 3",
    ):
        assert words in caplog.text


def test_the_spec_is_what_the_watch_is() -> None:
    assert KubeWatch(CONFIG_MAP, "ns") == SPEC
    assert {SPEC: 1}[KubeWatch(CONFIG_MAP, "ns")] == 1
