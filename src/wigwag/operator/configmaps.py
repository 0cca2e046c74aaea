"""ConfigMaps that hold the flags of a FeatureFlag, for the provider `file`; and whether one of that name is ours.

A ConfigMap is in the namespace of the pods that mount it. Its owner is the FeatureFlag, but only in the same namespace:
Kubernetes takes an owner of another namespace for one that is gone, and would delete the ConfigMap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from wigwag.operator.names import FEATURE_FLAG, MANAGED_BY, OPERATOR, config_map_name

if TYPE_CHECKING:
    from wigwag.operator.names import ObjectName
    from wigwag.operator.resources.kubernetes import ObjectMeta

Json: TypeAlias = Any
NO_FLAGS = '{"flags":null}'
"""The document of a FeatureFlag that has none."""


def flag_config_map(flag: ObjectName, uid: str, document: str, namespace: str) -> dict[str, Json]:
    """Return the ConfigMap, in a namespace, with the document of a FeatureFlag: its `flagSpec`."""
    metadata: dict[str, Json] = {
        "name": config_map_name(flag, namespace),
        "namespace": namespace,
        "labels": {MANAGED_BY: OPERATOR},
        "annotations": {FEATURE_FLAG: flag.name if flag.namespace == namespace else str(flag)},
    }
    if flag.namespace == namespace:
        metadata["ownerReferences"] = [owner_reference(flag, uid)]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {flag.file: document or NO_FLAGS}}


def owner_reference(flag: ObjectName, uid: str) -> dict[str, Json]:
    """Return a reference to a FeatureFlag as the owner of an object."""
    kind = {"apiVersion": "core.openfeature.dev/v1beta1", "kind": "FeatureFlag"}
    return {**kind, "name": flag.name, "uid": uid, "controller": True}


def holds_flags(about: ObjectMeta, flag: ObjectName) -> bool:
    """Tell whether a ConfigMap is one for this FeatureFlag: the operator's, or one that the original has left."""
    annotated = (about.annotations or {}).get(FEATURE_FLAG)
    return annotated == (flag.name if flag.namespace == about.namespace else str(flag))
