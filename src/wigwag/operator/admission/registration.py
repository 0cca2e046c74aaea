"""How the webhooks are registered: both webhook configurations as they should be, and what to patch in existing ones.

The pod webhook has `failurePolicy: Fail`, and is safe with it, because no other pods depend on us: match conditions in
CEL let only pods through that ask for injection, on CREATE only. System namespaces and our own are left out, so that a
cluster, and this operator, can always start. Mirror pods are left out, because the kubelet has started them already.

The webhook for workloads is called only for those that carry flags, and only if these or the marks in the pod template
have changed or do not fit: a Deployment can be scaled, and its controller can write its status, while we are down.

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

from wigwag.kube.kinds import CRON_JOB, DAEMON_SET, DEPLOYMENT, FEATURE_FLAG, JOB, STATEFUL_SET, Kind
from wigwag.operator.directset.workload import MARKS
from wigwag.operator.names import (
    DIRECT_SET,
    ENABLED,
    FLAG_ANNOTATIONS,
    INLINE_FLAGS,
    MIRROR,
    POD_WEBHOOK,
    REVISION,
    STANDING_ORDERS,
)
from wigwag.operator.revisions import DEFAULT, Ownership
from wigwag.sources.kubernetes.references import ORDERS

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
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has."""
FLAG_WEBHOOK, WORKLOAD_WEBHOOK = "vfeatureflag.kb.io", "workloads.openfeature.dev"
UNLABELLED = "unlabelled."
"""How the names of webhooks begin that are for namespaces without a revision."""
POD_PATH, FLAG_PATH = "/mutate-v1-pod", "/validate-core-openfeature-dev-v1beta1-featureflag"
OUR_WEBHOOKS = (POD_WEBHOOK, FLAG_WEBHOOK, WORKLOAD_WEBHOOK)
WORKLOAD_PATH = "/mutate-workload"
_PATHS = {POD_WEBHOOK: POD_PATH, FLAG_WEBHOOK: FLAG_PATH, WORKLOAD_WEBHOOK: WORKLOAD_PATH}
SYSTEM_NAMESPACES = "kube-system", "kube-public", "kube-node-lease"
INJECTED = "cert-manager.io/inject-ca-from"
"""The annotation of a configuration whose `caBundle` cert-manager writes."""
TIMEOUT_SECONDS = 5
_ANNOTATED = "has(object.metadata.annotations) && '{0}' in object.metadata.annotations"
_OWN, _OLD = "object.metadata.?annotations", "oldObject.metadata.?annotations"
_POD = "(has({0}.spec.jobTemplate) ? {0}.spec.jobTemplate.spec.template : {0}.spec.template).?metadata.?annotations"
_TEMPLATE, _OLD_TEMPLATE = _POD.format("object"), _POD.format("oldObject")
POD_CONDITIONS = {
    "openfeature-enabled": f"{_ANNOTATED.format(ENABLED)} ? object.metadata.annotations['{ENABLED}'] == 'true'"
    f" : {list(FLAG_ANNOTATIONS)}.exists(name, {_OWN}[?name].hasValue())",
    "not-a-mirror-pod": f"!({_ANNOTATED.format(MIRROR)})",
}
_CARRIED = [INLINE_FLAGS, *ORDERS, *(f"{each}-namespace" for each in ORDERS)]
_CHANGED = (
    "oldObject == null",
    f"{_CARRIED}.exists(name, {_OWN}[?name].orValue('') != {_OLD}[?name].orValue(''))",
    f"{_TEMPLATE}.orValue({{}}) != {_OLD_TEMPLATE}.orValue({{}})",
    f"{_OWN}[?'{INLINE_FLAGS}'].hasValue() != {_TEMPLATE}[?'{DIRECT_SET}'].hasValue()",
    f"{list(ORDERS)}.exists(name, {_OWN}[?name].hasValue()) != {_TEMPLATE}[?'{STANDING_ORDERS}'].hasValue()",
)
WORKLOAD_CONDITIONS = {
    "carries-flags": f"{_CARRIED}.exists(name, {_OWN}[?name].hasValue())"
    f" || {[INLINE_FLAGS, *MARKS]}.exists(name, {_TEMPLATE}[?name].hasValue())",
    "flags-changed": " || ".join(_CHANGED),
    "not-deleted": "!has(object.metadata.deletionTimestamp)",
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
    namespaces: tuple[str, ...] = ()
    """Those that the operator serves; empty: all."""
    excluded: tuple[str, ...] = ()
    """Those that it leaves to other operators."""

    def client(self, path: str) -> dict[str, Any]:
        """Return the `clientConfig` of a webhook."""
        trusted = {"caBundle": b64encode(self.bundle.encode()).decode()} if self.bundle else {}
        if self.url:
            return {"url": f"{self.url}{path}", **trusted}
        service = {"namespace": self.namespace, "name": self.service, "path": path, "port": self.port}
        return {"service": service, **trusted}


def configuration_names(namespaces: Sequence[str], own: str, revision: str = "") -> tuple[str, str]:
    """Return the names of both configurations: of one of several operators, with what tells it apart in them.

    >>> configuration_names(["team-a"], "flags")[0]
    'open-feature-operator-mutating-webhook-configuration-flags'
    """
    suffix, ownership = f"-{own}" if namespaces else "", Ownership(revision)
    return ownership.name(f"{MUTATING_NAME}{suffix}"), ownership.name(f"{VALIDATING_NAME}{suffix}")


def mutating(endpoint: WebhookEndpoint, name: str = "", *, fail: bool = True, revision: str = "") -> dict[str, Any]:
    """Return the configuration of the webhooks for pods and workloads.

    Without `fail`, pods start uninjected while we are down, and flags that workloads carry are not checked.
    """
    usual, _ = configuration_names(endpoint.namespaces, endpoint.namespace, revision)
    pods = _webhook(endpoint.client(POD_PATH), POD_WEBHOOK, Kind("", "v1", "pods"), ("CREATE",), POD_CONDITIONS)
    workloads = _webhook(
        endpoint.client(WORKLOAD_PATH), WORKLOAD_WEBHOOK, DEPLOYMENT, ("CREATE", "UPDATE"), WORKLOAD_CONDITIONS
    )
    workloads["rules"] = [
        {**workloads["rules"][0], "apiGroups": [group], "resources": [each.plural for each in kinds]}
        for group, kinds in (("apps", (DEPLOYMENT, STATEFUL_SET, DAEMON_SET)), ("batch", (JOB, CRON_JOB)))
    ]
    more = {
        "failurePolicy": "Fail" if fail else "Ignore",
        "namespaceSelector": _selector(endpoint, {*SYSTEM_NAMESPACES, endpoint.namespace}),
        "reinvocationPolicy": "Never",  # a second call costs 1 ms; only containers that others add later would gain
    }
    of_pods = _revised(pods | more, revision, pod_label_condition(revision))
    of_workloads = _revised(workloads | more, revision, "true" if revision == DEFAULT else "")
    return _configuration(MUTATING, name or usual, [*of_pods, *of_workloads])


def validating(endpoint: WebhookEndpoint, name: str = "", *, fail: bool = True, revision: str = "") -> dict[str, Any]:
    """Return the configuration of the FeatureFlag webhook. Without `fail`, flags are not checked while we are down."""
    _, usual = configuration_names(endpoint.namespaces, endpoint.namespace, revision)
    operations = "CREATE", "UPDATE"
    webhook = _webhook(endpoint.client(FLAG_PATH), FLAG_WEBHOOK, FEATURE_FLAG, operations, FLAG_CONDITIONS)
    webhook |= {"failurePolicy": "Fail" if fail else "Ignore"}
    if endpoint.namespaces or endpoint.excluded:
        webhook["namespaceSelector"] = _selector(endpoint, set())
    webhooks = _revised(webhook, revision, "true" if revision == DEFAULT else "")
    return _configuration(VALIDATING, name or usual, webhooks)


def pod_label_condition(revision: str) -> str:
    """Return the CEL expression for pods of a revision, in namespaces that name none."""
    labelled = f"has(object.metadata.labels) && '{REVISION}' in object.metadata.labels"
    named = f"{labelled} && object.metadata.labels['{REVISION}'] == '{revision}'"
    return f"!({labelled}) || ({named})" if revision == DEFAULT else named


def _revised(webhook: Mapping[str, Any], revision: str, unlabelled: str) -> list[dict[str, Any]]:
    """Return the webhooks of an operator with a revision: a selector has no "or", so there are two.

    One is for namespaces that name the revision. The other is for namespaces without a label, for objects that meet the
    condition `unlabelled`; it is left out without one.
    """
    if not revision:
        return [dict(webhook)]
    given = webhook.get("namespaceSelector", {}).get("matchExpressions", [])
    named = {"key": REVISION, "operator": "In", "values": [revision]}
    webhooks = [{**webhook, "namespaceSelector": {"matchExpressions": [*given, named]}}]
    if unlabelled:
        others = [*given, {"key": REVISION, "operator": "DoesNotExist"}]
        condition = {"name": "revision", "expression": unlabelled}
        webhooks.append(
            {
                **webhook,
                "name": f"{UNLABELLED}{webhook['name']}",
                "namespaceSelector": {"matchExpressions": others},
                "matchConditions": [*webhook["matchConditions"], condition],
            }
        )
    return webhooks


def _selector(endpoint: WebhookEndpoint, never: set[str]) -> dict[str, Any]:
    """Return the selector of namespaces: those that are served, or all but some."""
    if endpoint.namespaces:  # the operator's own may be among them
        served = {"key": NAMESPACE_NAME, "operator": "In", "values": sorted(endpoint.namespaces)}
        return {"matchExpressions": [served]}
    left_out = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": sorted({*endpoint.excluded} | never)}
    return {"matchExpressions": [left_out]}


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
    return [(at, each) for at, each in webhooks if each.get("name", "").removeprefix(UNLABELLED) in OUR_WEBHOOKS]


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


def _configuration(kind: Kind, name: str, webhooks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": kind.api, "kind": kind.kind, "metadata": {"name": name}, "webhooks": [*webhooks]}
