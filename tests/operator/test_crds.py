"""The definitions of the custom resources: records parse what they accept. tests/test_deploy.py has the files."""

from __future__ import annotations

import msgspec
import pytest

from tests.operator.manifests import GOOD
from wigwag.operator.resources.crd import RESOURCES, CustomResource, definition
from wigwag.operator.resources.featureflagsource import FeatureFlagSource

RECORDS = {resource.kind.kind: resource.record for resource in RESOURCES}


def test_names_are_those_of_the_original() -> None:
    names = {resource.kind.kind: definition(resource)["spec"]["names"] for resource in RESOURCES}
    assert {kind: each.get("shortNames") for kind, each in names.items()} == {
        "FeatureFlag": ["ff"],
        "FeatureFlagSource": ["ffs"],
        "ClusterFeatureFlagSource": ["cffs"],
        "InProcessConfiguration": ["ipc"],
        "Flagd": None,
    }
    assert names["Flagd"]["plural"] == "flagds"


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: each.kind.kind)
def test_kubectl_explain_says_what_each_member_is_for(resource: CustomResource) -> None:
    schema = definition(resource)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert [name for name, member in schema["properties"].items() if not member.get("description")] == []


@pytest.mark.parametrize("kind", ["FeatureFlagSource", "ClusterFeatureFlagSource"])
def test_kubectl_get_shows_a_source_that_names_what_does_not_exist(kind: str) -> None:
    version = next(definition(each) for each in RESOURCES if each.kind.kind == kind)["spec"]["versions"][0]
    columns = [each["name"] for each in version["additionalPrinterColumns"]]
    assert columns == ["Sources", "Workloads", "Accepted", "Resolved", "Programmed", "Age"]


@pytest.mark.parametrize("name", GOOD)
def test_a_record_parses_what_the_definition_accepts(name: str) -> None:
    manifest = GOOD[name]
    parsed = msgspec.convert(manifest, RECORDS[manifest["kind"]])
    assert parsed.metadata.name == "example"  # type: ignore[attr-defined]


def test_a_member_that_is_missing_is_empty_so_that_merging_can_tell() -> None:
    spec = msgspec.convert({"spec": {"sources": [{"source": "a"}]}}, FeatureFlagSource).spec
    assert (spec.port, spec.evaluator, spec.probes_enabled) == (0, "", None)
