"""What goes wrong around operators, which run as processes of their own on a real API server."""

from __future__ import annotations

import json
import signal
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.access import Access
from tests.real.admissions import AdmissionLoad, JsonConnection, Replicas, dry_run, review, to_cluster
from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.controlplane import DEFINITIONS, ControlPlane
from tests.real.operators import OperatorProcess, trusted
from tests.real.processes import until
from tests.real.test_admission import JSON_PATCH, configurations, flag, plane, unique
from tests.real.test_operator import SECRET, SOURCE, flagd, source
from tests.real.test_operator_controllers import RBAC, in_team, items, sourced
from tests.real.test_operator_process import LEASE, cluster
from wigwag.operator.admission.registration import POD_PATH, WebhookEndpoint, mutating, validating
from wigwag.operator.certificates.authority import CertificatePolicy, split
from wigwag.operator.certificates.rotation import advance
from wigwag.operator.names import INLINE_FLAGS

__all__ = ["cluster", "plane"]
ELECTION = (
    "--leader-elect",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=200ms",
)
PATIENT = ("--leader-elect", "--leader-elect-lease-duration=60s", "--leader-elect-retry-period=200ms")
"""So long that nobody waits for a Lease to end."""


@pytest.fixture
def team(cluster: Cluster) -> Namespace:
    return new_team(cluster)


def new_team(cluster: Cluster) -> Namespace:
    """Make a namespace; nobody else makes its service account here."""
    made = cluster.add_namespace(unique("team"))
    made.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    return made


def holder(cluster: Cluster) -> str:
    return str(cluster.get(LEASE)["spec"].get("holderIdentity") or "") if cluster.exists(LEASE) else ""


@contextmanager
def replicas(cluster: Cluster, *arguments: str) -> Iterator[tuple[OperatorProcess, OperatorProcess]]:
    """Two operators, of which the first one leads."""
    with OperatorProcess("--allow-orphan-pods", *arguments) as leader:
        until(lambda: holder(cluster), "the first one leads")
        with OperatorProcess("--allow-orphan-pods", *arguments) as other:
            yield leader, other


def rolling(team: Namespace, port: int) -> dict[str, Any]:
    made = in_team(team, source("flags", source="http://flags.test", provider="http"))
    return {**made, "spec": {**made["spec"], "port": port, "rolloutOnChange": True}}


def up_to_date(team: Namespace) -> bool:
    source = team.cluster.get(team.path(OPENFEATURE, "FeatureFlagSource", "flags"))
    return bool((source.get("status") or {}).get("observedGeneration") == source["metadata"]["generation"])


def generations(team: Namespace) -> list[int]:
    return [each["metadata"]["generation"] for each in team.cluster.get(team.path("apps/v1", "Deployment"))["items"]]


def test_a_leader_that_is_killed_in_a_rollout_is_followed_by_one_that_goes_on(team: Namespace) -> None:
    cluster = team.cluster
    team.apply(rolling(team, 9001))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: team.apply(sourced("Deployment", f"web-{number}")), range(60)))
    with replicas(cluster, *ELECTION, "--rollout-rate=15") as (leader, _):
        first = holder(cluster)
        until(lambda: up_to_date(team), "the first digest")
        assert generations(team) == [1] * 60
        team.apply(rolling(team, 9002))
        until(lambda: generations(team).count(2) >= 10, "a part of the rollout")
        leader.process.kill()
        before = generations(team).count(1)
        until(lambda: holder(cluster) not in ("", first), "another leader")
        until(lambda: up_to_date(team), "the end of the rollout")
        assert generations(team) == [2] * 60, "each of them once"
        assert before, "there was something left to do"


def register(cluster: Cluster, url: str) -> None:
    """Register webhooks at an address, without a CA, and wait until operators have added it."""
    endpoint = WebhookEndpoint("", namespace="operator", url=url)
    configurations = mutating(endpoint), validating(endpoint)
    for made in configurations:
        cluster.apply(made)
    until(lambda: all(trusted(cluster, each) for each in configurations), "the CA in both configurations")


