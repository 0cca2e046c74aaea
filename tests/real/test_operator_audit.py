"""The rights that `deploy` gives are the least that do: the API server writes down which of them are used.

The operator works through a day of all its duties, as its own account. Then every verb of every rule must have been
used, or it goes from the manifests; and nothing must have been refused, or it is missing there. The same for the proxy,
and for agents that read FeatureFlags by the Roles which the operator makes.

Streamed lists are off: with them the first objects come with `watch`, and `list` is only needed by older servers.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.agent.process import AgentProcess
from tests.operator.known import Laid
from tests.proxy.process import ProxyProcess, subscribed
from tests.real import programs
from tests.real.access import Access
from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.conftest import loudly
from tests.real.controlplane import ControlPlane
from tests.real.gateway import install_routes
from tests.real.processes import until
from tests.real.test_admission import flag
from tests.real.test_deploy import await_rights, registered
from tests.real.test_operator import RunningOperator
from tests.real.test_operator_controllers import conditions, sourced
from tests.real.test_proxy_auth import document, streaming
from tests.test_deploy import SYSTEM, overlay
from wigwag.operator.admission.registration import VALIDATING
from wigwag.operator.directset.generated import LABEL
from wigwag.operator.injection.proxytrust import CERTIFICATE
from wigwag.operator.names import (
    AGENT,
    ENABLED,
    FLAGS_CHANGED,
    INLINE_FLAGS,
    OPERATOR_ACCOUNT,
    PROXY_ACCOUNT,
    REMARKS,
    SYNC_BINDING,
    ObjectName,
)
from wigwag.operator.reconcile.access import access_objects
from wigwag.operator.reconcile.usage import FlagUse
from wigwag.operator.settings import read_settings
from wigwag.sources.kubernetes.names import CRITICAL

RBAC = "rbac.authorization.k8s.io/v1"
ADDING = ("cluster-role-binding", "kill-switch", "proxy-auth")
"""The components that add rights."""
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class Right(NamedTuple):
    """A verb for a resource, as a rule allows it or a request uses it."""

    group: str
    resource: str
    verb: str
    name: str = ""
    """Empty: of any name."""


class AuditedPlane:
    """A control plane that writes down who asks for what."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._log, policy = folder / "audit.log", folder / "policy.json"
        policy.write_text(json.dumps(POLICY))
        flags = [f"--audit-policy-file={policy}", f"--audit-log-path={self._log}", "--feature-gates=WatchList=false"]
        found = programs.kubernetes()._replace(controllers=None)
        self.plane = ControlPlane(folder / "plane", found, flags, definitions=())
        self.cluster = self.plane.cluster

    def requests(self, account: str, namespace: str = SYSTEM) -> list[dict[str, Any]]:
        """Return what a service account has asked for, of objects."""
        user = f"system:serviceaccount:{namespace}:{account}"
        lines = self._log.read_text().splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be being written
        return [each for each in entries if each["user"]["username"] == user and "objectRef" in each]

    def rights(self, account: str, *namespaces: str) -> set[Right]:
        """Return what the roles of an account allow in these namespaces, and everywhere."""
        rights: set[Right] = set()
        for scope, namespace in (("Cluster", ""), *(("", each) for each in namespaces)):
            for binding in self.cluster.get(self.cluster.path(RBAC, f"{scope}RoleBinding", namespace))["items"]:
                if account in {each["name"] for each in binding.get("subjects") or ()}:
                    name, kind = binding["roleRef"]["name"], binding["roleRef"]["kind"]
                    role = self.cluster.get(self.cluster.path(RBAC, kind, namespace if kind == "Role" else "", name))
                    rights |= {right for rule in role["rules"] for right in allowed(rule)}
        return rights


def allowed(rule: dict[str, Any]) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or [""]:
                    yield Right(group, resource, verb, name)


def used(requests: list[dict[str, Any]]) -> set[Right]:
    """Return the rights that were used, each with and without the name of the object."""
    rights: set[Right] = set()
    for each in requests:
        about = each["objectRef"]
        resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
        right = Right(about.get("apiGroup", ""), resource, each["verb"])
        rights |= {right, right._replace(name=about.get("name", ""))}
        if each["verb"] == "patch" and each["responseStatus"]["code"] == 201:  # a new object by server-side apply
            rights.add(right._replace(verb="create"))
    return rights


