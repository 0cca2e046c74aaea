"""The custom resource definitions, rendered from the records; `tools/manifests.py` writes them to `deploy`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.kube.kinds import (
    CLUSTER_FEATURE_FLAG_SOURCE,
    FEATURE_FLAG,
    FEATURE_FLAG_SOURCE,
    FLAGD,
    IN_PROCESS_CONFIGURATION,
)
from wigwag.operator.resources.clusterfeatureflagsource import ClusterFeatureFlagSource
from wigwag.operator.resources.featureflag import FeatureFlag
from wigwag.operator.resources.featureflagsource import FeatureFlagSource
from wigwag.operator.resources.flagd import Flagd
from wigwag.operator.resources.inprocessconfiguration import InProcessConfiguration
from wigwag.operator.resources.schema import schema_of

if TYPE_CHECKING:
    from msgspec import Struct

    from wigwag.kube.kinds import Kind

Json: TypeAlias = Any
Columns: TypeAlias = "tuple[tuple[str, str, str], ...]"
"""Name, type and JSON path of what `kubectl get` shows, between the name and the age."""
_ACCEPTED = ("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status')
_RESOLVED = ("Resolved", "string", '.status.conditions[?(@.type=="Resolved")].status')
_PROGRAMMED = ("Programmed", "string", '.status.conditions[?(@.type=="Programmed")].status')

_AGENTS = ("Agents", "string", ".status.agents.summary")


@dataclass(frozen=True)
class CustomResource:
    """A kind: the record of its objects, and how kubectl names and shows them."""

    kind: Kind
    record: type[Struct]
    short_names: tuple[str, ...]
    columns: Columns

    @property
    def file_name(self) -> str:
        """The file of its definition."""
        return f"{self.kind.plural}.yaml"


_OF_SOURCES = (
    ("Sources", "integer", ".status.sources"),  # the API server shows only the first of a list
    ("Workloads", "integer", ".status.workloads"),
    _ACCEPTED,
    _RESOLVED,
    _PROGRAMMED,
)
RESOURCES = (
    CustomResource(FEATURE_FLAG, FeatureFlag, ("ff",), (("Flags", "integer", ".status.flags"), _ACCEPTED, _AGENTS)),
    CustomResource(FEATURE_FLAG_SOURCE, FeatureFlagSource, ("ffs",), _OF_SOURCES),
    CustomResource(CLUSTER_FEATURE_FLAG_SOURCE, ClusterFeatureFlagSource, ("cffs",), _OF_SOURCES),
    CustomResource(
        IN_PROCESS_CONFIGURATION,
        InProcessConfiguration,
        ("ipc",),
        (("Host", "string", ".spec.host"), ("Port", "integer", ".spec.port"), _ACCEPTED),
    ),
    CustomResource(
        FLAGD,
        Flagd,
        (),
        (
            ("Source", "string", ".spec.featureFlagSource"),
            ("Ready", "integer", ".status.readyReplicas"),
            ("Replicas", "integer", ".spec.replicas"),
            _PROGRAMMED,
        ),
    ),
)


def definition(resource: CustomResource) -> dict[str, Json]:
    """Return a CustomResourceDefinition as JSON."""
    kind = resource.kind
    names = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "singular": kind.kind.lower()}
    columns = [*resource.columns, ("Age", "date", ".metadata.creationTimestamp")]
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [dict(zip(("name", "type", "jsonPath"), each, strict=True)) for each in columns],
        "schema": {"openAPIV3Schema": _schema(resource)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(kind)},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names | ({"shortNames": list(resource.short_names)} if resource.short_names else {}),
            "versions": [version],
        },
    }


def _schema(resource: CustomResource) -> dict[str, Json]:
    """Return the schema of an object. The API server knows the metadata, and `spec` may be missing, as always."""
    whole = schema_of(resource.record)
    typed = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    properties = {**typed, **{name: whole["properties"][name] for name in ("spec", "status")}}
    return {"description": whole["properties"]["spec"]["description"], "type": "object", "properties": properties}