def called(cluster: Cluster, team: Namespace) -> None:
    """Wait until the API server calls the webhooks, and they know the source."""
    connection = to_cluster(cluster)
    until(lambda: dry_run(connection, team.name, SOURCE)[0], "a first call")
    connection.close()


def webhook(operator: OperatorProcess, cluster: Cluster) -> JsonConnection:
    """Return a connection to the webhooks of one replica, which trusts what the API server trusts."""
    return JsonConnection(operator.url, b64decode(cluster.get(SECRET)["data"]["ca.crt"]).decode())


def lost_in_flight(load: AdmissionLoad) -> None:
    """Check that clients have lost what was in flight, and that no pod was admitted without its agent."""
    assert len(load.refused) <= 2 * load.threads
    assert all(said.startswith("500: Internal error occurred: failed calling webhook") for said in load.refused)


def test_both_replicas_answer_and_one_that_is_told_to_stop_leaves_its_lease_to_the_other(cluster: Cluster) -> None:
    teams = [new_team(cluster) for _ in range(5)]
    for team in teams:
        team.apply(in_team(team, flag("on", name="shop")))
        team.apply(in_team(team, source("flags", source="shop", provider="kubernetes")))
    with (
        replicas(cluster, *PATIENT) as (leader, other),
        Replicas([leader.port("admission"), other.port("admission")]) as service,
        ThreadPoolExecutor(50) as threads,
    ):
        register(cluster, f"https://localhost:{service.port}")
        for team in teams:
            called(cluster, team)
        for replica in (leader, other):
            connection = webhook(replica, cluster)
            assert review(connection, teams[0].name, SOURCE)["allowed"]
            connection.close()

        def admit(number: int) -> tuple[bool, str]:
            connection = to_cluster(cluster)
            answer = dry_run(connection, teams[number % 5].name, SOURCE)
            connection.close()
            return answer

        assert [said for injected, said in threads.map(admit, range(50)) if not injected] == []
        first = holder(cluster)
        service.cut()  # so that all connections are in use: one that was idle for long is closed without a word
        called(cluster, teams[0])
        with AdmissionLoad(cluster, teams[0].name, SOURCE) as load:
            until(lambda: load.injected > 50 or load.refused, "load")
            service.leave(leader.port("admission"))  # which `preStop` waits for
            enough = load.injected + 50
            until(lambda: load.injected > enough or load.refused, "what was connecting is connected")
            assert leader.stop(signal.SIGTERM) == 0
            until(lambda: holder(cluster) not in ("", first), "another leader, long before the Lease ends", 30)
            enough = load.injected + 100
            until(lambda: load.injected > enough or load.refused, "calls of the other")
        assert load.refused == []


def test_a_killed_replica_loses_only_what_it_was_asked(team: Namespace) -> None:
    cluster = team.cluster
    team.apply(in_team(team, source("flags", source="http://flags.test", provider="http")))
    with (
        replicas(cluster, *PATIENT) as (leader, other),
        Replicas([leader.port("admission"), other.port("admission")]) as service,
    ):
        register(cluster, f"https://localhost:{service.port}")
        called(cluster, team)
        with AdmissionLoad(cluster, team.name, SOURCE) as load:
            until(lambda: load.injected > 50 or load.refused, "load")
            other.process.kill()
            enough = load.injected + 100
            until(lambda: load.injected > enough, "calls of the other")
        lost_in_flight(load)


def number(operator: OperatorProcess, name: str) -> float:
    """Return the sum of a metric."""
    page = operator.fetch("metrics", "/metrics")[1].decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith((f"{name} ", f"{name}{{")))


def usage(operator: OperatorProcess) -> dict[str, float]:
    """Return what a process has open."""
    names = "wigwag_tasks", "process_open_fds", "process_resident_memory_bytes"
    return {name: number(operator, name) for name in names}


def current(cluster: Cluster, team: Namespace, default: str) -> bool:
    """Tell whether the ConfigMap has the flags."""
    path = team.path("v1", "ConfigMap", "shop")
    return cluster.exists(path) and f'"defaultVariant":"{default}"' in str(cluster.get(path)["data"])


