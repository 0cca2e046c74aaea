"""An agent on a real API server, through everything that happens to one: clients see each state, and lose none."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.process import AgentProcess
from tests.real.access import Access
from tests.real.agents import RESOLVE, Client, flags
from tests.real.cluster import Namespace
from tests.real.controlplane import DEFINITIONS, ControlPlane
from tests.real.processes import until
from tests.real.tap import Tap
from wigwag.sources.kinds import parse_sources

GROUP = "core.openfeature.dev"
V1BETA1 = f"{GROUP}/v1beta1"
VERBS = ["get", "list", "watch"]
PAGE = Path(__file__).parent.parent.parent / "docs" / "guides" / "kubernetes.md"
NewPlane = Callable[..., ControlPlane]


def config_map(name: str, data: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data, **more}


def requests(plane: ControlPlane, verb: str, resource: str = "featureflags") -> int:
    """Return how many requests the API server has counted."""
    text = plane.cluster.rest.call("GET", "/metrics").body.decode()
    lines = [line for line in text.splitlines() if line.startswith("apiserver_request_total{")]
    wanted = (f'verb="{verb}"', f'resource="{resource}"')
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if all(each in line for each in wanted))


def test_clients_see_a_flag_from_before_it_exists_until_it_is_back(
    namespace: Namespace, kubeconfig: Callable[[Access], Path]
) -> None:
    kubeconfig(namespace.cluster.access)
    place = namespace.path(V1BETA1, "FeatureFlag", "shop")
    with AgentProcess(f"--uri={GROUP}/{namespace.name}/shop", ready=False) as agent, Client(agent) as client:
        client.is_told(f"there is no FeatureFlag {namespace.name}/shop yet")
        assert not client.ready()
        namespace.feature_flag("shop", flags("on"))
        client.sees(True)
        assert client.ready()
        assert client.source()["state"] == "live"
        namespace.feature_flag("shop", flags("off"))
        client.sees(False)
        namespace.cluster.delete(place)
        client.is_told("any more; its last flags stay in force")
        assert client.value() is False, "nothing is taken away"
        assert client.ready()
        namespace.feature_flag("shop", flags("on"))
        client.sees(True)
        until(lambda: client.source()["state"] == "live", "the source being live")
        assert client.told_of(3) == [{"x"}] * 3


def test_with_the_policy_remove_the_flags_go_with_their_object(
    namespace: Namespace, kubeconfig: Callable[[Access], Path]
) -> None:
    kubeconfig(namespace.cluster.access)
    namespace.feature_flag("shop", flags("on"))
    told = [{"uri": f"{namespace.name}/shop", "provider": "kubernetes", "onDelete": "remove"}]
    with AgentProcess("--sources", json.dumps(told)) as agent, Client(agent) as client:
        assert client.value() is True
        namespace.cluster.delete(namespace.path(V1BETA1, "FeatureFlag", "shop"))
        client.sees(None)
        client.is_told("with onDelete=remove it has no flags")
        namespace.feature_flag("shop", flags("on"))
        client.sees(True)


def test_shared_rules_and_metadata_of_a_flag_work(namespace: Namespace, kubeconfig: Callable[[Access], Path]) -> None:
    kubeconfig(namespace.cluster.access)
    document = flags("off", metadata={"team": "blue"})
    document["flags"]["x"]["targeting"] = {"if": [{"$ref": "staff"}, "on"]}
    document["$evaluators"] = {"staff": {"ends_with": [{"var": "email"}, "@example.com"]}}
    namespace.feature_flag("shop", document)
    with AgentProcess(f"--uri={GROUP}/{namespace.name}/shop") as agent:
        asked = {"flagKey": "x", "context": {"email": "fay@example.com"}}
        body = json.loads(agent.fetch("evaluation", RESOLVE, asked, content_type="application/json")[1])
        assert (body["value"], body["reason"], body["metadata"]) == (True, "TARGETING_MATCH", {"team": "blue"})


def test_many_flags_that_labels_choose_are_one_set(namespace: Namespace, kubeconfig: Callable[[Access], Path]) -> None:
    kubeconfig(namespace.cluster.access)

    def apply(name: str, variant: str, **labels: str) -> None:
        flag = {"apiVersion": V1BETA1, "kind": "FeatureFlag", "metadata": {"name": name, "labels": labels}}
        namespace.apply({**flag, "spec": {"flagSpec": flags(variant)}})

    apply("a", "on", app="shop")
    apply("b", "off", app="shop", tier="x")
    apply("c", "off", app="other")
    uri = f"--uri={GROUP}/{namespace.name}?labels=app=shop&labels=tier!=x"
    with AgentProcess(uri) as agent, Client(agent) as client:
        assert client.value() is True
        apply("b", "off", app="shop", tier="y")
        client.sees(False)
        namespace.cluster.delete(namespace.path(V1BETA1, "FeatureFlag", "b"))
        client.sees(True)
        assert client.source()["source"] == f"{namespace.name}?labels=app=shop&labels=tier!=x"


def test_a_config_map_holds_documents(namespace: Namespace, kubeconfig: Callable[[Access], Path]) -> None:
    kubeconfig(namespace.cluster.access)
    text = "flags: {x: {state: ENABLED, variants: {on: true, off: false}, defaultVariant: on}}"
    binary = base64.b64encode(json.dumps(flags("off")).encode()).decode()
    namespace.apply(config_map("shop", {"a.yaml": text}, binaryData={"b.json": binary}))
    uris = [f"--uri=configmap/{namespace.name}/shop/a.yaml", f"--uri=configmap/{namespace.name}/shop"]
    with AgentProcess(uris[0]) as one, AgentProcess(uris[1]) as every, Client(one) as first, Client(every) as second:
        assert (first.value(), second.value()) == (True, False)
        namespace.apply(config_map("shop", {"a.yaml": text}))
        second.sees(True)
        namespace.apply(config_map("shop", {"a.yaml": text.replace("defaultVariant: on", "defaultVariant: off")}))
        first.sees(False)
        second.sees(False)


def test_a_service_account_that_may_see_one_name_is_enough(
    namespace: Namespace, kubeconfig: Callable[[Access], Path]
) -> None:
    namespace.feature_flag("shop", flags("on"))
    kubeconfig(namespace.account("app"))
    namespace.allow("app", "featureflags", VERBS, names=["shop"], group=GROUP)
    with AgentProcess(f"--uri={GROUP}/{namespace.name}/shop") as agent, Client(agent) as client:
        assert client.value() is True
        namespace.feature_flag("shop", flags("off"))
        client.sees(False)


def test_one_that_may_not_is_told_what_is_missing_and_goes_on_when_it_may(
    namespace: Namespace, kubeconfig: Callable[[Access], Path]
) -> None:
    namespace.feature_flag("shop", flags("on"))
    kubeconfig(namespace.account("app"))
    with AgentProcess(f"--uri={GROUP}/{namespace.name}/shop", ready=False) as agent, Client(agent) as client:
        client.is_told(
            f"system:serviceaccount:{namespace.name}:app may not watch featureflags.{GROUP}",
            "resources: [featureflags], resourceNames: [shop], verbs: [get, list, watch]",
        )
        assert not client.ready()
        namespace.allow("app", "featureflags", VERBS, names=["shop"], group=GROUP)
        client.sees(True)
        assert client.ready()
        assert client.source()["restarts"] == 0, "it is retried where it is known how, and not from the beginning"


def test_a_token_that_is_replaced_in_its_file_is_used(
    namespace: Namespace, kubeconfig: Callable[[Access], Path], tmp_path: Path
) -> None:
    namespace.feature_flag("shop", flags("on"))
    access = namespace.account("app")
    namespace.allow("app", "featureflags", VERBS, names=["shop"], group=GROUP)
    path = kubeconfig(access)
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"tokenFile": str(tmp_path / "token")}
    path.write_text(json.dumps(config))
    (tmp_path / "token").write_text("of yesterday")
    with AgentProcess(f"--uri={GROUP}/{namespace.name}/shop", ready=False) as agent, Client(agent) as client:
        client.is_told("401")
        assert "of yesterday" not in json.dumps([client.source(), agent.lines])
        (tmp_path / "token").write_text(access.token)
        client.sees(True)


@pytest.mark.timeout(240)
def test_a_server_that_is_gone_for_a_while_takes_nothing_away_and_what_changed_meanwhile_arrives(
    private_plane: NewPlane, kubeconfig: Callable[[Access], Path]
) -> None:
    plane = private_plane()
    namespace = plane.cluster.add_namespace("team")
    namespace.feature_flag("shop", flags("on"))
    kubeconfig(plane.cluster.access)
    with AgentProcess(f"--uri={GROUP}/team/shop") as agent, Client(agent) as client:
        assert client.value() is True
        plane.apiserver.kill()
        client.is_told("no connection")
        until(lambda: client.source()["ageSeconds"] > 20, "twenty seconds of it")
        assert client.value() is True
        assert client.ready()
        plane.apiserver.start()
        namespace.feature_flag("shop", flags("off"))
        client.sees(False)
        until(lambda: client.source()["state"] == "live", "recovery")
        assert requests(plane, "LIST") == 0, "the server has counted from its restart on: it was not listed again"
        assert requests(plane, "WATCH") <= 2
        assert client.told_of(1) == [{"x"}]


@pytest.mark.timeout(240)
def test_a_definition_that_is_installed_after_the_agent_is_noticed(
    private_plane: NewPlane, kubeconfig: Callable[[Access], Path], tapped: Callable[[Access], Tap]
) -> None:
    plane = private_plane(definitions=())
    tap = tapped(plane.cluster.access)
    kubeconfig(tap.access)
    with AgentProcess(f"--uri={GROUP}/team/shop", ready=False) as agent, Client(agent) as client:
        client.is_told(f"the API server has no featureflags in {V1BETA1}")
        plane.cluster.install(DEFINITIONS)
        plane.cluster.add_namespace("team").feature_flag("shop", flags("on"))
        client.sees(True)
        assert client.ready()
        statuses = [each.status for each in tap.since(0)]
        assert set(statuses[:-1]) <= {404, 429}, "nothing but that it is not there, or not yet"
        assert statuses[-1] == 200
        assert len(statuses) <= 25, "no storm"


def test_commands_that_look_once_read_it_too(namespace: Namespace, kubeconfig: Callable[[Access], Path]) -> None:
    kubeconfig(namespace.cluster.access)
    namespace.feature_flag("shop", flags("on"))
    namespace.feature_flag("other", flags("off"))
    one, other = (f"{GROUP}/{namespace.name}/{name}" for name in ("shop", "other"))

    def wigwag(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "wigwag", *arguments], capture_output=True, text=True)

    checked = wigwag("check-config", "--uri", one, "--uri", other, "--port=0", "--output=json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert [each["state"] for each in json.loads(checked.stdout)["sources"]] == ["ok", "ok"]
    missing = wigwag("check-config", "--uri", f"{one}-2", "--port=0", "--output=json")
    assert missing.returncode == 1
    assert "there is no FeatureFlag" in missing.stdout
    assert "x" in wigwag("diff", one, other).stdout


# what a pod finds out about itself


def pod(
    name: str, *, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    """A pod on a node of the same name; there is nobody to run it."""
    about = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    spec = {"nodeName": f"node-{name}", "containers": [{"name": "app", "image": "example.com/shop:2"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def bind(namespace: Namespace, kind: str, rule: dict[str, Any]) -> None:
    """Let the account of the pod do one thing more."""
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": f"more-{namespace.name}"}}
    subject = {"kind": "ServiceAccount", "name": "app", "namespace": namespace.name}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": f"more-{namespace.name}"}
    apply = namespace.apply if kind == "Role" else namespace.cluster.apply
    apply({**about, "kind": kind, "rules": [rule]})
    apply({**about, "kind": f"{kind}Binding", "roleRef": role, "subjects": [subject]})
    group, resource, verb = (rule[name][0] for name in ("apiGroups", "resources", "verbs"))
    place = namespace.name if kind == "Role" else ""
    namespace.cluster.await_right(f"{namespace.name}:app", verb, place, group=group, resource=resource)


@pytest.fixture
def own_pod(namespace: Namespace, kubeconfig: Callable[[Access], Path], monkeypatch: pytest.MonkeyPatch) -> str:
    """Have agents be a pod, with a service account that may do nothing yet."""
    name = f"pod-{namespace.name}"
    kubeconfig(namespace.account("app"))
    monkeypatch.setenv("POD_NAME", name)
    monkeypatch.setenv("POD_NAMESPACE", namespace.name)
    return name


def test_an_agent_finds_its_flags_by_the_annotations_of_its_pod(namespace: Namespace, own_pod: str) -> None:
    namespace.feature_flag("shop", flags("on"))
    namespace.feature_flag("late", flags("off"))
    with AgentProcess(f"--uri={GROUP}/", ready=False) as agent, Client(agent) as client:
        client.is_told("may not watch pods", "resources: [pods], verbs: [get, list, watch]")
        namespace.allow("app", "pods", VERBS)
        client.is_told(f"there is no pod {namespace.name}/{own_pod}")
        namespace.apply(pod(own_pod))
        client.is_told("this pod has no annotation openfeature.dev/featureflag")
        namespace.apply(pod(own_pod, annotations={"openfeature.dev/featureflag": "shop"}))
        client.is_told("may not watch featureflags")
        bind(namespace, "Role", {"apiGroups": [GROUP], "resources": ["featureflags"], "verbs": VERBS})
        client.sees(True)
        assert client.ready()
        namespace.apply(pod(own_pod, annotations={"openfeature.dev/featureflag": "shop,late"}))
        client.sees(False)


def test_facts_about_a_pod_come_from_the_server_if_no_volume_tells_them(
    namespace: Namespace, own_pod: str, tmp_path: Path
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{own_pod}"}}
    namespace.cluster.apply(node)
    namespace.apply(pod(own_pod, labels={"tier": "a"}))
    zone = {"labels": {"topology.kubernetes.io/zone": "eu-1"}}  # a server may write it on pods that come later, too
    namespace.cluster.apply({**node, "metadata": {"name": f"node-{own_pod}", **zone}})
    expected = {"labels.tier": "a", "image": "example.com/shop:2", "node": f"node-{own_pod}"}
    known = {"and": [{"==": [{"var": f"pod.{name}"}, value]} for name, value in expected.items()]}
    document = flags("off")
    document["flags"]["x"]["targeting"] = {"if": [known, "on"]}
    document["flags"]["zone"] = {
        **document["flags"]["x"],
        "targeting": {"if": [{"==": [{"var": "pod.zone"}, "eu-1"]}, "on"]},
    }
    (tmp_path / "f.json").write_text(json.dumps(document))
    options = [f"--uri=file:{tmp_path / 'f.json'}", "--context-from-pod", f"--pod-info={tmp_path / 'none'}"]
    with AgentProcess(*options) as agent, Client(agent) as client:
        until(lambda: "may not watch pods" in (client.source(1)["error"] or ""), "the refusal")
        assert client.value() is False
        namespace.allow("app", "pods", VERBS)
        client.sees(True)
        assert client.value("zone") is False, "who may not read nodes is not kept from the rest"
        bind(namespace, "ClusterRole", {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]})
        namespace.apply(pod(own_pod, labels={"tier": "b"}))
        client.sees(True, "zone")
        client.sees(False)
    namespace.cluster.delete(f"/api/v1/nodes/node-{own_pod}")


# the page about it


def states(agent: AgentProcess) -> set[str]:
    return {source["state"] for source in json.loads(agent.fetch("management", "/debug/sources")[1])}


def test_the_manifests_of_the_page_are_accepted_and_give_the_agent_all_it_needs(
    namespace: Namespace, kubeconfig: Callable[[Access], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.read_text().replace("team-a", namespace.name).replace("wigwag-zones", f"zones-{namespace.name}")
    manifests = [
        each for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) for each in yaml.safe_load_all(block)
    ]
    for manifest in manifests:
        whole = manifest["kind"].startswith("Cluster")
        (namespace.cluster.apply if whole else namespace.apply)(manifest)
    assert {each["kind"] for each in manifests} >= {"FeatureFlag", "Role", "Deployment", "ClusterRole"}
    kubeconfig(namespace.account("shop"))
    (deployment,) = (each["spec"]["template"] for each in manifests if each["kind"] == "Deployment")
    made = {**deployment, "apiVersion": "v1", "kind": "Pod", "metadata": {**deployment["metadata"], "name": "shop-1"}}
    namespace.apply(made)
    monkeypatch.setenv("POD_NAME", "shop-1")
    monkeypatch.setenv("POD_NAMESPACE", namespace.name)
    (container,) = deployment["spec"]["initContainers"]
    located = [f"--uri={GROUP}/", "--context-from-pod"]
    asked = {"flagKey": "new-checkout", "context": {"email": "fay@example.com"}}
    for arguments in (container["args"], located):
        with AgentProcess(*arguments, "--pod-info=/nonexistent") as agent:
            body = json.loads(agent.fetch("evaluation", RESOLVE, asked, content_type="application/json")[1])
            assert body["value"] is True
            until(lambda agent=agent: states(agent) == {"live"}, "all sources being live")  # type: ignore[misc]
    for kind in ("clusterroles", "clusterrolebindings"):
        namespace.cluster.delete(f"/apis/rbac.authorization.k8s.io/v1/{kind}/zones-{namespace.name}")


def test_the_sources_of_the_page_are_read_without_a_remark() -> None:
    remarks: list[str] = []
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    sources = parse_sources((), example, remarks.append)
    assert [source.provider for source in sources] == ["kubernetes", "kubernetes", "configmap"]
    assert remarks == []
