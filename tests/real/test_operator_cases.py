"""What the original gets wrong or leaves open, on a real control plane with the operator and a kubelet at work.

Cases are from the specification (§6.3, §6.4 and §7) and from measurements of the original. Paths are below `tests`; what
is not named here is a number, and a line of `scripts/bench operator`.

| case | ours |
|---|---|
| a dry run has no side effects | real/test_operator_cases.py::test_a_dry_run_leaves_nothing |
| a pod that is injected can be labelled; its source may be gone | real/test_operator_cases.py::test_an_injected_pod_can_be_changed_and_outlives_its_source |
| the webhook is called again for its own patch | real/test_operator_injection.py::test_an_injected_pod_is_accepted_and_injecting_again_changes_nothing |
| | real/test_admission.py::test_a_new_container_gets_its_token_and_we_are_asked_once |
| a FeatureFlag of the same name in two namespaces; names with dots, names of 64 and more characters | real/test_operator_cases.py::test_files_of_any_name_and_namespace_are_mounted_beside_each_other |
| `file` and FeatureFlagSources across namespaces, with and without a grant | real/test_operator_cases.py::test_another_namespace_needs_a_grant_and_loses_the_flags_with_it |
| a change of a FeatureFlag reaches pods that mount it | real/test_operator_e2e.py::test_e02_e03_e04_a_change_of_a_flag_reaches_clients_of_the_sidecar |
| a ConfigMap of the user's with the same name | real/test_operator_cases.py::test_a_config_map_of_the_users_is_left_alone_and_the_pod_is_refused |
| a ConfigMap of ours is deleted or edited | real/test_operator_cases.py::test_a_config_map_of_ours_is_repaired |
| FeatureFlag deleted: workloads keep their last flags, new pods wait | real/test_operator_cases.py::test_running_pods_keep_the_last_flags_of_a_feature_flag_that_was_deleted |
| FeatureFlag that does not exist yet, through the proxy | real/test_operator_cases.py::test_a_flag_that_comes_later_reaches_a_pod_through_the_proxy |
| rollout: lists with spaces, StatefulSets, DaemonSets; nobody else | real/test_operator_cases.py::test_a_changed_source_rolls_every_kind_of_workload_that_names_it |
| a restart of the operator rolls nothing; a source that changed meanwhile is rolled out once | real/test_operator_lifecycle.py::test_a_restart_rolls_nothing_and_what_changed_meanwhile_is_rolled_once |
| the default provider is flagd-proxy; a port of the proxy other than 8015 | real/test_operator_lifecycle.py::test_a_default_provider_deploys_the_proxy_on_the_port_that_is_set |
| the proxy is deleted by hand | real/test_operator_lifecycle.py::test_a_deleted_proxy_is_back_and_pods_follow_it |
| the operator is uninstalled: proxy, Service and budget go with its Deployment | real/test_operator_lifecycle.py::test_the_proxy_goes_with_the_operators_deployment_and_comes_back_with_it |
| a hundred pods at once, provider kubernetes: all have the sidecar | real/test_fakenodes.py::test_of_a_hundred_pods_at_once_all_have_the_agent_and_become_ready |
| thirty first pods at once, provider kubernetes | real/test_operator_cases.py::test_thirty_first_pods_in_thirty_namespaces_are_admitted_and_get_their_rights |
| rights end with the last pod, and are for the flags that are used | real/test_operator_cases.py::test_rights_are_for_one_flag_and_end_with_the_workload |
| | real/test_operator_rights.py::test_a_role_lets_an_account_watch_the_flags_that_it_names_and_no_others |
| automount of the token is disabled; hostNetwork | real/test_operator_cases.py::test_pods_without_a_token_or_in_the_hosts_network_run_and_are_warned_about |
| Jobs complete | real/test_operator_cases.py::test_a_job_with_an_agent_completes |
| credentials are in the agent's container only | real/test_operator_cases.py::test_a_token_of_a_secret_reaches_the_source_and_no_other_container |
| a Unix socket is shared | real/test_operator_lifecycle.py::test_clients_of_a_pod_can_use_the_socket_that_it_shares |
| the playground's manifests | real/test_operator_cases.py::test_the_playgrounds_manifests_work_unchanged |
| no right too many | real/test_operator_audit.py::test_every_right_is_used_and_none_is_missing |
| FeatureFlagSource edited, child of a Flagd deleted or edited, Ingress disabled, source missing | real/test_operator.py::test_a_flagd_gets_its_objects_which_are_repaired_and_go_when_they_are_disabled |
| routes disabled; a label of a Flagd changes nothing | real/test_operator_cases.py::test_disabled_routes_are_removed_and_a_label_writes_nothing |
| Flagd with ports of its own | real/test_operator_e2e.py::test_e06_custom_ports_show_in_the_environment_and_the_service_leads_to_the_process |
| a pod that is created while the operator is down | real/test_admission.py::test_a_pod_that_asks_for_flags_waits_while_we_are_down_and_others_do_not |
| bad and good FeatureFlags | operator/test_validation.py |
| an unknown provider | real/test_operator_resources.py::test_a_wrong_manifest_is_refused_with_a_reason |
| the leader is killed during a rollout | real/test_operator_faults.py::test_a_leader_that_is_killed_in_a_rollout_is_followed_by_one_that_goes_on |
| the API server is restarted | real/test_operator_lifecycle.py::test_an_api_server_that_is_restarted_is_found_again_by_everybody |
| | real/test_operator_faults.py::test_an_api_server_that_freezes_restarts_and_forgets_costs_nothing_but_time |
| SIGTERM, the Lease | real/test_operator_process.py::test_with_the_flags_and_variables_of_the_original_it_serves_and_ends_when_told |
| certificates change under load | real/test_admission.py::test_a_ca_is_rotated_under_load_without_one_failed_call |
| fifty admissions at once | real/test_admission.py::test_fifty_pods_at_once_are_all_patched |
"""  # noqa: E501

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType

