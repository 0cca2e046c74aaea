"""What hooks and config files may ask for: the original's watch sets, ours, and everything that is neither."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wigwag.errors import UsageError
from wigwag.pipeline.spec import Wanted
from wigwag.sources.consul.access import ConsulAccess
from wigwag.sources.consul.endpoints import EndpointsWatch
from wigwag.sources.consul.keys import ConsulWatch
from wigwag.watt.watches.specs import ConsulSpec, DirectorySpec, DocumentSpec, KeysSpec, KubernetesSpec, Spec
from wigwag.watt.watches.watchset import (
    GRACE,
    MOST_WATCHES,
    consul_access,
    read_watch_set,
    read_watches,
)

CONSUL = {"consul-address": "consul:8500", "datacenter": "dc1", "service-name": "web"}


def read(environment: dict[str, str] | None = None, **members: Any) -> list[Spec]:
    text = json.dumps({name.replace("_", "-"): value for name, value in members.items()})
    return [want.spec for want in read_watch_set(text.encode(), environment or {})]


def refused(**members: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(**members)
    return str(caught.value).removeprefix("not a watch set: ")


class TestTheOriginals:
    def test_each_field_counts(self) -> None:
        watch = {"kind": "Mapping", "namespace": "shop", "field-selector": "metadata.name=a", "label-selector": "b=c"}
        assert read(kubernetes_watches=[watch]) == [KubernetesSpec("Mapping", "shop", "metadata.name=a", "b=c")]
        (spec,) = read(consul_watches=[{"id": "dc1", **CONSUL}])
        assert isinstance(spec, ConsulSpec)
        assert (spec.id, spec.watch.service, spec.watch.access.datacenter) == ("dc1", "web", "dc1")
        assert (str(spec), spec.watch.passing) == ("consul consul:8500|dc1|web", True)

    @pytest.mark.parametrize("empty", ["{}", '{"kubernetes-watches": null, "consul-watches": null, "watches": null}'])
    def test_missing_lists_and_null_ask_for_nothing(self, empty: str) -> None:
        assert read_watch_set(empty.encode(), {}) == ()

    def test_the_first_snapshot_waits_for_a_while_only(self) -> None:
        (want,) = read_watch_set(b'{"kubernetes-watches": [{"kind": "service"}]}', {})
        assert want == Wanted(KubernetesSpec("service"), required=True, grace=GRACE)

    def test_variables_are_replaced_before_watches_are_compared(self) -> None:
        watches = [{**CONSUL, "consul-address": address} for address in ("$HOST:8500", "${HOST}:$PORT", "consul:8500")]
        assert len(set(read({"HOST": "consul", "PORT": "8500"}, consul_watches=watches))) == 1

    def test_only_the_address_has_variables(self) -> None:
        (spec,) = read({"HOST": "consul"}, consul_watches=[{**CONSUL, "service-name": "$HOST", "datacenter": "$HOST"}])
        assert str(spec) == "consul consul:8500|$HOST|$HOST"

    def test_the_id_is_not_part_of_the_identity(self) -> None:
        one, other = read(consul_watches=[{"id": "a", **CONSUL}, {"id": "b", **CONSUL}])
        assert (one == other, hash(one) == hash(other), isinstance(one, ConsulSpec) and one.id) == (True, True, "a")

    @pytest.mark.parametrize("field", ["datacenter", "service-name", "consul-address"])
    def test_everything_else_is(self, field: str) -> None:
        one, other = read(consul_watches=[CONSUL, {**CONSUL, field: "other"}])
        assert one != other
        assert str(one) != str(other)

    @pytest.mark.parametrize(
        ("members", "message"),
        [
            ({"kubernetes-watches": [{"kind": "a"}, {"knd": "a"}]}, "$.kubernetes-watches[1]: unknown field `knd`;"),
            ({"consul-watches": [{"service": "web"}]}, "$.consul-watches[0]: unknown field `service`; did you mean"),
            ({"kubernetes-watch": []}, "unknown field `kubernetes-watch`; did you mean `kubernetes-watches`?"),
            ({"kubernetes-watches": {}}, "$.kubernetes-watches: Expected `array | null`, got `object`"),
            ({"kubernetes-watches": [{"kind": 1}]}, "$.kubernetes-watches[0].kind: Expected `str`, got `int`"),
            ({"kubernetes-watches": [{}]}, "$.kubernetes-watches[0]: '' is not the name of a kind"),
            ({"kubernetes-watches": [{"kind": "a", "namespace": "../b"}]}, "$.kubernetes-watches[0]: '../b' is not"),
            ({"kubernetes-watches": [{"kind": "a", "label-selector": "\n"}]}, "$.kubernetes-watches[0]: any: a sel"),
            ({"consul-watches": [CONSUL, {}]}, "$.consul-watches[1]: '' is not the name of a service"),
            ({"consul-watches": [{**CONSUL, "consul-address": "ftp://a"}]}, "$.consul-watches[0]: the address"),
            ({"kubernetes-watches": [{"kind": "a" * 5000}]}, "$.kubernetes-watches[0].kind: Expected `str` of length"),
        ],
    )  # fmt: skip
    def test_an_error_names_the_place(self, members: dict[str, Any], message: str) -> None:
        assert refused(**members).startswith(message)

    @pytest.mark.parametrize(
        "text", [b"", b"{", b"null", b"[]", b'{"a\xff": 1}', b'{"watches":' * 2000, b"[" * 100_000]
    )
    def test_what_is_no_watch_set_is_refused(self, text: bytes) -> None:
        with pytest.raises(UsageError, match="not a watch set"):
            read_watch_set(text, {})


class TestOurs:
    def test_kubernetes_with_every_field(self) -> None:
        watch = {
            "source": "kubernetes", "kind": "cm", "namespaces": ["a", "b"], "labels": "x=y",
            "fields": "metadata.name=n", "metadata-only": True,
            "ignore": ["status", "metadata.labels"], "required": False, "grace": "5s",
        }  # fmt: skip
        wanted = read_watch_set(json.dumps({"watches": [watch]}).encode(), {})
        ignore = ("status", "metadata.labels")
        assert [want.spec for want in wanted] == [
            KubernetesSpec("cm", namespace, "metadata.name=n", "x=y", True, ignore) for namespace in ("a", "b")
        ]
        assert {(want.required, want.grace) for want in wanted} == {(False, 5.0)}
        assert str(wanted[0].spec) == "kubernetes cm|a|metadata.name=n|x=y|metadata|ignore=status,metadata.labels"

    def test_consul_with_every_field(self) -> None:
        access = {
            "address": "https://$HOST", "datacenter": "d", "namespace": "n", "partition": "p", "token-file": "/t",
            "ca-file": "/ca", "client-cert": "/cert", "client-key": "/key", "consistency": "stale",
        }  # fmt: skip
        service = {"service": "web", "tag": "v1", "filter": 'Node == "a"', "passing": False, "id": "i"}
        found = read(
            {"HOST": "consul"},
            watches=[{"source": "consul", **access, **service}, {"source": "consul-kv", **access, "key": "a/"}],
        )
        expected = ConsulAccess(
            "consul:8501", True, "d", "n", "p", "", "/t", "", "/ca", "/cert", "/key", consistency="stale"
        )
        watch = EndpointsWatch(expected, "web", "v1", 'Node == "a"', passing=False)
        assert found == [ConsulSpec(watch, "i"), KeysSpec(ConsulWatch(expected, "a/"))]
        assert str(found[0]) == 'consul consul:8501|d|web|ns=n|partition=p|tag=v1|filter=Node == "a"|all'
        assert str(found[1]) == "consul-kv consul:8501|d|ns=n|partition=p|a/"

    def test_directories_and_uris(self) -> None:
        found = read(watches=[{"source": "directory", "path": "/etc/a"}, {"source": "uri", "uri": "file:/etc/b.json"}])
        assert list(map(str, found)) == ["directory /etc/a", "uri /etc/b.json"]
        assert [type(each) for each in found] == [DirectorySpec, DocumentSpec]

    def test_a_password_in_a_uri_is_not_in_its_name(self) -> None:
        (spec,) = read(watches=[{"source": "uri", "uri": "https://me:hush@example.com/a.json?sig=hush"}])
        assert "hush" not in str(spec) + repr(spec)

    @pytest.mark.parametrize(
        ("watch", "message"),
        [
            ({"source": "kubernets", "kind": "a"}, "$.watches[0].source: Invalid value 'kubernets'"),
            ({"kind": "a"}, "$.watches[0]: Object missing required field `source`"),
            ({"source": "directory"}, "$.watches[0]: Object missing required field `path`"),
            ({"source": "directory", "path": ""}, "$.watches[0]: '' is not the path of a directory"),
            ({"source": "directory", "path": "a\0b"}, r"$.watches[0]: 'a\x00b' is not the path of a directory"),
            ({"source": "kubernetes", "kind": "a", "label": "x"}, "$.watches[0]: unknown field `label`; did you mean"),
            ({"source": "kubernetes", "kind": "a", "grace": "soon"}, "$.watches[0]: grace: "),
            ({"source": "kubernetes", "kind": "a", "grace": -1}, "$.watches[0]: grace: "),
            ({"source": "kubernetes", "kind": "a", "ignore": [""]}, "$.watches[0]: '' is not a field to ignore"),
            ({"source": "consul-kv", "key": "a//b"}, "$.watches[0]: 'a//b' is not a key"),
            ({"source": "consul", "service": "a", "consistency": "x"}, "$.watches[0]: 'x' is not a consistency mode"),
            ({"source": "uri", "uri": "what:ever"}, "$.watches[0]: cannot tell what 'what:ever' is; write "),
        ],
    )  # fmt: skip
    def test_an_error_names_the_place(self, watch: dict[str, Any], message: str) -> None:
        assert refused(watches=[watch]).startswith(message)

    def test_a_config_file_waits_without_end_unless_it_says_otherwise(self) -> None:
        watches = [{"source": "directory", "path": "/a"}, {"source": "directory", "path": "/b", "grace": 0.5}]
        assert [want.grace for want in read_watches(watches, {}, "watches")] == [None, 0.5]
        assert read_watches(json.dumps(watches), {}, "watches") == read_watches(watches, {}, "watches")
        assert read_watches((), {}, "watches") == read_watches("", {}, "watches") == ()

    @pytest.mark.parametrize(
        "value", ["{", '{"a": 1}', "[" * 100_000, 5, [5], "\ud800", [{"source": "uri", "uri": ""}]]
    )
    def test_an_error_names_the_option(self, value: Any) -> None:
        with pytest.raises(UsageError, match=r"^--watches: "):
            read_watches(value, {}, "--watches")


class TestLimits:
    def test_so_many_watches_and_no_more(self) -> None:
        watches = [{"kind": f"kind{number}"} for number in range(MOST_WATCHES + 1)]
        assert len(read(kubernetes_watches=watches[1:])) == MOST_WATCHES
        assert "more than 10000 watches" in refused(kubernetes_watches=watches)
        assert "more than 10000 watches" in refused(kubernetes_watches=watches[1:], consul_watches=[CONSUL])

    def test_namespaces_count(self) -> None:
        watch = {"source": "kubernetes", "kind": "a", "namespaces": ["a"] * (MOST_WATCHES // 2 + 1)}
        assert "more than 10000 watches" in refused(watches=[watch, watch])


class TestAddresses:
    @pytest.mark.parametrize("address", [
        "evil:8500/?token-file=/etc/passwd&dc=x", "evil?client-key=/etc/passwd", "evil#", "/run/consul.sock",
        "unix:///run/consul.sock", "evil\\@consul", "consul:8500\n", "http://a://b", "redis://:hush@db", "a/b", "%65",
    ])  # fmt: skip
    def test_an_address_is_a_host_and_a_port_and_nothing_else(self, address: str) -> None:
        with pytest.raises(UsageError) as caught:
            consul_access(address, {})
        assert address not in str(caught.value), "variables are replaced in it, so it may hold secrets"

    @pytest.mark.parametrize(
        ("address", "expected", "tls"),
        [
            ("consul", "consul:8500", False),
            ("http://consul:80/", "consul:80", False),
            ("https://consul", "consul:8501", True),
            ("[::1]:8500", "[::1]:8500", False),
            ("", "own:8500", False),
        ],
    )
    def test_usual_forms(self, address: str, expected: str, tls: bool) -> None:
        access = consul_access(address, {"CONSUL_HTTP_ADDR": "own"})
        assert (access.address, access.tls) == (expected, tls)


FIELDS = st.sampled_from(
    ["source", "kind", "namespace", "namespaces", "address", "service", "service-name", "consul-address", "path", "uri",
     "key", "grace", "kubernetes-watches", "consul-watches", "watches", "ignore"]
)  # fmt: skip
TEXTS = (
    st.sampled_from(["kubernetes", "consul", "consul-kv", "directory", "uri", "$A", "http://[", "file:", "a"])
    | st.text()
)
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner),
)


@given(st.dictionaries(FIELDS, VALUES, max_size=3))
def test_whatever_a_hook_says_is_a_watch_set_or_a_usage_error(value: Any) -> None:
    try:
        wanted = read_watch_set(json.dumps(value).encode(), {"A": "\0?"})
    except UsageError as error:
        assert str(error).startswith("not a watch set: ")
    else:
        assert all(isinstance(str(want.spec), str) and hash(want.spec) is not None for want in wanted)


@given(st.binary(max_size=100))
def test_so_are_bytes(text: bytes) -> None:
    with suppress(UsageError):
        assert read_watch_set(text, {}) == ()