def test_an_api_server_that_freezes_restarts_and_forgets_costs_nothing_but_time(
    plane: ControlPlane, team: Namespace
) -> None:
    cluster = team.cluster
    team.apply(rolling(team, 9001))
    team.apply(in_team(team, flag("on", name="shop")))
    team.apply(in_team(team, source("files", source="shop", provider="file")))
    team.apply(in_team(team, source("direct", source="shop", provider="kubernetes")))
    team.apply(sourced("Deployment", "web", "flags,files,direct"))
    team.apply(flagd("agent", featureFlagSource="direct"))
    with OperatorProcess(*ELECTION, "--allow-orphan-pods") as operator:
        until(lambda: current(cluster, team, "on") and up_to_date(team), "the first state")
        until(lambda: items(team, RBAC, "RoleBinding") and items(team, "v1", "Service"), "all controllers at work")
        connection = webhook(operator, cluster)
        before = usage(operator)
        said = len(operator.lines)
        plane.apiserver.pause()
        operator.wait_for_log(lambda line: "leads no longer" in line["msg"], said)
        assert review(connection, team.name, SOURCE)["patch"], "admission goes on"
        assert operator.fetch("probes", "/healthz")[0] == 200
        plane.apiserver.resume()
        said = len(operator.lines)
        team.apply(in_team(team, flag("off", name="shop")))
        until(lambda: current(cluster, team, "off"), "what has changed after the pause")
        until(lambda: holder(cluster), "a leader")

        plane.apiserver.kill()
        plane.compact()
        assert review(connection, team.name, SOURCE)["patch"], "admission goes on"
        plane.apiserver.start()
        team.apply(in_team(team, flag("on", name="shop")))
        team.apply(rolling(team, 9002))
        until(lambda: current(cluster, team, "on") and up_to_date(team), "what has changed after the restart")
        assert cluster.get(team.path("apps/v1", "Deployment", "web"))["metadata"]["generation"] == 2, "rolled once"
        connection.close()
        until(lambda: usage(operator)["wigwag_tasks"] <= before["wigwag_tasks"], "as many tasks as before")
        until(lambda: usage(operator)["process_open_fds"] <= before["process_open_fds"] + 2, "as many files")
        after = usage(operator)
        assert after["process_resident_memory_bytes"] <= before["process_resident_memory_bytes"] + (8 << 20)
        assert operator.stop(signal.SIGTERM) == 0


def secret_data(cluster: Cluster) -> dict[str, str]:
    return {name: b64decode(value).decode() for name, value in cluster.get(SECRET)["data"].items()}


def edit_secret(cluster: Cluster, name: str, value: datetime) -> None:
    cluster.patch(SECRET, {"data": {name: b64encode(value.isoformat().encode()).decode()}})


def aged_secret() -> dict[str, Any]:
    """Return the Secret of a CA that has to be replaced soon."""
    policy = CertificatePolicy(authority=timedelta(hours=1), serving=timedelta(hours=1))
    _, data = advance({}, ["localhost"], "", datetime.now(UTC) - timedelta(minutes=50), policy)
    encoded = {name: b64encode(value.encode()).decode() for name, value in data.items()}
    about = {"name": "webhook-server-cert", "namespace": "default"}
    return {
        "apiVersion": "v1", "kind": "Secret", "metadata": about, "type": "kubernetes.io/tls", "data": encoded
    }  # fmt: skip


def bundles(cluster: Cluster) -> set[str]:
    webhooks = (each for one in configurations(cluster) for each in one["webhooks"])
    return {b64decode(each["clientConfig"].get("caBundle") or "").decode() for each in webhooks}


