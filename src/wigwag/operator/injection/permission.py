"""Which sources pods of a namespace may use: those of their own, those with a grant, and shared ones of the cluster.

A ClusterFeatureFlagSource has no namespace, so its `ObjectName` has an empty one, and everything else treats both kinds
alike. Whom a shared source allows is in its spec, and only its administrator can change that. `--cross-namespace` does
not apply: it is about what belongs to another team.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wigwag.kube.kinds import CLUSTER_FEATURE_FLAG_SOURCE, FEATURE_FLAG_SOURCE
from wigwag.operator.injection.known import refusal
from wigwag.operator.injection.verdict import FORBIDDEN, NOT_FOUND, Denied
from wigwag.operator.resources.clusterfeatureflagsource import ClusterFeatureFlagSource

if TYPE_CHECKING:
    from wigwag.kube.kinds import Kind
    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.names import ObjectName
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource
    from wigwag.operator.settings import OperatorSettings


def source_kind(name: ObjectName) -> Kind:
    """Return the kind of a source: one without a namespace is shared."""
    return FEATURE_FLAG_SOURCE if name.namespace else CLUSTER_FEATURE_FLAG_SOURCE


def not_served(kind: str, name: ObjectName, settings: OperatorSettings) -> Denied | None:
    """Return why an object cannot be used that is in a namespace of another operator; None if it is in one of ours."""
    if settings.options.serves(name.namespace):
        return None
    reason = "is in a namespace that this operator does not serve (--namespaces, --exclude-namespaces)"
    return Denied(FORBIDDEN, f"{kind} {name} {reason}; use one of a namespace that it serves")


def source_refusal(
    name: ObjectName, source: FeatureFlagSource | None, namespace: str, known: KnownObjects, settings: OperatorSettings
) -> Denied | None:
    """Return why pods of a namespace may not use a source; None if they may.

    A shared source that does not exist is refused in the words of one that is for others, as in other namespaces.
    """
    kind = source_kind(name).kind
    if name.namespace:
        about = None if source is None else source.metadata
        policy = settings.options.cross_namespace
        return not_served(kind, name, settings) or refusal(kind, name, about, namespace, policy)
    if settings.options.namespaces:
        reason = "serves some namespaces only (--namespaces), and reads nothing that belongs to the whole cluster"
        return Denied(FORBIDDEN, f"{kind} {name} cannot be used: this operator {reason}; use a FeatureFlagSource")
    if isinstance(source, ClusterFeatureFlagSource):
        allowed = source.spec.allowed_namespaces
        if allowed is None or allowed.includes(namespace, known.namespace_labels(namespace)):
            return None
    elif known.unreadable_source(name):
        return None  # which is said elsewhere
    reason = f"{kind} {name} does not exist, or does not allow pods of the namespace {namespace}"
    return Denied(NOT_FOUND, f"{reason}; create it, or add the namespace to its spec.allowedNamespaces")


def may_use(
    name: ObjectName, source: FeatureFlagSource, namespace: str, known: KnownObjects, settings: OperatorSettings
) -> bool:
    """Tell whether pods of a namespace may use a source."""
    return source_refusal(name, source, namespace, known, settings) is None
