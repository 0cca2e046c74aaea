"""`deploy` for an operator of some namespaces: Roles in each of them, no ClusterRole, and webhooks of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import contents
from tests.test_deploy import (
    SYSTEM,
    Json,
    default,
    helm,
    kustomize,
    objects,
    options_of,
    template,
)
from tools.manifests import CHART, DEPLOY, KUSTOMIZE, ROOT
from wigwag.operator.admission.registration import WebhookEndpoint, configuration_names, mutating, validating

TEAMS = ["team-a", "team-b"]
EXAMPLE = KUSTOMIZE / "examples" / "namespaced"


def all_objects(text: str) -> list[Json]:
    """Return what was rendered; unlike `objects`, also those that have a name in several namespaces."""
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def chart(**values: Any) -> str:
    return template({"namespaces": TEAMS, **values})


def kinds(rendered: list[Json]) -> set[str]:
    return {each["kind"] for each in rendered}


@pytest.mark.parametrize("render", [lambda: kustomize(EXAMPLE), lambda: chart(crds={"install": False})])
def test_there_is_no_right_beyond_namespaces(render: Any) -> None:
    found = all_objects(render())
    assert not {each for each in kinds(found) if each.startswith("ClusterRole")}
    rights = [each for each in found if each["kind"] in ("Role", "RoleBinding")]
    assert {each["metadata"]["namespace"] for each in rights} == {*TEAMS, SYSTEM}
    subjects = [subject for each in found for subject in each.get("subjects", ())]
    assert {each["namespace"] for each in subjects} == {SYSTEM}
    beyond = kinds(found) - {"Namespace"}
    assert {each for each in beyond if "Webhook" in each} == {
        "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
    }  # fmt: skip


def test_both_ways_give_the_same_rights() -> None:
    def rights(text: str) -> dict[tuple[str, ...], Json]:
        found = [each for each in all_objects(text) if each["kind"] in ("Role", "RoleBinding")]
        return {
            (each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]): (
                each.get("rules"), each.get("subjects"), each.get("roleRef")
            )
            for each in found
        }  # fmt: skip

    assert rights(kustomize(EXAMPLE)) == rights(chart())


def test_a_team_gets_what_the_cluster_role_gives_but_what_is_of_the_cluster() -> None:
    [role] = (
        each
        for each in all_objects((KUSTOMIZE / "namespaced/tenant/rights.yaml").read_text())
        if (each["kind"], each["metadata"]["name"]) == ("Role", "open-feature-operator-tenant-role")
    )

    def pairs(given: Json) -> set[tuple[str, str]]:
        return {(resource, verb) for rule in given["rules"] for resource in rule["resources"] for verb in rule["verbs"]}

    whole = pairs(default()["ClusterRole", "open-feature-operator-manager-role"])
    assert {resource for resource, _ in whole - pairs(role)} == {
        "clusterfeatureflagsources", "clusterfeatureflagsources/status", "namespaces"
    }  # fmt: skip
    assert pairs(role) <= whole


@pytest.mark.parametrize("render", [lambda: kustomize(EXAMPLE), chart])
def test_webhooks_have_names_of_their_own_and_are_for_these_namespaces(render: Any) -> None:
    found = objects(render())
    endpoint = WebhookEndpoint("", namespaces=tuple(TEAMS))
    for configuration in (mutating(endpoint), validating(endpoint)):
        name = configuration["metadata"]["name"]
        assert name in configuration_names(TEAMS, SYSTEM)
        assert found[configuration["kind"], name]["webhooks"] == configuration["webhooks"]
    assert options_of(found).namespaces == tuple(TEAMS)
    assert not options_of(found).patches_webhooks


def test_namespaces_can_be_left_to_others() -> None:
    found = objects(template({"excludeNamespaces": TEAMS}))
    endpoint = WebhookEndpoint("", excluded=tuple(TEAMS))
    for configuration in (mutating(endpoint), validating(endpoint)):
        assert found[configuration["kind"], configuration["metadata"]["name"]]["webhooks"] == configuration["webhooks"]
    assert options_of(found).exclude_namespaces == tuple(TEAMS)


def overlaid(folder: Path) -> str:
    """Write a kustomization that takes the example, and lets the operator write the CA."""
    path = os.path.relpath((KUSTOMIZE / "examples/namespaced").resolve(), folder.resolve())
    component = os.path.relpath((KUSTOMIZE / "namespaced/ca").resolve(), folder.resolve())
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [path], "components": [component]}))
    return kustomize(folder)


def test_the_right_to_write_the_ca_is_one_to_two_objects(tmp_path: Path) -> None:
    for text in (overlaid(tmp_path), chart(policy={"webhookCa": "patch"})):
        found = objects(text)
        assert options_of(found).patches_webhooks
        [role] = (each for (kind, _), each in found.items() if kind == "ClusterRole")
        assert [rule["resourceNames"] for rule in role["rules"]] == [
            [name] for name in configuration_names(TEAMS, SYSTEM)
        ]
        assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch", "patch"}


def test_releases_in_different_namespaces_share_no_object() -> None:
    """But the definitions, which one of them installs."""
    ours, theirs = (
        {
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            for each in all_objects(template({"namespaces": teams, "crds": {"install": False}}, namespace))
        }
        for teams, namespace in ((["team-a"], "flags-a"), (["team-b"], "flags-b"))
    )
    assert ours & theirs == set()


def test_the_guide_shows_what_the_tests_apply() -> None:
    guide = (ROOT / "docs/guides/operator-tenants.md").read_text()
    kustomization, source, annotations = (yaml.safe_load(each) for each in contents(guide, "yaml"))
    assert kustomization == yaml.safe_load((EXAMPLE / "kustomization.yaml").read_text())
    example = objects((DEPLOY / "examples/shared-source.yaml").read_text())
    assert source == example["ClusterFeatureFlagSource", "company"]
    metadata = example["Deployment", "checkout"]["spec"]["template"]["metadata"]
    assert annotations == {"metadata": {"annotations": metadata["annotations"]}}


def test_the_chart_refuses_a_cluster_role_binding_beside_namespaces() -> None:
    values = json.dumps({"namespaces": TEAMS, "policy": {"clusterRoleBinding": True}})
    command = [helm(), "template", "flags", str(CHART), "--kube-version", "1.29.0", "--values", "-"]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
    assert "leave one of them out" in done.stderr