def test_certificates_rotate_under_load_without_one_failed_call(team: Namespace) -> None:
    cluster, year = team.cluster, timedelta(days=365)
    team.apply(in_team(team, source("flags", source="http://flags.test", provider="http")))
    cluster.apply(aged_secret())
    with (
        replicas(cluster, *PATIENT) as (leader, other),
        Replicas([leader.port("admission"), other.port("admission")]) as service,
    ):
        register(cluster, f"https://localhost:{service.port}")
        called(cluster, team)

        def serves(replica: OperatorProcess, authority: str) -> bool:
            """Connect anew, as an API server without open connections does."""
            connection = JsonConnection(replica.url, authority)
            status = connection.post(POD_PATH, {})[0]
            connection.close()
            return status != 0

        with AdmissionLoad(cluster, team.name, SOURCE, threads=8) as load:

            def passes(count: int = 100) -> None:
                enough = load.injected + count
                until(lambda: load.injected > enough or load.refused, "calls")

            until(lambda: "ca-next.published" in secret_data(cluster), "the next CA in the configurations")
            old, new = split(secret_data(cluster)["ca.crt"])
            until(lambda: bundles(cluster) == {old + new}, "both CAs are trusted")
            passes()
            assert all(serves(replica, old) and not serves(replica, new) for replica in (leader, other))
            edit_secret(cluster, "ca-next.published", datetime.now(UTC) - timedelta(hours=1))
            until(lambda: serves(leader, new) and serves(other, new), "both replicas have a certificate of the new CA")
            until(lambda: bundles(cluster) == {new + old}, "both CAs are trusted still")
            passes()
            edit_secret(cluster, "ca-previous.until", datetime.now(UTC) - year)
            until(lambda: bundles(cluster) == {new}, "the old CA retires")
            passes()
        assert load.refused == []
        service.cut()
        called(cluster, team)

        cluster.delete(SECRET)
        until(lambda: cluster.exists(SECRET) and bundles(cluster) == {secret_data(cluster)["ca.crt"]}, "another one")
        newest = secret_data(cluster)["ca.crt"]
        assert newest != new
        until(lambda: serves(leader, newest) and serves(other, newest), "both replicas have it")
        for configuration in configurations(cluster):
            change = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
            cluster.rest.call("PATCH", configuration["path"], change, kind=JSON_PATCH)
        until(lambda: bundles(cluster) == {newest}, "the bundles are back")
        service.cut()
        called(cluster, team)


def allow(cluster: Cluster, account: str, without: str = "") -> None:
    """Let an account of the namespace `default` do all that an operator does, but read one kind."""
    kinds = "pods", "services", "configmaps", "secrets", "events"
    core = {"apiGroups": [""], "resources": [each for each in kinds if each != without], "verbs": ["*"]}
    others = "core.openfeature.dev", "apps", "networking.k8s.io", "gateway.networking.k8s.io", "policy"
    groups = (
        *others,
        "rbac.authorization.k8s.io",
        "events.k8s.io",
        "coordination.k8s.io",
        "admissionregistration.k8s.io",
    )
    rules = [core, {"apiGroups": [*groups], "resources": ["*"], "verbs": ["*"]}]
    about = {"apiVersion": RBAC, "metadata": {"name": account}}
    cluster.apply({**about, "kind": "ClusterRole", "rules": rules})
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account}
    cluster.apply({**about, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]})


def test_a_right_that_is_missing_or_taken_away_is_named_and_once_it_is_given_all_goes_on(
    team: Namespace, kubeconfig: Callable[[Access], Path]
) -> None:
    cluster, account = team.cluster, unique("operator")
    kubeconfig(Namespace(cluster, "default").account(account))
    allow(cluster, account, without="pods")
    team.apply(rolling(team, 9001))
    with OperatorProcess() as operator:
        said = operator.wait_for_log(lambda line: "pods" in line["msg"] and line["level"] != "debug")["msg"]
        assert f"system:serviceaccount:default:{account} may not watch pods in all namespaces" in said
        assert 'rule {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}' in said
        assert not up_to_date(team)
        allow(cluster, account)
        operator.wait_for_log(lambda line: line["msg"] == "watch pods */*: live")
        until(lambda: up_to_date(team), "the controllers work")

        team.apply(in_team(team, flag("on", name="shop")))
        team.apply(in_team(team, source("files", source="shop", provider="file")))
        allow(cluster, account, without="configmaps")
        right = {"account": f"default:{account}", "verb": "get", "namespace": team.name, "resource": "configmaps"}
        until(lambda: not cluster.has_right(**right), "the end of the right")
        team.apply(sourced("Deployment", "web", "files"))
        said = operator.wait_for_log(lambda line: "it is retried" in line["msg"])["msg"]
        assert said.startswith(f"flags: {team.name}/shop: ")
        assert 'cannot patch resource "configmaps"' in said or 'cannot get resource "configmaps"' in said
        allow(cluster, account)
        until(lambda: current(cluster, team, "on"), "the ConfigMap")