def refused(requests: list[dict[str, Any]]) -> set[str]:
    return {f"{each['verb']} {each['requestURI']}" for each in requests if each["responseStatus"]["code"] == 403}


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[AuditedPlane]:
    """With the components that add rights; cert-manager takes some away."""
    with loudly("KUBERNETES"):
        made = AuditedPlane(tmp_path / "audit")
    with made.plane:
        install_routes(made.cluster)
        config = made.cluster.access.kubeconfig(tmp_path / "admin.kubeconfig")
        command = ["apply", "--server-side", f"--kubeconfig={config}", "-k", overlay(tmp_path, *ADDING)]
        subprocess.run([str(programs.kubernetes().kubectl), *map(str, command)], check=True, capture_output=True)
        yield made


def flagd(**spec: Any) -> dict[str, Any]:
    about = {"apiVersion": OPENFEATURE, "kind": "Flagd", "metadata": {"name": "served"}}
    return {**about, "spec": {"featureFlagSource": "remote", **spec}}


def source(name: str, provider: str, **spec: Any) -> dict[str, Any]:
    about = {"apiVersion": OPENFEATURE, "kind": "FeatureFlagSource", "metadata": {"name": name}}
    return {**about, "spec": {"sources": [{"source": "shop", "provider": provider}], **spec}}


def carrying(api: str, kind: str, text: str) -> dict[str, Any]:
    """Return an object with flags in its annotation; there is nobody who would make pods of it."""
    made = sourced(kind if api == "apps/v1" else "DaemonSet", "carrier")
    template = {"metadata": {"labels": {"app": "carrier"}}, "spec": made["spec"]["template"]["spec"]}
    spec = {**made["spec"], "template": template}
    if api == "batch/v1":
        job = {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}
        spec = job if kind == "Job" else {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}
    metadata = {"name": "carrier", "annotations": {INLINE_FLAGS: text}}
    if kind == "Pod":  # as the webhook leaves it, which does not see this one
        metadata = {"name": "carrier", "labels": LABEL, "annotations": {INLINE_FLAGS: text, ENABLED: "false"}}
        spec = template["spec"]
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


