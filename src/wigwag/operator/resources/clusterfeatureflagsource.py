"""ClusterFeatureFlagSource: a FeatureFlagSource that belongs to no namespace, for pods of many.

Its spec is that of a FeatureFlagSource, and says beside who may use it. Who writes it is an administrator of the
cluster, and who writes one wants it to be used: so without `allowedNamespaces` all namespaces may (decision 108).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from wigwag.operator.resources.featureflagsource import (
    FeatureFlagSource,
    FeatureFlagSourceSpec,
    FeatureFlagSourceStatus,
)
from wigwag.operator.resources.kubernetes import ObjectMeta
from wigwag.operator.resources.schema import declared

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ALLOWED = 1000
"""Namespaces that one object may name."""


class LabelRequirement(Struct, frozen=True, kw_only=True):
    """What a label of a namespace has to be."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[str] = []

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels are so. As in Kubernetes, a label that is missing is not in any list."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


class NamespaceSelector(Struct, frozen=True, kw_only=True, rename="camel"):
    """Namespaces by their labels. All that it says has to hold; if it says nothing, every namespace is meant."""

    match_labels: dict[str, str] = {}
    match_expressions: Annotated[list[LabelRequirement], Meta(max_length=100)] = []

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a namespace with these labels is meant.

        >>> NamespaceSelector(match_labels={"tier": "a"}).fits({"tier": "a", "x": "y"}), NamespaceSelector().fits({})
        (True, True)
        """
        return self.match_labels.items() <= labels.items() and all(each.fits(labels) for each in self.match_expressions)


class AllowedNamespaces(Struct, frozen=True, kw_only=True):
    """Namespaces by name or by label. One of both is enough; if there is neither, no namespace is meant."""

    names: Annotated[list[str], Meta(max_length=MOST_ALLOWED)] = []
    selector: Annotated[NamespaceSelector | None, declared("Of the labels of namespaces.")] = None

    def includes(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Tell whether a namespace is meant; `labels` are None if they are not known."""
        by_label = self.selector is not None and labels is not None and self.selector.fits(labels)
        return namespace in self.names or by_label


class ClusterFeatureFlagSourceSpec(FeatureFlagSourceSpec, frozen=True, kw_only=True, rename="camel"):
    """Where agents of many namespaces take their flags from, how they serve them, and which namespaces may use it."""

    allowed_namespaces: Annotated[
        AllowedNamespaces | None, declared("Whose pods and Flagds may use this object; by default all.")
    ] = None


class ClusterFeatureFlagSource(FeatureFlagSource, frozen=True, kw_only=True):
    """An object of the kind ClusterFeatureFlagSource."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterFeatureFlagSourceSpec = ClusterFeatureFlagSourceSpec(sources=[])
    status: FeatureFlagSourceStatus = FeatureFlagSourceStatus()

    @property
    def selects(self) -> bool:
        """Whether labels of namespaces count."""
        allowed = self.spec.allowed_namespaces
        return allowed is not None and allowed.selector is not None
