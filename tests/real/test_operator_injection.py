"""Pods with an injected agent on a real API server: it accepts them, and what it adds is not taken for a difference."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.known import Laid, admit, in_process_object, patched, pod, source_object
from tests.real.cluster import Namespace
from wigwag.operator.injection.decide import PodRequest, admit_pod
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.injection.verdict import Allowed
from wigwag.operator.names import ENABLED, FEATURE_FLAG_SOURCE, IN_PROCESS_CONFIGURATION
from wigwag.operator.settings import OperatorSettings

SECRET = {"name": "tokens", "key": "http"}
ENVIRONMENT = [
    {"name": "AWS_ID", "valueFrom": {"secretKeyRef": {"name": "cloud", "key": "id"}}},
    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
]
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": {
        "socketPath": "/run/flagd/flagd.sock",
        "envVars": ENVIRONMENT,
        "resources": {"requests": {"cpu": "0.10", "memory": "1024Ki"}, "limits": {"cpu": 1, "memory": "0.5Gi"}},
        "contextValues": {"region": "eu"},
        "cors": ["*"],
        "debugLogging": True,
    },
    "without probes": {"probesEnabled": False},
    "another security context": {"securityContext": {"runAsNonRoot": True}},
}
SOURCES: list[dict[str, Any]] = [
    {"source": "shop", "provider": "kubernetes"},
    {"source": "shop.flags", "provider": "file"},
    {"source": "shop", "provider": "flagd-proxy"},
    {"source": "https://flags.test", "provider": "http", "httpSyncBearerTokenSecret": SECRET, "interval": 5},
    {"source": "s3://bucket/flags.json", "provider": "s3"},
]
TEAM = "team-a"


def created(namespace: Namespace, manifest: dict[str, Any], known: Laid) -> dict[str, Any]:
    """Inject, create, and return what the API server made of the pod."""
    verdict = admit(manifest, known)
    assert isinstance(verdict, Allowed)
    changed = patched(manifest, verdict.patch)
    path = namespace.path("v1", "Pod")
    made: dict[str, Any] = namespace.cluster.rest.call("POST", path, changed).json
    return made


def owned(annotations: dict[str, str]) -> dict[str, Any]:
    containers = [{"name": "shop", "image": "shop:1"}, {"name": "other", "image": "other:1", "env": [{"name": "A"}]}]
    return pod(annotations, containers=containers)


@pytest.mark.parametrize("name", SPECS)
def test_an_injected_pod_is_accepted_and_injecting_again_changes_nothing(name: str, namespace: Namespace) -> None:
    known = Laid(
        sources={f"{TEAM}/flags": source_object(*SOURCES, **SPECS[name])},
        flags={f"{TEAM}/shop": {}, f"{TEAM}/shop.flags": {}},
        state=ProxyState(1, 0),
    )
    stored = created(namespace, owned({ENABLED: "true", FEATURE_FLAG_SOURCE: "flags"}), known)
    (agent,) = stored["spec"]["initContainers"]
    assert agent["restartPolicy"] == "Always"
    again = admit_pod(PodRequest(object=stored, namespace=TEAM), known, OperatorSettings())
    assert isinstance(again, Allowed)
    assert again.patch == ()


def test_an_in_process_environment_is_accepted_and_stays(namespace: Namespace) -> None:
    known = Laid(in_process={f"{TEAM}/flags": in_process_object(envVars=ENVIRONMENT[1:], tls=True)})
    stored = created(namespace, owned({ENABLED: "true", IN_PROCESS_CONFIGURATION: "flags"}), known)
    assert all(each["env"][-1]["name"] == "FLAGD_RESOLVER" for each in stored["spec"]["containers"])
    again = admit_pod(PodRequest(object=stored, namespace=TEAM), known, OperatorSettings())
    assert again == Allowed()