class Day:
    """What happens to an operator: each of its duties at least once."""

    def __init__(self, cluster: Cluster, team: Namespace, *, components: bool = True) -> None:
        """Without `components`, what needs the rights of one is left out."""
        self._cluster, self._team, self._components = cluster, team, components

    def run(self) -> None:
        self._certificates()
        self._apply(flag("on", name="shop"))
        for name, provider in (("api", "kubernetes"), ("mounted", "file"), ("proxied", "flagd-proxy")):
            self._apply(source(name, provider))
        self._apply(source("remote", "http", rolloutOnChange=True))
        self._apply({"apiVersion": OPENFEATURE, "kind": "InProcessConfiguration", "metadata": {"name": "local"}})
        self._workloads()
        self._carriers()
        self._proxy()
        self._flagd()

    def _apply(self, manifest: dict[str, Any]) -> None:
        self._team.apply(manifest)

    def _until(self, api: str, kind: str, name: str, *, exists: bool = True) -> None:
        path = self._team.path(api, kind, name)
        until(lambda: self._cluster.exists(path) is exists, f"{kind} {name}")

    def _of_agents(self, kind: str) -> list[str]:
        """Return the names of Roles or RoleBindings that the operator has made for agents."""
        found = [each["metadata"]["name"] for each in self._cluster.get(self._team.path(RBAC, kind))["items"]]
        return [name for name in found if name.startswith("flagd-")]

    def _certificates(self) -> None:
        """A certificate that was lost is made again."""
        for name in ("webhook-server-cert", *((CERTIFICATE,) if self._components else ())):
            secret = self._cluster.path("v1", "Secret", SYSTEM, name)
            until(lambda secret=secret: self._cluster.exists(secret), f"the Secret {name}")  # type: ignore[misc]
            self._cluster.patch(secret, {"data": {"tls.crt": ""}})
            until(lambda secret=secret: self._cluster.get(secret)["data"]["tls.crt"], "another")  # type: ignore[misc]

    def _workloads(self) -> None:
        workloads = {"Deployment": "api,remote", "StatefulSet": "mounted,remote", "DaemonSet": "remote"}
        for kind, sources in workloads.items():
            self._apply(sourced(kind, "web", sources))
        self._until("v1", "ConfigMap", "shop")
        until(lambda: len(self._of_agents("RoleBinding")) == 1, "the rights of agents")
        remote = self._team.path(OPENFEATURE, "FeatureFlagSource", "remote")
        until(lambda: (self._cluster.get(remote).get("status") or {}).get("workloads") == 3, "all workloads")
        self._apply(source("remote", "http", rolloutOnChange=True, port=9000))
        paths = [self._team.path("apps/v1", kind, "web") for kind in workloads]
        until(lambda: all("restartedAt" in str(self._cluster.get(path)) for path in paths), "a rollout")
        if self._components:
            self._kill_switch()
        for path in paths:
            self._cluster.delete(path)
        self._until("v1", "ConfigMap", "shop", exists=False)
        until(lambda: not self._of_agents("Role") and not self._of_agents("RoleBinding"), "no rights")

    def _carriers(self) -> None:
        """Flags in annotations: of all kinds, changed once, and taken away."""
        workloads, jobs = ("Deployment", "StatefulSet", "DaemonSet"), ("Job", "CronJob")
        self._apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        for default in ("on", "off"):
            for api, kinds in (("apps/v1", workloads), ("batch/v1", jobs), ("v1", ("Pod",))):
                for kind in kinds:
                    self._apply(carrying(api, kind, json.dumps(flags(default))))
            for kind in (*workloads, *jobs, "Pod"):
                self._carried(kind, default)
        for kind in workloads:
            self._remarked(self._team.path("apps/v1", kind, "carrier"))
        self._cluster.patch(
            self._team.path("apps/v1", "DaemonSet", "carrier"), {"metadata": {"annotations": {INLINE_FLAGS: None}}}
        )
        self._until(OPENFEATURE, "FeatureFlag", "carrier-daemonset", exists=False)

    def _carried(self, kind: str, default: str) -> None:
        name = f"carrier-{kind.lower()}"
        self._until(OPENFEATURE, "FeatureFlag", name)
        path = self._team.path(OPENFEATURE, "FeatureFlag", name)
        until(lambda: self._cluster.get(path)["spec"]["flagSpec"] == flags(default), f"the flags of a {kind}")

    def _remarked(self, path: str) -> None:
        until(lambda: REMARKS in self._cluster.get(path)["metadata"]["annotations"], f"remarks on {path}")

    def _kill_switch(self) -> None:
        """A critical change of flags that a pod mounts."""
        name = ObjectName("team", "shop")
        sources = json.dumps([{"uri": f"{name.directory}/{name.file}", "provider": "file"}])
        agent = {"name": AGENT, "image": "flagd", "args": ["start", "--sources", sources]}
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mounts"}}
        self._team.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        self._apply({**about, "spec": {"containers": [agent]}})
        pod = self._team.path("v1", "Pod", "mounts")

        def touched(default: str) -> bool:
            """Change the flag until a change finds the pod known."""
            made = flag(default, name="shop")
            self._apply({**made, "metadata": {**made["metadata"], "annotations": {CRITICAL: "true"}}})
            return FLAGS_CHANGED in (self._cluster.get(pod)["metadata"].get("annotations") or {})

        until(lambda: any(list(map(touched, ("on", "off")))), "a touched pod")
        self._cluster.rest.call("DELETE", pod, {"gracePeriodSeconds": 0})

    def _proxy(self) -> None:
        for api, kind, name in (
            ("apps/v1", "Deployment", "flagd-proxy"),
            ("v1", "Service", "flagd-proxy-svc"),
            ("policy/v1", "PodDisruptionBudget", "flagd-proxy-pdb"),
        ):
            path = self._cluster.path(api, kind, SYSTEM, name)
            until(lambda path=path: self._cluster.exists(path), f"{kind} {name}")  # type: ignore[misc]

    def _flagd(self) -> None:
        """All of its objects, and none of those that can be disabled. Its source goes twice, which repeats an Event."""
        about = self._team.path(OPENFEATURE, "Flagd", "served")
        gateway, routes = "gateway.networking.k8s.io/v1", ("HTTPRoute", "GRPCRoute")
        ingress = {"enabled": True, "hosts": ["flags.test"]}
        given = {"parentRefs": [{"name": "gate"}], "hosts": ["a.test"], "grpc": {"enabled": True, "hosts": ["b.test"]}}
        self._apply(flagd(ingress=ingress, gatewayApiRoutes={**given, "enabled": True}))
        for kind in routes:
            self._until(gateway, kind, "served")
        self._until("networking.k8s.io/v1", "Ingress", "served")
        self._apply(flagd(ingress={**ingress, "enabled": False}, gatewayApiRoutes={**given, "enabled": False}))
        for kind in routes:
            self._until(gateway, kind, "served", exists=False)
        self._until("networking.k8s.io/v1", "Ingress", "served", exists=False)
        for status in ("False", "True", "False"):
            if status == "False":
                self._cluster.delete(self._team.path(OPENFEATURE, "FeatureFlagSource", "remote"))
            else:
                self._apply(source("remote", "http"))
            until(
                lambda status=status: conditions(self._cluster, about)["Resolved"]["status"] == status,  # type: ignore[misc]
                "the state of the source",
            )
        events = self._team.path("v1", "Event")
        until(lambda: any(each.get("count") == 2 for each in self._cluster.get(events)["items"]), "a repeated Event")


