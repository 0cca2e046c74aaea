"""The real Kubernetes that other tests rely on does what they rely on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real import programs
from tests.real.access import Access
from tests.real.cluster import Cluster, Namespace
from tests.real.controlplane import DEFINITIONS, ROOT, ControlPlane
from tests.real.processes import until
from tests.real.rest import RestError

GROUP = "core.openfeature.dev"
V1BETA1 = f"{GROUP}/v1beta1"
FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "on"}
SPEC = {"flags": {"new-checkout": FLAG}}
NewPlane = Callable[..., ControlPlane]


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def refused(namespace: Namespace, spec: dict[str, Any]) -> str:
    """Return why the API server does not take these flags."""
    with pytest.raises(RestError) as caught:
        namespace.feature_flag("bad", spec)
    assert caught.value.status == 422
    return str(caught.value)


def test_the_api_is_ready_and_says_which_version_it_is(cluster: Cluster) -> None:
    assert cluster.rest.answers("/readyz")
    assert cluster.get("/version")["gitVersion"].startswith("v1.")


def test_without_a_token_or_with_a_wrong_one_nobody_gets_in(cluster: Cluster) -> None:
    path = cluster.path("v1", "Namespace")
    assert cluster.as_user(cluster.access.with_token("")).rest.ask("GET", path).status == 403
    assert cluster.as_user(cluster.access.with_token("wrong")).rest.ask("GET", path).status == 401


def test_an_account_may_do_nothing_until_a_role_allows_it(namespace: Namespace) -> None:
    account = namespace.cluster.as_user(namespace.account("agent"))
    path = namespace.path(V1BETA1, "FeatureFlag")
    assert account.rest.ask("GET", path).status == 403
    namespace.allow("agent", "featureflags", ["list"], group=GROUP)
    until(lambda: account.rest.ask("GET", path).status == 200, "the role taking effect")


def test_a_role_with_names_lets_an_account_watch_that_flag_only(namespace: Namespace) -> None:
    for name in ("mine", "yours"):
        namespace.feature_flag(name, SPEC)
    account = namespace.cluster.as_user(namespace.account("agent"))
    namespace.allow("agent", "featureflags", ["get", "list", "watch"], names=["mine"], group=GROUP)
    path = namespace.path(V1BETA1, "FeatureFlag")
    until(lambda: account.rest.ask("GET", f"{path}/mine").status == 200, "the role taking effect")
    assert account.rest.ask("GET", f"{path}/yours").status == 403
    assert account.rest.ask("GET", path).status == 403
    with account.watch(path, fieldSelector="metadata.name=mine") as events:
        assert next(events)["object"]["metadata"]["name"] == "mine"


def test_a_deleted_account_takes_its_tokens_with_it(namespace: Namespace) -> None:
    account = namespace.cluster.as_user(namespace.account("agent"))
    path = namespace.path("v1", "ConfigMap")
    namespace.cluster.delete(namespace.path("v1", "ServiceAccount", "agent"))
    until(lambda: account.rest.ask("GET", path).status == 401, "the token being refused")


def test_namespaces_do_not_see_each_other(cluster: Cluster, namespace: Namespace) -> None:
    other = cluster.add_namespace()
    try:
        namespace.feature_flag("flags", SPEC)
        assert namespace.cluster.exists(namespace.path(V1BETA1, "FeatureFlag", "flags"))
        assert not other.cluster.exists(other.path(V1BETA1, "FeatureFlag", "flags"))
        account = cluster.as_user(namespace.account("agent"))
        namespace.allow("agent", "featureflags", ["list"], group=GROUP)
        path = namespace.path(V1BETA1, "FeatureFlag")
        until(lambda: account.rest.ask("GET", path).status == 200, "the role taking effect")
        assert account.rest.ask("GET", other.path(V1BETA1, "FeatureFlag")).status == 403
    finally:
        other.remove()


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_our_definitions_are_served_without_complaint(cluster: Cluster, path: Path) -> None:
    where = cluster.path_of(yaml.safe_load(path.read_text()))
    conditions = {one["type"]: one["status"] for one in cluster.get(where)["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_a_flag_that_does_not_fit_the_schema_is_refused_with_its_path(namespace: Namespace) -> None:
    where = "spec.flagSpec.flags.new-checkout"
    assert f"{where}.state" in refused(namespace, {"flags": {"new-checkout": {**FLAG, "state": "ON"}}})
    assert f"{where}.variants" in refused(namespace, {"flags": {"new-checkout": {"state": "ENABLED"}}})
    assert "spec.flagSpec.flags" in refused(namespace, {"$evaluators": {}})


def test_a_flag_keeps_all_that_the_agent_understands(namespace: Namespace) -> None:
    free = {"any": [{"thing": None}, 1, "two"]}
    flag = {"state": "ENABLED", "variants": {"a": free}, "targeting": {"if": [free]}, "metadata": {"n": 1}, "later": 1}
    spec = {"flags": {"f": flag}, "$evaluators": {"e": free}, "metadata": {"m": 1}, "$schema": "https://flagd.dev"}
    assert namespace.feature_flag("flags", spec)["spec"]["flagSpec"] == spec


def test_a_source_gets_the_defaults_of_the_original(namespace: Namespace) -> None:
    manifest = {"apiVersion": V1BETA1, "kind": "FeatureFlagSource", "metadata": {"name": "source"}}
    with pytest.raises(RestError, match=r"spec\.sources"):
        namespace.apply({**manifest, "spec": {"sources": []}})
    spec = namespace.apply({**manifest, "spec": {"sources": [{"source": "flags"}]}})["spec"]
    assert (spec["port"], spec["managementPort"], spec["ofrepPort"]) == (8013, 8014, 8016)
    assert (spec["evaluator"], spec["envVarPrefix"], spec["logFormat"]) == ("json", "FLAGD", "json")
    assert (spec["probesEnabled"], spec["rolloutOnChange"], spec["debugLogging"]) == (True, False, False)


def test_a_watch_tells_every_state_of_a_flag(namespace: Namespace) -> None:
    path = namespace.path(V1BETA1, "FeatureFlag")
    version = namespace.cluster.get(path)["metadata"]["resourceVersion"]
    with namespace.cluster.watch(path, version) as events:
        namespace.feature_flag("flags", SPEC)
        namespace.feature_flag("flags", {"flags": {"new-checkout": {**FLAG, "state": "DISABLED"}}})
        namespace.cluster.delete(f"{path}/flags")
        assert [next(events)["type"] for _ in range(3)] == ["ADDED", "MODIFIED", "DELETED"]


def test_the_controllers_collect_what_belonged_to_a_deleted_flag(namespace: Namespace) -> None:
    if not namespace.cluster.controllers:
        pytest.skip("NO GARBAGE COLLECTION WAS TESTED: KUBEBUILDER_ASSETS has no kube-controller-manager")
    flag = namespace.feature_flag("flags", SPEC)
    owner = {"apiVersion": V1BETA1, "kind": "FeatureFlag", "name": "flags", "uid": flag["metadata"]["uid"]}
    namespace.apply({**config_map("owned"), "metadata": {"name": "owned", "ownerReferences": [owner]}})
    namespace.cluster.delete(namespace.path(V1BETA1, "FeatureFlag", "flags"))
    owned = namespace.path("v1", "ConfigMap", "owned")
    until(lambda: not namespace.cluster.exists(owned), "the garbage collection")


def test_kubectl_understands_our_kubeconfig_files(namespace: Namespace, tmp_path: Path) -> None:
    kubectl = programs.kubernetes().kubectl
    if kubectl is None:
        pytest.skip("KUBECTL WAS NOT TRIED: KUBEBUILDER_ASSETS has none")
    namespace.feature_flag("flags", SPEC)
    config = namespace.cluster.access.kubeconfig(tmp_path / "config", namespace.name)
    shown = subprocess.run(
        [kubectl, "--kubeconfig", config, "get", "ff", "-o", "name"],
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(tmp_path), "PATH": ""},
    )
    assert shown.stdout == f"featureflag.{GROUP}/flags\n"
    assert Access.from_kubeconfig(config) == namespace.cluster.access


def test_a_killed_api_server_comes_back_with_its_data(private_plane: NewPlane) -> None:
    plane = private_plane()
    access = plane.cluster.access.with_certificate(plane.authority.client("somebody", "system:masters"))
    namespace = plane.cluster.as_user(access).add_namespace("kept")
    made = namespace.feature_flag("flags", SPEC)
    assert plane.user("nobody").rest.ask("GET", namespace.path("v1", "Secret")).status == 403
    plane.apiserver.kill()
    assert not plane.cluster.rest.answers("/readyz")
    plane.etcd.restart()
    plane.apiserver.start()
    kept = plane.cluster.get(namespace.path(V1BETA1, "FeatureFlag", "flags"))
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]
    assert kept["spec"] == made["spec"]
    plane.apiserver.pause()
    assert not plane.cluster.rest.answers("/readyz")
    plane.apiserver.resume()
    until(lambda: plane.cluster.rest.answers("/readyz"), "the API server going on")


def code_of_a_watch(cluster: Cluster, path: str, version: str) -> int:
    """Return the status of a watch from a version: of the answer, or of the first event."""
    try:
        with cluster.watch(path, version, timeoutSeconds="10") as events:
            first = next(events)
    except OSError as error:
        return int(getattr(error, "code", 0))
    return int(first["object"]["code"]) if first["type"] == "ERROR" else 200


def test_history_that_was_compacted_is_gone(private_plane: NewPlane) -> None:
    plane = private_plane()
    namespace = plane.cluster.add_namespace("compacted")
    path = namespace.path("v1", "ConfigMap")
    old = namespace.apply(config_map("one", n="0"))["metadata"]["resourceVersion"]
    for number in range(1, 4):
        namespace.apply(config_map("one", n=str(number)))
    assert code_of_a_watch(plane.cluster, path, old) == 200
    assert plane.compact() >= int(old)
    assert code_of_a_watch(plane.cluster, path, old) == 200, "the watch cache still knows"
    plane.apiserver.restart()
    assert code_of_a_watch(plane.cluster, path, old) == 410
    exact = {"resourceVersion": old, "resourceVersionMatch": "Exact"}
    assert plane.cluster.rest.ask("GET", path, query=exact).status == 410


def test_a_cluster_that_is_given_is_used_and_none_is_started(cluster: Cluster, tmp_path: Path) -> None:
    """Nothing could be started: there are no programs."""
    given = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "WIGWAG_TEST_KUBECONFIG": str(cluster.access.kubeconfig(tmp_path / "kubeconfig")),
        "KUBEBUILDER_ASSETS": str(tmp_path),
        "CI": "true",
    }
    test = "tests/real/test_controlplane.py::test_a_role_with_names_lets_an_account_watch_that_flag_only"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", f"--basetemp={tmp_path / 'run'}", test]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=170)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