from tests.clients.test_python_providers import connected
from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.processes import until
from tests.real.rest import Answer
from tests.real.workloads import (
    App,
    agent_of,
    daemon_set,
    deployment,
    flagd,
    job,
    resolve,
    sees,
    source,
    sources_of,
    stateful_set,
    template,
)
from tools.manifests import DEPLOY
from wigwag.operator.names import ALLOW_FROM, ALLOW_KUBERNETES_SYNC, ObjectName, access_name, config_map_name

TESTS = Path(__file__).parent.parent
RBAC = "rbac.authorization.k8s.io/v1"
KUBERNETES = {"source": "flags", "provider": "kubernetes"}
MOUNTED = {"source": "flags", "provider": "file"}


@pytest.fixture(scope="session")
def cluster(operated: Cluster) -> Cluster:
    return operated


def test_every_test_of_the_table_exists() -> None:
    named = re.findall(r"(\S+\.py)(?:::(test_\w+))?", __doc__ or "")
    assert len(named) > 30
    for path, name in named:
        assert (f"def {name}(" if name else "") in (TESTS / path).read_text(), f"{path}::{name}"


def try_pod(namespace: Namespace, sources: str, **spec: Any) -> Answer:
    """Have a pod admitted, as its controller would, in a dry run."""
    pod = template("probe", sources, **spec)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "probe", "uid": str(uuid4())}
    about = {**pod["metadata"], "name": f"probe-{uuid4().hex[:8]}", "ownerReferences": [owner]}
    body = {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": about}
    return namespace.cluster.rest.ask("POST", namespace.path("v1", "Pod"), body, query={"dryRun": "All"})


def admitted(namespace: Namespace, sources: str, **spec: Any) -> Answer:
    """Wait until pods are admitted: an object that was just made reaches the operator a moment later."""
    until(lambda: try_pod(namespace, sources, **spec).status == 201, "admission")
    return try_pod(namespace, sources, **spec)


@pytest.fixture
def other(cluster: Cluster) -> Iterator[Namespace]:
    made = cluster.add_namespace()
    yield made
    made.remove()


def test_a_dry_run_leaves_nothing(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", KUBERNETES, MOUNTED))
    answer = admitted(namespace, "source").json
    assert answer["metadata"]["annotations"][ALLOW_KUBERNETES_SYNC] == "true"
    assert [each["provider"] for each in sources_of(agent_of(answer))] == ["kubernetes", "file"]

    namespace.apply(source("other", KUBERNETES))  # the operator gets to this one after what it would have done
    path = namespace.path(OPENFEATURE, "FeatureFlagSource", "other")
    until(lambda: namespace.cluster.get(path).get("status"), "the status of a later source")
    assert not namespace.cluster.exists(namespace.path("v1", "ConfigMap", "flags"))
    for kind in ("Role", "RoleBinding"):
        assert namespace.cluster.get(namespace.path(RBAC, kind))["items"] == []


def test_an_injected_pod_can_be_changed_and_outlives_its_source(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", MOUNTED))
    namespace.apply(deployment("web", "source"))
    app = App(namespace, "web")
    pod = app.ready()
    path = namespace.path("v1", "Pod", pod["metadata"]["name"])
    namespace.cluster.patch(path, {"metadata": {"labels": {"seen": "yes"}}})
    namespace.cluster.delete(namespace.path(OPENFEATURE, "FeatureFlagSource", "source"))
    until(lambda: try_pod(namespace, "source").status == 404, "new pods being refused")
    changed = namespace.cluster.patch(path, {"metadata": {"labels": {"seen": "again"}}})
    assert changed["spec"] == pod["spec"]
    namespace.feature_flag("flags", flags("off"))
    sees(pod, "off")


def test_files_of_any_name_and_namespace_are_mounted_beside_each_other(namespace: Namespace, other: Namespace) -> None:
    names = ["flags", "shop.flags", "a" * 80, "b.c" * 30]
    for index, name in enumerate(names):
        namespace.feature_flag(name, {"flags": {f"own{index}": flags()["flags"]["x"]}})
    about = {"name": "flags", "annotations": {ALLOW_FROM: namespace.name}}
    spec = {"flagSpec": {"flags": {"theirs": flags("off")["flags"]["x"]}}}
    other.apply({"apiVersion": OPENFEATURE, "kind": "FeatureFlag", "metadata": about, "spec": spec})
    entries = [{"source": name, "provider": "file"} for name in (*names, f"{other.name}/flags")]
    namespace.apply(source("source", *entries))
    namespace.apply(deployment("web", "source"))
    pod = App(namespace, "web").ready()
    found = {key: resolve(pod, key).get("variant") for key in ("own0", "own1", "own2", "own3", "theirs")}
    assert found == {"own0": "on", "own1": "on", "own2": "on", "own3": "on", "theirs": "off"}


def test_another_namespace_needs_a_grant_and_loses_the_flags_with_it(namespace: Namespace, other: Namespace) -> None:
    other.feature_flag("flags", flags())
    other.apply(source("shared", MOUNTED))
    namespace.apply(source("source", {"source": f"{other.name}/flags", "provider": "file"}))
    until(lambda: "allow-from" in try_pod(namespace, "source").json.get("message", ""), "a refusal of the flag")
    refused = try_pod(namespace, f"{other.name}/shared")
    assert refused.status == 403
    assert "allow-from" in refused.json["message"]

    held = namespace.path("v1", "ConfigMap", config_map_name(ObjectName(other.name, "flags"), namespace.name))
    grant = {"metadata": {"annotations": {ALLOW_FROM: namespace.name}}}
    flag = other.path(OPENFEATURE, "FeatureFlag", "flags")
    namespace.cluster.patch(flag, grant)
    namespace.apply(deployment("web", "source"))
    pod = App(namespace, "web").ready()
    other.feature_flag("flags", flags("off"))
    sees(pod, "off")
    namespace.cluster.patch(flag, {"metadata": {"annotations": {ALLOW_FROM: None}}})
    until(lambda: not namespace.cluster.exists(held), "the end of the ConfigMap")
    assert resolve(pod)["variant"] == "off", "the pod that runs keeps what it has"


def test_a_config_map_of_the_users_is_left_alone_and_the_pod_is_refused(namespace: Namespace) -> None:
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags"}, "data": {"a": "b"}}
    before = namespace.apply(theirs)
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", MOUNTED))
    namespace.apply(deployment("web", "source"))
    App(namespace, "web").refused(f"ConfigMap {namespace.name}/flags", "it is not the operator's")
    path = namespace.path(OPENFEATURE, "FeatureFlag", "flags")

    def reasons() -> list[str]:
        return [each["reason"] for each in namespace.cluster.get(path).get("status", {}).get("conditions", ())]

    until(lambda: "ConfigMapNotOurs" in reasons(), "the reason in the status of the flag")
    live = namespace.path("v1", "ConfigMap", "flags")
    assert namespace.cluster.get(live)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    namespace.cluster.delete(live)
    App(namespace, "web").ready()


def test_a_config_map_of_ours_is_repaired(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", MOUNTED))
    namespace.apply(deployment("web", "source"))
    pod, path = App(namespace, "web").ready(), namespace.path("v1", "ConfigMap", "flags")
    (key,) = namespace.cluster.get(path)["data"]
    namespace.cluster.patch(path, {"data": {key: '{"flags": {}}'}})
    until(lambda: "defaultVariant" in namespace.cluster.get(path)["data"][key], "the flags being back")
    namespace.cluster.delete(path)
    until(lambda: namespace.cluster.exists(path), "the ConfigMap being back")
    namespace.feature_flag("flags", flags("off"))
    sees(pod, "off")


@pytest.mark.parametrize("provider", ["kubernetes", "file", "flagd-proxy"])
def test_running_pods_keep_the_last_flags_of_a_feature_flag_that_was_deleted(
    provider: str, namespace: Namespace
) -> None:
    namespace.feature_flag("flags", flags("off"))
    namespace.apply(source("source", {"source": "flags", "provider": provider}))
    namespace.apply(deployment("web", "source"))
    pod = App(namespace, "web").ready()
    namespace.cluster.delete(namespace.path(OPENFEATURE, "FeatureFlag", "flags"))
    path = namespace.path(OPENFEATURE, "FeatureFlagSource", "source")

    def unresolved() -> bool:
        conditions = namespace.cluster.get(path).get("status", {}).get("conditions") or []
        return any(each["type"] == "Resolved" and each["status"] == "False" for each in conditions)

    until(unresolved, "the status of the source saying so")
    if provider != "flagd-proxy":
        until(lambda: try_pod(namespace, "source").status == 500, "new pods being refused")
    if provider == "file":
        config_map = namespace.path("v1", "ConfigMap", "flags")
        until(lambda: not namespace.cluster.exists(config_map), "the ConfigMap going with its owner")
    assert resolve(pod)["variant"] == "off"
    namespace.feature_flag("flags", flags("on"))
    sees(pod, "on")


def test_a_flag_that_comes_later_reaches_a_pod_through_the_proxy(namespace: Namespace) -> None:
    namespace.apply(source("source", {"source": "late", "provider": "flagd-proxy"}))
    namespace.apply(deployment("web", "source"))
    app = App(namespace, "web")
    until(app.pods, "an admitted pod")
    namespace.feature_flag("late", flags())
    assert resolve(app.ready())["variant"] == "on"


def test_a_changed_source_rolls_every_kind_of_workload_that_names_it(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    for name in ("one", "two"):
        namespace.apply(source(name, MOUNTED, rolloutOnChange=True))
    workloads = {
        "spaced": deployment("spaced", "one , two"),
        "stateful": stateful_set("stateful", "two"),
        "daemon": daemon_set("daemon", "two"),
        "untouched": deployment("untouched", "one"),
    }
    for manifest in workloads.values():
        namespace.apply(manifest)
    before = {name: App(namespace, name).ready() for name in workloads}
    path = namespace.path(OPENFEATURE, "FeatureFlagSource", "two")
    until(lambda: namespace.cluster.get(path).get("status", {}).get("digest"), "the digest of the source")

    namespace.apply(source("two", MOUNTED, rolloutOnChange=True, debugLogging=True))
    for name in ("spaced", "stateful", "daemon"):
        pod = App(namespace, name).ready(without=[before[name]["metadata"]["uid"]])
        assert "--debug" in agent_of(pod)["args"]
    (same,) = App(namespace, "untouched").pods()
    assert same["metadata"]["uid"] == before["untouched"]["metadata"]["uid"]


def test_thirty_first_pods_in_thirty_namespaces_are_admitted_and_get_their_rights(cluster: Cluster) -> None:
    def prepare(_: int) -> Namespace:
        made = cluster.add_namespace()
        made.feature_flag("flags", flags())
        made.apply(source("source", KUBERNETES))
        made.apply(deployment("web", "source", replicas=0))
        return made

    with ThreadPoolExecutor(8) as few:
        namespaces = list(few.map(prepare, range(30)))
        # whatever was made before these two is known as soon as they are
        namespaces[0].feature_flag("last", flags())
        namespaces[0].apply(source("last", {"source": "last", "provider": "kubernetes"}))
        until(lambda: try_pod(namespaces[0], "last").status == 201, "the last flag and source being known")
        with ThreadPoolExecutor(30) as all_at_once:
            answers = list(all_at_once.map(lambda each: try_pod(each, "source"), namespaces))
        assert {answer.status for answer in answers} == {201}

        def has_rights(each: Namespace) -> bool:
            name = access_name(ObjectName(each.name, "default"))
            return cluster.exists(each.path(RBAC, "Role", name)) and cluster.exists(
                each.path(RBAC, "RoleBinding", name)
            )

        list(few.map(lambda each: until(lambda: has_rights(each), "the rights"), namespaces))
        list(few.map(lambda each: each.remove(), namespaces))


def test_rights_are_for_one_flag_and_end_with_the_workload(namespace: Namespace) -> None:
    for name in ("flags", "others"):
        namespace.feature_flag(name, flags())
    namespace.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "shop"}})
    namespace.apply(source("source", KUBERNETES))
    namespace.apply(deployment("web", "source", serviceAccountName="shop"))
    pod = App(namespace, "web").ready()
    assert resolve(pod)["variant"] == "on"
    path = namespace.path(RBAC, "Role", access_name(ObjectName(namespace.name, "shop")))
    (rule,) = namespace.cluster.get(path)["rules"]
    assert rule["resourceNames"] == ["flags"]
    assert rule["resources"] == ["featureflags"]

    namespace.cluster.delete(namespace.path("apps/v1", "Deployment", "web"))
    until(lambda: not namespace.cluster.exists(path), "the end of the rights")
    bindings = namespace.path(RBAC, "RoleBinding")
    until(lambda: namespace.cluster.get(bindings)["items"] == [], "the end of their binding")


def test_pods_without_a_token_or_in_the_hosts_network_run_and_are_warned_about(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", MOUNTED))
    namespace.apply(source("api", KUBERNETES))
    warned = admitted(namespace, "api", automountServiceAccountToken=False, hostNetwork=True).headers["Warning"]
    assert "automountServiceAccountToken is off" in warned
    namespace.apply(deployment("web", "source", automountServiceAccountToken=False, hostNetwork=True))
    pod = App(namespace, "web").ready()
    assert resolve(pod)["variant"] == "on"
    assert {port["hostPort"] for port in agent_of(pod)["ports"]} == {8013, 8014}


def test_a_job_with_an_agent_completes(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", MOUNTED))
    namespace.apply(job("batch", "source"))
    path = namespace.path("batch/v1", "Job", "batch")

    def complete() -> bool:
        conditions = namespace.cluster.get(path).get("status", {}).get("conditions") or []
        return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)

    until(complete, "the Job being complete")
    (pod,) = App(namespace, "batch").pods()
    assert agent_of(pod)
    assert not pod["metadata"].get("finalizers")
    until(lambda: not namespace.cluster.exists(namespace.path("v1", "ConfigMap", "flags")), "its ConfigMap going")


@contextmanager
def http_source(body: bytes) -> Iterator[tuple[str, list[str | None]]]:
    """Serve a document on loopback; yield where, and the Authorization of each request."""
    seen: list[str | None] = []

    class DocumentHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), DocumentHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/flags.json", seen
        finally:
            server.shutdown()
            thread.join()


def test_a_token_of_a_secret_reaches_the_source_and_no_other_container(namespace: Namespace) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tokens"}, "stringData": {"http": "s3cr3t"}}
    namespace.apply(secret)
    with http_source(b'{"flags":{"x":{"state":"ENABLED","variants":{"on":true},"defaultVariant":"on"}}}') as (
        url,
        seen,
    ):
        entry = {"source": url, "provider": "http", "httpSyncBearerTokenSecret": {"name": "tokens", "key": "http"}}
        variables = [{"name": "AWS_SECRET_ACCESS_KEY", "value": "hidden"}, {"name": "REGION", "value": "eu"}]
        namespace.apply(source("source", entry, envVars=variables))
        namespace.apply(deployment("web", "source"))
        pod = App(namespace, "web").ready()
        assert resolve(pod)["variant"] == "on"
    assert set(seen) == {"Bearer s3cr3t"}
    assert "s3cr3t" not in str(pod)
    names = {each["name"] for each in pod["spec"]["containers"][0]["env"]}
    assert "FLAGD_REGION" in names
    assert not names & {"AWS_SECRET_ACCESS_KEY", "FLAGD_SOURCE_0_TOKEN"}


def test_the_playgrounds_manifests_work_unchanged(namespace: Namespace) -> None:
    """Two sources in one agent; a provider that evaluates by itself, with flags of a Flagd; a Flagd for browsers."""
    for file in sorted((DEPLOY / "examples" / "playground").glob("*.yaml")):
        for manifest in yaml.safe_load_all(file.read_text()):
            namespace.apply(manifest)
    demo = App(namespace, "open-feature-demo").ready()
    assert resolve(demo, "new-welcome-message")["variant"] == "off"
    assert resolve(demo, "fib-algo", kind="String")["value"] == "recursive"

    environment = App(namespace, "in-process-demo").ready()["spec"]["containers"][0]["env"]
    assert {"name": "FLAGD_HOST", "value": "flagd-in-process"} in environment
    assert {"name": "FLAGD_PORT", "value": "8015"} in environment
    address = App(namespace, "flagd-in-process").ready()["status"]["podIP"]
    provider = FlagdProvider(host=address, port=8015, resolver_type=ResolverType.IN_PROCESS, deadline_ms=20_000)
    with connected(provider) as client:
        assert client.get_boolean_details("new-welcome-message", True).variant == "off"

    assert resolve(App(namespace, "flagd-client").ready(), "hex-color", kind="String")["variant"] == "blue"
    path = namespace.path("networking.k8s.io/v1", "Ingress", "flagd-client")
    until(lambda: namespace.cluster.exists(path), "the Ingress")
    ingress = namespace.cluster.get(path)
    assert [rule.get("host", "") for rule in ingress["spec"]["rules"]] == ["localhost", ""]


def test_disabled_routes_are_removed_and_a_label_writes_nothing(namespace: Namespace) -> None:
    namespace.feature_flag("flags", flags())
    namespace.apply(source("source", KUBERNETES))
    routes = {"enabled": True, "parentRefs": [{"name": "gateway"}], "grpc": {"enabled": True}}
    path = namespace.path(OPENFEATURE, "Flagd", "served")
    namespace.apply(flagd("served", "source", gatewayApiRoutes=routes))
    gateway, objects = "gateway.networking.k8s.io/v1", [("apps/v1", "Deployment"), ("v1", "Service")]
    children = [namespace.path(api, kind, "served") for api, kind in objects]
    ways = [namespace.path(gateway, kind, "served") for kind in ("HTTPRoute", "GRPCRoute")]
    for child in (*children, *ways):
        until(lambda child=child: namespace.cluster.exists(child), child)  # type: ignore[misc]
    App(namespace, "served").ready()

    def generations() -> list[int]:
        return [namespace.cluster.get(child)["metadata"].get("generation", 0) for child in (*children, *ways)]

    before = generations()
    for number in range(10):
        namespace.cluster.patch(path, {"metadata": {"labels": {"number": str(number)}}})
    namespace.apply(flagd("served", "source", gatewayApiRoutes={**routes, "enabled": False}))
    for way in ways:
        until(lambda way=way: not namespace.cluster.exists(way), f"the end of {way}")  # type: ignore[misc]
    assert [namespace.cluster.get(child)["metadata"].get("generation", 0) for child in children] == before[:2]
