"""What should exist for a Flagd.

| group | test |
|---|---|
| U67, U84 | `test_u67_u84_routes_of_the_gateway_api` |
| U68, U85 | `test_u68_u85_an_ingress_has_three_paths_for_each_host` |
| U69 | `test_u69_what_is_disabled_is_to_be_removed` |
| U70 to U78 | tests/operator/controllers/test_flagd.py |
| U83, U86, U89 | tests/operator/test_upstream.py; tests/real/test_operator_reconcile.py, on a real API server |
| U79 | `test_u79_the_deployment` |
| U80, U82 | `test_u80_a_source_that_cannot_be_used_changes_nothing`, `test_u82_a_missing_source_changes_nothing` |
| U81 | cannot happen: the container is made, not looked for |
| U83 | `test_u83_equal_input_gives_equal_objects` |
| U87 | `test_u87_paths_of_an_ingress_are_those_of_the_services_unless_given` |
| U88 | `test_u88_ports_of_the_service` |
| E06 | `test_e06_ports_of_a_source_are_in_the_environment_and_the_process_can_be_reached` |
"""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from tests.operator.known import Laid, environment_of, flagd_object, settings, source_object
from wigwag.agent.options import AgentOptions
from wigwag.kube.kinds import DEPLOYMENT, GRPC_ROUTE, HTTP_ROUTE, INGRESS, SERVICE, Kind
from wigwag.operator.injection.agent import SECURITY_CONTEXT
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.names import ObjectName
from wigwag.operator.reconcile.flagd import FlagdPlan, plan_flagd
from wigwag.operator.reconcile.routes import EVALUATION_SERVICES, SYNC_SERVICES
from wigwag.operator.reconcile.status import ConditionState
from wigwag.operator.resources.flagd import Flagd
from wigwag.operator.resources.unreadable import UnreadableSource
from wigwag.operator.settings import OperatorSettings
from wigwag.options import add_options, collect
from wigwag.serve import evaluation, sync

KUBERNETES = {"source": "shop", "provider": "kubernetes"}
OWNER = {
    "apiVersion": "core.openfeature.dev/v1beta1",
    "kind": "Flagd",
    "name": "flagd-sample",
    "uid": "7",
    "controller": True,
}
LABELS = {
    "app": "flagd-sample",
    "app.kubernetes.io/name": "flagd-sample",
    "app.kubernetes.io/managed-by": "open-feature-operator",
    "app.kubernetes.io/version": "v1",
}
ROUTES = {"enabled": True, "parentRefs": [{"name": "eg", "namespace": "edge"}], "hosts": ["flagd.test"]}
ORIGINAL = {"FLAGD_IMAGE": "flagd", "FLAGD_TAG": "v1"}


def laid(*sources: dict[str, Any], **spec: Any) -> Laid:
    return Laid(sources={"team-a/flags": source_object(*(sources or (KUBERNETES,)), **spec)}, flags={"team-a/shop": {}})


def plan(flagd: Flagd | None = None, known: Laid | None = None, given: OperatorSettings | None = None) -> FlagdPlan:
    return plan_flagd(flagd or flagd_object(), known or laid(), given or settings(ORIGINAL))


def made(plan: FlagdPlan, kind: Kind) -> dict[str, Any]:
    (body,) = (each.body for each in plan.apply if each.kind == kind)
    return body


