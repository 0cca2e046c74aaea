"""The operator's custom resource definitions on a real API server: what it accepts, adds, refuses and shows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.manifests import API, BAD, GOOD, source
from tests.operator.migration.test_migrate import EXAMPLES
from tests.real.agents import flags
from tests.real.cluster import MERGE, Namespace
from tests.real.rest import RestError
from wigwag.operator.migration.migrate import migrate

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize("name", GOOD)
def test_a_manifest_of_the_original_applies_unchanged_and_nothing_is_dropped(name: str, namespace: Namespace) -> None:
    applied = namespace.apply(GOOD[name])
    assert_within(GOOD[name].get("spec", {}), applied.get("spec", {}))


def assert_within(given: Any, stored: Any) -> None:
    """Nothing of a manifest may be missing in the object; a null may."""
    if isinstance(given, dict):
        for key, value in given.items():
            if value is not None:
                assert_within(value, stored[key])
    elif isinstance(given, list):
        for one, other in zip(given, stored, strict=True):
            assert_within(one, other)
    else:
        assert given == stored


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_manifest_is_refused_with_a_reason(name: str, namespace: Namespace) -> None:
    manifest, reason = BAD[name]
    with pytest.raises(RestError, match=reason) as caught:
        namespace.cluster.rest.call("POST", namespace.path(API, manifest["kind"]), manifest)
    assert caught.value.status == 422


def test_the_server_adds_the_defaults_of_the_original(namespace: Namespace) -> None:
    spec = namespace.apply(source({"source": "flags", "provider": "file"}))["spec"]
    assert spec.pop("sources") == [{"source": "flags", "provider": "file"}]
    assert spec == {
        "managementPort": 8014,
        "port": 8013,
        "ofrepPort": 8016,
        "evaluator": "json",
        "envVarPrefix": "FLAGD",
        "logFormat": "json",
        "rolloutOnChange": False,
        "probesEnabled": True,
        "debugLogging": False,
    }
    in_process = namespace.apply(GOOD["an in-process configuration of defaults"])["spec"]
    assert in_process == {
        "port": 8015,
        "host": "localhost",
        "tls": False,
        "cache": "lru",
        "cacheMaxSize": 1000,
        "envVarPrefix": "FLAGD",
    }


def test_a_table_shows_what_the_operator_says_about_an_object(namespace: Namespace) -> None:
    namespace.apply(GOOD["no flags"])
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Valid",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    path = namespace.path(API, "FeatureFlag", "example")
    status = {"status": {"conditions": [condition], "flags": 0, "digest": "abc", "agents": {"summary": "41/42"}}}
    namespace.cluster.rest.call("PATCH", f"{path}/status", status, kind=MERGE)
    answer = namespace.cluster.rest
    table = type(answer)(answer.address, answer.authority, {**answer.headers, "Accept": TABLE}, answer.identity)
    shown = table.call("GET", path).json
    assert [column["name"] for column in shown["columnDefinitions"]] == ["Name", "Flags", "Accepted", "Agents", "Age"]
    assert shown["rows"][0]["cells"][:4] == ["example", 0, "True", "41/42"]


def test_what_migrate_writes_is_accepted_and_nothing_of_it_is_unknown(namespace: Namespace) -> None:
    written = [each for result in migrate(EXAMPLES) for each in result.objects or ()]
    assert [each["kind"] for each in written] == [
        *["FeatureFlag"] * 3, "FeatureFlagSource", "FeatureFlagSource", "Deployment"
    ]  # fmt: skip
    for each in written[:-1]:
        manifest = {**each, "metadata": {**each["metadata"], "namespace": namespace.name}}
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        made = namespace.cluster.rest.call("POST", namespace.path(API, each["kind"]), manifest, query=query).json
        assert_within(each["spec"], made["spec"])


def test_all_flags_can_be_taken_away_by_apply(namespace: Namespace) -> None:
    """The API server makes null of an empty map that takes the place of one with members."""
    namespace.feature_flag("flags", flags())
    emptied = namespace.feature_flag("flags", {"flags": {}})
    assert not emptied["spec"]["flagSpec"]["flags"]
