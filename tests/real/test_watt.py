"""watt against a real API server and a real Consul: the story of its design document, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.access import Access
from tests.real.cluster import Namespace
from tests.real.consul import Consul
from tests.real.processes import until
from tests.real.rest import RestError
from tests.watt.process import Notified, WattProcess

Kubeconfig = Callable[[Access], Path]
ANNOTATED = {"getambassador.io/consul-resolver": "true"}


def register(consul: Consul, service: str, *addresses: str) -> None:
    for address in addresses:
        consul.rest.call(
            "PUT",
            "/v1/agent/service/register",
            {"ID": f"{service}-{address}", "Name": service, "Address": address, "Port": 80, "Tags": ["v1"]},
        )


def deregister(consul: Consul, service: str, address: str) -> None:
    consul.rest.call("PUT", f"/v1/agent/service/deregister/{service}-{address}")


def config_map(name: str, consul: Consul, *services: str) -> dict[str, Any]:
    data = {
        "consulAddress": consul.address.removeprefix("http://"),
        "datacenter": "dc1",
        "services": " ".join(services),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "annotations": ANNOTATED}, "data": data}


def resolver(name: str, consul: Consul, *services: str) -> dict[str, Any]:
    spec = {
        "address": consul.address.removeprefix("http://"),
        "datacenter": "dc1",
        "services": [{"name": service} for service in services],
    }
    return {"apiVersion": "wigwag.dev/v1alpha1", "kind": "ConsulResolver", "metadata": {"name": name}, "spec": spec}


def addresses(snapshot: Any) -> dict[str, list[str]]:
    """Return the addresses of each service."""
    known = snapshot["Consul"]["Endpoints"]
    return {name: [one["Address"] for one in service["Endpoints"]] for name, service in known.items()}


@pytest.fixture
def services(consul: Consul, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Three services of our own: two with an instance, and one that nobody has registered."""
    names = f"{prefix}-web", f"{prefix}-api", f"{prefix}-none"
    register(consul, names[0], "10.0.0.1")
    register(consul, names[1], "10.0.0.2")
    yield names
    for name in names:
        for one in consul.rest.call("GET", f"/v1/health/service/{name}").json:
            consul.rest.call("PUT", f"/v1/agent/service/deregister/{one['Service']['ID']}")


@pytest.mark.parametrize(
    ("kind", "manifest"),
    [("configmap", config_map), ("consulresolvers.wigwag.dev", resolver)],
    ids=["ConfigMap", "CRD"],
)
def test_the_story(
    kind: str,
    manifest: Callable[..., dict[str, Any]],
    namespace: Namespace,
    consul: Consul,
    services: tuple[str, str, str],
    kubeconfig: Kubeconfig,
    tmp_path: Path,
) -> None:
    web, api, none = services
    kubeconfig(namespace.cluster.access)
    hook = Notified(tmp_path)
    made = namespace.apply(manifest("services", consul, web, api, none))
    path = namespace.path(made["apiVersion"], made["kind"], "services")
    with WattProcess("-s", kind, "-s", "services", "-n", namespace.name, "--notify", hook.command) as watt:
        first = watt.until(bool, "the first snapshot")
        assert addresses(first) == {web: ["10.0.0.1"], api: ["10.0.0.2"], none: []}, "the gate waits for all three"
        assert set(first["Kubernetes"]) == {kind, "services"}
        until(hook.ids, "the first notification")
        assert (hook.ids(), watt.snapshot(1)) == ([1], first)
        assert watt.snapshot(1, "?format=v2")["complete"]

        register(consul, web, "10.0.0.9")
        changed = watt.until(lambda latest: len(addresses(latest)[web]) == 2, "the new endpoint")
        until(lambda: len(hook.ids()) == 2, "one more notification")
        assert sorted(addresses(changed)[web]) == ["10.0.0.1", "10.0.0.9"]

        namespace.apply(manifest("services", consul, api, none))
        watt.until(lambda latest: set(addresses(latest)) == {api, none}, "the data of the dropped service to go")
        assert not [each for each in watt.watches() if web in each]

        deregister(consul, web, "10.0.0.9")
        namespace.apply(manifest("services", consul, web, api, none))
        back = watt.until(lambda latest: web in addresses(latest), "the service to come back")
        assert addresses(back)[web] == ["10.0.0.1"], "never with the endpoints from before"
        seen = [addresses(watt.snapshot(number)).get(web) for number in hook.ids()]
        assert ["10.0.0.9"] not in seen

        namespace.cluster.delete(path)
        watt.until(lambda latest: not addresses(latest), "all services to go")
        assert watt.stop() == 0
    urls = hook.urls()
    assert urls[0].startswith("http://127.0.0.1:")
    assert urls[0].endswith("/snapshots/1")
    ids = hook.ids()
    assert ids == sorted(set(ids)), "one after the other, none twice"