def container_of(plan: FlagdPlan) -> dict[str, Any]:
    (container,) = made(plan, DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def argument(container: dict[str, Any], name: str) -> str:
    given: list[str] = container["args"]
    return given[given.index(name) + 1]


def test_u79_the_deployment() -> None:
    deployment = made(plan(flagd_object(replicas=2, serviceAccountName="reader")), DEPLOYMENT)
    annotations = {"openfeature.dev/allowkubernetessync": "true"}
    assert deployment["metadata"] == {
        "name": "flagd-sample",
        "namespace": "team-a",
        "labels": LABELS,
        "annotations": annotations,
        "ownerReferences": [OWNER],
    }
    spec = deployment["spec"]
    assert (spec["replicas"], spec["selector"]) == (2, {"matchLabels": {"app": "flagd-sample"}})
    assert spec["template"]["metadata"] == {"labels": LABELS, "annotations": annotations}
    pod = spec["template"]["spec"]
    (container,) = pod.pop("containers")
    assert pod == {"serviceAccountName": "reader", "enableServiceLinks": False}
    assert (container["name"], container["image"], container["imagePullPolicy"]) == ("flagd", "flagd:v1", "Always")
    assert container["securityContext"] == SECURITY_CONTEXT
    assert "restartPolicy" not in container
    assert container["args"] == [
        *("start", "--management-port", "8014", "--port", "8013"),
        *("--sources", '[{"uri":"team-a/shop","provider":"kubernetes"}]'),
        *("--ofrep-port", "8016", "--sync-port", "8015"),
    ]


def test_e06_ports_of_a_source_are_in_the_environment_and_the_process_can_be_reached() -> None:
    planned = plan(known=laid(port=8888, managementPort=9999))
    container = container_of(planned)
    shown = environment_of(container)
    assert (shown["FLAGD_MANAGEMENT_PORT"], shown["FLAGD_PORT"]) == ("9999", "8888")
    assert container["ports"] == [
        {"name": "management", "containerPort": 8014, "protocol": "TCP"},
        {"name": "flagd", "containerPort": 8013, "protocol": "TCP"},
        {"name": "ofrep", "containerPort": 8016, "protocol": "TCP"},
        {"name": "sync", "containerPort": 8015, "protocol": "TCP"},
    ]
    assert_reachable(planned)


def assert_reachable(planned: FlagdPlan) -> None:
    """The process listens where the container's ports, the probes and the Service lead to."""
    container, service = container_of(planned), made(planned, SERVICE)["spec"]
    listens = {
        "management": int(argument(container, "--management-port")),
        "flagd": int(argument(container, "--port")),
        "ofrep": int(argument(container, "--ofrep-port")),
        "sync": int(argument(container, "--sync-port")),
    }
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == listens
    targets = {each["name"].replace("metrics", "management"): each["targetPort"] for each in service["ports"]}
    assert targets == listens
    probed = {each["httpGet"]["port"] for name, each in container.items() if name.endswith("Probe")}
    assert probed == {listens["management"]}


@pytest.mark.parametrize("spec", [{}, {"ofrepPort": 9016}, {"ofrepPort": 0}, {"port": 1, "managementPort": 2}])
@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"FLAGD_PORT": "13", "FLAGD_OFREP_PORT": "16", "FLAGD_SYNC_PORT": "15", "FLAGD_MANAGEMENT_PORT": "14"},
    ],
)
def test_the_process_listens_where_the_service_leads_to(spec: dict[str, int], environment: dict[str, str]) -> None:
    assert_reachable(plan(known=laid(**spec), given=settings(environment)))


def test_our_agent_has_every_option_that_is_passed_and_they_win_over_the_environment() -> None:
    variables = [{"name": "SYNC_PORT", "value": "1"}, {"name": "OFREP_PORT", "value": "2"}]
    container = container_of(plan(known=laid(port=8888, managementPort=9999, envVars=variables)))
    assert container["args"].pop(0) == "start"
    parser = argparse.ArgumentParser()
    add_options(parser, AgentOptions)
    options = collect(AgentOptions, parser.parse_args(container["args"]), environment_of(container), "FLAGD_")
    listens = options.management_port, options.port, options.ofrep_port, options.sync_port
    assert list(listens) == [each["containerPort"] for each in container["ports"]]


def test_u88_ports_of_the_service() -> None:
    service = made(plan(flagd_object(serviceType="NodePort"), laid(ofrepPort=9016)), SERVICE)
    assert service["spec"] == {
        "type": "NodePort",
        "selector": {"app": "flagd-sample"},
        "ports": [
            {"name": "flagd", "port": 8013, "targetPort": 8013, "protocol": "TCP", "appProtocol": "grpc"},
            {"name": "ofrep", "port": 8016, "targetPort": 9016, "protocol": "TCP", "appProtocol": "http"},
            {"name": "sync", "port": 8015, "targetPort": 8015, "protocol": "TCP", "appProtocol": "grpc"},
            {"name": "metrics", "port": 8014, "targetPort": 8014, "protocol": "TCP", "appProtocol": "http"},
        ],
    }
    assert (service["metadata"]["labels"], service["metadata"]["ownerReferences"]) == (LABELS, [OWNER])


