"""A Kubernetes API as a test sees it: apply a manifest, follow a list, make accounts and say what they may do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from tests.real.access import Access
from tests.real.processes import until
from tests.real.rest import Answer, Rest, RestError

Manifest = Mapping[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
OPENFEATURE = "core.openfeature.dev/v1beta1"


@dataclass(frozen=True)
class Cluster:
    """The API, asked as an administrator unless `as_user` says otherwise."""

    access: Access
    controllers: bool = True
    """Whether a controller-manager runs."""

    @cached_property
    def rest(self) -> Rest:
        """The HTTP client underneath, for what is not foreseen here."""
        return self.access.rest()

    def as_user(self, access: Access) -> Cluster:
        """Return the same cluster, asked by somebody else."""
        return Cluster(access, self.controllers)

    def path(self, api: str, kind: str, namespace: str = "", name: str = "") -> str:
        """Return where objects of a kind are. The server says what the kind is called in addresses, once."""
        if (api, kind) not in self._kinds:
            self._kinds.update(self._discovered(api))
        assert (api, kind) in self._kinds, f"the API server has no {kind} in {api}"
        plural, namespaced = self._kinds[api, kind]
        scope = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return f"{_root(api)}{scope}/{plural}" + (f"/{name}" if name else "")

    @cached_property
    def _kinds(self) -> dict[tuple[str, str], tuple[str, bool]]:
        return {}

    def _discovered(self, api: str) -> dict[tuple[str, str], tuple[str, bool]]:
        resources = self.rest.call("GET", _root(api)).json["resources"]
        return {(api, one["kind"]): (one["name"], one["namespaced"]) for one in resources if "/" not in one["name"]}

    def path_of(self, manifest: Manifest) -> str:
        """Return where the object of a manifest is."""
        about = manifest["metadata"]
        return self.path(manifest["apiVersion"], manifest["kind"], about.get("namespace", ""), about["name"])

    def apply(self, manifest: Manifest) -> Any:
        """Make the object as the manifest says, and return it."""
        query = {"fieldManager": "tests", "force": "true"}
        return self.rest.call("PATCH", self.path_of(manifest), manifest, query=query, kind=APPLY).json

    def apply_files(self, paths: Iterable[Path]) -> list[Any]:
        """Apply every document of YAML files, and return the objects."""
        return [self.apply(manifest) for path in paths for manifest in yaml.safe_load_all(path.read_text())]

    def get(self, path: str) -> Any:
        """Return the object or list at an address."""
        return self.rest.call("GET", path).json

    def patch(self, path: str, change: Manifest) -> Any:
        """Merge a change into an object."""
        return self.rest.call("PATCH", path, change, kind=MERGE).json

    def delete(self, path: str) -> Answer:
        """Delete an object."""
        return self.rest.call("DELETE", path)

    def exists(self, path: str) -> bool:
        """Tell whether there is an object; being forbidden to know is an error."""
        answer = self.rest.ask("GET", path)
        if answer.status not in (200, 404):
            raise RestError("GET", path, answer.status, answer.body)
        return answer.status == 200

    def watch(self, path: str, version: str = "", **query: str) -> AbstractContextManager[Iterator[Any]]:
        """Follow the changes of a list after a resource version."""
        return self.rest.lines(path, {"watch": "true", "resourceVersion": version, **query})

    def add_namespace(self, name: str = "") -> Namespace:
        """Make a namespace that is ready for pods: the controllers have made in it what they make in each."""
        made = Namespace(self, name or f"test-{uuid4().hex[:12]}")
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made.name}})
        if self.controllers:
            for kind, expected in (("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")):
                path = self.path("v1", kind, made.name, expected)
                until(lambda path=path: self.exists(path), f"{path} being there")  # type: ignore[misc]
        return made

    def await_right(self, account: str, verb: str, namespace: str = "", **attributes: str) -> None:
        """Wait until a service account may do something: roles count a moment after they are made."""
        until(lambda: self.has_right(account, verb, namespace, **attributes), f"the right to {verb} {attributes}")

    def has_right(self, account: str, verb: str, namespace: str = "", **attributes: str) -> bool:
        """Tell whether a service account (`NAMESPACE:NAME`) may do something.

        `attributes` are those of a SubjectAccessReview: `group`, `resource`, `subresource` and `name`.
        """
        asked = {"verb": verb, "namespace": namespace, **attributes}
        spec = {"user": f"system:serviceaccount:{account}", "resourceAttributes": asked}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self.rest.call("POST", path, review).json["status"]["allowed"])

    def install(self, definitions: Sequence[Path]) -> None:
        """Apply custom resource definitions from files, and wait until they are served."""
        self.define([manifest for path in definitions for manifest in yaml.safe_load_all(path.read_text())])

    def define(self, definitions: Sequence[Manifest]) -> None:
        """Apply custom resource definitions, and wait until they are served."""
        made = [self.path_of(self.apply(manifest)) for manifest in definitions]
        until(lambda: all(map(self._is_served, made)), "the custom resource definitions being served")

    def _is_served(self, definition: str) -> bool:
        found = self.get(definition)
        conditions = found.get("status", {}).get("conditions") or []
        if not any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
            return False
        spec = found["spec"]
        served = next(each["name"] for each in spec["versions"] if each["served"])
        path = f"/apis/{spec['group']}/{served}/{spec['names']['plural']}"
        return self.rest.ask("GET", path, query={"limit": 1}).status == 200  # which comes a moment later


@dataclass(frozen=True)
class Namespace:
    """A namespace of one test."""

    cluster: Cluster
    name: str

    def path(self, api: str, kind: str, name: str = "") -> str:
        """Return where objects of a kind are in this namespace."""
        return self.cluster.path(api, kind, self.name, name)

    def apply(self, manifest: Manifest) -> Any:
        """Make an object in this namespace."""
        return self.cluster.apply({**manifest, "metadata": {**manifest["metadata"], "namespace": self.name}})

    def feature_flag(self, name: str, spec: Manifest) -> Any:
        """Make or replace a FeatureFlag; `spec` is its `flagSpec`."""
        about = {"apiVersion": OPENFEATURE, "kind": "FeatureFlag", "metadata": {"name": name}}
        return self.apply({**about, "spec": {"flagSpec": spec}})

    def account(self, name: str, seconds: int = 3600, bound: Manifest | None = None) -> Access:
        """Make a service account, and return its access, with a fresh token each time.

        A token that is `bound` to an object ends with it. The API server remembers a token that it has seen for ten
        seconds: so long it outlives its account.
        """
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
        path = f"{self.path('v1', 'ServiceAccount', name)}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        spec = {"expirationSeconds": seconds, **({"boundObjectRef": bound} if bound else {})}
        made = self.cluster.rest.call("POST", path, {**request, "spec": spec}).json
        return Access(self.cluster.access.server, self.cluster.access.authority, made["status"]["token"])

    def allow(
        self, account: str, resource: str, verbs: Sequence[str], *, names: Sequence[str] = (), group: str = ""
    ) -> None:
        """Let a service account do something here, with the named objects or with all of them; from now on it may."""
        rule = {"apiGroups": [group], "resources": [resource], "verbs": [*verbs], "resourceNames": [*names]}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.name}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": account}}
        self.apply({**about, "kind": "Role", "rules": [rule]})
        self.apply({**about, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]})
        kind, _, part = resource.partition("/")
        asked = {"group": group, "resource": kind, "subresource": part, "name": next(iter(names), "")}
        self.cluster.await_right(f"{self.name}:{account}", verbs[0], self.name, **asked)

    def remove(self) -> None:
        """Delete the namespace; the controllers take away what is in it, later."""
        self.cluster.delete(self.cluster.path("v1", "Namespace", name=self.name))


def _root(api: str) -> str:
    return f"/apis/{api}" if "/" in api else f"/api/{api}"
