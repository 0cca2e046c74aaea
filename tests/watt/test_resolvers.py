"""ConsulResolvers: which watches follow from objects, what that costs, and what an object cannot do."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.watt.snapshots import compact, services, snapshot
from wigwag.sources.consul.access import ConsulAccess
from wigwag.watt.snapshots.snapshot import TableName, WatchPart, WattSnapshot, entry
from wigwag.watt.watches.resolvers import ANNOTATION, MOST_SERVICES, Resolvers
from wigwag.watt.watches.specs import ConsulSpec
from wigwag.watt.watches.watchset import GRACE, MOST_WATCHES

OWN = {"CONSUL_HTTP_ADDR": "consul:8500", "CONSUL_HTTP_TOKEN": "hush"}


def config_map(name: str = "a", namespace: str = "shop", annotation: str = ANNOTATION, **data: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "annotations": {annotation: "true"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def resolver(
    name: str = "dc1", namespace: str = "shop", api: str = "wigwag.dev/v1alpha1", **spec: Any
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api, "kind": "ConsulResolver", "metadata": metadata, "spec": {"address": "consul"} | spec}


def mapping(name: str = "m", namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "getambassador.io/v2", "kind": "Mapping", "metadata": metadata, "spec": spec}


def objects(*values: Any) -> WattSnapshot:
    """A snapshot with a table for each kind of the objects."""
    tables: dict[TableName, dict[tuple[str, str], Any]] = {}
    for value in values:
        key = value["metadata"]["namespace"], value["metadata"]["name"]
        table = TableName("Kubernetes", value["kind"].lower() + "s")
        tables.setdefault(table, {})[key] = entry((table, key), compact(value))
    return snapshot(*(WatchPart.of(table, entries) for table, entries in tables.items()))


def watched(resolvers: Resolvers, *values: Any) -> list[str]:
    return [str(want.spec).removeprefix("consul ") for want in resolvers(objects(*values))]


def access(address: str, **environment: str) -> ConsulAccess:
    """How an object's Consul is reached."""
    resolvers = Resolvers(OWN | environment)
    (want,) = resolvers(objects(resolver(address=address, services=[{"name": "web"}])))
    assert isinstance(want.spec, ConsulSpec)
    return want.spec.watch.access


@pytest.fixture
def resolvers() -> Resolvers:
    return Resolvers(OWN)


class TestConfigMaps:
    def test_one_service_or_several(self, resolvers: Resolvers) -> None:
        given = config_map(consulAddress="10.0.0.1", datacenter="dc1", service="a", services="b, c\n b a")
        assert watched(resolvers, given) == ["10.0.0.1:8500|dc1|a", "10.0.0.1:8500|dc1|b", "10.0.0.1:8500|dc1|c"]

    def test_each_is_waited_for_a_while_and_has_its_datacenter_as_id(self, resolvers: Resolvers) -> None:
        (want,) = resolvers(objects(config_map(datacenter="dc1", service="a")))
        assert (want.required, want.grace) == (True, GRACE)
        assert isinstance(want.spec, ConsulSpec)
        assert want.spec.id == "dc1"

    def test_without_the_annotation_it_is_not_ours(self, resolvers: Resolvers) -> None:
        assert watched(resolvers, config_map(annotation="other", service="a", note=ANNOTATION)) == []
        assert resolvers.problems == {}

    def test_without_services_nothing_is_watched(self, resolvers: Resolvers) -> None:
        assert watched(resolvers, config_map(consulAddress="consul")) == []