def test_the_service_takes_annotations_over_but_not_those_of_tools() -> None:
    given = {
        "service.beta.kubernetes.io/internal": "true",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "argocd.argoproj.io/tracking-id": "x",
    }
    service = made(plan(flagd_object(metadata={"annotations": given})), SERVICE)
    assert service["metadata"]["annotations"] == {"service.beta.kubernetes.io/internal": "true"}
    assert "annotations" not in made(plan(), SERVICE)["metadata"]


def test_u68_u85_an_ingress_has_three_paths_for_each_host() -> None:
    certificate = {"hosts": ["flagd.test"], "secretName": "tls"}
    ingress = {
        "enabled": True,
        "hosts": ["flagd.test", ""],
        "annotations": {"a": "b"},
        "ingressClassName": "nginx",
        "tls": [certificate],
    }
    planned = plan(flagd_object(ingress=ingress))
    assert [each.kind for each in planned.apply] == [DEPLOYMENT, SERVICE, INGRESS]
    body = made(planned, INGRESS)
    assert (body["metadata"]["annotations"], body["metadata"]["labels"]) == ({"a": "b"}, LABELS)
    paths = [
        {
            "path": path,
            "pathType": "Prefix",
            "backend": {"service": {"name": "flagd-sample", "port": {"number": port}}},
        }
        for path, port in {
            "/flagd.evaluation.v1.Service": 8013,
            "/ofrep": 8016,
            "/flagd.sync.v1.Service": 8015,
        }.items()
    ]
    assert body["spec"] == {
        "ingressClassName": "nginx",
        "tls": [certificate],
        "rules": [{"host": "flagd.test", "http": {"paths": paths}}, {"http": {"paths": paths}}],
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["/flagd.evaluation.v1.Service", "/ofrep", "/flagd.sync.v1.Service"]),
        ({"flagdPath": "/f", "ofrepPath": "/o", "syncPath": "/s"}, ["/f", "/o", "/s"]),
        ({"flagdPath": "/", "ofrepPath": "/", "syncPath": "/"}, ["/", "/", "/"]),
    ],
)
def test_u87_paths_of_an_ingress_are_those_of_the_services_unless_given(
    given: dict[str, str], expected: list[str]
) -> None:
    ingress = {"enabled": True, "hosts": [], "pathType": "ImplementationSpecific", **given}
    (rule,) = made(plan(flagd_object(ingress=ingress)), INGRESS)["spec"]["rules"]
    paths = rule["http"]["paths"]
    assert [each["path"] for each in paths] == expected
    assert {each["pathType"] for each in paths} == {"ImplementationSpecific"}