def test_every_right_is_used_and_none_is_missing(installed: AuditedPlane, kubeconfig: Callable[[Access], Path]) -> None:
    operator_works(installed, kubeconfig)
    flags_are_read(installed, kubeconfig)


def operator_works(installed: AuditedPlane, kubeconfig: Callable[[Access], Path]) -> None:
    cluster = installed.cluster
    await_rights(cluster)
    kubeconfig(Namespace(cluster, SYSTEM).account(OPERATOR_ACCOUNT))
    with RunningOperator(SYSTEM, leader_elect=True, proxy_auth="kubernetes").running() as running:
        registered(cluster, running.url)
        shared_source_is_looked_at(cluster)
        Day(cluster, cluster.add_namespace("team")).run()
    with RunningOperator(SYSTEM, leader_elect=True, cluster_role_binding=True).running():
        binding = cluster.path(RBAC, "ClusterRoleBinding", name=SYNC_BINDING)
        until(lambda: OPERATOR_ACCOUNT in str(cluster.get(binding).get("subjects")), "a subject")
    asked = installed.requests(OPERATOR_ACCOUNT)
    assert refused(asked) == set(), "a right is missing"
    rights = installed.rights(OPERATOR_ACCOUNT, SYSTEM)
    assert Right("", "secrets", "update", "webhook-server-cert") in rights
    assert rights - used(asked) == set(), "rights that nobody uses"


def shared_source_is_looked_at(cluster: Cluster) -> None:
    """What an operator of the whole cluster does beside: its status, and the labels of namespaces."""
    cluster.apply({**source("shared", "http"), "kind": "ClusterFeatureFlagSource"})
    path = cluster.path(OPENFEATURE, "ClusterFeatureFlagSource", name="shared")
    until(lambda: (cluster.get(path).get("status") or {}).get("conditions"), "a status")


def flags_are_read(installed: AuditedPlane, kubeconfig: Callable[[Access], Path]) -> None:
    """They may also `get` a flag, which asks less of the server than `list` when they look whether a watch is alive."""
    cluster = installed.cluster
    team, system = cluster.add_namespace("readers"), Namespace(cluster, SYSTEM)
    cluster.rest.call("DELETE", VALIDATING.path())  # nobody serves it any more
    team.feature_flag("shop", flags())
    account = ObjectName(team.name, "default")
    uses = [FlagUse(account, "kubernetes", ObjectName(team.name, "shop"))]
    [objects] = access_objects(uses, Laid(), read_settings({})).values()
    team.apply(objects.role)
    team.apply(objects.binding)
    right = {"group": "core.openfeature.dev", "resource": "featureflags", "name": "shop"}
    cluster.await_right(f"{team.name}:default", "watch", team.name, **right)
    selector = f"core.openfeature.dev/{team.name}/shop"
    kubeconfig(system.account(PROXY_ACCOUNT))
    with ProxyProcess() as proxy, subscribed(proxy, selector) as subscriber:
        subscriber.next()
    token = team.account("default").token
    with ProxyProcess("--auth=kubernetes", "--auth-policy=grant") as proxy, streaming(proxy, team) as stream:
        assert document(stream(token)) == flags()
    kubeconfig(team.account("default"))
    with AgentProcess("--uri", selector) as agent:
        agent.stop()
    reading = {Right("core.openfeature.dev", "featureflags", verb) for verb in ("get", "list", "watch")}
    for name, namespace in ((PROXY_ACCOUNT, SYSTEM), ("default", team.name)):
        asked = installed.requests(name, namespace)
        assert refused(asked) == set()
        assert {right for right in used(asked) if not right.name} >= {each for each in reading if each.verb != "get"}
    reviewing = {*reading, Right("authentication.k8s.io", "tokenreviews", "create")}
    assert installed.rights(PROXY_ACCOUNT, SYSTEM) == reviewing
    assert {right._replace(name="") for rule in objects.role["rules"] for right in allowed(rule)} == reading
