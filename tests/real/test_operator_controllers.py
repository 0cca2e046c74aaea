"""The operator's controllers against a real API server: rights, ConfigMaps, rollouts, the proxy, and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.processes import until
from tests.real.test_admission import flag, plane, unique
from tests.real.test_operator import RunningOperator, cluster, source
from wigwag.operator.names import (
    ENABLED,
    FEATURE_FLAG_SOURCE,
    IN_PROCESS_CONFIGURATION,
    OPERATOR_DEPLOYMENT,
    RESTARTED_AT,
    SYNC_BINDING,
)

__all__ = ["cluster", "plane"]
RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture
def team(cluster: Cluster) -> Namespace:
    return cluster.add_namespace(unique("team"))


def workload(kind: str, name: str, **annotations: str) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}, "annotations": {ENABLED: "true", **annotations}},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
    }
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def sourced(kind: str, name: str, sources: str = "flags") -> dict[str, Any]:
    return workload(kind, name, **{FEATURE_FLAG_SOURCE: sources})


def in_team(team: Namespace, manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": team.name}}


def items(team: Namespace, api: str, kind: str) -> list[Any]:
    selector = {"labelSelector": "app.kubernetes.io/managed-by=open-feature-operator"}
    answer: list[Any] = team.cluster.rest.call("GET", team.path(api, kind), query=selector).json["items"]
    return answer


def conditions(cluster: Cluster, path: str) -> dict[str, Any]:
    status = cluster.get(path).get("status") or {}
    return {each["type"]: each for each in status.get("conditions") or []}


def test_an_account_may_read_what_its_agents_use_and_no_longer(team: Namespace) -> None:
    deployment = team.path("apps/v1", "Deployment", "web")
    with RunningOperator().running():
        team.apply(in_team(team, flag("on", name="shop")))
        team.apply(in_team(team, source("flags", source="shop", provider="kubernetes")))
        team.apply(sourced("Deployment", "web"))
        until(lambda: items(team, RBAC, "RoleBinding"), "a RoleBinding")
        [role] = items(team, RBAC, "Role")
        assert role["rules"][0]["resourceNames"] == ["shop"]
        [binding] = items(team, RBAC, "RoleBinding")
        assert [each["name"] for each in binding["subjects"]] == ["default"]

        path = team.path(RBAC, "Role", role["metadata"]["name"])
        team.cluster.patch(path, {"rules": []})
        until(lambda: team.cluster.get(path)["rules"], "the rules are back")
        team.apply(in_team(team, source("flags", source="other", provider="kubernetes")))
        until(lambda: team.cluster.get(path)["rules"][0]["resourceNames"] == ["other"], "the change of the source")
        team.cluster.delete(deployment)
        until(lambda: not items(team, RBAC, "Role") and not items(team, RBAC, "RoleBinding"), "nothing is left")


def test_flags_reach_a_config_map_where_pods_mount_them(team: Namespace) -> None:
    shop, theirs = team.path("v1", "ConfigMap", "shop"), team.path("v1", "ConfigMap", "theirs")
    about = team.path(OPENFEATURE, "FeatureFlag", "shop")
    team.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"a": "1"}})
    before = team.cluster.get(theirs)

    def content() -> str:
        return "".join(team.cluster.get(shop)["data"].values())

    with RunningOperator().running():
        for name in ("shop", "theirs"):
            team.apply(in_team(team, flag("on", name=name)))
        team.apply(in_team(team, source("flags", source="shop", provider="file")))
        team.apply(in_team(team, source("foreign", source="theirs", provider="file")))
        until(lambda: conditions(team.cluster, about).get("Programmed", {}).get("reason") == "NotMounted", "a status")
        team.apply(sourced("StatefulSet", "web", "flags,foreign"))
        until(lambda: team.cluster.exists(shop), "the ConfigMap")
        assert '"defaultVariant":"on"' in content()
        until(lambda: conditions(team.cluster, about)["Programmed"]["reason"] == "Mounted", "the status says so")
        team.apply(in_team(team, flag("off", name="shop")))
        until(lambda: '"defaultVariant":"off"' in content(), "the new flags")
        team.cluster.patch(shop, {"data": {f"{team.name}_shop.flagd.json": "{}"}})
        until(lambda: '"defaultVariant":"off"' in content(), "what somebody has edited")
        team.cluster.delete(shop)
        until(lambda: team.cluster.exists(shop), "what somebody has deleted")

        foreign = team.path(OPENFEATURE, "FeatureFlag", "theirs")
        until(lambda: conditions(team.cluster, foreign)["Programmed"]["reason"] == "ConfigMapNotOurs", "a reason")
        assert team.cluster.get(theirs)["metadata"] == before["metadata"], "untouched"
        team.cluster.delete(team.path("apps/v1", "StatefulSet", "web"))
        until(lambda: not team.cluster.exists(shop), "a ConfigMap that nobody mounts goes")
        assert team.cluster.exists(theirs)


def test_a_changed_source_rolls_its_workloads_once_and_a_restart_rolls_none(team: Namespace) -> None:
    kinds = {kind: team.path("apps/v1", kind, "web") for kind in ("Deployment", "StatefulSet", "DaemonSet")}
    about = team.path(OPENFEATURE, "FeatureFlagSource", "flags")

    def version(port: int) -> dict[str, Any]:
        made = in_team(team, source("flags", source="http://flags.test", provider="http"))
        return {**made, "spec": {**made["spec"], "port": port, "rolloutOnChange": True}}

    def rolled() -> list[str]:
        return [
            each["spec"]["template"]["metadata"]["annotations"].get(RESTARTED_AT, "")
            for each in map(team.cluster.get, kinds.values())
        ]

    def generations() -> list[int]:
        return [team.cluster.get(path)["metadata"]["generation"] for path in kinds.values()]

    def is_up_to_date() -> bool:
        found = team.cluster.get(about)
        observed = (found.get("status") or {}).get("observedGeneration")
        return bool(observed == found["metadata"]["generation"])

    with RunningOperator().running():
        team.apply(version(9001))
        for kind in kinds:
            team.apply(sourced(kind, "web", "missing, flags" if kind == "DaemonSet" else "flags"))
        until(is_up_to_date, "the first digest")
        assert rolled() == ["", "", ""]
        team.apply(in_team(team, source("missing", source="http://flags.test", provider="http")))
        team.apply(version(9002))
        until(lambda: all(rolled()), "all are rolled")
        until(is_up_to_date, "the status says so")
        assert team.cluster.get(about)["status"]["workloads"] == 3
        after = generations()
    with RunningOperator().running():
        team.apply(in_team(team, source("mark", source="http://flags.test", provider="http")))
        mark = team.path(OPENFEATURE, "FeatureFlagSource", "mark")
        until(lambda: "Accepted" in conditions(team.cluster, mark), "the controllers work")
        assert generations() == after, "nothing has changed, so nothing is rolled"


def test_the_proxy_is_deployed_when_a_source_needs_it_and_kept(cluster: Cluster) -> None:
    names = {"Deployment": "flagd-proxy", "Service": "flagd-proxy-svc", "PodDisruptionBudget": "flagd-proxy-pdb"}
    apis = {"Deployment": "apps/v1", "Service": "v1", "PodDisruptionBudget": "policy/v1"}
    paths = {kind: cluster.path(apis[kind], kind, "default", name) for kind, name in names.items()}
    name = unique("proxied")
    about = cluster.path(OPENFEATURE, "FeatureFlagSource", "default", name)
    made = source(name, source="shop")
    owner = workload("Deployment", OPERATOR_DEPLOYMENT)
    with RunningOperator().running():
        cluster.apply({**made, "spec": {**made["spec"], "defaultSyncProvider": "flagd-proxy"}})
        until(lambda: conditions(cluster, about).get("Programmed", {}).get("reason") == "ProxyNotReady", "a reason")
        assert not cluster.exists(paths["Deployment"]), "there is nobody to own it"
        cluster.apply({**owner, "metadata": {**owner["metadata"], "namespace": "default"}})
        for path in paths.values():
            until(lambda path=path: cluster.exists(path), "an object of the proxy")  # type: ignore[misc]
            [reference] = cluster.get(path)["metadata"]["ownerReferences"]
            assert reference["name"] == OPERATOR_DEPLOYMENT
        for path in paths.values():
            cluster.delete(path)
            until(lambda path=path: cluster.exists(path), "it is back")  # type: ignore[misc]
        cluster.patch(paths["Deployment"], {"spec": {"replicas": 3}})
        until(lambda: cluster.get(paths["Deployment"])["spec"]["replicas"] == 1, "it is as it was")
        ready = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
        cluster.rest.call(
            "PATCH", f"{paths['Deployment']}/status", {"status": ready}, kind="application/merge-patch+json"
        )
        until(lambda: conditions(cluster, about)["Programmed"]["status"] == "True", "the proxy is ready")
    cluster.delete(about)


def test_an_in_process_configuration_says_who_uses_it(team: Namespace) -> None:
    about = team.path(OPENFEATURE, "InProcessConfiguration", "local")
    with RunningOperator().running():
        team.apply({"apiVersion": OPENFEATURE, "kind": "InProcessConfiguration", "metadata": {"name": "local"}})
        until(lambda: "Accepted" in conditions(team.cluster, about), "a status")
        team.apply(workload("Deployment", "web", **{IN_PROCESS_CONFIGURATION: "local"}))
        until(lambda: team.cluster.get(about)["status"].get("workloads") == 1, "the workload is counted")
        team.cluster.delete(team.path("apps/v1", "Deployment", "web"))
        until(lambda: not team.cluster.get(about)["status"].get("workloads"), "and no longer")


def test_with_the_switch_accounts_are_subjects_of_the_binding_of_the_original(team: Namespace) -> None:
    path = f"/apis/{RBAC}/clusterrolebindings/{SYNC_BINDING}"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": SYNC_BINDING}
    about = {"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": SYNC_BINDING}}
    team.cluster.rest.call("POST", path.rpartition("/")[0], {**about, "roleRef": reference})

    def subjects() -> set[tuple[str, str]]:
        return {(each["namespace"], each["name"]) for each in team.cluster.get(path).get("subjects") or []}

    try:
        with RunningOperator(cluster_role_binding=True).running():
            until(lambda: len(subjects()) == 2, "the operator and the proxy")
            team.apply(in_team(team, source("flags", source="shop", provider="kubernetes")))
            team.apply(sourced("Deployment", "web"))
            until(lambda: (team.name, "default") in subjects(), "the account")
            team.cluster.patch(path, {"subjects": None})
            until(lambda: (team.name, "default") in subjects(), "it is back")
            assert not items(team, RBAC, "Role")
            team.cluster.delete(team.path("apps/v1", "Deployment", "web"))
            until(lambda: (team.name, "default") not in subjects(), "nobody uses it any more")
    finally:
        team.cluster.delete(path)
