"""The webhook configurations: what they say, and how a bundle is kept right in those of others."""

from __future__ import annotations

from base64 import b64encode
from copy import deepcopy
from typing import Any

from wigwag.operator.admission.registration import (
    FLAG_PATH,
    FLAG_WEBHOOK,
    INJECTED,
    MUTATING_NAME,
    POD_PATH,
    WORKLOAD_PATH,
    WORKLOAD_WEBHOOK,
    WebhookEndpoint,
    bundle_patch,
    mutating,
    published,
    validating,
)
from wigwag.operator.names import POD_WEBHOOK, REVISION

ENDPOINT = WebhookEndpoint("PEM")


def encoded(bundle: str) -> str:
    return b64encode(bundle.encode()).decode()


def applied(document: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply the operations that `bundle_patch` uses."""
    document = deepcopy(document)
    for operation in patch:
        *path, last = operation["path"].removeprefix("/").split("/")
        place: Any = document
        for part in path:
            place = place[int(part) if isinstance(place, list) else part]
        if operation["op"] == "test":
            assert place[last] == operation["value"]
        else:
            place[last] = operation["value"]
    return document


def test_the_pod_webhook_fails_closed_for_pods_that_ask_for_it_only() -> None:
    configuration = mutating(ENDPOINT)
    assert configuration["metadata"]["name"] == MUTATING_NAME
    webhook, _ = configuration["webhooks"]
    assert webhook["name"] == POD_WEBHOOK
    assert webhook["clientConfig"]["service"]["path"] == POD_PATH
    assert webhook["rules"][0]["operations"] == ["CREATE"]
    assert [webhook[name] for name in ("failurePolicy", "sideEffects", "timeoutSeconds", "reinvocationPolicy")] == [
        "Fail",
        "None",
        5,
        "Never",
    ]
    assert {each["name"] for each in webhook["matchConditions"]} == {"openfeature-enabled", "not-a-mirror-pod"}
    excluded = webhook["namespaceSelector"]["matchExpressions"][0]["values"]
    assert {"kube-system", "open-feature-operator-system"} <= set(excluded)
    assert mutating(ENDPOINT, fail=False)["webhooks"][0]["failurePolicy"] == "Ignore"


def test_the_workload_webhook_is_called_for_what_carries_flags_and_fails_as_the_pod_webhook_does() -> None:
    pods, webhook = mutating(ENDPOINT)["webhooks"]
    assert (webhook["name"], webhook["clientConfig"]["service"]["path"]) == (WORKLOAD_WEBHOOK, WORKLOAD_PATH)
    resources = [each["resources"] for each in webhook["rules"]]
    assert resources == [["deployments", "statefulsets", "daemonsets"], ["jobs", "cronjobs"]]
    assert [each["operations"] for each in webhook["rules"]] == [["CREATE", "UPDATE"]] * 2
    conditions = {each["name"] for each in webhook["matchConditions"]}
    assert conditions == {"carries-flags", "flags-changed", "not-deleted"}
    for member in ("failurePolicy", "namespaceSelector", "sideEffects", "timeoutSeconds"):
        assert webhook[member] == pods[member]
    assert mutating(ENDPOINT, fail=False)["webhooks"][1]["failurePolicy"] == "Ignore"


def test_the_flag_webhook_is_called_for_created_and_changed_flags() -> None:
    (webhook,) = validating(ENDPOINT)["webhooks"]
    assert (webhook["name"], webhook["clientConfig"]["service"]["path"]) == (FLAG_WEBHOOK, FLAG_PATH)
    assert webhook["rules"][0]["operations"] == ["CREATE", "UPDATE"]
    assert "namespaceSelector" not in webhook


def test_a_server_outside_of_the_cluster_is_reached_by_its_url() -> None:
    webhook, _ = mutating(WebhookEndpoint("PEM", url="https://127.0.0.1:9443"))["webhooks"]
    assert webhook["clientConfig"] == {"url": f"https://127.0.0.1:9443{POD_PATH}", "caBundle": encoded("PEM")}


def test_another_bundle_is_patched_in_our_webhooks_only() -> None:
    observed = mutating(ENDPOINT)
    observed["webhooks"].insert(0, {"name": "other.example.com", "clientConfig": {"caBundle": "theirs"}})
    assert bundle_patch(observed, "PEM") == []
    patched = applied(observed, bundle_patch(observed, "NEW"))
    assert [each["clientConfig"]["caBundle"] for each in patched["webhooks"]] == ["theirs", *[encoded("NEW")] * 2]
    assert bundle_patch(patched, "NEW") == []


def test_private_webhooks_are_called_at_a_path_with_a_secret() -> None:
    outside = WebhookEndpoint("PEM", url="https://localhost:9443")
    for observed, paths in ((mutating(ENDPOINT), (POD_PATH, WORKLOAD_PATH)), (validating(outside), (FLAG_PATH,))):
        patched = applied(observed, bundle_patch(observed, "PEM", "abc"))
        for webhook, path in zip(patched["webhooks"], paths, strict=True):
            client = webhook["clientConfig"]
            assert client.get("url", client.get("service", {}).get("path")).endswith(f"{path}/abc")
            assert client["caBundle"] == encoded("PEM")
        assert bundle_patch(patched, "PEM", "abc") == []
        assert applied(patched, bundle_patch(patched, "PEM", "new")) != patched


def test_a_webhook_without_a_bundle_gets_one() -> None:
    observed = validating(ENDPOINT)
    del observed["webhooks"][0]["clientConfig"]["caBundle"]
    assert published([observed]) == ""
    assert published([applied(observed, bundle_patch(observed, "NEW"))]) == "NEW"


def test_where_cert_manager_injects_the_ca_nothing_is_patched() -> None:
    observed = validating(ENDPOINT)
    observed["metadata"]["annotations"] = {INJECTED: "system/serving-cert"}
    assert bundle_patch(observed, "NEW") == []


def test_a_bundle_is_published_once_all_our_webhooks_have_it() -> None:
    both = [mutating(ENDPOINT), validating(ENDPOINT)]
    assert published(both) == "PEM"
    assert published([both[0], validating(WebhookEndpoint("NEW"))]) == ""
    assert published([]) == ""
    both[0]["webhooks"][0]["clientConfig"]["caBundle"] = "not base64!"
    assert published(both) == ""


def test_one_of_several_operators_is_called_for_its_own_namespaces_and_pods() -> None:
    named, unlabelled, workloads = mutating(ENDPOINT, revision="canary")["webhooks"]
    assert {"key": REVISION, "operator": "In", "values": ["canary"]} in workloads["namespaceSelector"][
        "matchExpressions"
    ]
    (of_name,) = (each for each in named["namespaceSelector"]["matchExpressions"] if each["key"] == REVISION)
    assert of_name == {"key": REVISION, "operator": "In", "values": ["canary"]}
    (absent,) = (each for each in unlabelled["namespaceSelector"]["matchExpressions"] if each["key"] == REVISION)
    assert absent == {"key": REVISION, "operator": "DoesNotExist"}
    assert unlabelled["matchConditions"][-1]["expression"].endswith("== 'canary'")
    assert len(validating(ENDPOINT, revision="canary")["webhooks"]) == 1
    assert len(validating(ENDPOINT, revision="default")["webhooks"]) == 2
    assert mutating(ENDPOINT, revision="canary")["metadata"]["name"] == f"{MUTATING_NAME}-canary"
    assert mutating(ENDPOINT, revision="default")["metadata"]["name"] == MUTATING_NAME


def test_all_webhooks_of_a_revision_get_the_bundle() -> None:
    observed = mutating(ENDPOINT, revision="default")
    paths = [each["path"] for each in bundle_patch(observed, "NEW") if each["op"] == "add"]
    assert paths == [f"/webhooks/{number}/clientConfig/caBundle" for number in range(4)]