def test_only_services_that_somebody_refers_to_are_watched(
    namespace: Namespace, consul: Consul, services: tuple[str, str, str], kubeconfig: Kubeconfig
) -> None:
    web, api, _ = services
    kubeconfig(namespace.cluster.access)
    namespace.apply(resolver("dc1", consul))
    kinds = ["-s", "consulresolvers.wigwag.dev", "-s", "consulresolvers.wigwag.dev", "-s", "cm"]
    with WattProcess(*kinds, "-n", namespace.name) as watt:
        watt.until(bool, "the first snapshot")
        assert not [each for each in watt.watches() if each.startswith("consul")]
        namespace.apply(resolver("dc1", consul, api))
        watt.until(lambda latest: addresses(latest) == {api: ["10.0.0.2"]}, "one service")
        assert len([each for each in watt.watches() if each.startswith("consul")]) == 1
        assert web not in json.dumps(watt.debug())


class TestTheSchema:
    """What the API server says to a ConsulResolver, before watt sees it."""

    def test_an_object_with_every_field_is_accepted(self, namespace: Namespace) -> None:
        service = {"name": "web", "tag": "v1", "filter": 'Service.Meta.version == "2"'}
        spec = {
            "address": "https://${CONSUL_HOST}:8501", "datacenter": "dc1", "namespace": "n", "partition": "p",
            "services": [service],
        }  # fmt: skip
        for name, each in {"all": spec, "none": {"address": ""}}.items():
            head = {"apiVersion": "wigwag.dev/v1alpha1", "kind": "ConsulResolver", "metadata": {"name": name}}
            assert namespace.apply({**head, "spec": each})["spec"] == each

    @pytest.mark.parametrize(
        "spec",
        [
            None,
            {"address": 5},
            {"address": "a" * 513},
            {"address": "evil/?token-file=/etc/passwd"},
            {"address": "/run/consul.sock"},
            {"address": "unix:///run/consul.sock"},
            {"address": "a b"},
            {"datacenter": "d" * 129},
            {"services": "web"},
            {"services": ["web"]},
            {"services": [{}]},
            {"services": [{"name": ""}]},
            {"services": [{"name": "a/b"}]},
            {"services": [{"name": "a", "tag": 5}]},
            {"services": [{"name": f"s{number}"} for number in range(1001)]},
            {"sevices": []},
        ],
        ids=lambda spec: str(spec)[:40],
    )
    def test_what_watt_could_not_use_is_refused(self, namespace: Namespace, spec: dict[str, Any] | None) -> None:
        manifest: dict[str, Any] = {
            "apiVersion": "wigwag.dev/v1alpha1", "kind": "ConsulResolver", "metadata": {"name": "bad"}
        }  # fmt: skip
        with pytest.raises(RestError, match=r": (400|422|500) "):
            namespace.apply(manifest if spec is None else {**manifest, "spec": spec})
        assert not namespace.cluster.exists(namespace.path("wigwag.dev/v1alpha1", "ConsulResolver", "bad"))


def test_metadata_alone_and_secrets_without_values(namespace: Namespace, kubeconfig: Kubeconfig) -> None:
    kubeconfig(namespace.cluster.access)

    def apply(name: str, label: str) -> None:
        metadata = {"name": name, "labels": {"step": label}}
        namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "hidden"}})

    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    namespace.apply({**secret, "stringData": {"password": "hush"}})
    apply("first", "1")
    watches = [
        {"source": "kubernetes", "kind": "cm", "namespace": namespace.name, "metadata-only": True},
        {"source": "kubernetes", "kind": "secrets", "namespace": namespace.name},
    ]
    with WattProcess("--watches", json.dumps(watches)) as watt:
        first = watt.until(bool, "the first snapshot")
        apply("second", "1")
        watt.until(lambda latest: len(latest["Kubernetes"]["cm"]) == len(first["Kubernetes"]["cm"]) + 1, "an event")
        maps = watt.snapshot()["Kubernetes"]["cm"]
        assert {(each["apiVersion"], each["kind"], "data" in each) for each in maps} == {("v1", "ConfigMap", False)}
        number = int(watt.snapshot("latest", "?format=v2")["id"])
        namespace.apply({**secret, "stringData": {"password": "hush, too"}})
        until(lambda: watt.snapshot("latest", "?format=v2")["id"] > number, "a snapshot because of the secret")
        (found,) = watt.snapshot()["Kubernetes"]["secrets"]
        assert found["data"] == {"password": ""}


def test_keys_of_consul(consul: Consul, prefix: str) -> None:
    def put(name: str, value: str) -> None:
        consul.rest.call("PUT", f"/v1/kv/{prefix}/{name}", value)

    address = consul.address.removeprefix("http://")
    watches = [{"source": "consul-kv", "address": address, "key": f"{prefix}/"}]
    with WattProcess("--watches", json.dumps(watches)) as watt:
        first = watt.until(bool, "the first snapshot")
        assert first["Consul"]["KV"] == {}, "no key is an answer"
        put("a", "1")
        watt.until(lambda latest: latest["Consul"]["KV"] == {f"{prefix}/a": '"1"'}, "a key")
        consul.rest.call("DELETE", f"/v1/kv/{prefix}/a")
        watt.until(lambda latest: latest["Consul"]["KV"] == {}, "no key")
