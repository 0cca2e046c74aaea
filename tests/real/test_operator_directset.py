"""Flags that workloads carry or follow, on a real control plane: from the annotation to a client of the agent."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real import programs
from tests.real.agents import flags
from tests.real.cluster import OPENFEATURE, Cluster, Namespace
from tests.real.processes import until
from tests.real.rest import RestError
from tests.real.services import is_ready
from tests.real.workloads import (
    App,
    agent_of,
    daemon_set,
    deployment,
    job,
    resolve,
    sees,
    source,
    sources_of,
    stateful_set,
)
from wigwag.operator.names import ALLOW_FROM, DIRECT_SET, INLINE_FLAGS, REMARKS, STANDING_ORDERS
from wigwag.sources.kubernetes.references import ORDER, ORDERS

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "workload-flags.yaml"


@pytest.fixture(scope="session")
def cluster(operated: Cluster) -> Cluster:
    return operated


def inline(variant: str = "on") -> dict[str, str]:
    """Return the annotation with flags."""
    return {INLINE_FLAGS: json.dumps(flags(variant))}


def annotated(workload: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    return {**workload, "metadata": {**workload["metadata"], "annotations": dict(annotations)}}


def live(namespace: Namespace, name: str, kind: str = "Deployment") -> dict[str, Any]:
    found: dict[str, Any] = namespace.cluster.get(namespace.path("apps/v1", kind, name))
    return found


def remarks_on(namespace: Namespace, name: str, *words: str) -> str:
    """Wait for remarks on a Deployment with these words, and return them."""

    def said() -> str | None:
        text: str = live(namespace, name)["metadata"]["annotations"].get(REMARKS, "")
        return text if text and all(word in text for word in words) else None

    return until(said, f"remarks with {words}") or ""


def flag_path(namespace: Namespace, name: str) -> str:
    return namespace.path(OPENFEATURE, "FeatureFlag", name)


def refused(namespace: Namespace, manifest: Mapping[str, Any]) -> str:
    with pytest.raises(RestError) as caught:
        namespace.apply(dict(manifest))
    assert caught.value.status == 403
    return str(json.loads(caught.value.body)["message"])


def test_the_example_of_the_guide(namespace: Namespace) -> None:
    for manifest in yaml.safe_load_all(EXAMPLE.read_text()):
        namespace.apply(manifest)
    pod = App(namespace, "checkout").ready()
    until(lambda: resolve(pod, "new-checkout").get("variant") == "on", "the flag of the workload, which wins")
    assert resolve(pod, "banner", "String")["variant"] == "none"
    remarks_on(namespace, "checkout", "scope=namespace, mode=standing-order+direct-set, refresh=live, config=")


def test_flags_of_a_deployment_live_change_and_go_with_it(namespace: Namespace) -> None:
    cluster, app, path = namespace.cluster, App(namespace, "web"), flag_path(namespace, "web-deployment")
    namespace.apply(annotated(deployment("web"), {**inline("on"), REMARKS: "mine"}))
    pod = app.ready()
    sees(pod, "on")
    [served] = sources_of(agent_of(pod))
    assert served == {"uri": f"{namespace.name}/web-deployment", "provider": "kubernetes"}
    said = pod["metadata"]["annotations"][REMARKS]
    assert said.startswith("scope=namespace, mode=direct-set, refresh=live, config=")
    first = remarks_on(namespace, "web", "mode=direct-set", "config=")
    digest = until(lambda: cluster.get(path).get("status", {}).get("digest"), "a status")
    first = remarks_on(namespace, "web", f"config={digest}")

    namespace.apply(annotated(deployment("web"), {**inline("off"), REMARKS: "mine"}))
    sees(pod, "off")
    until(lambda: remarks_on(namespace, "web", "config=") not in (first, "mine"), "remarks on the new flags")
    assert app.ready()["metadata"]["uid"] == pod["metadata"]["uid"], "no pod is restarted for a flag"
    assert live(namespace, "web")["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"

    cluster.patch(path, {"spec": {"flagSpec": {"flags": {"y": flags()["flags"]["x"], "x": {"defaultVariant": "on"}}}}})
    until(lambda: cluster.get(path)["spec"]["flagSpec"] == flags("off"), "an edit is undone")
    cluster.delete(path)
    until(lambda: cluster.exists(path), "it is made again")

    cluster.delete(namespace.path("apps/v1", "Deployment", "web"))
    until(lambda: not cluster.exists(path), "the flags go with it")


@pytest.mark.parametrize(("kind", "refresh"), [("StatefulSet", "live"), ("DaemonSet", "file")])
def test_flags_of_other_workloads_beside_a_source(kind: str, refresh: str, namespace: Namespace) -> None:
    """The source says how the agent gets its flags, by the API server or mounted; both agents wait for them."""
    made = {"StatefulSet": stateful_set, "DaemonSet": daemon_set}[kind]("web", "base")
    namespace.feature_flag("base", {"flags": {**flags("off")["flags"], "y": flags("on")["flags"]["x"]}})
    provider = {"live": "kubernetes", "file": "file"}[refresh]
    namespace.apply(source("base", {"source": "base", "provider": "kubernetes"}, defaultSyncProvider=provider))
    namespace.apply(annotated(made, inline("on")))
    pod = App(namespace, "web").ready()
    until(lambda: resolve(pod).get("variant") == "on", "the flag of the workload, which wins")
    assert resolve(pod, "y")["variant"] == "on"
    assert f"mode=source+direct-set, refresh={refresh}" in pod["metadata"]["annotations"][REMARKS]
    namespace.apply(annotated(made, inline("off")))
    sees(pod, "off")


def test_a_pod_may_come_before_the_flags_of_its_workload(namespace: Namespace) -> None:
    """Nobody reviews a ReplicaSet, so the mark in its template stays, and there is nobody who makes its flags."""
    made = deployment("web", annotations={DIRECT_SET: "later"})
    namespace.apply({**made, "kind": "ReplicaSet"})
    app = App(namespace, "web")
    (pod,) = until(app.pods, "a pod")
    assert sources_of(agent_of(pod))[0]["uri"] == f"{namespace.name}/later"
    assert not is_ready(pod)
    namespace.feature_flag("later", flags("on"))
    sees(app.ready(), "on")
    assert app.ready()["metadata"]["uid"] == pod["metadata"]["uid"]


def test_jobs_carry_flags_when_they_are_created(namespace: Namespace) -> None:
    made = annotated(job("web", None), inline("on"))
    namespace.apply(made)
    path = namespace.path("batch/v1", "Job", "web")
    until(lambda: "Complete" in str(namespace.cluster.get(path).get("status", {}).get("conditions")), "its end")
    (pod,) = App(namespace, "web").pods()
    [served] = sources_of(agent_of(pod))
    assert served["uri"] == f"{namespace.name}/web-job"
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": made["spec"]}}
    yearly = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "yearly"}, "spec": spec}
    template = namespace.apply(annotated(yearly, inline("on")))["spec"]["jobTemplate"]["spec"]["template"]
    assert template["metadata"]["annotations"][DIRECT_SET] == "yearly-cronjob"
    until(lambda: namespace.cluster.exists(flag_path(namespace, "yearly-cronjob")), "its flags")
    with pytest.raises(RestError, match="the pods of a Job cannot be changed"):
        namespace.apply(annotated(job("web", None), {}))


def test_what_cannot_work_is_refused_with_the_place(namespace: Namespace) -> None:
    bad = json.dumps({"flags": {"x": {**flags()["flags"]["x"], "defaultVariant": "gone"}}})
    place = f"metadata.annotations[{INLINE_FLAGS}]: "
    said = refused(namespace, annotated(deployment("web"), {INLINE_FLAGS: bad}))
    assert f"{place}$.flags.x.defaultVariant: the default variant 'gone' is not one of the variants" in said
    said = refused(namespace, annotated(deployment("web"), {INLINE_FLAGS: '{"flags": {'}))
    assert f"{place}$: not valid JSON" in said
    large = json.dumps({"flags": {}, "metadata": {"note": "x" * 70_000}})
    said = refused(namespace, annotated(deployment("web"), {INLINE_FLAGS: large}))
    assert f"{place}the flags take {len(large)} bytes, and an annotation may have 65536" in said
    said = refused(namespace, deployment("web", annotations=inline()))
    assert "would restart the pods; write the annotation to metadata.annotations of the Deployment" in said
    said = refused(namespace, annotated(deployment("web"), {ORDERS[0]: "a/b/c"}))
    assert "'a/b/c'; write NAME or NAMESPACE/NAME" in said
    namespace.feature_flag("taken-deployment", flags())
    until(lambda: namespace.cluster.get(flag_path(namespace, "taken-deployment")).get("status"), "a known flag")
    said = refused(namespace, annotated(deployment("taken"), inline()))
    assert f"FeatureFlag {namespace.name}/taken-deployment, which would hold the flags, exists" in said
    assert namespace.cluster.get(namespace.path("apps/v1", "Deployment"))["items"] == []


def test_a_dry_run_writes_nothing(namespace: Namespace) -> None:
    manifest = annotated(deployment("web"), inline())
    manifest["metadata"]["namespace"] = namespace.name
    query = {"fieldManager": "tests", "dryRun": "All"}
    path, kind = namespace.path("apps/v1", "Deployment", "web"), "application/apply-patch+yaml"
    answer = namespace.cluster.rest.call("PATCH", path, manifest, query=query, kind=kind).json
    assert answer["spec"]["template"]["metadata"]["annotations"][DIRECT_SET] == "web-deployment"
    assert REMARKS not in answer["metadata"]["annotations"]
    assert not namespace.cluster.exists(flag_path(namespace, "web-deployment"))


def test_without_the_annotation_the_flags_go_and_the_pods_have_no_agent(namespace: Namespace) -> None:
    namespace.apply(annotated(deployment("web"), inline()))
    app, path = App(namespace, "web"), flag_path(namespace, "web-deployment")
    pod = app.ready()
    remarks_on(namespace, "web", "mode=direct-set")
    namespace.apply(annotated(deployment("web"), {"other": "yes"}))
    bare = app.ready(without=[pod["metadata"]["uid"]])
    assert "initContainers" not in bare["spec"]
    until(lambda: not namespace.cluster.exists(path), "no flags")
    until(lambda: REMARKS not in live(namespace, "web")["metadata"]["annotations"], "no remarks")


def test_a_standing_order_waits_for_its_flag_and_follows_it(namespace: Namespace) -> None:
    app = App(namespace, "web")
    namespace.apply(annotated(deployment("web"), {ORDERS[0]: "orders"}))
    app.refused("could not retrieve featureflag", "orders")
    remarks_on(namespace, "web", "mode=standing-order", "problem=could not retrieve featureflag")
    namespace.feature_flag("orders", flags("on"))
    pod = app.ready()
    sees(pod, "on")
    first = remarks_on(namespace, "web", "config=")
    assert "problem" not in first
    namespace.feature_flag("orders", flags("off"))
    sees(pod, "off")
    until(lambda: remarks_on(namespace, "web", "config=") != first, "remarks on the new flags")
    assert app.ready()["metadata"]["uid"] == pod["metadata"]["uid"]


def test_a_standing_order_of_another_namespace_needs_a_grant_and_loses_it(namespace: Namespace) -> None:
    """As written in the proposal: on the pod, with quotes, and the namespace in an annotation of its own."""
    cluster, other = namespace.cluster, namespace.cluster.add_namespace()
    app = App(namespace, "web")
    orders = {ORDER: '"orders"', f"{ORDER}-namespace": other.name}
    other.feature_flag("orders", flags("on"))
    namespace.apply(deployment("web", annotations=orders))
    app.refused("is in another namespace", ALLOW_FROM)
    path = flag_path(other, "orders")
    cluster.patch(path, {"metadata": {"annotations": {ALLOW_FROM: namespace.name}}})
    pod = app.ready()
    sees(pod, "on")
    assert "scope=cross-namespace, mode=standing-order" in pod["metadata"]["annotations"][REMARKS]

    cluster.patch(path, {"metadata": {"annotations": {ALLOW_FROM: None}}})
    roles = other.path("rbac.authorization.k8s.io/v1", "RoleBinding")
    until(lambda: not cluster.get(roles)["items"], "no right to read them")
    remarks_on(namespace, "web", "problem=", "is in another namespace")
    assert resolve(pod)["variant"] == "on", "the last flags stay"
    other.remove()


def test_an_agent_that_reads_its_own_annotations_is_left_alone(namespace: Namespace) -> None:
    agent = {"name": "agent", "image": "wigwag", "args": ["start", "--uri", "core.openfeature.dev/"]}
    namespace.feature_flag("orders", flags())
    made = deployment("web", annotations={ORDERS[0]: "orders"}, containers=[agent])
    namespace.apply({**made, "spec": {**made["spec"], "replicas": 0}})
    pod = {"apiVersion": "v1", "kind": "Pod", **made["spec"]["template"]}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1"}
    pod["metadata"] = {**pod["metadata"], "name": "web", "ownerReferences": [owner]}
    path = namespace.path("v1", "Pod")
    answer = namespace.cluster.rest.call("POST", path, pod, query={"dryRun": "All"}).json
    assert "initContainers" not in answer["spec"]
    assert [each["name"] for each in answer["spec"]["containers"]] == ["agent"]


def test_a_rollback_brings_the_flags_of_its_revision_back(namespace: Namespace, tmp_path: Path) -> None:
    app, path = App(namespace, "web"), flag_path(namespace, "web-deployment")
    namespace.apply(annotated(deployment("web"), inline("on")))
    first = app.ready()
    namespace.apply(annotated(deployment("web", annotations={"release": "2"}), inline("off")))
    second = app.ready(without=[first["metadata"]["uid"]])
    sees(second, "off")
    config = namespace.cluster.access.kubeconfig(tmp_path / "kubeconfig")
    command = [str(programs.kubernetes().kubectl), f"--kubeconfig={config}", "-n", namespace.name]
    subprocess.run([*command, "rollout", "undo", "deployment/web"], check=True, capture_output=True)
    until(lambda: namespace.cluster.get(path)["spec"]["flagSpec"] == flags("on"), "the flags of the first revision")


def test_whoever_applies_the_same_manifest_again_changes_nothing(namespace: Namespace, tmp_path: Path) -> None:
    """With kubectl on both sides: what is written beside the manifest is nobody's to fight about."""
    config = namespace.cluster.access.kubeconfig(tmp_path / "kubeconfig")
    command = [str(programs.kubernetes().kubectl), f"--kubeconfig={config}", "-n", namespace.name]

    def kubectl(*arguments: str) -> str:
        return subprocess.run([*command, *arguments, "-f", EXAMPLE], check=True, capture_output=True, text=True).stdout

    kubectl("apply")
    App(namespace, "checkout").ready()
    before = remarks_on(namespace, "checkout", "config=")
    assert kubectl("apply").count(" unchanged") == 2
    assert kubectl("diff") == ""
    kubectl("apply", "--server-side", "--force-conflicts")
    kubectl("apply", "--server-side")
    after = live(namespace, "checkout")
    assert after["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1", "the template stays as it is"
    assert set(after["spec"]["template"]["metadata"]["annotations"]) == {DIRECT_SET, STANDING_ORDERS}
    assert remarks_on(namespace, "checkout", "config=") == before
