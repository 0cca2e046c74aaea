"""Flags that workloads carry or follow, on a real control plane: from the annotation to a client of the agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.agents import flags
from tests.real.cluster import Cluster, Namespace
from tests.real.processes import until
from tests.real.workloads import App, deployment, resolve
from wigwag.operator.names import INLINE_FLAGS, REMARKS

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "workload-flags.yaml"


@pytest.fixture(scope="session")
def cluster(operated: Cluster) -> Cluster:
    return operated


def carrying(name: str, variant: str = "on", /, **annotations: str) -> dict[str, Any]:
    """Return a Deployment with flags in its own annotation."""
    return annotated(name, {INLINE_FLAGS: json.dumps(flags(variant)), **annotations})


def annotated(name: str, annotations: dict[str, str], **given: Any) -> dict[str, Any]:
    made = deployment(name, **given)
    return {**made, "metadata": {**made["metadata"], "annotations": annotations}}


def annotations_of(namespace: Namespace, name: str, kind: str = "Deployment", api: str = "apps/v1") -> dict[str, str]:
    found: dict[str, str] = namespace.cluster.get(namespace.path(api, kind, name))["metadata"].get("annotations", {})
    return found


def test_the_example_of_the_guide(namespace: Namespace) -> None:
    for manifest in yaml.safe_load_all(EXAMPLE.read_text()):
        namespace.apply(manifest)
    pod = App(namespace, "checkout").ready()
    until(lambda: resolve(pod, "new-checkout").get("variant") == "on", "the flag of the workload, which wins")
    assert resolve(pod, "banner", "String")["variant"] == "none"
    remarks = until(lambda: annotations_of(namespace, "checkout").get(REMARKS), "the remarks")
    assert remarks
    assert remarks.startswith("scope=namespace, mode=standing-order+direct-set, refresh=live, config=")