def test_u67_u84_routes_of_the_gateway_api() -> None:
    planned = plan(flagd_object(gatewayApiRoutes={**ROUTES, "annotations": {"a": "b"}}))
    assert [each.kind for each in planned.apply] == [DEPLOYMENT, SERVICE, HTTP_ROUTE]
    route = made(planned, HTTP_ROUTE)
    assert route["metadata"]["annotations"] == {"a": "b"}
    service = {"group": "", "kind": "Service", "name": "flagd-sample", "namespace": "team-a", "weight": 1}
    places = {"/ofrep": 8016, "/flagd.evaluation.v1.Service": 8013, "/flagd.sync.v1.Service": 8015}
    assert route["spec"] == {
        "parentRefs": [
            {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eg", "namespace": "edge"},
        ],
        "hostnames": ["flagd.test"],
        "rules": [
            {"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": [{**service, "port": port}]}
            for path, port in places.items()
        ],
    }


def test_a_grpc_route_has_hosts_of_its_own_and_the_services_that_agents_have() -> None:
    routes = {**ROUTES, "grpc": {"enabled": True, "hosts": ["grpc.test"]}}
    planned = plan(flagd_object(gatewayApiRoutes=routes))
    assert planned.accepted == ConditionState("True", "Valid")
    spec = made(planned, GRPC_ROUTE)["spec"]
    assert spec["hostnames"] == ["grpc.test"]
    assert [rule["backendRefs"][0]["port"] for rule in spec["rules"]] == [8013, 8015]
    services = [[match["method"]["service"] for match in rule["matches"]] for rule in spec["rules"]]
    assert services == [list(EVALUATION_SERVICES), list(SYNC_SERVICES)]
    assert set(EVALUATION_SERVICES) == {evaluation.V1, evaluation.V2, evaluation.OLD}
    assert set(SYNC_SERVICES) == {sync.SERVICE, sync.OLD}


@pytest.mark.parametrize(("hosts", "grpc"), [(["a.test"], []), (["a.test"], ["a.test"]), ([], ["b.test"])])
def test_routes_for_the_same_hosts_are_worth_a_warning(hosts: list[str], grpc: list[str]) -> None:
    routes = {**ROUTES, "hosts": hosts, "grpc": {"enabled": True, "hosts": grpc}}
    planned = plan(flagd_object(gatewayApiRoutes=routes))
    assert planned.accepted[:2] == ("True", "Warnings")
    assert "set grpc.hosts to others" in planned.accepted.message


def test_u69_what_is_disabled_is_to_be_removed() -> None:
    assert plan().remove == (INGRESS, HTTP_ROUTE, GRPC_ROUTE)
    off = flagd_object(
        ingress={"enabled": False, "hosts": ["a"]}, gatewayApiRoutes={**ROUTES, "enabled": False, "grpc": {}}
    )
    planned = plan(off)
    assert ([each.kind for each in planned.apply], planned.remove) == (
        [DEPLOYMENT, SERVICE],
        (INGRESS, HTTP_ROUTE, GRPC_ROUTE),
    )
    on = flagd_object(ingress={"enabled": True, "hosts": ["a"]}, gatewayApiRoutes={**ROUTES, "grpc": {"enabled": True}})
    assert plan(on).remove == ()


def test_u82_a_missing_source_changes_nothing() -> None:
    planned = plan(known=Laid())
    assert planned.apply == ()
    assert planned.remove == (INGRESS, HTTP_ROUTE, GRPC_ROUTE)
    assert planned.resolved == ConditionState(
        "False",
        "SourceNotFound",
        'featureflagsources.core.openfeature.dev "flags" not found in namespace team-a; '
        "what exists stays as it is: create the source",
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"source": "missing", "provider": "kubernetes"}, "could not retrieve featureflag team-a/missing"),
        ({"source": "shop", "provider": "flagd-proxy"}, "flagd-proxy is not ready"),
        ({"source": "other/shop", "provider": "file"}, "is in another namespace"),
    ],
)
def test_u80_a_source_that_cannot_be_used_changes_nothing(source: dict[str, str], reason: str) -> None:
    planned = plan(known=laid(source))
    assert (planned.apply, planned.resolved[:2]) == ((), ("False", "SourceUnusable"))
    assert reason in planned.resolved.message


def test_a_source_that_does_not_fit_its_schema_changes_nothing() -> None:
    unreadable = UnreadableSource(problem="Expected `int` >= 0 - at `$.spec.sources[0].interval`")
    planned = plan(known=Laid(unreadable={"team-a/flags": unreadable}))
    assert (planned.apply, planned.resolved[:2]) == ((), ("False", "SourceUnusable"))
    assert unreadable.problem in planned.resolved.message


def test_a_source_of_another_namespace_cannot_be_named() -> None:
    known = laid()
    known.sources["ops/flags"] = known.sources["team-a/flags"]
    assert plan(flagd_object(featureFlagSource="ops/flags"), known).resolved.reason == "SourceNotFound"


@pytest.mark.parametrize(
    ("flagd", "spec", "reason"),
    [
        (flagd_object("shop.flagd"), {}, "its name cannot be that of a Service"),
        (flagd_object(serviceType="ExternalName"), {}, "ExternalName"),
        (flagd_object(), {"ofrepPort": 8013}, "cannot listen twice on a port: 8014, 8013, 8013, 8015"),
    ],
)
def test_what_no_objects_can_be_made_of_is_not_accepted(flagd: Flagd, spec: dict[str, int], reason: str) -> None:
    planned = plan(flagd, laid(**spec))
    assert (planned.apply, planned.accepted[:2]) == ((), ("False", "Invalid"))
    assert reason in planned.accepted.message
    assert planned.resolved.status == "Unknown"


