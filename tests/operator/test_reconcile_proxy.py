"""What should exist of the proxy.

| group | test |
|---|---|
| U55, U56 | tests/operator/test_settings.py; `test_u56_every_variable_of_the_proxy_is_honoured` |
| U57 | cannot fail: there is no constructor |
| U58, U59, U60, U62 | tests/operator/controllers/test_proxy.py; tests/real/test_operator_reconcile.py |
| U61 | `test_u61_the_objects_of_the_proxy` |
| U66 | `test_u66_the_proxy_is_deployed_for_sources_that_need_it`, `test_u66_the_service_leads_to_the_container` |
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.known import settings, source_object
from wigwag.operator.injection.agent import SECURITY_CONTEXT
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.reconcile.proxy import ProxyPlan, needs_proxy, plan_proxy, proxy_arguments, proxy_state
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.operator.settings import OperatorSettings, ProxySettings
from wigwag.options import declared
from wigwag.proxy.options import ProxyOptions

OPERATOR = ObjectMeta(name="open-feature-operator-controller-manager", namespace="ops", uid="9")
NEEDS = source_object({"source": "shop", "provider": "flagd-proxy"}).spec
ORIGINAL = {"FLAGD_PROXY_IMAGE": "registry.test/open-feature/flagd-proxy", "FLAGD_PROXY_TAG": "v0.9.4"}


def bodies(given: OperatorSettings) -> list[dict[str, Any]]:
    planned = plan_proxy([NEEDS], OPERATOR, given)
    assert not planned.problem
    return [{"kind": each.kind.kind, **each.body} for each in planned.apply]


def container_of(deployment: dict[str, Any]) -> dict[str, Any]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def test_u61_the_objects_of_the_proxy() -> None:
    labels = {
        "app": "flagd-proxy",
        "app.kubernetes.io/name": "flagd-proxy",
        "app.kubernetes.io/managed-by": "open-feature-operator",
        "app.kubernetes.io/version": "v0.9.4",
    }
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": OPERATOR.name, "uid": "9", "controller": True}
    about = {"namespace": "ops", "labels": labels, "ownerReferences": [owner]}
    selector = {name: labels[name] for name in ("app.kubernetes.io/name", "app.kubernetes.io/managed-by")}
    deployment, service, budget = bodies(settings({**ORIGINAL, "POD_NAMESPACE": "ops"}))
    container = container_of(deployment)
    assert deployment == {
        "kind": "Deployment",
        "metadata": {"name": "flagd-proxy", **about},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "flagd-proxy"}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "open-feature-operator-flagd-proxy",
                    "containers": [container],
                    "enableServiceLinks": False,
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "DoNotSchedule",
                            "labelSelector": {"matchLabels": {"app": "flagd-proxy"}},
                        }
                    ],
                },
            },
        },
    }
    assert container == {
        "name": "flagd-proxy",
        "image": "registry.test/open-feature/flagd-proxy:v0.9.4",
        "args": ["start", "--management-port", "8016", "--port", "8015"],
        "ports": [
            {"name": "port", "containerPort": 8015, "protocol": "TCP"},
            {"name": "management-port", "containerPort": 8016, "protocol": "TCP"},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8016}},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8016}},
        "securityContext": SECURITY_CONTEXT,
    }
    port = {"name": "flagd-proxy", "port": 8015, "targetPort": 8015, "protocol": "TCP", "appProtocol": "grpc"}
    assert service == {
        "kind": "Service",
        "metadata": {"name": "flagd-proxy-svc", **about},
        "spec": {"selector": selector, "ports": [port]},
    }
    assert budget == {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "flagd-proxy-pdb", **about},
        "spec": {"minAvailable": 0, "selector": {"matchLabels": selector}},
    }


def test_u56_every_variable_of_the_proxy_is_honoured() -> None:
    environment = {
        "FLAGD_PROXY_IMAGE": "registry.test:5000/wigwag",
        "FLAGD_PROXY_TAG": "v2",
        "FLAGD_PROXY_REPLICA_COUNT": "5",
        "FLAGD_PROXY_PORT": "1015",
        "FLAGD_PROXY_METRICS_PORT": "1016",
        "FLAGD_PROXY_DEBUG_LOGGING": "true",
    }
    deployment, service, budget = bodies(settings(environment, image_pull_secrets=("pull",)))
    container = container_of(deployment)
    assert container["image"] == "registry.test:5000/wigwag:v2"
    assert container["args"] == ["proxy", "start", "--management-port", "1016", "--port", "1015", "--debug"]
    assert [each["containerPort"] for each in container["ports"]] == [1015, 1016]
    assert container["readinessProbe"]["httpGet"]["port"] == 1016
    assert deployment["spec"]["replicas"] == 5
    assert deployment["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert service["spec"]["ports"][0]["port"] == 1015
    assert budget["spec"]["minAvailable"] == 2


@pytest.mark.parametrize(("replicas", "least"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_half_of_the_replicas_stay(replicas: int, least: int) -> None:
    *_, budget = bodies(settings({"FLAGD_PROXY_REPLICA_COUNT": str(replicas)}))
    assert budget["spec"]["minAvailable"] == least


def test_u66_the_service_leads_to_the_container() -> None:
    deployment, service, _ = bodies(settings({"FLAGD_PROXY_PORT": "1015"}))
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] == container_of(deployment)["ports"][0]["containerPort"] == 1015
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize(
    ("image", "first"),
    [
        ("wigwag", "proxy"),
        ("registry.test/flagd-proxy-mirror/wigwag", "proxy"),
        ("registry.test/open-feature/flagd-proxy", "start"),
        ("mirror-of-flagd-proxy", "start"),
    ],
)
def test_the_name_of_the_image_decides_the_arguments(image: str, first: str) -> None:
    assert proxy_arguments(ProxySettings(image=image))[0] == first


def test_our_proxy_has_every_option_that_is_passed() -> None:
    passed = proxy_arguments(ProxySettings(debug_logging=True))
    assert {each for each in passed if each.startswith("--")} <= {each.long for each in declared(ProxyOptions)}


@pytest.mark.parametrize(
    ("entry", "spec", "default", "needed"),
    [
        ({"provider": "flagd-proxy"}, {}, "", True),
        ({"provider": "kubernetes"}, {}, "", False),
        ({}, {}, "", False),
        ({}, {"defaultSyncProvider": "flagd-proxy"}, "", True),
        ({"provider": "http"}, {"defaultSyncProvider": "flagd-proxy"}, "", True),
        ({}, {}, "flagd-proxy", True),
        ({"provider": "http"}, {}, "flagd-proxy", False),
        ({}, {"defaultSyncProvider": "file"}, "flagd-proxy", False),
    ],
)
def test_u66_the_proxy_is_deployed_for_sources_that_need_it(
    entry: dict[str, str], spec: dict[str, Any], default: str, needed: bool
) -> None:
    given = settings({"SIDECAR_SYNC_PROVIDER": default} if default else {})
    source = source_object({"source": "shop", **entry}, **spec).spec
    assert needs_proxy(source, given) == needed
    assert bool(plan_proxy([source], OPERATOR, given).apply) == needed


def test_without_the_operators_deployment_the_proxy_is_not_deployed_and_said_so() -> None:
    planned = plan_proxy([NEEDS], None, settings({"POD_NAMESPACE": "ops"}))
    assert planned.apply == ()
    assert "Deployment ops/open-feature-operator-controller-manager, which has to own it" in planned.problem
    assert plan_proxy([], None, settings()) == ProxyPlan()


def test_the_state_of_the_proxy_is_that_of_its_deployment() -> None:
    assert proxy_state(None) is None
    about = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    assert proxy_state({"metadata": about, "status": {"readyReplicas": 2}}) == ProxyState(2, 1767225600.0)
    assert proxy_state({"metadata": about}) == ProxyState(0, 1767225600.0)


def test_equal_settings_give_equal_objects() -> None:
    assert bodies(settings(ORIGINAL)) == bodies(settings(ORIGINAL))
