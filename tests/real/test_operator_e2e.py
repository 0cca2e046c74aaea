"""The end-to-end tests of the original, on a real control plane: flags are followed from `kubectl apply` to a client.

| test of the original | ours |
|---|---|
| E01 flagd-disabled | test_e01_a_pod_that_is_not_enabled_has_no_agent |
| E02 fsconfig-k8s-sync, E03 fsconfig-file-sync, E04 fsconfig-flagd-proxy-sync | test_e02_e03_e04_a_change_of_a_flag_reaches_clients_of_the_sidecar |
| E05 in-process | test_e05_two_configurations_make_one_environment_for_every_container |
| E06 flagd-with-custom-ports | test_e06_custom_ports_show_in_the_environment_and_the_service_leads_to_the_process |
| E07 flagd-with-gateway-api | test_e07_a_flagd_with_routes |
| E08 flagd-with-ingress-default-paths, E09 flagd-with-ingress-custom-paths | test_e08_e09_a_flagd_with_an_ingress |
| E10 validate-featureflag-create, E11 validate-featureflag-update | test_e10_e11_a_bad_flag_is_refused_whether_it_is_new_or_changed |
"""  # noqa: E501

from __future__ import annotations

import pytest
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.event import ProviderEvent

from tests.agent.process import fetch
from tests.clients.test_python_providers import Heard, connected
from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.processes import until
from tests.real.rest import Answer
from tests.real.workloads import (
    App,
    agent_of,
    deployment,
    flagd,
    in_process,
    matches,
    resolve,
    sees,
    source,
)
from wigwag.operator.names import (
    ALLOW_KUBERNETES_SYNC,
    ENABLED,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    PODS_RETRIED,
)

SYSTEM = "open-feature-operator-system"
STATIC = {"value": True, "reason": "STATIC", "variant": "on"}
ORIGINAL_PORTS = {"management": 8014, "flagd": 8013, "ofrep": 8016, "sync": 8015}


@pytest.fixture(scope="session")
def cluster(operated: Cluster) -> Cluster:
    return operated


