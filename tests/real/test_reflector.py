"""Our watch against a real API server, through what happens to one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.real.access import Access
from tests.real.cluster import Namespace
from tests.real.controlplane import DEFINITIONS, ControlPlane
from tests.real.tap import Tap
from tests.real.watching import Counting, Watching, kubeconfig
from wigwag.kube.client import ApiRequest
from wigwag.kube.errors import ApiError
from wigwag.kube.kinds import CONFIG_MAP, FEATURE_FLAG
from wigwag.kube.watch.listwatch import WatchTiming
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.spec import Unavailable
from wigwag.sources.kubernetes.objects import decode_flag

GROUP = "core.openfeature.dev"
V1BETA1 = f"{GROUP}/v1beta1"
NewPlane = Callable[..., ControlPlane]


def flags(variant: str) -> dict[str, Any]:
    return {"flags": {"f": {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": variant}}}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def data(seen: Watching) -> dict[str, Any]:
    return {name: each.get("data") for (_, name), each in (seen.value or {}).items()}


def test_a_flag_is_seen_when_it_comes_changes_goes_and_comes_again(namespace: Namespace, tmp_path: Path) -> None:
    path = kubeconfig(namespace.cluster.access, tmp_path)
    place = namespace.path(V1BETA1, "FeatureFlag", "flags")
    with Watching(path, KubeWatch(FEATURE_FLAG, namespace.name, "flags"), decode_flag) as seen:
        seen.until(lambda: seen.values == [{}], "the first answer")
        namespace.feature_flag("another", flags("off"))
        namespace.feature_flag("flags", flags("on"))
        seen.until(lambda: len(seen.values) == 2, "the flag")
        namespace.feature_flag("flags", flags("off"))
        seen.until(lambda: len(seen.values) == 3, "the change")
        namespace.cluster.delete(place)
        seen.until(lambda: len(seen.values) == 4, "the end")
        namespace.feature_flag("flags", flags("on"))
        seen.until(lambda: len(seen.values) == 5, "the flag again")
        found = [[json.loads(each[""]) for each in value.values()] for value in seen.values]
        assert found == [[], [flags("on")], [flags("off")], [], [flags("on")]]
        assert set(seen.value or ()) == {(namespace.name, "flags")}
        assert seen.troubles == []
        assert len(seen.kube.asked) == 1, "all by one stream"


def test_a_role_for_one_name_is_enough(namespace: Namespace, tmp_path: Path) -> None:
    namespace.feature_flag("mine", flags("on"))
    namespace.feature_flag("theirs", flags("on"))
    access = namespace.account("app")
    namespace.allow("app", "featureflags", ["get", "list", "watch"], names=["mine"], group=GROUP)
    for number, streams in enumerate((True, False)):
        path = kubeconfig(access, tmp_path, f"config{number}")
        spec = KubeWatch(FEATURE_FLAG, namespace.name, "mine")
        with Watching(path, spec, decode_flag, streams=streams) as seen:
            seen.until(lambda seen=seen: seen.names() == {"mine"}, "the flag")  # type: ignore[misc]
            namespace.feature_flag("mine", flags("off" if streams else "on"))
            seen.until(lambda seen=seen: len(seen.values) == 2, "the change")  # type: ignore[misc]
            assert seen.troubles == []


def test_who_may_not_watch_is_told_what_to_allow_and_goes_on_once_it_is(namespace: Namespace, tmp_path: Path) -> None:
    namespace.feature_flag("mine", flags("on"))
    path = kubeconfig(namespace.account("app"), tmp_path)
    with Watching(path, KubeWatch(FEATURE_FLAG, namespace.name, "mine")) as seen:
        seen.until(lambda: seen.troubles, "the refusal")
        assert seen.troubles[0] == (
            f"system:serviceaccount:{namespace.name}:app may not watch featureflags.{GROUP} in the namespace "
            f"{namespace.name}; allow it with a Role that has the rule {{apiGroups: [{GROUP}], "
            "resources: [featureflags], resourceNames: [mine], verbs: [get, list, watch]}"
        )
        assert seen.values == []
        namespace.allow("app", "featureflags", ["get", "list", "watch"], names=["mine"], group=GROUP)
        seen.until(lambda: seen.names() == {"mine"}, "the flag")


def test_a_token_is_read_again(namespace: Namespace, tmp_path: Path) -> None:
    access = namespace.account("app")
    namespace.allow("app", "configmaps", ["get", "list", "watch"])
    config = json.loads(kubeconfig(access, tmp_path).read_text())
    config["users"][0]["user"] = {"tokenFile": "token"}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    (tmp_path / "token").write_text("expired")
    with Watching(tmp_path / "kubeconfig", KubeWatch(CONFIG_MAP, namespace.name)) as seen:
        seen.until(lambda: any("401 Unauthorized" in each for each in seen.troubles), "the refusal")
        (tmp_path / "token").write_text(access.token)
        seen.until(seen.live, "the answer")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_plugin_of_a_kubeconfig_is_asked_for_a_token_and_again_when_it_is_refused(
    namespace: Namespace, tmp_path: Path, version: str
) -> None:
    access = namespace.account("app")
    namespace.allow("app", "configmaps", ["get", "list", "watch"])
    given = {"apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential"}
    for number, token in enumerate(("of yesterday", access.token)):
        (tmp_path / f"{number}.json").write_text(json.dumps({**given, "status": {"token": token}}))
    arguments = ["-c", f"cd {tmp_path}; cat 0.json; mv -f 1.json 0.json 2> /dev/null; true"]
    plugin = {"apiVersion": given["apiVersion"], "command": "/bin/sh", "args": arguments, "interactiveMode": "Never"}
    config = json.loads(kubeconfig(access, tmp_path).read_text())
    config["users"][0]["user"] = {"exec": plugin}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    with Watching(tmp_path / "kubeconfig", KubeWatch(CONFIG_MAP, namespace.name)) as seen:
        seen.until(seen.live, "the answer")
        assert seen.troubles == [], "at the first refusal the plugin is run again"


def test_a_list_in_pages_and_metadata_alone(namespace: Namespace, tmp_path: Path) -> None:
    for number in range(8):
        namespace.apply(config_map(f"map-{number}", n=str(number)))
    path, spec = kubeconfig(namespace.cluster.access, tmp_path), KubeWatch(CONFIG_MAP, namespace.name)
    with Watching(path, spec, timing=WatchTiming(page=3), streams=False) as seen:
        seen.until(lambda: len(seen.names()) >= 8, "the objects")
        assert data(seen)["map-7"] == {"n": "7"}
        assert not any("managedFields" in each["metadata"] for each in (seen.value or {}).values())
        namespace.cluster.delete(namespace.path("v1", "ConfigMap", "map-7"))
        seen.until(lambda: "map-7" not in seen.names(), "the deletion")
    for streams in (True, False):
        only = KubeWatch(CONFIG_MAP, namespace.name, fields="metadata.name!=map-1", metadata_only=True)
        with Watching(path, only, streams=streams) as seen:
            seen.until(lambda seen=seen: seen.live(), "the metadata")  # type: ignore[misc]
            assert {"map-0", "map-6"} <= seen.names()
            assert "map-1" not in seen.names()
            assert {each["kind"] for each in (seen.value or {}).values()} == {"PartialObjectMetadata"}
            assert not any("data" in each for each in (seen.value or {}).values())


def test_objects_are_created_changed_applied_and_deleted(namespace: Namespace, tmp_path: Path) -> None:
    async def main() -> None:
        kube, here = Counting(kubeconfig(namespace.cluster.access, tmp_path)), namespace.name
        place = {**config_map("one", a="1"), "metadata": {"name": "one", "namespace": here}}
        made = await kube.create(CONFIG_MAP, place)
        with pytest.raises(ApiError) as caught:
            await kube.create(CONFIG_MAP, place)
        assert (caught.value.status.code, caught.value.status.reason) == (409, "AlreadyExists")
        changed = await kube.replace(CONFIG_MAP, {**made, "data": {"a": "2"}})
        with pytest.raises(ApiError) as caught:
            await kube.replace(CONFIG_MAP, {**made, "data": {"a": "3"}})
        assert (caught.value.status.reason, caught.value.status.about.name) == ("Conflict", "one")
        assert (await kube.get(CONFIG_MAP, "one", here))["data"] == changed["data"] == {"a": "2"}
        await kube.patch(CONFIG_MAP, "one", {"data": {"b": "4"}}, here)
        await kube.patch(CONFIG_MAP, "one", [{"op": "remove", "path": "/data/a"}], here, how="json")
        mine = {**place, "data": {"b": "5"}}
        with pytest.raises(ApiError) as caught:
            await kube.apply(CONFIG_MAP, mine, "me")
        assert caught.value.status.code == 409
        assert caught.value.status.causes[0].field == ".data.b"
        assert (await kube.apply(CONFIG_MAP, mine, "me", force=True))["data"] == {"b": "5"}
        found = await kube.list(CONFIG_MAP, here, fields="metadata.name=one")
        assert [each["data"] for each in found.items] == [{"b": "5"}]
        await kube.delete(CONFIG_MAP, "one", here, {"preconditions": {"uid": made["metadata"]["uid"]}})
        with pytest.raises(ApiError) as caught:
            await kube.get(CONFIG_MAP, "one", here)
        assert (caught.value.status.code, caught.value.status.reason) == (404, "NotFound")
        kube.close()

    asyncio.run(main())


def test_a_server_that_is_killed_and_comes_back_loses_nothing(private_plane: NewPlane, tmp_path: Path) -> None:
    plane = private_plane()
    namespace = plane.cluster.add_namespace("killed")
    for name in "abc":
        namespace.apply(config_map(name, n="1"))
    certified = plane.cluster.access.with_certificate(plane.authority.client("somebody", "system:masters"))
    with Watching(kubeconfig(certified, tmp_path), KubeWatch(CONFIG_MAP, namespace.name)) as seen:
        seen.until(lambda: set("abc") <= seen.names(), "the objects")
        before = seen.value
        plane.apiserver.kill()
        seen.until(lambda: len(seen.troubles) >= 3, "trouble")
        assert seen.value is before, "nothing is cleared"
        plane.apiserver.start()
        seen.until(seen.live, "recovery")
        namespace.cluster.delete(namespace.path("v1", "ConfigMap", "a"))
        namespace.apply(config_map("b", n="2"))
        seen.until(lambda: "a" not in seen.names() and data(seen).get("b") == {"n": "2"}, "the changes")
        assert "no connection" in "".join(seen.troubles)
        assert seen.kube.whole() <= 3, "no list for every failure"
        assert len(seen.kube.asked) <= 30


def test_a_server_that_falls_silent_is_found_out_and_followed_again(private_plane: NewPlane, tmp_path: Path) -> None:
    plane = private_plane()
    namespace = plane.cluster.add_namespace("silent")
    short = WatchTiming(shortest=3.0, longest=3.0, margin=4.0)
    with Watching(
        kubeconfig(plane.cluster.access, tmp_path), KubeWatch(CONFIG_MAP, namespace.name), timing=short
    ) as seen:
        seen.until(seen.live, "the answer")
        plane.apiserver.pause()
        seen.until(lambda: seen.troubles, "somebody noticing")
        assert "does not let us connect" in seen.troubles[0]
        plane.apiserver.resume()
        namespace.apply(config_map("later", n="1"))
        seen.until(lambda: "later" in seen.names() and seen.live(), "recovery")
        assert seen.kube.whole() == 1


def test_history_that_is_gone_leads_to_one_list_that_shows_what_went(
    private_plane: NewPlane, tapped: Callable[[Access], Tap], tmp_path: Path
) -> None:
    plane = private_plane()
    namespace = plane.cluster.add_namespace("compacted")
    for name in "abc":
        namespace.apply(config_map(name, n="1"))
    tap = tapped(plane.cluster.access)
    path, quick = kubeconfig(tap.access, tmp_path), WatchTiming(backoff=Backoff(first=0.2, most=1.0))
    with Watching(path, KubeWatch(CONFIG_MAP, namespace.name), timing=quick) as seen:
        seen.until(lambda: set("abc") <= seen.names(), "the objects")
        values = len(seen.values)
        tap.refuse()  # the watch breaks, and cannot come back before its history is gone
        namespace.cluster.delete(namespace.path("v1", "ConfigMap", "a"))
        namespace.apply(config_map("b", n="2"))
        namespace.apply(config_map("d", n="1"))
        plane.compact()
        plane.apiserver.restart()
        tap.listen()
        seen.until(lambda: len(seen.values) > values, "the list")
        left = {name: found for name, found in data(seen).items() if name in "abcd"}
        assert left == {"b": {"n": "2"}, "c": {"n": "1"}, "d": {"n": "1"}}
        assert len(seen.values) == values + 1, "all at once, and nothing was cleared before"
        assert seen.kube.whole() == 2
        namespace.apply(config_map("e", n="1"))
        seen.until(lambda: "e" in seen.names(), "what comes later")


def test_pages_that_are_forgotten_while_they_are_read_are_asked_for_in_one_piece(
    private_plane: NewPlane, tmp_path: Path
) -> None:
    plane = private_plane(flags=["--watch-cache=false"])
    namespace = plane.cluster.add_namespace("pages")
    for number in range(8):
        namespace.apply(config_map(f"map-{number}", n=str(number)))

    def forget(request: ApiRequest) -> None:
        if "continue" in dict(request.query):
            namespace.apply(config_map("map-0", n="changed"))
            plane.compact()

    path = kubeconfig(plane.cluster.access, tmp_path)
    seen = Watching(path, KubeWatch(CONFIG_MAP, "pages"), timing=WatchTiming(page=3), streams=False)
    seen.kube.before = forget
    with seen:
        seen.until(lambda: len(seen.names()) >= 8, "the objects")
        assert data(seen)["map-0"] == {"n": "changed"}
        seen.until(lambda: len(seen.kube.asked) == 4 and seen.kube.asked[-1][1] == 200, "the watch")
        assert [status for _, status in seen.kube.asked] == [200, 410, 200, 200]
        assert ["limit" in query for query in seen.kube.queries()] == [True, True, False, False]
        assert (len(seen.values), seen.troubles) == (1, [])


def test_a_kind_that_is_installed_later_is_found_and_without_streams_lists_are_used(
    private_plane: NewPlane, tmp_path: Path
) -> None:
    plane = private_plane(definitions=(), flags=["--feature-gates=WatchList=false"])
    path = kubeconfig(plane.cluster.access, tmp_path)
    timing = WatchTiming(backoff=Backoff(first=0.5, most=1.0))
    with Watching(path, KubeWatch(FEATURE_FLAG), decode_flag, timing) as seen:
        seen.until(lambda: seen.troubles, "the missing kind")
        assert seen.troubles[0] == f"the API server has no featureflags in {V1BETA1}; install their definition (CRD)"
        plane.cluster.install(DEFINITIONS)
        seen.until(lambda: seen.values == [{}], "the kind")
        namespace = plane.cluster.add_namespace("later")
        namespace.feature_flag("flags", flags("on"))
        seen.until(lambda: seen.names() == {"flags"}, "the flag")
        assert not seen.kube.capabilities.watch_list
        assert not isinstance(seen.last, Unavailable)
        plane.cluster.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/featureflags.{GROUP}")
        known = len(seen.troubles)
        seen.until(lambda: len(seen.troubles) > known, "the kind being gone")
        plane.cluster.install(DEFINITIONS)
        namespace.feature_flag("others", flags("on"))
        seen.until(lambda: seen.names() == {"others"}, "what is there now")
