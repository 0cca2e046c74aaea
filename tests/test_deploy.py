"""What `deploy` installs: rendered files are up to date, both ways install the same, and all of it fits the code."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from tests.agent.process import AgentProcess
from tests.documents import contents
from tests.operator.known import settings
from tests.real import programs
from tests.real.conftest import loudly
from tools.manifests import (
    CANARY,
    CANARY_NAMESPACE,
    CHART,
    DEPLOY,
    KUSTOMIZE,
    ROOT,
    chart_values,
    rendered,
)
from wigwag.operator import names
from wigwag.operator.admission.registration import WebhookEndpoint, mutating, validating
from wigwag.operator.certificates.secret import DIRECTORY, service_names
from wigwag.operator.injection.proxytrust import CERTIFICATE
from wigwag.operator.reconcile.proxy import plan_proxy
from wigwag.operator.resources.featureflagsource import PROVIDERS, FeatureFlagSourceSpec
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.operator.settings import PREFIXES, OperatorOptions, OperatorSettings, read_settings
from wigwag.options import add_options, collect, declared

Json: TypeAlias = Any
Objects: TypeAlias = "dict[tuple[str, str], Json]"
"""By kind and name."""
SYSTEM = "open-feature-operator-system"
MANAGER = ("Deployment", names.OPERATOR_DEPLOYMENT)
COMPONENTS = sorted(path.name for path in (KUSTOMIZE / "components").iterdir())
VARIANTS: dict[str, dict[str, Json]] = {
    "defaults": {},
    "cert-manager": {
        "certManager": {"enabled": True},
        "mutatingWebhook": {"objectSelector": {"matchLabels": {"a": "b"}}},
    },
    "observed and fenced": {
        "monitoring": {"enabled": True, "labels": {"release": "prometheus"}},
        "networkPolicies": {"enabled": True},
        "labels": {"team": "flags"},
        "annotations": {"example.com/note": "yes"},
    },
    "tenants": {"policy": {"proxyAuth": "kubernetes", "privateWebhooks": True}},
    "one replica, the original's images": {
        "controllerManager": {
            "replicas": 1,
            "podDisruptionBudget": False,
            "priorityClassName": "system-cluster-critical",
        },
        "policy": {"clusterRoleBinding": True, "crossNamespace": "allow", "allowOrphanPods": True},
        "sidecarConfiguration": {"image": {"repository": "mirror/flagd", "tag": "v0.15.4"}},
        "flagdProxyConfiguration": {"image": {"repository": "mirror/flagd-proxy", "tag": "v0.9.4"}, "port": 9015},
        "imagePullSecrets": [{"name": "mirror"}],
        "managerConfig": {"flagsValidationEnabled": "false"},
    },
}


def run(*command: str | Path, text: str = "") -> str:
    done = subprocess.run([*map(str, command)], input=text, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kubectl() -> Path:
    with loudly("KUBERNETES"):
        found = programs.kubernetes().kubectl
    if found is None:
        pytest.skip("there is no kubectl beside the API server")
    return found


def helm() -> str:
    found = shutil.which("helm")
    if found is None:
        pytest.skip("helm is not built: run scripts/tools, and put .cache/tools on the PATH")
    return found


def objects(text: str) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.load_all(text, yaml.CSafeLoader) if each}


def kustomize(folder: Path) -> str:
    return run(kubectl(), "kustomize", folder)


@cache
def default() -> Objects:
    return objects(kustomize(KUSTOMIZE / "default"))


def overlay(folder: Path, *components: str, **fields: Json) -> Path:
    """Write a kustomization as a user would, and return its folder. Folders are relative, as kustomize wants them."""
    paths = [KUSTOMIZE / "default", *(KUSTOMIZE / "components" / name for name in components)]
    first, *others = (os.path.relpath(path.resolve(), folder.resolve()) for path in paths)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [first], "components": others, **fields}))
    return folder


def template(values: Mapping[str, Json], namespace: str = SYSTEM) -> str:
    """Render the chart for a cluster that has everything."""
    options = "--namespace", namespace, "--kube-version", "1.29.0", "--values", "-"
    return run(helm(), "template", "flags", CHART, *options, text=json.dumps(values))


def container(found: Objects) -> Json:
    return found[MANAGER]["spec"]["template"]["spec"]["containers"][0]


def options_of(found: Objects) -> OperatorOptions:
    """Read the arguments of the operator as it does; a flag that it does not have is an error."""
    command, *arguments = container(found)["args"]
    assert [*container(found)["command"], command] == ["wigwag", "operator"]
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser, OperatorOptions)
    return collect(OperatorOptions, parser.parse_args(arguments))


def settings_of(found: Objects) -> OperatorSettings:
    """Read the environment of the operator as it does; a variable that it does not read is an error."""
    (reference,) = container(found)["envFrom"]
    data = found["ConfigMap", reference["configMapRef"]["name"]]["data"]
    (pod,) = container(found)["env"]
    known = {f"{prefix}{each.name.upper()}" for record, prefix in PREFIXES.items() for each in declared(record)}
    assert known == {*data, pod["name"]}
    return read_settings(data, options_of(found))


def test_rendered_files_are_up_to_date() -> None:
    """If this fails, run `python -m tools.manifests` and commit what it changes."""
    assert [path for path, text in rendered().items() if path.read_text() != text] == []


def test_names_are_those_that_the_code_refers_to() -> None:
    endpoint = WebhookEndpoint("")
    assert {
        ("Namespace", SYSTEM),
        ("Deployment", names.OPERATOR_DEPLOYMENT),
        ("ServiceAccount", names.OPERATOR_ACCOUNT),
        ("ServiceAccount", names.PROXY_ACCOUNT),
        ("ClusterRole", names.SYNC_BINDING),
        ("ClusterRoleBinding", names.SYNC_BINDING),
        ("Service", endpoint.service),
    } <= default().keys()
    assert read_settings({}).pod.namespace == SYSTEM == endpoint.namespace
    election = default()["Role", "open-feature-operator-leader-election-role"]
    assert [rule.get("resourceNames") for rule in election["rules"]] == [None, [names.LEASE]]
    certificates = default()["Role", "open-feature-operator-certificates-role"]
    assert certificates["rules"][1]["resourceNames"] == [OperatorOptions().webhook_secret]
    (port,) = default()["Service", endpoint.service]["spec"]["ports"]
    ports = {each["name"]: each["containerPort"] for each in container(default())["ports"]}
    assert (port["port"], ports[port["targetPort"]]) == (endpoint.port, 9443)


def test_the_webhooks_are_registered_as_the_code_says() -> None:
    for configuration in (mutating(WebhookEndpoint("")), validating(WebhookEndpoint(""))):
        found = default()[configuration["kind"], configuration["metadata"]["name"]]
        assert found["webhooks"] == configuration["webhooks"]
        assert "caBundle" not in found["webhooks"][0]["clientConfig"]  # an apply would take it away again


def test_the_operator_gets_flags_and_variables_that_it_reads() -> None:
    found, usual = settings_of(default()), read_settings({})
    assert (found.sidecar, found.in_process, found.flagd, found.proxy) == (
        usual.sidecar, usual.in_process, usual.flagd, usual.proxy
    )  # fmt: skip
    assert found.options == OperatorOptions(
        leader_elect=True,
        log_format="json",
        verbose=False,
        sidecar_cpu_limit="500m",
        sidecar_ram_limit="64Mi",
        sidecar_cpu_request="200m",
        sidecar_ram_request="32Mi",
    )


def test_the_operator_runs_with_few_rights_on_its_node() -> None:
    pod = default()[MANAGER]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container(default())["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert container(default())["resources"]["limits"] == {"memory": "128Mi"}


def test_selectors_find_the_pods_that_they_are_for() -> None:
    found = default()
    operator = found[MANAGER]["spec"]["template"]["metadata"]["labels"]
    assert found[MANAGER]["spec"]["selector"]["matchLabels"].items() <= operator.items()
    assert found["Service", WebhookEndpoint("").service]["spec"]["selector"].items() <= operator.items()
    assert found["PodDisruptionBudget", MANAGER[1]]["spec"]["selector"]["matchLabels"].items() <= operator.items()


def test_policies_and_monitors_find_the_pods_and_ports_of_operator_and_proxy(tmp_path: Path) -> None:
    found = objects(kustomize(overlay(tmp_path, "monitoring", "network-policies")))
    spec = FeatureFlagSourceSpec(sources=[], default_sync_provider="flagd-proxy")
    deployment = plan_proxy([spec], ObjectMeta(name="operator", uid="1"), settings()).apply[0].body
    operator, proxy = found[MANAGER]["spec"]["template"], deployment["spec"]["template"]

    def finds(selector: Json, ports: list[str], pod: Json) -> None:
        assert selector["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert set(ports) <= {each["name"] for each in pod["spec"]["containers"][0]["ports"]}

    for name, pod in ((MANAGER[1], operator), (names.PROXY_ACCOUNT, proxy)):
        policy = found["NetworkPolicy", name]["spec"]
        finds(policy["podSelector"], [port["port"] for rule in policy["ingress"] for port in rule["ports"]], pod)
        assert len(pod["spec"]["containers"][0]["ports"]) == sum(len(rule["ports"]) for rule in policy["ingress"])
    service = found["Service", "open-feature-operator-controller-manager-metrics-service"]
    finds({"matchLabels": service["spec"]["selector"]}, ["metrics"], operator)
    monitor = found["ServiceMonitor", MANAGER[1]]["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= service["metadata"]["labels"].items()
    finds(found["PodMonitor", names.PROXY]["spec"]["selector"], ["management-port"], proxy)


def test_cert_manager_replaces_the_operators_own_ca_and_its_rights(tmp_path: Path) -> None:
    found = objects(kustomize(overlay(tmp_path, "cert-manager")))
    assert not [each for each in found if "certificates" in each[1]]
    certificate = found["Certificate", "open-feature-operator-serving-cert"]
    assert certificate["spec"]["dnsNames"] == [*service_names(WebhookEndpoint("").service, SYSTEM)[:2]]
    (volume,) = found[MANAGER]["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert options_of(found).webhook_cert_path == DIRECTORY == container(found)["volumeMounts"][0]["mountPath"]
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (webhooks,) = (each for (found_kind, _), each in found.items() if found_kind == kind)
        source = webhooks["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        assert source == f"{SYSTEM}/{certificate['metadata']['name']}"


def test_the_cluster_role_binding_of_the_original_is_a_choice(tmp_path: Path) -> None:
    found = objects(kustomize(overlay(tmp_path, "cluster-role-binding")))
    assert options_of(found).cluster_role_binding
    (added,) = {each for each in found if each[0] == "ClusterRole"} - default().keys()
    assert found[added]["rules"][0]["resourceNames"] == [names.SYNC_BINDING]
    for either in (found, objects(template(VARIANTS["one replica, the original's images"]))):
        assert "subjects" not in either["ClusterRoleBinding", names.SYNC_BINDING], "the operator writes them"


def test_authentication_at_the_proxy_brings_its_own_rights_and_no_others_have_them(tmp_path: Path) -> None:
    role, found = (
        "open-feature-operator-proxy-auth-role",
        objects(kustomize(overlay(tmp_path, "proxy-auth", "private-webhooks"))),
    )
    rendered = objects(template(VARIANTS["tenants"]))
    for either in (found, rendered):
        assert (options_of(either).proxy_auth, options_of(either).private_webhooks) == ("kubernetes", True)
        reviewer, binding = either["ClusterRole", role], either["ClusterRoleBinding", f"{role}binding"]
        assert [rule["resources"] for rule in reviewer["rules"]] == [["tokenreviews"]]
        assert [each["name"] for each in binding["subjects"]] == [names.PROXY_ACCOUNT]
        assert either["Role", role]["rules"][1]["resourceNames"] == [CERTIFICATE]
    assert options_of(default()).proxy_auth == "none"
    assert "tokenreviews" not in str(default())
    assert comparable(rendered).keys() == comparable(found).keys() - {("Namespace", SYSTEM)}


def test_another_namespace_is_one_line_of_a_kustomization(tmp_path: Path) -> None:
    text = kustomize(overlay(tmp_path, *COMPONENTS, namespace="flags"))
    found = objects(text)
    assert {each["metadata"].get("namespace", "flags") for each in found.values()} == {"flags"}
    assert {subject["namespace"] for each in found.values() for subject in each.get("subjects", ())} == {"flags"}
    services = [each["clientConfig"]["service"] for one in found.values() for each in one.get("webhooks", ())]
    assert {service["namespace"] for service in services} == {"flags"}


def test_settings_are_changed_by_merging_and_roll_the_operator(tmp_path: Path) -> None:
    change = {"name": "open-feature-operator-settings", "namespace": SYSTEM, "behavior": "merge"}
    generator = [{**change, "literals": ["SIDECAR_IMAGE=mirror/flagd"]}]
    found = objects(kustomize(overlay(tmp_path, configMapGenerator=generator)))
    assert settings_of(found).sidecar.image == "mirror/flagd"
    assert container(found)["envFrom"] != container(default())["envFrom"]


def comparable(found: Objects) -> dict[tuple[str, str], Json]:
    """Objects without what only one of kustomize and Helm adds: labels, and how a change of settings rolls pods."""
    made = {}
    for (kind, name), each in found.items():
        metadata = {key: each["metadata"].get(key) for key in ("name", "namespace")}
        made[kind, re.sub(r"-settings-\w+$", "-settings", name)] = {**each, "metadata": metadata}
    for each in made.values():
        each["metadata"]["name"] = re.sub(r"-settings-\w+$", "-settings", each["metadata"]["name"])
    pod = made[MANAGER]["spec"]["template"]
    pod["metadata"] = pod["metadata"]["labels"]["control-plane"]
    pod["spec"]["containers"][0]["envFrom"] = "the settings"
    return made


def test_helm_installs_what_kustomize_installs() -> None:
    ours = comparable(objects(kustomize(KUSTOMIZE / "default")))
    del ours["Namespace", SYSTEM]  # helm install --create-namespace
    assert comparable(objects(template({}))) == ours


def test_rights_to_pods_come_with_the_modes_that_need_them_and_not_by_default(tmp_path: Path) -> None:
    def pod_rights(found: Objects) -> set[tuple[str, str]]:
        rules = [rule for (kind, _), each in found.items() if kind == "ClusterRole" for rule in each["rules"]]
        rights = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
        return {each for each in rights if each[0].startswith("pods")}

    assert pod_rights(default()) == {("pods", "get"), ("pods", "list"), ("pods", "watch")}
    assert ("pods", "patch") in pod_rights(objects(kustomize(overlay(tmp_path, "kill-switch"))))
    assert ("pods", "patch") in pod_rights(objects(template({"policy": {"refreshPods": True}})))
    components = objects(kustomize(overlay(tmp_path, "sidecar-upgrades", "watchdog", "revisions")))
    assert pod_rights(components) - pod_rights(default()) == {("pods", "patch"), ("pods/eviction", "create")}
    values = {"sidecarUpgrade": {"mode": "in-place"}, "watchdog": {"mode": "10m"}, "revision": "default"}
    chart = objects(template(values))
    del components["Namespace", SYSTEM]
    assert options_of(chart) == options_of(components)
    roles = {each: found for each, found in comparable(components).items() if each != MANAGER}
    assert {each: found for each, found in comparable(chart).items() if each != MANAGER} == roles
    assert pod_rights(objects(template({"sidecarUpgrade": {"mode": "restart"}}))) == pod_rights(default())


def test_a_second_operator_has_names_of_its_own(tmp_path: Path) -> None:
    found = comparable(objects(kustomize(KUSTOMIZE / "canary")))
    shared = {(kind, name) for kind, name in found if not found[kind, name]["metadata"].get("namespace")}
    assert not shared & default().keys()
    values = {"revision": CANARY, "crds": {"install": False}, "sidecarUpgrade": {"mode": "in-place"}}
    chart = comparable(objects(template(values, CANARY_NAMESPACE)))
    del found["Namespace", CANARY_NAMESPACE]
    for either in (found, chart):
        del either[MANAGER]
    assert chart == found


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_helm_lints_and_renders_the_same_twice(values: dict[str, Json]) -> None:
    run(helm(), "lint", "--strict", CHART, "--values", "-", text=json.dumps(values))
    text = template(values)
    assert template(values) == text
    settings_of(objects(text))


def test_values_reach_the_operator() -> None:
    original = settings_of(objects(template(VARIANTS["one replica, the original's images"])))
    assert (original.sidecar.image, original.proxy.tag, original.proxy.port) == ("mirror/flagd", "v0.9.4", 9015)
    options = original.options
    assert options.cluster_role_binding
    assert options.allow_orphan_pods
    assert (options.cross_namespace, options.image_pull_secrets) == ("allow", ("mirror",))
    assert not original.flags.validation_enabled
    options = options_of(objects(template(VARIANTS["observed and fenced"])))
    assert (options.labels, options.annotations) == ({"team": "flags"}, {"example.com/note": "yes"})


def test_values_decide_which_objects_there_are() -> None:
    original = objects(template(VARIANTS["one replica, the original's images"]))
    absent = {each for each in default() if each[0] in ("PodDisruptionBudget", "ValidatingWebhookConfiguration")}
    assert absent
    assert not absent & original.keys()
    found = objects(template(VARIANTS["cert-manager"], "flags"))
    assert not [each for each in found if "certificates" in each[1]]
    assert found["Certificate", "open-feature-operator-serving-cert"]["spec"]["dnsNames"] == [
        *service_names(WebhookEndpoint("").service, "flags")[:2]
    ]
    webhooks = found["MutatingWebhookConfiguration", mutating(WebhookEndpoint(""))["metadata"]["name"]]["webhooks"]
    assert webhooks[0]["objectSelector"] == {"matchLabels": {"a": "b"}}
    assert "objectSelector" not in webhooks[1], "which is about the labels of pods"
    for webhook in webhooks:
        assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == [
            "flags", "kube-node-lease", "kube-public", "kube-system"
        ]  # fmt: skip
    fenced = objects(template(VARIANTS["observed and fenced"]))
    assert fenced["PodMonitor", names.PROXY]["metadata"]["labels"]["release"] == "prometheus"


def test_definitions_outlive_the_release() -> None:
    def policies(values: Json) -> list[Json]:
        definitions = [
            each for (kind, _), each in objects(template(values)).items() if kind == "CustomResourceDefinition"
        ]
        return [(each["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") for each in definitions]

    assert policies({}) == ["keep"] * 5
    assert policies({"crds": {"keep": False}}) == [None] * 5
    assert policies({"crds": {"install": False}}) == []


@pytest.mark.parametrize(
    "values", ["bogus: 1", "mutatingWebhook: {failurePolicy: Maybe}", "sidecarConfiguration: {port: 0}"]
)
def test_a_value_that_has_no_meaning_is_refused(values: str) -> None:
    command = [helm(), "template", "flags", str(CHART), "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "schema" in done.stderr


def test_every_value_has_a_comment_and_a_schema() -> None:
    def leaves(schema: Json, at: str = "") -> list[str]:
        if schema.get("additionalProperties") is False:
            return [leaf for name, each in schema["properties"].items() for leaf in leaves(each, f"{at}.{name}")]
        return [at[1:]]

    schema = json.loads((CHART / "values.schema.json").read_text())
    del schema["properties"]["global"]
    values = list(chart_values())
    assert all(value.comment for value in values)
    free = re.compile(r"(controllerManager\.manager\.resources\.\w+)\..*")  # any resource may be limited
    assert {free.sub(r"\1", value.name) for value in values} == set(leaves(schema))
    assert {*schema["properties"]["sidecarConfiguration"]["properties"]["defaultSyncProvider"]["enum"]} == {*PROVIDERS}


def instructions(text: str) -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in joined.splitlines() if line.strip()]


def test_the_image_can_be_built_from_what_the_repository_has() -> None:
    """There is no container engine here: what can be checked without one is checked."""
    found = instructions((DEPLOY / "Containerfile").read_text())
    for name, rest in found:
        if name == "COPY" and not rest.startswith("--from=build"):
            sources = rest.split()[:-1]
            assert all((ROOT / source).exists() for source in sources)
            ignored = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
            assert all(f"!{source}" in ignored for source in sources)
    text = dict(found)
    assert text["ARG"].startswith("PYTHON=3.")
    assert [rest.split()[0] for name, rest in found if name == "FROM"] == ["python:${PYTHON}"] * 2
    assert (text["USER"], text["ENTRYPOINT"]) == ("65532:65532", '["wigwag"]')
    (version,) = re.findall(r"^UV_VERSION=(\S+)", (ROOT / "scripts/env.sh").read_text(), re.MULTILINE)
    assert f" uv=={version}" in (DEPLOY / "Containerfile").read_text()


def test_the_examples_name_flags_and_sources_that_they_have() -> None:
    for path in sorted((DEPLOY / "examples").rglob("*.yaml")):
        found = objects(path.read_text())
        for (kind, _), each in found.items():
            about = each["metadata"]
            if kind == "FeatureFlagSource":
                sources = [
                    names.parse_name(one["source"], about.get("namespace", "")) for one in each["spec"]["sources"]
                ]
                assert all(("FeatureFlag", source.name) in found for source in sources), path
            if kind == "Flagd":
                assert ("FeatureFlagSource", each["spec"]["featureFlagSource"]) in found, path
            if kind == "Deployment":
                own = about.get("annotations", {})
                annotations = {**own, **each["spec"]["template"]["metadata"].get("annotations", {})}
                assert names.mode_of(annotations) in ("sidecar", "in-process"), path


def test_the_end_to_end_example_has_both_providers() -> None:
    found = objects((DEPLOY / "examples/end-to-end.yaml").read_text())
    providers = [
        each["spec"]["sources"][0]["provider"] for (kind, _), each in found.items() if kind == "FeatureFlagSource"
    ]
    assert providers == ["kubernetes", "flagd-proxy"]


def test_the_kustomization_of_the_guide_does_what_it_says(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/install.md").read_text()
    (block,) = (each for each in contents(guide, "yaml") if "kind: Kustomization" in each)
    (tmp_path / "kustomization.yaml").write_text(
        block.replace("wigwag/deploy/", f"{os.path.relpath(DEPLOY, tmp_path)}/")
    )
    found = objects(kustomize(tmp_path))
    image = container(found)["image"].rpartition(":")[0]
    given = settings_of(found)
    assert {given.sidecar.image, given.flagd.image, given.proxy.image} == {image} == {"registry.example/wigwag"}
    assert {("NetworkPolicy", MANAGER[1]), ("ServiceMonitor", MANAGER[1])} <= found.keys()


def test_the_values_of_the_guide_are_values_of_the_chart() -> None:
    guide = (ROOT / "docs/guides/install.md").read_text()
    (block,) = (each for each in contents(guide, "yaml") if "sidecarConfiguration" in each)
    given = settings_of(objects(template(yaml.safe_load(block))))
    assert (given.proxy.replica_count, given.flagd.image) == (2, "registry.example/wigwag")


def test_the_page_of_the_example_shows_what_the_agent_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = objects((DEPLOY / "examples/end-to-end.yaml").read_text())
    flags = tmp_path / "flags.json"
    flags.write_text(json.dumps(found["FeatureFlag", "end-to-end"]["spec"]["flagSpec"]))
    program, _, serve = found["ConfigMap", "open-feature-demo"]["data"]["page.py"].partition("ThreadingHTTPServer((")
    assert serve
    with AgentProcess("--uri", f"file:{flags}") as agent:
        monkeypatch.setenv("FLAGD_PORT", str(agent.port("evaluation")))
        page: dict[str, Json] = {}
        exec(program, page)
        assert page["flag"]("Boolean", "new-welcome-message") is False
        assert page["flag"]("String", "hex-color", email="fay@example.com") == "#00CC00"


@pytest.mark.parametrize("guide", ["operator", "install"])
def test_a_guide_builds_the_image_that_the_manifests_name(guide: str) -> None:
    built = re.findall(r"docker build .* -t (\S+) ", (ROOT / f"docs/guides/{guide}.md").read_text())
    deployment = yaml.safe_load((KUSTOMIZE / "operator/deployment.yaml").read_text())
    [manager] = deployment["spec"]["template"]["spec"]["containers"]
    assert built == [manager["image"]]