class TestResolverObjects:
    def test_ours_names_services_with_tags_and_filters(self, resolvers: Resolvers) -> None:
        given = resolver(datacenter="d", services=[{"name": "a", "tag": "v1"}, {"name": "b", "filter": "Node == x"}])
        assert watched(resolvers, given) == ["consul:8500|d|a|tag=v1", "consul:8500|d|b|filter=Node == x"]

    def test_namespace_and_partition_are_those_of_consul(self, resolvers: Resolvers) -> None:
        given = resolver(services=[{"name": "a"}])
        given["spec"] |= {"namespace": "n", "partition": "p"}
        assert watched(resolvers, given) == ["consul:8500|*|a|ns=n|partition=p"]

    def test_that_of_ambassador_names_none_and_nothing_is_watched(self, resolvers: Resolvers) -> None:
        assert watched(resolvers, resolver(api="getambassador.io/v3alpha1", ambassador_id=["x"])) == []

    def test_other_groups_are_not_ours(self, resolvers: Resolvers) -> None:
        assert watched(resolvers, resolver(api="example.com/v1", services=[{"name": "a"}])) == []

    @pytest.mark.parametrize("service", ["web", "web:80", "https://web", "http://web:8080/", "tcp://web:1"])
    def test_a_reference_names_a_resolver_and_a_service(self, resolvers: Resolvers, service: str) -> None:
        given = resolver(api="getambassador.io/v2", datacenter="d"), mapping(resolver="dc1", service=service)
        assert watched(resolvers, *given) == ["consul:8500|d|web"]

    @pytest.mark.parametrize("service", ["", "..", ".", "a/b", "a b", "http://", "https://a/b?c", "a:b"])
    def test_a_service_that_cannot_be_one_is_none_and_takes_nobody_down(
        self, resolvers: Resolvers, service: str
    ) -> None:
        given = resolver(services=[{"name": "ok"}]), mapping(resolver="dc1", service=service)
        assert watched(resolvers, *given) == ["consul:8500|*|ok"]
        assert resolvers.problems == {}, "it may well mean something else"

    def test_a_reference_to_nobody_waits_until_there_is_one(self, resolvers: Resolvers) -> None:
        given = mapping(resolver="dc1", service="web")
        assert watched(resolvers, given) == []
        assert watched(resolvers, given, resolver(name="other")) == []
        assert watched(resolvers, given, resolver()) == ["consul:8500|*|web"]
        assert watched(resolvers, given) == []

    def test_the_resolver_of_the_same_namespace_comes_first_and_then_the_first_by_name(
        self, resolvers: Resolvers
    ) -> None:
        both = resolver(namespace="b", address="b"), resolver(namespace="a", address="a")
        assert watched(resolvers, *both, mapping(namespace="b", resolver="dc1", service="web")) == ["b:8500|*|web"]
        assert watched(resolvers, *both, mapping(namespace="c", resolver="dc1", service="web")) == ["a:8500|*|web"]

    def test_two_that_mean_the_same_are_one_watch(self, resolvers: Resolvers) -> None:
        given = config_map(consulAddress="http://consul:8500", service="web"), resolver(services=[{"name": "web"}])
        assert watched(resolvers, *given, mapping(resolver="dc1", service="web")) == ["consul:8500|*|web"]

    def test_nobody_refers_to_a_config_map(self, resolvers: Resolvers) -> None:
        assert watched(resolvers, config_map(name="dc1"), mapping(resolver="dc1", service="web")) == []


class TestChanges:
    def test_what_goes_is_no_longer_watched(self, resolvers: Resolvers) -> None:
        one, other = config_map("a", service="a"), config_map("b", service="b")
        assert len(watched(resolvers, one, other)) == 2
        assert watched(resolvers, other) == ["consul:8500|*|b"]
        assert watched(resolvers, config_map("b", service="c")) == ["consul:8500|*|c"]
        assert watched(resolvers) == []

    def test_the_same_tuple_as_long_as_nothing_changes(self, resolvers: Resolvers) -> None:
        given = config_map(service="a")
        first = resolvers(objects(given))
        assert resolvers(objects(given)) is first
        assert resolvers(objects(given, mapping(prefix="/"))) is first
        labelled = given | {"metadata": given["metadata"] | {"labels": {"x": "y"}}}
        assert resolvers(objects(labelled)) is first, "a change that means nothing here"

    def test_only_what_has_changed_is_read(self) -> None:
        class Counted(Resolvers):
            read = 0

            def _understood(self, body: bytes, title: str) -> Any:
                self.read += 1
                return super()._understood(body, title)

        counted = Counted(OWN)
        many = [config_map(f"map{number}", service=f"s{number}") for number in range(50)]
        counted(objects(*many))
        counted(objects(*many, mapping()))
        counted(objects(*many[:-1], config_map("map49", service="other")))
        assert counted.read == 50 + 1 + 1

    def test_other_sections_do_not_matter(self, resolvers: Resolvers) -> None:
        table = TableName("Files", "/etc")
        file = WatchPart.of(table, {("", "a"): entry("a", compact(config_map(service="a")))})
        assert resolvers(snapshot(file, services(("shop", "web")))) == ()