def test_a_namespace_that_goes_takes_its_objects_and_nothing_is_made_in_it(team: Namespace) -> None:
    """There is no controller-manager here, so the namespace is terminating for as long as the test likes."""
    cluster, other = team.cluster, new_team(team.cluster)
    for each in (team, other):
        each.apply(in_team(each, flag("on", name="shop")))
        each.apply(in_team(each, source("files", source="shop", provider="file")))
        each.apply(in_team(each, source("direct", source="shop", provider="kubernetes")))
        each.apply(flagd("agent", featureFlagSource="direct"))
        each.apply(sourced("Deployment", "web", "files,direct"))
        carrier = sourced("DaemonSet", "carrier")
        carrier["metadata"]["annotations"] = {INLINE_FLAGS: json.dumps(flags())}
        each.apply(carrier)
    made = {"v1": ("ConfigMap", "Service"), "apps/v1": ("Deployment",), RBAC: ("Role", "RoleBinding")}

    def children(each: Namespace) -> list[Any]:
        return [one for api, kinds in made.items() for kind in kinds for one in items(each, api, kind)]

    with OperatorProcess() as operator:
        until(lambda: len(children(team)) == len(children(other)) == 5, "all that is made")
        carried = other.path(OPENFEATURE, "FeatureFlag", "carrier-daemonset")
        until(lambda: all(map(cluster.exists, (carried, carried.replace(other.name, team.name)))), "flags of both")
        said = len(operator.lines)
        team.remove()
        selector = {"labelSelector": "app.kubernetes.io/managed-by=open-feature-operator"}
        for api, kinds in made.items():
            for kind in kinds:
                cluster.rest.call("DELETE", team.path(api, kind), query=selector)
        cluster.delete(carried.replace(other.name, team.name))
        operator.wait_for_log(lambda line: "since its namespace is being deleted" in line["msg"])
        cluster.delete(carried)
        until(lambda: cluster.exists(carried), "flags of others are made again")
        cluster.delete(other.path("v1", "ConfigMap", "shop"))
        until(lambda: len(children(other)) == 5, "others are looked after")
        for kind in ("Flagd", "FeatureFlagSource", "FeatureFlag"):
            cluster.rest.call("DELETE", team.path(OPENFEATURE, kind))
        for kind in ("Deployment", "DaemonSet"):
            cluster.rest.call("DELETE", team.path("apps/v1", kind))
        until(lambda: number(operator, "wigwag_controller_failing_keys") == 0, "nothing is left to be retried")
        assert children(team) == []
        failures = [line["msg"] for line in operator.lines[said:] if "it is retried" in line["msg"]]
        assert len(failures) <= 6, "said once for each object"
        assert all("because it is being terminated" in each for each in failures)


