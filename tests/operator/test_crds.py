"""The definitions of the custom resources: records parse what they accept. tests/test_deploy.py has the files."""

from __future__ import annotations

import msgspec
import pytest

from tests.operator.manifests import GOOD
from wigwag.operator.resources.crd import RESOURCES, definition
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


@pytest.mark.parametrize("name", GOOD)
def test_a_record_parses_what_the_definition_accepts(name: str) -> None:
    manifest = GOOD[name]
    parsed = msgspec.convert(manifest, RECORDS[manifest["kind"]])
    assert parsed.metadata.name == "example"  # type: ignore[attr-defined]


def test_a_member_that_is_missing_is_empty_so_that_merging_can_tell() -> None:
    spec = msgspec.convert({"spec": {"sources": [{"source": "a"}]}}, FeatureFlagSource).spec
    assert (spec.port, spec.evaluator, spec.probes_enabled) == (0, "", None)