def test_what_has_no_effect_is_worth_a_warning() -> None:
    token = {"source": "https://flags.test", "provider": "http", "httpSyncBearerToken": "abc"}
    planned = plan(known=laid(token, syncProviderArgs=["a=b"], socketPath="/run/flagd.sock"))
    assert planned.accepted.reason == "Warnings"
    for warning in ("bearer token of source", "syncProviderArgs are ignored", "socketPath /run/flagd.sock is ignored"):
        assert warning in planned.accepted.message
    assert "abc" not in planned.accepted.message
    assert "--socket-path" not in container_of(planned)["args"]


def test_a_file_source_is_mounted_and_its_config_map_is_needed() -> None:
    planned = plan(known=laid({"source": "shop", "provider": "file"}))
    pod = made(planned, DEPLOYMENT)["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "shop", "configMap": {"name": "shop"}}]
    assert container_of(planned)["volumeMounts"] == [{"name": "shop", "mountPath": "/etc/flagd/team-a_shop"}]
    assert [each.mount for each in planned.needs] == [ObjectName("team-a", "shop")]
    assert "annotations" not in made(planned, DEPLOYMENT)["metadata"]


def test_a_proxy_source_is_used_when_the_proxy_is_ready() -> None:
    known = laid({"source": "shop", "provider": "flagd-proxy"})
    known.state = ProxyState(1, 0.0)
    assert "flagd-proxy-svc.open-feature-operator-system" in argument(container_of(plan(known=known)), "--sources")


def test_fields_of_the_pod_are_handed_on() -> None:
    fields: dict[str, Any] = {
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "priorityClassName": "high",
    }
    options = settings(image_pull_secrets=("one", "two"))
    planned = plan(flagd_object(**fields, podSecurityContext={"fsGroup": 1}), given=options)
    pod = made(planned, DEPLOYMENT)["spec"]["template"]["spec"]
    assert {name: pod[name] for name in fields} == fields
    assert (pod["securityContext"], pod["imagePullSecrets"]) == ({"fsGroup": 1}, [{"name": "one"}, {"name": "two"}])


def test_the_flagd_goes_before_its_source_and_the_source_before_the_operator() -> None:
    source = {
        "imagePullPolicy": "Never",
        "securityContext": {"runAsUser": 1},
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
    }
    container = container_of(plan(known=laid(**source)))
    assert (container["imagePullPolicy"], container["securityContext"]) == ("Never", {"runAsUser": 1})
    own: dict[str, Any] = {
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {},
        "resources": {"limits": {"cpu": "3"}},
    }
    container = container_of(plan(flagd_object(**own), laid(**source)))
    assert (container["imagePullPolicy"], container["securityContext"]) == ("IfNotPresent", {})
    assert container["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}


def test_labels_and_annotations_of_all_but_the_operators_own_win() -> None:
    options = settings(ORIGINAL, labels={"team": "all", "cost": "1"}, annotations={"note": "all"})
    flagd = flagd_object(labels={"team": "a", "app": "other"}, annotations={"note": "own"})
    planned = plan(flagd, given=options)
    for body in (each.body for each in planned.apply):
        assert body["metadata"]["labels"] == {"team": "a", "cost": "1", **LABELS}
    deployment = made(planned, DEPLOYMENT)
    assert deployment["metadata"]["annotations"]["note"] == "own"
    assert deployment["spec"]["template"]["metadata"]["annotations"] == deployment["metadata"]["annotations"]
    assert made(planned, SERVICE)["metadata"]["annotations"] == {"note": "all"}


def test_variables_keep_their_order_and_the_operators_defaults_hold() -> None:
    variables = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    environment = {"SIDECAR_SYNC_PROVIDER": "file", "FLAGD_DEBUG_LOGGING": "true"}
    planned = plan(known=laid({"source": "shop"}, envVars=variables), given=settings(environment))
    container = container_of(planned)
    assert [each["name"] for each in container["env"]][:2] == ["FLAGD_A", "FLAGD_B"]
    assert '"provider":"file"' in argument(container, "--sources")
    assert "--debug" in container["args"]


def test_u83_equal_input_gives_equal_objects() -> None:
    one, other = plan(), plan()
    assert one == other
    assert one.digest == other.digest != plan(known=laid(debugLogging=True)).digest
    assert [each.name for each in one.apply] == [ObjectName("team-a", "flagd-sample")] * 2