def test_what_is_deleted_while_it_is_made_leaves_nothing_behind_and_may_come_back(team: Namespace) -> None:
    cluster = team.cluster
    agent = team.path(OPENFEATURE, "Flagd", "agent")
    deployment, maps = team.path("apps/v1", "Deployment", "agent"), team.path("v1", "ConfigMap", "shop")
    with OperatorProcess() as operator:
        for _ in range(5):
            team.apply(in_team(team, source("direct", source="shop", provider="kubernetes")))
            team.apply(flagd("agent", featureFlagSource="direct"))
            cluster.delete(agent)
            cluster.delete(team.path(OPENFEATURE, "FeatureFlagSource", "direct"))
        until(lambda: not number(operator, "wigwag_controller_failing_keys"), "nothing fails")

        team.apply(in_team(team, source("files", source="shop", provider="file")))
        team.apply(sourced("Deployment", "web", "files"))
        first = team.apply(in_team(team, flag("on", name="shop")))["metadata"]["uid"]
        until(lambda: current(cluster, team, "on"), "the ConfigMap of the first one")
        cluster.delete(team.path(OPENFEATURE, "FeatureFlag", "shop"))
        second = team.apply(in_team(team, flag("off", name="shop")))["metadata"]["uid"]
        assert first != second
        until(lambda: current(cluster, team, "off"), "the flags of the second one")
        until(lambda: cluster.get(maps)["metadata"]["ownerReferences"][0]["uid"] == second, "which owns it")

        team.apply(in_team(team, source("direct", source="shop", provider="kubernetes")))
        body = flagd("agent", featureFlagSource="direct")
        body["metadata"]["finalizers"] = ["example.org/hold"]
        until(lambda: not cluster.exists(deployment) or cluster.delete(deployment), "nothing of before")
        team.apply(body)
        until(lambda: cluster.exists(deployment), "the Deployment")
        cluster.delete(agent)
        team.apply(flagd("later", featureFlagSource="direct"))
        until(lambda: cluster.exists(team.path("v1", "Service", "later")), "the operator knows that it goes")
        cluster.delete(deployment)
        team.apply(flagd("other", featureFlagSource="direct"))
        until(lambda: cluster.exists(team.path("v1", "Service", "other")), "the operator has looked")
        assert not cluster.exists(deployment), "whoever deletes it need not do so twice"
        cluster.patch(agent, {"metadata": {"finalizers": None}})


def as_manager(cluster: Cluster, path: str, name: str, change: dict[str, Any]) -> Any:
    """Change an object as `kubectl edit` does, which owns the fields from then on."""
    query = {"fieldManager": name}
    return cluster.rest.call("PATCH", path, change, query=query, kind="application/merge-patch+json").json


def test_what_others_edit_in_objects_of_the_operator_is_put_right_and_what_they_add_stays(team: Namespace) -> None:
    cluster = team.cluster
    team.apply(in_team(team, flag("on", name="shop")))
    team.apply(in_team(team, source("files", source="shop", provider="file")))
    team.apply(in_team(team, source("direct", source="shop", provider="kubernetes")))
    team.apply(flagd("agent", featureFlagSource="direct"))
    team.apply(sourced("Deployment", "web", "files,direct"))
    deployment, service = team.path("apps/v1", "Deployment", "agent"), team.path("v1", "Service", "agent")
    maps = team.path("v1", "ConfigMap", "shop")
    with OperatorProcess() as operator:
        until(lambda: items(team, RBAC, "RoleBinding") and cluster.exists(maps), "all that is made")
        until(lambda: cluster.exists(service), "the Service")
        [role], [binding] = (items(team, RBAC, kind) for kind in ("Role", "RoleBinding"))
        container = cluster.get(deployment)["spec"]["template"]["spec"]["containers"][0]
        edited = {**container, "image": "example.org/mine:1"}
        mine = {"metadata": {"labels": {"example.org/mine": "yes"}, "annotations": {"example.org/note": "kept"}}}
        as_manager(cluster, deployment, "kubectl-edit", mine)
        as_manager(cluster, deployment, "kubectl-edit", {"spec": {"template": {"spec": {"containers": [edited]}}}})
        as_manager(cluster, service, "kubectl-edit", {"spec": {"ports": cluster.get(service)["spec"]["ports"][:1]}})
        as_manager(cluster, maps, "kubectl-edit", {"data": {f"{team.name}_shop.flagd.json": "{}", "other.json": "{}"}})
        as_manager(cluster, team.path(RBAC, "Role", role["metadata"]["name"]), "kubectl-edit", {"rules": []})
        subject = {"kind": "ServiceAccount", "name": "intruder", "namespace": team.name}
        there = team.path(RBAC, "RoleBinding", binding["metadata"]["name"])
        as_manager(cluster, there, "kubectl-edit", {"subjects": [*binding["subjects"], subject]})

        def image() -> str:
            return str(cluster.get(deployment)["spec"]["template"]["spec"]["containers"][0]["image"])

        until(lambda: image() == container["image"], "the image")
        until(lambda: len(cluster.get(service)["spec"]["ports"]) > 1, "the ports")
        until(lambda: items(team, RBAC, "Role")[0]["rules"] == role["rules"], "the rules")
        until(lambda: cluster.get(there)["subjects"] == binding["subjects"], "the subjects")
        until(lambda: current(cluster, team, "on"), "the flags")
        assert cluster.get(maps)["data"]["other.json"] == "{}"
        about = cluster.get(deployment)["metadata"]
        assert (about["labels"]["example.org/mine"], about["annotations"]["example.org/note"]) == ("yes", "kept")
        paths = deployment, service, maps, there
        versions = {each: cluster.get(each)["metadata"]["resourceVersion"] for each in paths}
        team.apply(flagd("mark", featureFlagSource="direct"))
        until(lambda: cluster.exists(team.path("v1", "Service", "mark")), "the operator has looked at others")
        after = {each: cluster.get(each)["metadata"]["resourceVersion"] for each in versions}
        assert after == versions, "it is not written again and again"
        until(lambda: not number(operator, "wigwag_controller_failing_keys"), "nothing fails")