class TestProblems:
    BAD: tuple[tuple[dict[str, Any], str], ...] = (
        (config_map(consulAddress="ftp://x", service="a"), "the address of Consul is malformed"),
        (config_map(service="a/b"), "'a/b' is not the name of a service"),
        (config_map(services=[1]), "Expected `str`, got `array`"),
        (resolver(services="web"), "Expected `array`, got `str`"),
        (resolver(services=[{"tag": "x"}]), "missing required field `name`"),
        (resolver(services=[{"name": "a", "filter": "\n"}]), "the filter of a must be printable"),
        (resolver(address=5), "$.spec.address: Expected `str`, got `int`"),
        (resolver(address="a" * 513), "$.spec.address: Expected `str` of length <= 512"),
        (config_map(consulAddress="a" * 513), "$.address: Expected `str` of length <= 512"),
        (config_map(service="a" * 100_000), "$.services[0].name: Expected `str` of length <= 253"),
        (resolver(services=[{"name": str(number)} for number in range(MOST_SERVICES + 1)]), "it names 1001 services"),
    )

    @pytest.mark.parametrize(("bad", "problem"), BAD)
    def test_a_malformed_object_is_reported_and_the_others_count(
        self, resolvers: Resolvers, bad: dict[str, Any], problem: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        good = config_map("good", service="web")
        with caplog.at_level(logging.WARNING):
            assert watched(resolvers, bad, good) == ["consul:8500|*|web"]
        ((title, reason),) = resolvers.problems.items()
        assert title.endswith(f" shop/{bad['metadata']['name']}")
        assert problem in reason
        assert [title in record.getMessage() for record in caplog.records] == [True]
        assert watched(resolvers, good) == ["consul:8500|*|web"]
        assert resolvers.problems == {}, "it is gone"

    @pytest.mark.parametrize("after", [(), (services,)], ids=["its kind is not watched any more", "others are"])
    def test_a_problem_goes_with_its_table(
        self, resolvers: Resolvers, after: tuple[Callable[[], WatchPart], ...]
    ) -> None:
        watched(resolvers, config_map(service="a/b"))
        assert resolvers.problems
        resolvers(snapshot(*(make() for make in after)))
        assert resolvers.problems == {}

    def test_an_object_that_was_good_is_not_watched_any_more(self, resolvers: Resolvers) -> None:
        assert watched(resolvers, config_map(service="web"))
        assert watched(resolvers, config_map(service="a/b")) == []
        assert watched(resolvers, config_map(service="web"))

    def test_an_unrelated_object_with_such_words_is_no_problem(self, resolvers: Resolvers) -> None:
        issuer = mapping(resolver={"name": 5}, service=7)
        assert watched(resolvers, issuer, mapping("n", note="spec.resolver")) == []
        assert resolvers.problems == {}

    def test_all_of_them_together_are_limited(self, resolvers: Resolvers) -> None:
        many = [
            config_map(f"map{number:02}", services=" ".join(f"s{number}-{each}" for each in range(MOST_SERVICES)))
            for number in range(MOST_WATCHES // MOST_SERVICES + 1)
        ]
        assert len(watched(resolvers, *many)) == MOST_WATCHES
        assert resolvers.problems == {"all resolvers": "11000 services are more than the limit of 10000"}
        assert len(watched(resolvers, *many[1:])) == MOST_WATCHES
        assert resolvers.problems == {}


class TestSecurity:
    """Whoever may write an object chooses an address, and gets neither our token nor anything else of ours."""

    @pytest.mark.parametrize(
        "address", ["", "consul", "consul:8500", "http://consul:8500/", "consul:", "$CONSUL_HTTP_ADDR"]
    )
    def test_our_own_consul_gets_the_token(self, address: str) -> None:
        assert (access(address).address, access(address).token) == ("consul:8500", "hush")

    @pytest.mark.parametrize(
        "address",
        ["evil", "CONSUL:8500", "consul.:8500", "consul:8501", "consul:08500", "https://consul:8500",
         "consul.evil:8500",
         "consul:8500@evil", "hush@evil:8500", "127.0.0.1:8500", "[::1]:8500"],
    )  # fmt: skip
    def test_nobody_else_does(self, address: str) -> None:
        secrets = {"CONSUL_HTTP_TOKEN_FILE": "/hush", "CONSUL_HTTP_AUTH": "hush:hush", "CONSUL_CLIENT_CERT": "/hush",
                   "CONSUL_CLIENT_KEY": "/hush"}  # fmt: skip
        found = access(address, **secrets)
        assert (found.token, found.token_file, found.cert_path, found.key_path) == ("", "", "", "")
        assert "aHVzaDpodXNo" not in found.auth_header

    def test_not_without_tls_if_ours_has_it(self) -> None:
        https = {"CONSUL_HTTP_ADDR": "https://consul:8501"}
        assert access("", **https).token == "hush"
        assert access("https://consul", **https).token == "hush"
        assert access("http://consul:8501", **https).token == ""
        assert access("consul:8501", **https).token == ""

    def test_without_an_address_in_the_environment_ours_is_the_local_agent(self) -> None:
        environment = {"CONSUL_HTTP_TOKEN": "hush"}
        for address, token in (("127.0.0.1:8500", "hush"), ("127.0.0.1", "hush"), ("localhost:8500", ""), ("", "hush")):
            resolvers = Resolvers(environment)
            (want,) = resolvers(objects(resolver(address=address, services=[{"name": "web"}])))
            assert isinstance(want.spec, ConsulSpec)
            assert want.spec.watch.access.token == token, address

    @pytest.mark.parametrize(
        "address",
        ["evil/?token-file=/etc/passwd&dc=x", "evil?token-file=/etc/passwd&dc=", "evil:80/?client-key=/etc/passwd",
         "unix:///run/consul.sock", "/run/consul.sock", "evil#@consul", "evil\\@consul:8500", "consul/../x"],
    )  # fmt: skip
    def test_an_address_has_no_options_and_is_no_path(self, resolvers: Resolvers, address: str) -> None:
        assert watched(resolvers, resolver(address=address, services=[{"name": "web"}])) == []
        assert list(resolvers.problems) == ["consulresolvers shop/dc1"]

    def test_an_address_may_name_variables_that_hold_addresses(self) -> None:
        environment = {"HOST_IP": "10.0.0.1", "CONSUL_PORT": "80"}
        assert access("$HOST_IP:${CONSUL_PORT}", **environment).address == "10.0.0.1:80"

    @pytest.mark.parametrize(
        "name", ["CONSUL_HTTP_TOKEN", "PASSWORD", "AWS_SECRET_ACCESS_KEY", "HOST_IP_TOKEN", "HOME"]
    )
    def test_and_no_others(self, name: str) -> None:
        found = access(f"a-${name}-b.example", **{name: "hush"})
        assert "hush" not in found.address

    def test_no_value_of_the_environment_is_in_a_problem(self, resolvers: Resolvers) -> None:
        own = Resolvers(OWN | {"REDIS_ADDR": "redis://:hush@db"})
        assert watched(own, config_map(consulAddress="$REDIS_ADDR", service="web")) == []
        assert "hush" not in json.dumps(own.problems)
        assert len(own.problems) == 1

    def test_no_secret_is_shown(self, resolvers: Resolvers) -> None:
        wanted = resolvers(objects(resolver(services=[{"name": "web"}]), resolver("b", address="a:hush@b")))
        assert "hush" not in repr(wanted) + "".join(str(want.spec) for want in wanted)


NAMES = st.sampled_from(
    ["metadata", "annotations", ANNOTATION, "spec", "data", "services", "service", "resolver", "name", "address", "tag",
     "consulAddress", "datacenter", "filter", "namespace", "apiVersion", "kind"]
)  # fmt: skip
TEXTS = (
    st.sampled_from(["ConfigMap", "ConsulResolver", "wigwag.dev/v1", "dc1", "..", "a b", "$A_IP", "http://["])
    | st.text()
)
PLAIN = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4))


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.sampled_from([config_map, resolver, mapping]))
def test_whatever_an_object_says_it_takes_nobody_down(members: dict[str, Any], make: Callable[..., Any]) -> None:
    own, table = Resolvers(OWN | {"A_IP": "?"}), TableName("Kubernetes", "anythings")
    anything = entry("x", compact(make("other", services=[]) | members | {"note": ANNOTATION}))
    others = objects(resolver(services=[{"name": "ok"}]), mapping(resolver="dc1", service="also-ok"))
    part = WatchPart.of(table, {("x", "x"): anything})
    found = own(snapshot(part, *others.tables.values()))
    assert {"consul consul:8500|*|ok", "consul consul:8500|*|also-ok"} <= {str(want.spec) for want in found}
