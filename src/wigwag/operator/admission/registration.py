"""How the webhooks are registered: both webhook configurations as they should be, and what to patch in existing ones.

The pod webhook has `failurePolicy: Fail`, and is safe with it, because no other pods depend on us: match conditions in
CEL let only pods through that ask for injection, on CREATE only. System namespaces and our own are left out, so that a
cluster, and this operator, can always start. Mirror pods are left out, because the kubelet has started them already.

The FeatureFlag webhook is called only if the spec has changed: finalizers, labels and deletions pass while we are down.

The hard case is a configuration that somebody else applies (Helm, GitOps, the original's manifests). Then only its
`caBundle` is ours. It is patched webhook by webhook, each guarded by a test of its name, because an index may mean
another one by the time that the patch arrives. Where cert-manager injects the CA, nothing is patched.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from wigwag.kube.kinds import FEATURE_FLAG, Kind
from wigwag.operator.names import ENABLED, MIRROR, POD_WEBHOOK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MUTATING = Kind(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", False, "MutatingWebhookConfiguration"
)
VALIDATING = Kind(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", False, "ValidatingWebhookConfiguration"
)
MUTATING_NAME = "open-feature-operator-mutating-webhook-configuration"
VALIDATING_NAME = "open-feature-operator-validating-webhook-configuration"
FLAG_WEBHOOK = "vfeatureflag.kb.io"
POD_PATH, FLAG_PATH = "/mutate-v1-pod", "/validate-core-openfeature-dev-v1beta1-featureflag"
_PATHS = {POD_WEBHOOK: POD_PATH, FLAG_WEBHOOK: FLAG_PATH}
SYSTEM_NAMESPACES = "kube-system", "kube-public", "kube-node-lease"
INJECTED = "cert-manager.io/inject-ca-from"
"""The annotation of a configuration whose `caBundle` cert-manager writes."""
TIMEOUT_SECONDS = 5
_ANNOTATED = "has(object.metadata.annotations) && '{0}' in object.metadata.annotations"
POD_CONDITIONS = {
    "openfeature-enabled": f"{_ANNOTATED.format(ENABLED)} && object.metadata.annotations['{ENABLED}'] == 'true'",
    "not-a-mirror-pod": f"!({_ANNOTATED.format(MIRROR)})",
}
FLAG_CONDITIONS = {
    "spec-changed": "oldObject == null || has(object.spec) != has(oldObject.spec)"
    " || (has(object.spec) && object.spec != oldObject.spec)",
    "not-deleted": "!has(object.metadata.deletionTimestamp)",
}


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """Where the API server reaches the webhooks, and whom it trusts there."""

    bundle: str
    """The CAs, as PEM; empty where they are filled in later."""
    namespace: str = "open-feature-operator-system"
    """Of the operator."""
    service: str = "open-feature-operator-webhook-service"
    port: int = 443
    url: str = ""
    """Of a server outside of the cluster, instead of the Service: `https://HOST:PORT`."""

    def client(self, path: str) -> dict[str, Any]:
        """Return the `clientConfig` of a webhook."""
        trusted = {"caBundle": b64encode(self.bundle.encode()).decode()} if self.bundle else {}
        if self.url:
            return {"url": f"{self.url}{path}", **trusted}
        service = {"namespace": self.namespace, "name": self.service, "path": path, "port": self.port}
        return {"service": service, **trusted}


def mutating(endpoint: WebhookEndpoint, name: str = MUTATING_NAME, *, fail: bool = True) -> dict[str, Any]:
    """Return the configuration of the pod webhook. Without `fail`, pods start uninjected while we are down."""
    excluded = sorted({*SYSTEM_NAMESPACES, endpoint.namespace})
    webhook = _webhook(endpoint.client(POD_PATH), POD_WEBHOOK, Kind("", "v1", "pods"), ("CREATE",), POD_CONDITIONS)
    expression = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded}
    webhook |= {
        "failurePolicy": "Fail" if fail else "Ignore",
        "namespaceSelector": {"matchExpressions": [expression]},
        "reinvocationPolicy": "Never",  # a second call costs 1 ms; only containers that others add later would gain
    }
    return _configuration(MUTATING, name, webhook)


def validating(endpoint: WebhookEndpoint, name: str = VALIDATING_NAME, *, fail: bool = True) -> dict[str, Any]:
    """Return the configuration of the FeatureFlag webhook. Without `fail`, flags are not checked while we are down."""
    operations = "CREATE", "UPDATE"
    webhook = _webhook(endpoint.client(FLAG_PATH), FLAG_WEBHOOK, FEATURE_FLAG, operations, FLAG_CONDITIONS)
    return _configuration(VALIDATING, name, webhook | {"failurePolicy": "Fail" if fail else "Ignore"})


def bundle_patch(observed: Mapping[str, Any], bundle: str, secret: str = "") -> list[dict[str, Any]]:
    """Return the JSON Patch that gives our webhooks in a configuration this bundle; empty if there is nothing to do.

    With `secret`, their paths end in it: who does not read the configuration cannot call them.
    """
    if INJECTED in (observed.get("metadata", {}).get("annotations") or {}):
        return []
    value = b64encode(bundle.encode()).decode()
    operations: list[dict[str, Any]] = []
    for at, webhook in _ours(observed):
        client, place = webhook.get("clientConfig", {}), f"/webhooks/{at}/clientConfig"
        wanted = {f"{place}/caBundle": value} if client.get("caBundle") != value else {}
        if secret:
            wanted |= _private_path(client, place, f"{_PATHS[webhook['name']]}/{secret}")
        if wanted:
            operations.append({"op": "test", "path": f"/webhooks/{at}/name", "value": webhook["name"]})
            operations += [{"op": "add", "path": path, "value": each} for path, each in wanted.items()]
    return operations


def _private_path(client: Mapping[str, Any], place: str, path: str) -> dict[str, str]:
    """Return what to set so that a webhook is called at a path; nothing if it is."""
    if "url" in client:
        url = urlsplit(client["url"])
        return {} if url.path == path else {f"{place}/url": urlunsplit(url._replace(path=path))}
    return {} if client.get("service", {}).get("path") == path else {f"{place}/service/path": path}


def published(observed: Iterable[Mapping[str, Any]]) -> str:
    """Return the bundle that all our webhooks in these configurations have; empty if they differ."""
    bundles = {_decoded(webhook) for configuration in observed for _, webhook in _ours(configuration)}
    return bundles.pop() if len(bundles) == 1 else ""


def _ours(configuration: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return our webhooks and where they are; a configuration may have webhooks of others, too."""
    webhooks = enumerate(configuration.get("webhooks") or ())
    return [(at, each) for at, each in webhooks if each.get("name") in (POD_WEBHOOK, FLAG_WEBHOOK)]


def _decoded(webhook: Mapping[str, Any]) -> str:
    try:
        return b64decode(webhook.get("clientConfig", {}).get("caBundle") or "").decode()
    except (Base64Error, UnicodeDecodeError):
        return ""


def _webhook(
    client: Mapping[str, Any], name: str, kind: Kind, operations: Sequence[str], conditions: Mapping[str, str]
) -> dict[str, Any]:
    rule = {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "resources": [kind.plural],
        "operations": list(operations),
        "scope": "Namespaced",
    }
    return {
        "name": name,
        "clientConfig": dict(client),
        "rules": [rule],
        "matchConditions": [{"name": each, "expression": expression} for each, expression in conditions.items()],
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    }


def _configuration(kind: Kind, name: str, webhook: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api, "kind": kind.kind, "metadata": {"name": name}, "webhooks": [dict(webhook)]}