def test_e01_a_pod_that_is_not_enabled_has_no_agent(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", {"source": "flags", "provider": "kubernetes"}))
    namespace.apply(deployment("web", annotations={ENABLED: "false", FEATURE_FLAG_SOURCE: "source"}))
    pod = App(namespace, "web").ready()
    assert [each["name"] for each in pod["spec"]["containers"]] == ["app"]
    assert "initContainers" not in pod["spec"]
    with pytest.raises(OSError, match="refused"):
        resolve(pod)


@pytest.mark.parametrize("provider", ["kubernetes", "file", "flagd-proxy"])
def test_e02_e03_e04_a_change_of_a_flag_reaches_clients_of_the_sidecar(provider: str, namespace: Namespace) -> None:
    """The Deployment is applied before all it needs, as in the original."""
    app = App(namespace, "web")
    namespace.apply(deployment("web", "source"))
    app.refused('featureflagsources.core.openfeature.dev "source" not found')
    assert not app.pods()
    namespace.feature_flag("flags", flags("on"))
    namespace.apply(source("source", {"source": "flags", "provider": provider}))

    pod = app.ready()
    assert agent_of(pod)["restartPolicy"] == "Always"
    assert (pod["metadata"]["annotations"].get(ALLOW_KUBERNETES_SYNC) == "true") is (provider == "kubernetes")
    assert matches(STATIC, resolve(pod))

    address = pod["status"]["podIP"]
    with connected(
        FlagdProvider(host=address, port=8013, resolver_type=ResolverType.RPC, deadline_ms=20_000)
    ) as client:
        heard = Heard(client)
        heard.wait_for(ProviderEvent.PROVIDER_READY)
        assert client.get_boolean_value("x", False)
        namespace.feature_flag("flags", flags("off"))
        heard.wait_for(ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, "x")
        until(lambda: not client.get_boolean_value("x", True), "the new value")
    status, body = fetch(f"{address}:8016", "/ofrep/v1/evaluate/flags/x", {}, content_type="application/json")
    assert (status, b'"variant":"off"' in body) == (200, True)

    namespace.cluster.delete(namespace.path(OPENFEATURE, "FeatureFlag", "flags"))
    namespace.feature_flag("flags", flags("on", metadata={"again": True}))
    sees(pod, "on")
    assert app.ready()["metadata"]["uid"] == pod["metadata"]["uid"], "all of it without a restart"


def test_pods_that_were_refused_do_not_wait_for_the_back_off_of_their_controllers(namespace: Namespace) -> None:
    path = namespace.cluster.path_of(namespace.apply(deployment("web", "source")))

    def refused() -> bool:
        conditions = namespace.cluster.get(path).get("status", {}).get("conditions") or []
        return any(each["type"] == "ReplicaFailure" for each in conditions)

    def refusals() -> int:
        events = namespace.cluster.get(namespace.path("v1", "Event"))["items"]
        return max((each.get("count") or 0 for each in events if each["reason"] == "FailedCreate"), default=0)

    until(refused, "the refusal in the status of the Deployment")
    until(lambda: refusals() >= 9, "a back-off of seconds")  # 5 ms, twice as long each time
    namespace.apply(source("source", {"source": "http://127.0.0.1:1/flags.json", "provider": "http"}))
    until(lambda: App(namespace, "web").pods(), "a pod")
    annotations = namespace.cluster.get(path)["metadata"]["annotations"]
    assert PODS_RETRIED in annotations
    assert annotations["deployment.kubernetes.io/revision"] == "1"


def test_e05_two_configurations_make_one_environment_for_every_container(namespace: Namespace) -> None:
    variables = [{"name": "name1", "value": "val1"}, {"name": "name2", "value": "val2"}]
    first = {"tls": True, "offlineFlagSourcePath": "my-path", "cacheMaxSize": 11, "envVarPrefix": "first"}
    namespace.apply(in_process("one", **first, envVars=variables))
    namespace.apply(in_process("two", envVarPrefix="second", host="my-host"))
    containers = [{"name": name, "image": name} for name in ("app", "other")]
    annotations = {ENABLED: "true", IN_PROCESS_CONFIGURATION: "one,two"}
    namespace.apply(deployment("web", annotations=annotations, containers=containers))
    pod = App(namespace, "web").ready()
    expected = {
        "second_name2": "val2",
        "second_name1": "val1",
        "second_HOST": "my-host",
        "second_PORT": "8015",
        "second_TLS": "true",
        "second_CACHE": "lru",
        "second_MAX_CACHE_SIZE": "11",
        "second_RESOLVER": "in-process",
        "second_OFFLINE_FLAG_SOURCE_PATH": "my-path",
    }
    for container in pod["spec"]["containers"]:
        assert container["env"] == [{"name": name, "value": value} for name, value in expected.items()]
    assert "initContainers" not in pod["spec"]


def objects_of(name: str) -> dict[str, object]:
    """Return what all objects of a Flagd have in common."""
    labels = {
        "app": name,
        "app.kubernetes.io/managed-by": "open-feature-operator",
        "app.kubernetes.io/name": name,
    }
    return {"labels": labels, "ownerReferences": [{"apiVersion": OPENFEATURE, "kind": "Flagd", "name": name}]}


def check_flagd(namespace: Namespace, replicas: int = 1) -> None:
    """Wait until a Flagd serves, and compare its Deployment and its Service with the original's."""
    path = namespace.path("apps/v1", "Deployment", "flagd-sample")
    until(lambda: namespace.cluster.exists(path), "the Deployment")
    until(lambda: namespace.cluster.get(path)["status"].get("readyReplicas") == replicas, "ready replicas")
    live, about = namespace.cluster.get(path), objects_of("flagd-sample")
    ports = [{"name": name, "containerPort": port} for name, port in ORIGINAL_PORTS.items()]
    pods = {"serviceAccountName": "default", "containers": [{"name": "flagd", "ports": ports}]}
    template = {"metadata": {"labels": about["labels"]}, "spec": pods}
    selector = {"matchLabels": {"app": "flagd-sample"}}
    assert matches(
        {"metadata": about, "spec": {"replicas": replicas, "selector": selector, "template": template}}, live
    )
    service_ports = [
        {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
        for name, port in (("flagd", 8013), ("ofrep", 8016), ("sync", 8015), ("metrics", 8014))
    ]
    there = namespace.path("v1", "Service", "flagd-sample")
    until(lambda: namespace.cluster.exists(there), "the Service")
    service = namespace.cluster.get(there)
    spec = {"type": "ClusterIP", "selector": {"app": "flagd-sample"}, "ports": service_ports}
    assert matches({"metadata": about, "spec": spec}, service)
    pod = App(namespace, "flagd-sample").ready()
    assert matches(STATIC, resolve(pod))


def test_e06_custom_ports_show_in_the_environment_and_the_service_leads_to_the_process(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("end-to-end", {"source": "flags", "provider": "kubernetes"}, port=8888, managementPort=9999))
    namespace.apply(flagd("flagd-sample", "end-to-end", serviceAccountName="default", serviceType="ClusterIP"))
    check_flagd(namespace)
    (container,) = App(namespace, "flagd-sample").ready()["spec"]["containers"]
    names = ("MANAGEMENT_PORT", "PORT", "EVALUATOR", "LOG_FORMAT", "RESOLVER")
    values = ("9999", "8888", "json", "json", "rpc")
    assert container["env"] == [{"name": f"FLAGD_{n}", "value": v} for n, v in zip(names, values, strict=True)]


def test_e07_a_flagd_with_routes(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("end-to-end", {"source": "flags", "provider": "kubernetes"}))
    gateway = {"name": "my-gateway", "namespace": "my-gateway-namespace"}
    routes = {"enabled": True, "hosts": ["flagd-sample"], "parentRefs": [gateway]}
    namespace.apply(flagd("flagd-sample", "end-to-end", replicas=2, gatewayApiRoutes=routes))
    check_flagd(namespace, replicas=2)
    service = {"group": "", "kind": "Service", "name": "flagd-sample", "namespace": namespace.name, "weight": 1}
    paths = {"/ofrep": 8016, "/flagd.evaluation.v1.Service": 8013, "/flagd.sync.v1.Service": 8015}
    rules = [
        {
            "backendRefs": [{**service, "port": port}],
            "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        }
        for path, port in paths.items()
    ]
    parent = {**gateway, "group": "gateway.networking.k8s.io", "kind": "Gateway"}
    spec = {"hostnames": ["flagd-sample"], "parentRefs": [parent], "rules": rules}
    live = namespace.cluster.get(namespace.path("gateway.networking.k8s.io/v1", "HTTPRoute", "flagd-sample"))
    assert matches({"metadata": objects_of("flagd-sample"), "spec": spec}, live)


CUSTOM = {"flagdPath": "/flagd(/|$)(.*)", "ofrepPath": "/ofrep(/|$)(.*)", "syncPath": "/sync(/|$)(.*)"}
DEFAULT = {"flagdPath": "/flagd.evaluation.v1.Service", "ofrepPath": "/ofrep", "syncPath": "/flagd.sync.v1.Service"}


@pytest.mark.parametrize("custom", [False, True], ids=["default paths", "custom paths"])
def test_e08_e09_a_flagd_with_an_ingress(custom: bool, namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("end-to-end", {"source": "flags", "provider": "kubernetes"}))
    annotations = {"nginx.ingress.kubernetes.io/force-ssl-redirect": "false"}
    given = {"enabled": True, "annotations": annotations, "hosts": ["flagd-sample"], "ingressClassName": "nginx"}
    kind = "ImplementationSpecific" if custom else "Prefix"
    more = {"pathType": kind, **CUSTOM} if custom else {}
    namespace.apply(flagd("flagd-sample", "end-to-end", replicas=2, ingress={**given, **more}))
    check_flagd(namespace, replicas=2)
    paths = [
        {"path": path, "pathType": kind, "backend": {"service": {"name": "flagd-sample", "port": {"number": port}}}}
        for path, port in zip((CUSTOM if custom else DEFAULT).values(), (8013, 8016, 8015), strict=True)
    ]
    rules = [{"host": "flagd-sample", "http": {"paths": paths}}]
    live = namespace.cluster.get(namespace.path("networking.k8s.io/v1", "Ingress", "flagd-sample"))
    about = {**objects_of("flagd-sample"), "annotations": annotations}
    assert matches({"metadata": about, "spec": {"ingressClassName": "nginx", "rules": rules}}, live)


BUCKETS = [["clubs", 25], ["diamonds", 25], ["hearts", 25], ["spades", 25]]
ALGORITHM = {
    "variants": {name: name for name in ("recursive", "memo", "loop", "binet")},
    "defaultVariant": "recursive",
    "state": "ENABLED",
}
BAD = {"flags": {"fibAlgo": {**ALGORITHM, "targeting": {"fractional": ["invalid", *BUCKETS]}}}}
GOOD = {"flags": {"fibAlgo": ALGORITHM}}
EMPTY: dict[str, object] = {"flags": {}}


def test_e10_e11_a_bad_flag_is_refused_whether_it_is_new_or_changed(namespace: Namespace) -> None:
    path, rest = namespace.path(OPENFEATURE, "FeatureFlag"), namespace.cluster.rest

    def create(name: str, spec: object) -> Answer:
        about = {"apiVersion": OPENFEATURE, "kind": "FeatureFlag", "metadata": {"name": name}}
        return rest.ask("POST", path, {**about, "spec": {"flagSpec": spec}})

    def change(name: str, spec: object) -> Answer:
        patch = [{"op": "replace", "path": "/spec/flagSpec", "value": spec}]
        return rest.ask("PATCH", f"{path}/{name}", patch, kind="application/json-patch+json")

    refused = create("new", BAD)
    assert refused.status == 403
    assert "spec.flagSpec.flags.fibAlgo.targeting" in refused.json["message"]
    assert not namespace.cluster.exists(f"{path}/new")
    assert create("empty", EMPTY).status == create("sample", GOOD).status == 201
    assert [change("empty", each).status for each in (GOOD, BAD, EMPTY, GOOD)] == [200, 403, 200, 200]
    assert namespace.cluster.get(f"{path}/empty")["spec"] == {"flagSpec": GOOD}
