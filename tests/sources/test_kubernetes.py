"""FeatureFlags and ConfigMaps as sources: what addresses mean, and what objects come to as they come and go."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

import wigwag
from tests.kube.api import bookmark, cluster, event, watch
from tests.pipeline.fakes import FakeWatcher, run, settle
from wigwag.errors import UsageError
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import CONFIG_MAP, FEATURE_FLAG
from wigwag.kube.watch.decode import read_page
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.document import Document
from wigwag.sources.kinds import documents, heartbeat, parse_sources, prepare
from wigwag.sources.kubernetes.address import ObjectsAddress, read_address
from wigwag.sources.kubernetes.objects import (
    MOST_OBJECTS,
    NOTHING,
    ObjectsWatch,
    decode_config_map,
    decode_flag,
    watch_objects,
)
from wigwag.sources.source import Source

ONE = ObjectsAddress(FEATURE_FLAG, "team", "shop")
SEVERAL = ObjectsAddress(FEATURE_FLAG, "team", labels="app=shop")
EVERYTHING = "a==b, !c,d!=e,x.y/f notin (g, h),i"
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


def flags(**variants: str) -> bytes:
    return json.dumps({"flags": {key: {**FLAG, "defaultVariant": name} for key, name in variants.items()}}).encode()


def held(**named: bytes) -> dict[tuple[str, str], dict[str, bytes]]:
    """FeatureFlags as a watch yields them."""
    return {("team", name): {"": content} for name, content in named.items()}


def config_map(**data: bytes) -> dict[tuple[str, str], dict[str, bytes]]:
    return {("team", "shop"): {key.replace("_", "."): content for key, content in data.items()}}


class TestPlace:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("team/shop", ONE),
            ("core.openfeature.dev/team/shop", ONE),
            ("configmap/shop", ObjectsAddress(FEATURE_FLAG, "configmap", "shop")),
            ("team?labels=app=shop", SEVERAL),
            ("core.openfeature.dev/team?labels=app%3Dshop", SEVERAL),
            ("team?labels=", ObjectsAddress(FEATURE_FLAG, "team")),
            ("team?labels=a=b&labels=c!=d", ObjectsAddress(FEATURE_FLAG, "team", labels="a=b,c!=d")),
            (f"team?labels={EVERYTHING}", ObjectsAddress(FEATURE_FLAG, "team", labels=EVERYTHING)),
        ],
    )  # fmt: skip
    def test_of_feature_flags(self, name: str, expected: ObjectsAddress) -> None:
        assert read_address(name) == expected

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("team/shop", ObjectsAddress(CONFIG_MAP, "team", "shop")),
            ("configmap/team/shop", ObjectsAddress(CONFIG_MAP, "team", "shop")),
            ("configmap/team/shop/flags.yaml", ObjectsAddress(CONFIG_MAP, "team", "shop", "flags.yaml")),
        ],
    )
    def test_of_a_config_map(self, name: str, expected: ObjectsAddress) -> None:
        assert read_address(name, "configmap") == expected

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("", "this names no FeatureFlag"),
            ("team", "this names no FeatureFlag"),
            ("team/", "this names no FeatureFlag"),
            ("/shop", "this names no FeatureFlag"),
            ("team/shop/more", "this names no FeatureFlag"),
            ("../shop", "is not the name of an object"),
            ("team/sh op", "is not the name of an object"),
            ("team/shop?labels=a=b", "this chooses no FeatureFlags"),
            ("team?label=a=b", "by the option 'label'"),
            ("?labels=a", "this chooses no FeatureFlags"),
            ("team?labels=a=b=c", "the label selector is malformed"),
            ("team?labels=a in b", "the label selector is malformed"),
            ("team?labels=a,", "the label selector is malformed"),
            ("team?labels=" + "a," * 600 + "a", "the label selector is malformed"),
        ],
    )
    def test_what_names_nothing_is_refused_with_a_remedy(self, name: str, why: str) -> None:
        with pytest.raises(UsageError) as refused:
            read_address(name)
        assert why in str(refused.value)
        assert "write core.openfeature.dev/NAMESPACE/NAME" in str(refused.value)

    @pytest.mark.parametrize("name", ["team", "team/shop/a/b", "team/shop/", "team/shop/..%2f", "team/shop?labels=a"])
    def test_what_is_no_config_map_is_refused(self, name: str) -> None:
        with pytest.raises(UsageError, match="write configmap/NAMESPACE/NAME"):
            read_address(name, "configmap")

    @given(st.text(alphabet="ab=!,()in .-_/", max_size=40))
    def test_a_selector_is_judged_quickly_whatever_it_is(self, text: str) -> None:
        try:
            assert read_address(f"team?labels={text}").labels == text
        except UsageError as error:
            assert "malformed" in str(error)

    def test_one_is_selected_by_its_name_so_that_a_role_for_it_is_enough(self) -> None:
        assert ONE.watch() == KubeWatch(FEATURE_FLAG, "team", "shop")
        assert SEVERAL.watch() == KubeWatch(FEATURE_FLAG, "team", labels="app=shop")


class TestDecode:
    def test_the_flags_are_the_very_text_of_the_server(self) -> None:
        text = b'{"$evaluators": {},  "flags":\n{"x": 1.0} , "metadata":{"a":"\\u00e9"}}'
        about = (
            b'{"kind":"FeatureFlag","metadata":{"name":"a","annotations":{"x":"y"}},"spec":{"flagSpec":' + text + b"}}"
        )
        assert decode_flag(Raw(about)) == {"": text}

    @pytest.mark.parametrize("spec", [b"", b',"spec":null', b',"spec":{}'])
    def test_an_object_without_flags_holds_nothing(self, spec: bytes) -> None:
        assert decode_flag(Raw(b'{"metadata":{}' + spec + b"}")) == {"": b""}

    def test_a_config_map_has_text_and_bytes_by_key(self) -> None:
        about = {"data": {"b": "é"}, "binaryData": {"a": b64encode(b"\0\xff").decode()}}
        assert list(decode_config_map(Raw(json.dumps(about).encode())).items()) == [
            ("a", b"\0\xff"),
            ("b", "é".encode()),
        ]
        assert decode_config_map(Raw(b'{"data": null}')) == {}

    def test_bytes_that_are_none_are_the_problem_of_that_object(self) -> None:
        item = {"metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"}, "binaryData": {"a": "%"}}
        page = read_page(json.dumps({"metadata": {}, "items": [item]}).encode(), decode_config_map)
        assert (page.records[0].value, page.records[0].problem) == (None, "binaryData is not base64")


async def told(spec: ObjectsWatch, *items: object) -> list[Any]:
    """Return what a source yields when its watch yields these."""
    watcher = FakeWatcher()
    seen: list[Any] = []
    await watcher.push(spec.address.watch(), *items, StopAsyncIteration)
    async with closing(watch_objects(spec, lambda watch, decode: watcher.watch(watch))) as stream:
        async for item in stream:
            seen.append(item)  # noqa: PERF401 - the stream is closed here
    return seen


def yields(spec: ObjectsWatch, *items: object) -> list[Any]:
    return run(lambda: told(spec, *items))


A, B = flags(x="on"), flags(x="off")


class TestOne:
    def test_every_state_is_told_from_before_it_exists_until_it_is_back(self) -> None:
        seen = yields(
            ObjectsWatch(ONE), {}, UNCHANGED, held(shop=A), UNCHANGED, held(shop=B), {}, UNCHANGED, held(shop=A)
        )
        yet = Unavailable("there is no FeatureFlag team/shop yet; create it, or check the name")
        gone = Unavailable("there is no FeatureFlag team/shop any more; its last flags stay in force until it is back")
        assert seen == [
            yet, yet, Document(A, "json"), UNCHANGED, Document(B, "json"), gone, gone, Document(A, "json")
        ]  # fmt: skip

    def test_one_that_is_back_as_it_was_has_not_changed(self) -> None:
        assert yields(ObjectsWatch(ONE), held(shop=A), {}, held(shop=A))[2:] == [UNCHANGED]

    def test_with_the_policy_remove_one_that_is_gone_counts_as_empty_and_is_told(self) -> None:
        spec = ObjectsWatch(ONE, remove=True)
        missing = Unavailable("there is no FeatureFlag team/shop; with onDelete=remove it has no flags")
        seen = yields(spec, {}, held(shop=A), {}, UNCHANGED, held(shop=A))
        assert seen == [NOTHING, missing, Document(A, "json"), NOTHING, missing, missing, Document(A, "json")]
        assert len(wigwag.load(NOTHING.content)) == 0

    @pytest.mark.parametrize("remove", [True, False])
    def test_a_failure_is_never_an_absence(self, remove: bool) -> None:
        failure = Unavailable("no connection")
        seen = yields(ObjectsWatch(ONE, remove), failure, held(shop=A), failure, UNCHANGED)
        assert seen == [failure, Document(A, "json"), failure, UNCHANGED]

    def test_one_without_flags_or_too_large_is_trouble_and_what_it_said_stays(self) -> None:
        seen = yields(
            ObjectsWatch(ONE, most=len(A)), held(shop=A), held(shop=b""), held(shop=A + b" "), UNCHANGED, held(shop=A)
        )
        large = Unavailable(f"FeatureFlag team/shop: larger than the limit of {len(A)} bytes; raise maxBytes")
        assert seen == [
            Document(A, "json"),
            Unavailable("FeatureFlag team/shop holds no document; write its flags into it"),
            large,
            large,
            UNCHANGED,
        ]


class TestSeveral:
    def load(self, document: Document) -> dict[str, Any]:
        return {key: wigwag.load(document.content).resolve(key).value for key in json.loads(document.content)["flags"]}

    def test_they_are_merged_in_the_order_of_their_names_and_the_last_wins(self) -> None:
        first, second = yields(
            ObjectsWatch(SEVERAL), held(b=flags(x="off", z="on"), a=flags(x="on", y="on")), held(b=flags(z="off"))
        )
        assert self.load(first) == {"y": True, "x": False, "z": True}
        assert self.load(second) == {"z": False}, "one that goes takes its flags with it"

    def test_rules_and_metadata_of_each_are_for_its_own_flags(self) -> None:
        def document(variant: str) -> bytes:
            rule = {"$ref": "shared"}
            return json.dumps(
                {
                    "flags": {variant: {**FLAG, "variants": {"on": 1, "off": 0}, "targeting": rule}},
                    "$evaluators": {"shared": {"if": [True, variant]}},
                    "metadata": {"from": variant},
                }
            ).encode()

        (merged,) = yields(ObjectsWatch(SEVERAL), held(a=document("on"), b=document("off")))
        assert self.load(merged) == {"on": 1, "off": 0}
        found = wigwag.load(merged.content)
        assert [found.resolve(key).metadata["from"] for key in ("on", "off")] == ["on", "off"]

    def test_one_that_cannot_be_read_is_told_stays_as_it_was_and_the_others_load(self) -> None:
        good, bad, trouble, again = yields(
            ObjectsWatch(SEVERAL),
            held(a=flags(x="on"), b=flags(y="on")),
            held(a=b'{"flags": 1}', b=flags(y="off")),
            UNCHANGED,
        )
        assert self.load(good) == {"x": True, "y": True}
        assert self.load(bad) == {"x": True, "y": False}
        assert trouble == again
        assert trouble.reason.startswith("FeatureFlag in team with the labels app=shop: a: ")

    def test_a_name_that_looks_like_a_file_does_not_say_what_its_flags_are_written_in(self) -> None:
        (found,) = yields(
            ObjectsWatch(SEVERAL), {("team", "a.yaml"): {"": b'{"flags": {"x": {"variants": {"\\t": 1}}}}'}}
        )
        assert json.loads(found.content)["flags"]["x"]["variants"] == {"\t": 1}

    def test_none_at_all_is_a_state(self) -> None:
        spec = ObjectsWatch(ObjectsAddress(FEATURE_FLAG, "team"))
        yet, _, gone = yields(spec, {}, held(a=A), {})
        assert "there is no FeatureFlag in team yet" in yet.reason
        assert "any more; its last flags stay" in gone.reason

    def test_they_may_be_larger_together_than_one_object_can_be(self) -> None:
        large = {
            f"f{n}": json.dumps({"flags": {f"f{n}": {**FLAG, "metadata": {"x": "y" * 500_000}}}}).encode()
            for n in range(6)
        }
        (found,) = yields(ObjectsWatch(SEVERAL), held(**large))
        assert len(found.content) > 3_000_000
        assert set(json.loads(found.content)["flags"]) == set(large)

    def test_there_is_a_limit_of_how_many(self) -> None:
        many = {("team", f"f{n}"): {"": A} for n in range(MOST_OBJECTS + 1)}
        (trouble,) = yields(ObjectsWatch(SEVERAL), many)
        assert "there are more than 10000; narrow the selector" in trouble.reason


class TestConfigMap:
    ALL, KEY = ObjectsAddress(CONFIG_MAP, "team", "shop"), ObjectsAddress(CONFIG_MAP, "team", "shop", "a.yaml")

    def test_one_key_is_the_document_in_the_format_of_its_name(self) -> None:
        content = b"flags: {x: {variants: {on: 1}}}"
        seen = yields(
            ObjectsWatch(self.KEY),
            config_map(b=b"1"),
            config_map(a_yaml=content, b=b"1"),
            config_map(a_yaml=content, b=b"2"),
        )
        assert seen == [
            Unavailable("there is no key a.yaml in ConfigMap team/shop yet; create it, or check the name"),
            Document(content, "yaml"),
            UNCHANGED,
        ]

    def test_without_a_key_all_keys_are_merged_in_order(self) -> None:
        content = {
            "a_yaml": b"flags: {x: {variants: {on: 1}}, y: {variants: {on: 1}}}",
            "b_json": b'{"flags": {"x": {"variants": {"on": 2}}}}',
        }
        first, second, yet = yields(
            ObjectsWatch(self.ALL), config_map(**content), config_map(a_yaml=content["a_yaml"]), config_map()
        )
        assert [json.loads(each.content)["flags"]["x"]["variants"]["on"] for each in (first, second)] == [2, 1]
        assert "there is no ConfigMap team/shop any more" in yet.reason

    def test_a_key_that_is_gone_is_removed_if_so_told(self) -> None:
        assert yields(ObjectsWatch(self.KEY, remove=True), config_map(a_yaml=b"flags: {}"), config_map())[1] == NOTHING


@asynccontextmanager
async def running(hub: Hub) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(hub.run())
        try:
            yield
        finally:
            task.cancel()


class TestHub:
    def test_all_who_want_the_same_share_one_watch_and_one_client(self) -> None:
        about = {
            "metadata": {"name": "shop", "namespace": "team", "resourceVersion": "1"},
            "data": {"a": "1", "b": "2"},
        }

        async def main() -> None:
            async with cluster(watch(event("ADDED", about) + bookmark(5, end=True))) as api:
                hub = Hub(connect=api.kube)
                streams = [
                    watch_objects(ObjectsWatch(ObjectsAddress(CONFIG_MAP, "team", "shop", key)), hub.watch)
                    for key in "ab"
                ]
                async with running(hub):
                    assert [await anext(stream) for stream in streams] == [Document(b"1"), Document(b"2")]
                    assert hub.kube is api.clients[0]
                    for stream in streams:
                        await stream.aclose()  # type: ignore[attr-defined]
                    await api.left.wait()
                assert len(api.asked) == len(api.clients) == 1

        run(main)

    def test_who_comes_before_it_runs_waits_and_without_kubernetes_is_told(self) -> None:
        def connect() -> Any:
            raise UsageError("no Kubernetes is configured")

        async def first(hub: Hub) -> Any:
            async with closing(watch_objects(ObjectsWatch(ONE), hub.watch)) as stream:
                with pytest.raises(UsageError, match="no Kubernetes is configured"):
                    await anext(aiter(stream))

        async def main() -> None:
            hub = Hub(connect)
            async with asyncio.TaskGroup() as group:
                task = group.create_task(first(hub))
                await settle()
                assert not task.done()
                async with running(hub):
                    await task

        run(main)


class TestKinds:
    @pytest.mark.parametrize("uri", ["core.openfeature.dev/a/b", "core.openfeature.dev/", "configmap/a/b"])
    def test_without_kubernetes_it_is_refused_at_start(self, uri: str) -> None:
        sources = parse_sources((uri,), "")
        with pytest.raises(UsageError, match=r"source .*: no Kubernetes is configured: set KUBECONFIG"):
            prepare(sources, print, {"HOME": "/nonexistent"})

    def test_what_names_nothing_is_refused_before(self) -> None:
        with pytest.raises(UsageError, match="source team: this names no FeatureFlag"):
            prepare(parse_sources(("core.openfeature.dev/team",), ""), print, {})

    def test_who_is_not_an_agent_has_no_pod_to_ask(self) -> None:
        with pytest.raises(UsageError, match="only the agent of a pod can read"):
            documents(parse_sources(("core.openfeature.dev/",), "")[0])

    def test_they_are_known_to_hold_by_bookmarks(self) -> None:
        assert heartbeat(Source("a/b", "kubernetes")) == 75.0
