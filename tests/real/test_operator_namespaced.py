"""An operator of some namespaces, installed from `deploy` without any ClusterRole, on a server that audits.

The first step is that of tests/real/test_operator_audit.py, for this way to install: nothing is refused, nothing is
asked for outside of its namespaces, and every right is used. Then what may go wrong, and other operators beside it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.proxy.process import ProxyProcess, subscribed
from tests.real import programs
from tests.real.access import Access
from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.conftest import loudly
from tests.real.gateway import install_routes
from tests.real.operators import OperatorProcess
from tests.real.processes import until
from tests.real.test_admission import flag
from tests.real.test_operator import RunningOperator
from tests.real.test_operator_audit import RBAC, AuditedPlane, Day, allowed, refused, source, used
from tests.real.test_operator_controllers import sourced
from tests.test_deploy import SYSTEM
from tools.manifests import KUSTOMIZE
from wigwag.operator.admission.registration import (
    MUTATING,
    VALIDATING,
    configuration_names,
)
from wigwag.operator.names import (
    CLUSTER_FEATURE_FLAG_SOURCE,
    ENABLED,
    FEATURE_FLAG_SOURCE,
    OPERATOR_ACCOUNT,
    PROXY_ACCOUNT,
)

TEAMS = "team-a", "team-b"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}

PATIENCE = 180.0
"""Seconds until a watch that was forbidden is tried again, and more: its back-off grows to 30."""
SPEC = {"containers": [{"name": "app", "image": "app"}]}


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[AuditedPlane]:
    """The example of `deploy`, as the guide has it applied; by an administrator."""
    folder = tmp_path
    with loudly("KUBERNETES"):
        made = AuditedPlane(folder / "audit")
    with made.plane:
        install_routes(made.cluster)
        for name in (*TEAMS, "elsewhere"):
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            made.cluster.add_namespace(name).apply(account)  # no controllers run that would
        config = made.cluster.access.kubeconfig(folder / "admin.kubeconfig")
        for path in (KUSTOMIZE / "crds", KUSTOMIZE / "examples" / "namespaced"):
            command = ["apply", "--server-side", f"--kubeconfig={config}", "-k", str(path)]
            subprocess.run([str(programs.kubernetes().kubectl), *command], check=True, capture_output=True)
        for name in (*TEAMS, SYSTEM):
            made.cluster.await_right(f"{SYSTEM}:{OPERATOR_ACCOUNT}", "list", name, resource="services")
        yield made


@pytest.mark.timeout(300)  # a plane of its own, and six operators one after the other
def test_an_operator_of_some_namespaces(
    installed: AuditedPlane, kubeconfig: Callable[[Access], Path], tmp_path: Path
) -> None:
    """One plane for all of it; each step leaves what the next one needs."""
    cluster = installed.cluster
    operator = Namespace(cluster, SYSTEM).account(OPERATOR_ACCOUNT)
    kubeconfig(operator)
    no_right_beyond_the_namespaces_is_there_or_needed(installed, cluster)
    the_ca_is_written_by_a_right_to_two_objects(installed, cluster)
    kubeconfig(Namespace(cluster, SYSTEM).account(PROXY_ACCOUNT))
    the_proxy_reads_flags_of_these_namespaces(installed, cluster)
    kubeconfig(operator)
    a_namespace_without_rights_or_that_does_not_exist_holds_up_no_other(cluster)
    operators_of_different_namespaces_leave_each_others_objects_alone(installed, cluster, tmp_path)


def trusted_by_hand(cluster: Cluster, url: str) -> None:
    """Do what the operator asks for in its log: put the CA of the Secret into both webhook configurations."""
    secret = cluster.path("v1", "Secret", SYSTEM, "webhook-server-cert")
    until(lambda: cluster.exists(secret) and cluster.get(secret)["data"].get("ca.crt"), "the CA")
    bundle = cluster.get(secret)["data"]["ca.crt"]
    names = configuration_names(TEAMS, SYSTEM)
    for kind, name in zip((MUTATING, VALIDATING), names, strict=True):
        where = kind.path(name=name)
        paths = [each["clientConfig"]["service"]["path"] for each in cluster.get(where)["webhooks"]]
        clients = [{"url": f"{url}{path}", "caBundle": bundle} for path in paths]
        change = [
            {"op": "replace", "path": f"/webhooks/{at}/clientConfig", "value": client}
            for at, client in enumerate(clients)
        ]
        cluster.rest.call("PATCH", where, change, kind="application/json-patch+json")


def injected(cluster: Cluster, namespace: str, annotations: dict[str, str]) -> Any:
    """Have the API server make a pod, and forget it; return the pod or the refusal."""
    metadata = {"name": "web", "ownerReferences": [OWNER], "annotations": {ENABLED: "true", **annotations}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": SPEC}
    return cluster.rest.ask("POST", cluster.path("v1", "Pod", namespace), pod, query={"dryRun": "All"}).json


def status(cluster: Cluster, kind: str, namespace: str, name: str) -> Any:
    return cluster.get(cluster.path(OPENFEATURE, kind, namespace, name)).get("status") or {}


def no_right_beyond_the_namespaces_is_there_or_needed(installed: AuditedPlane, cluster: Cluster) -> None:
    with RunningOperator(SYSTEM, leader_elect=True, namespaces=TEAMS).running() as running:
        trusted_by_hand(cluster, running.url)
        Day(cluster, Namespace(cluster, "team-a"), components=False).run()

        team = Namespace(cluster, "team-b")
        team.apply(source("remote", "http"))
        named = {FEATURE_FLAG_SOURCE: "remote"}
        until(lambda: "initContainers" in injected(cluster, "team-b", named).get("spec", {}), "an agent")
        assert "initContainers" not in injected(cluster, "elsewhere", named)["spec"], "the webhook is not called"
        shared = injected(cluster, "team-b", {CLUSTER_FEATURE_FLAG_SOURCE: "shared"})
        assert "this operator serves some namespaces only (--namespaces)" in shared["message"]
    asked = installed.requests(OPERATOR_ACCOUNT)
    assert refused(asked) == set(), "a right is missing"
    assert {each["objectRef"].get("namespace") for each in asked} == {*TEAMS, SYSTEM}, "and nothing of the cluster"
    rights = installed.rights(OPERATOR_ACCOUNT, *TEAMS, SYSTEM)
    assert rights - used(asked) == set(), "rights that nobody uses"


def the_ca_is_written_by_a_right_to_two_objects(installed: AuditedPlane, cluster: Cluster) -> None:
    """That of the component `ca`. The configurations are removed then, since nobody serves them any more."""
    before, names = len(installed.requests(OPERATOR_ACCOUNT)), configuration_names(TEAMS, SYSTEM)
    paths = [kind.path(name=name) for kind, name in zip((MUTATING, VALIDATING), names, strict=True)]
    cluster.apply_files([KUSTOMIZE / "namespaced/ca/rights.yaml"])
    for verb in ("get", "list", "watch", "patch"):
        about = {"group": VALIDATING.group, "resource": VALIDATING.plural, "name": names[1]}
        cluster.await_right(f"{SYSTEM}:{OPERATOR_ACCOUNT}", verb, **about)
    for path in paths:
        webhooks = range(len(cluster.get(path)["webhooks"]))
        change = [{"op": "remove", "path": f"/webhooks/{at}/clientConfig/caBundle"} for at in webhooks]
        cluster.rest.call("PATCH", path, change, kind="application/json-patch+json")
    with RunningOperator(SYSTEM, namespaces=TEAMS, webhook_ca="patch").running():
        for path in paths:
            until(lambda path=path: "caBundle" in str(cluster.get(path)["webhooks"]), "the CA")  # type: ignore[misc]
    asked = installed.requests(OPERATOR_ACCOUNT)[before:]
    assert refused(asked) == set()
    of_cluster = [each for each in asked if "namespace" not in each["objectRef"]]
    assert {each["objectRef"]["name"] for each in of_cluster} == {*names}
    role = cluster.get(cluster.path(RBAC, "ClusterRole", name=f"open-feature-operator-certificates-role-{SYSTEM}"))
    assert {right for rule in role["rules"] for right in allowed(rule)} <= used(of_cluster)
    for path in paths:
        cluster.delete(path)


def the_proxy_reads_flags_of_these_namespaces(installed: AuditedPlane, cluster: Cluster) -> None:
    Namespace(cluster, "team-b").feature_flag("proxied", flags())
    with ProxyProcess() as proxy, subscribed(proxy, "core.openfeature.dev/team-b/proxied") as subscriber:
        subscriber.next()
    assert refused(installed.requests(PROXY_ACCOUNT)) == set()
    rights = installed.rights(PROXY_ACCOUNT, *TEAMS, SYSTEM)
    assert {(right.resource, right.verb) for right in rights} == {
        ("featureflags", verb) for verb in ("get", "list", "watch")
    }


def a_namespace_without_rights_or_that_does_not_exist_holds_up_no_other(cluster: Cluster) -> None:
    lacking, missing = Namespace(cluster, "team-b"), Namespace(cluster, "team-c")
    role = lacking.path(RBAC, "Role", "open-feature-operator-tenant-role")
    before = cluster.get(role)["rules"]
    cluster.patch(role, {"rules": [rule for rule in before if rule["resources"] != ["pods"]]})
    environment = {"POD_NAMESPACE": SYSTEM}
    with OperatorProcess("--namespaces=team-a,team-b,team-c", environment=environment) as operator:
        Namespace(cluster, "team-a").apply(source("going-on", "http"))
        until(lambda: status(cluster, "FeatureFlagSource", "team-a", "going-on").get("digest"), "team-a is served")
        operator.wait_for_log(lambda line: "get secret webhook-server-cert" in line["msg"])  # how to trust it
        said = "may not list pods in the namespace team-b; allow it with a Role"
        operator.wait_for_log(lambda line: said in line["msg"] and line["msg"].startswith("namespace team-b goes"))

        lacking.apply(source("waiting", "http"))
        cluster.patch(role, {"rules": before})
        until(lambda: status(cluster, "FeatureFlagSource", "team-b", "waiting").get("conditions"), "team-b", PATIENCE)

        cluster.add_namespace(missing.name)
        for manifest in yaml.safe_load_all((KUSTOMIZE / "namespaced/tenant/rights.yaml").read_text()):
            missing.apply(manifest)
        missing.apply(flag("on", name="shop"))
        until(lambda: status(cluster, "FeatureFlag", missing.name, "shop").get("conditions"), "team-c", PATIENCE)
        assert operator.stop() == 0


def operators_of_different_namespaces_leave_each_others_objects_alone(
    installed: AuditedPlane, cluster: Cluster, tmp_path: Path
) -> None:
    """One of team-a, one of team-b in another namespace, and one of the whole cluster but these."""
    others = {name: cluster.add_namespace(name) for name in ("flags-b", "flags-wide", "team-d")}
    rights = {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}
    configs, users = {}, {}
    for name in ("flags-b", "flags-wide"):
        access = others[name].account("operator")
        configs[name] = str(access.kubeconfig(tmp_path / f"{name}.kubeconfig"))
        users[name] = {"kind": "ServiceAccount", "name": "operator", "namespace": name}
    binding = {"apiVersion": RBAC, "metadata": {"name": "operators"}, "roleRef": rights, "subjects": [*users.values()]}
    cluster.apply({**binding, "kind": "ClusterRoleBinding"})
    cluster.await_right("flags-wide:operator", "list", resource="pods")
    marks = {"team-a": "a", "team-b": "b", "team-d": "wide"}
    for namespace in marks:
        team = Namespace(cluster, namespace)
        team.apply(flag("on", name="beside"))
        team.apply({**source("beside", "file"), "spec": {"sources": [{"source": "beside", "provider": "file"}]}})
        team.apply(sourced("Deployment", "beside", "beside"))
    before = len(installed.requests(OPERATOR_ACCOUNT))
    with (
        OperatorProcess("--leader-elect", "--namespaces=team-a", environment={"POD_NAMESPACE": SYSTEM}),
        OperatorProcess(
            "--leader-elect",
            "--namespaces=team-b",
            environment={"POD_NAMESPACE": "flags-b", "KUBECONFIG": configs["flags-b"]},
        ),
        OperatorProcess(
            "--leader-elect",
            "--exclude-namespaces=team-a,team-b,team-c",
            environment={"POD_NAMESPACE": "flags-wide", "KUBECONFIG": configs["flags-wide"]},
        ),
    ):
        for namespace in marks:
            path = cluster.path("v1", "ConfigMap", namespace, "beside")
            until(lambda path=path: cluster.exists(path), f"the ConfigMap in {namespace}")  # type: ignore[misc]
            until(
                lambda namespace=namespace: status(cluster, "FeatureFlagSource", namespace, "beside").get("digest"),  # type: ignore[misc]
                "a status",
            )
    touched = {
        SYSTEM: installed.requests(OPERATOR_ACCOUNT)[before:],
        "flags-b": installed.requests("operator", "flags-b"),
        "flags-wide": installed.requests("operator", "flags-wide"),
    }
    assert {each["objectRef"].get("namespace") for each in touched[SYSTEM]} == {"team-a", SYSTEM}
    assert {each["objectRef"].get("namespace") for each in touched["flags-b"]} == {"team-b", "flags-b"}
    writes = [each for each in touched["flags-wide"] if each["verb"] not in ("list", "watch")]
    wide = {each["objectRef"].get("namespace") for each in writes}
    assert "team-d" in wide
    assert not wide & {"team-a", "team-b"}