@contextmanager
def permissive(cluster: Cluster) -> Iterator[None]:
    """Have the API server store objects of our kinds as an old definition did: without rules and limits."""
    definitions = {path: yaml.safe_load(path.read_text()) for path in DEFINITIONS}
    for each in definitions.values():
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        each["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    cluster.define([*definitions.values()])
    try:
        yield
    finally:
        cluster.install(DEFINITIONS)


def test_objects_of_before_there_were_rules_are_said_to_be_wrong_and_harm_nobody(team: Namespace) -> None:
    cluster = team.cluster

    def state(kind: str, name: str) -> Any:
        status = cluster.get(team.path(OPENFEATURE, kind, name)).get("status") or {}
        accepted = {each["type"]: each for each in status.get("conditions") or []}.get("Accepted", {})
        return accepted.get("status"), accepted.get("reason"), accepted.get("message")

    def make(kind: str, name: str, spec: Any) -> None:
        made = {"apiVersion": OPENFEATURE, "kind": kind, "metadata": {"name": name}, "spec": spec}
        until(lambda: cluster.rest.ask("POST", team.path(OPENFEATURE, kind), made).status == 201, "the old definition")

    with permissive(cluster):
        make("FeatureFlagSource", "unknown", {"sources": [{"source": "x", "provider": "carrier-pigeon"}]})
        make("FeatureFlagSource", "negative", {"sources": [{"source": "x", "provider": "http", "interval": -1}]})
        make("FeatureFlagSource", "odd", {"sources": "none"})
        make("InProcessConfiguration", "odd", {"cache": "all"})
        make("Flagd", "odd", {"replicas": -1})
        make("FeatureFlag", "odd", {"flagSpec": {"flags": [1, 2]}})
        make("FeatureFlag", "empty", None)
    with OperatorProcess("--allow-orphan-pods") as operator:
        operator.register(cluster)
        team.apply(in_team(team, source("flags", source="http://flags.test", provider="http")))
        team.apply(flagd("behind", featureFlagSource="negative"))
        called(cluster, team)
        until(lambda: state("FeatureFlagSource", "unknown")[1] == "UnknownProvider", "a reason")
        until(lambda: state("FeatureFlag", "odd")[1] == "Invalid", "a reason")
        connection = to_cluster(cluster)
        for kind in ("FeatureFlagSource", "InProcessConfiguration", "Flagd"):
            until(lambda kind=kind: state(kind, "odd")[1] == "Invalid", "a reason")  # type: ignore[misc]
        until(lambda: "spec.sources[0].interval" in (state("FeatureFlagSource", "negative")[2] or ""), "where")
        wrong = {"unknown": "unrecognized sync provider", "negative": "sources[0].interval", "odd": "$.spec.sources"}
        for name, reason in wrong.items():
            injected, said = dry_run(connection, team.name, {**SOURCE, "openfeature.dev/featureflagsource": name})
            assert not injected
            assert reason in said
        connection.close()
        until(lambda: not number(operator, "wigwag_controller_failing_keys"), "nothing fails")
