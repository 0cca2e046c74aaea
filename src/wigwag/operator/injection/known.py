"""What injection asks about other objects; the operator answers from its snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from wigwag.operator.injection.verdict import FORBIDDEN, Denied
from wigwag.operator.names import ALLOW_FROM, is_granted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.operator.names import ObjectName
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource
    from wigwag.operator.resources.inprocessconfiguration import InProcessConfiguration
    from wigwag.operator.resources.kubernetes import ObjectMeta
    from wigwag.operator.resources.remoteflagprovider import RemoteFlagProvider
    from wigwag.operator.resources.unreadable import UnreadableConfiguration, UnreadableSource


class ProxyState(NamedTuple):
    """The Deployment of the proxy."""

    ready_replicas: int
    created: float
    """When, in Unix seconds."""


class KnownObjects(Protocol):
    """The objects of the cluster, as far as they are known."""

    def feature_flag_source(self, name: ObjectName) -> FeatureFlagSource | None:
        """Return a FeatureFlagSource, or a shared one by a name without namespace; None if none can be read."""

    def in_process_configuration(self, name: ObjectName) -> InProcessConfiguration | None:
        """Return an InProcessConfiguration; None if there is none that can be read."""

    def unreadable_source(self, name: ObjectName) -> UnreadableSource | None:
        """Return a FeatureFlagSource that cannot be read."""

    def unreadable_configuration(self, name: ObjectName) -> UnreadableConfiguration | None:
        """Return an InProcessConfiguration that cannot be read."""

    def feature_flag(self, name: ObjectName) -> ObjectMeta | None:
        """Return the metadata of a FeatureFlag."""

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if they are not known."""

    def remote_provider(self, name: ObjectName) -> RemoteFlagProvider | None:
        """Return the remote of a FeatureFlag; None if it has none that can be used."""

    def is_foreign_config_map(self, name: ObjectName) -> bool:
        """Tell whether there is a ConfigMap of this name that the operator did not make."""

    def is_foreign_authority(self, name: ObjectName) -> bool:
        """Tell whether there is a ConfigMap of this name that is not the operator's with the CAs of the proxy."""

    def proxy(self) -> ProxyState | None:
        """Return the state of the proxy; None if it is not deployed."""


def refusal(kind: str, name: ObjectName, about: ObjectMeta | None, namespace: str, policy: str) -> Denied | None:
    """Return why pods of a namespace may not refer to an object; None if they may.

    `policy` is that of `--cross-namespace`. An object that does not exist is refused with the same words as one without
    a grant, so that nobody can find out what other namespaces have.
    """
    if name.namespace == namespace or policy == "allow":
        return None
    where = f"{kind} {name} is in another namespace than the pod ({namespace})"
    if policy == "deny":
        return Denied(FORBIDDEN, f"{where}, which this operator does not allow (--cross-namespace deny)")
    if about is not None and is_granted(about.annotations or {}, namespace):
        return None
    remedy = f"annotate it with {ALLOW_FROM}: {namespace}, or use one of the pod's namespace"
    return Denied(FORBIDDEN, f"{where}, and does not allow that or does not exist; {remedy}")
