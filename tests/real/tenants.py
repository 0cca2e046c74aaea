"""Two tenants of one cluster: `alice`, whose flags are to be safe, and `mallory`, who owns another namespace.

Alice has flags by each way that leads from a FeatureFlag to an agent, and a mark in all that is hers alone. Mallory may
do everything in a namespace of her own, with a token of her own, and nothing elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.operated import SYSTEM
from tests.real.processes import until
from tests.real.rest import Answer, RestError
from tests.real.workloads import App, deployment, in_process, resolve, source, template
from wigwag.operator.names import PODS_RETRIED, ObjectName, access_name

RBAC = "rbac.authorization.k8s.io/v1"
MARK = "only-alice-may-read-this"
WAYS = {"direct": "kubernetes", "mounted": "file", "proxied": "flagd-proxy"}
"""Alice's flags, and the provider by which her agent gets each."""
GUARDED = (
    *((OPENFEATURE, kind) for kind in ("FeatureFlag", "FeatureFlagSource", "InProcessConfiguration", "Flagd")),
    *(("v1", kind) for kind in ("ConfigMap", "Service", "ServiceAccount", "Secret")),
    *((RBAC, kind) for kind in ("Role", "RoleBinding")),
    ("apps/v1", "Deployment"),
)
_CONTENT = ("spec", "data", "binaryData", "rules", "roleRef", "subjects")
_ABOUT = ("uid", "labels", "annotations", "ownerReferences")


def flag_document(key: str, value: str) -> dict[str, Any]:
    return {"flags": {key: {"state": "ENABLED", "variants": {"v": value}, "defaultVariant": "v"}}}


@dataclass(frozen=True)
class Alice:
    """The tenant who is attacked; the administrator asks for her."""

    namespace: Namespace

    @classmethod
    def settle(cls, cluster: Cluster) -> Alice:
        """Make all that is hers, and wait until her agent serves it."""
        alice = cls(cluster.add_namespace(f"alice-{uuid4().hex[:8]}"))
        for name in WAYS:
            alice.set(name, MARK)
        entries = [{"source": name, "provider": provider} for name, provider in WAYS.items()]
        alice.namespace.apply(source("hers", *entries, envVars=[{"name": "NOTE", "value": MARK}]))
        App(Namespace(cluster, SYSTEM), "flagd-proxy").ready()  # before, her pods would be refused, and tried again
        alice.namespace.apply(in_process("local", envVars=[{"name": "NOTE", "value": MARK}]))
        alice.namespace.apply(deployment("web", "hers"))
        alice.serves(MARK)
        return alice

    @property
    def name(self) -> str:
        return self.namespace.name

    def set(self, flag: str, value: str) -> None:
        self.namespace.feature_flag(flag, flag_document(flag, value))

    def serves(self, value: str) -> None:
        """Wait until her agent has a value for all flags."""
        pod = App(self.namespace, "web").ready()
        for name in WAYS:
            until(lambda name=name: resolve(pod, name, "String").get("value") == value, f"{name}={value}")  # type: ignore[misc]

    def possessions(self) -> dict[str, Any]:
        """Return what her objects say, without what is said about them."""
        found: dict[str, Any] = {}
        for api, kind in GUARDED:
            for each in self.namespace.cluster.get(self.namespace.path(api, kind))["items"]:
                about = {name: each["metadata"].get(name) for name in _ABOUT}
                (about["annotations"] or {}).pop(PODS_RETRIED, None)  # of her own pods, perhaps a moment ago
                content = {name: each[name] for name in _CONTENT if name in each}
                found[f"{kind} {each['metadata']['name']}"] = {**about, **content}
        return found


@dataclass(frozen=True)
class Mallory:
    """The tenant who attacks: `namespace` is asked with her own token."""

    namespace: Namespace
    admin: Namespace

    @classmethod
    def settle(cls, cluster: Cluster) -> Mallory:
        admin = cluster.add_namespace(f"mallory-{uuid4().hex[:8]}")
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
        subject = {"kind": "ServiceAccount", "name": "mallory", "namespace": admin.name}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "owner"}
        about = {"apiVersion": RBAC, "metadata": {"name": "owner"}}
        admin.apply({**about, "kind": "Role", "rules": [everything]})
        admin.apply({**about, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]})
        access = admin.account("mallory")
        cluster.await_right(f"{admin.name}:mallory", "create", admin.name, resource="configmaps")
        return cls(Namespace(cluster.as_user(access), admin.name), admin)

    @property
    def name(self) -> str:
        return self.namespace.name

    def tries(self, manifest: dict[str, Any]) -> None:
        """Apply something, whether the API server lets her or not."""
        with suppress(RestError):
            self.namespace.apply(manifest)

    def pod(self, annotations: dict[str, str], **spec: Any) -> Answer:
        """Have a pod admitted in a dry run, with an owner that does not exist."""
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": str(uuid4())}
        made = template("probe", None, annotations, **spec)
        metadata = {**made["metadata"], "name": f"probe-{uuid4().hex[:8]}", "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}
        path = self.namespace.path("v1", "Pod")
        return self.namespace.cluster.rest.ask("POST", path, body, query={"dryRun": "All"})

    def waits(self) -> None:
        """Wait until the operator has worked on all that she has done: her keys are worked on in order."""
        name = f"last-{uuid4().hex[:8]}"
        self.namespace.feature_flag(name, flag_document("x", "y"))
        self.namespace.apply(source(name, {"source": name, "provider": "kubernetes"}))
        self.namespace.apply(deployment(name, name, replicas=0, serviceAccountName=name))
        statuses = [self.namespace.path(OPENFEATURE, kind, name) for kind in ("FeatureFlag", "FeatureFlagSource")]
        cluster = self.admin.cluster
        until(lambda: all(cluster.get(path).get("status") for path in statuses), "a status of what came last")
        from_operator = self.admin.path(RBAC, "Role", access_name(ObjectName(self.name, name)))
        until(lambda: cluster.exists(from_operator), "the right of what came last")

    def sees(self) -> str:
        """Return all that is in her namespace, as text."""
        return "".join(self._objects())

    def _objects(self) -> Iterator[str]:
        for api, kind in (*GUARDED, ("v1", "Pod"), ("v1", "Event"), ("apps/v1", "ReplicaSet")):
            yield json.dumps(self.namespace.cluster.get(self.namespace.path(api, kind))["items"])
