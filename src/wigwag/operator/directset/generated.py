"""The FeatureFlag that holds the flags of one carrier: a workload, or a bare pod.

The carrier owns it, so Kubernetes removes it with the carrier. It is ours if it has our labels and names the carrier;
any other of the same name is somebody else's, and stays as it is. What others add to its metadata stays, such as a
grant for other namespaces; its spec is exactly what the annotation says, so an edit is undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from wigwag.kube.control.apply import owner_reference
from wigwag.kube.kinds import CRON_JOB, DAEMON_SET, DEPLOYMENT, FEATURE_FLAG, JOB, POD, STATEFUL_SET
from wigwag.operator.directset.document import PLACE, flag_spec
from wigwag.operator.names import CARRIER, COMPONENT, MANAGED_BY, OPERATOR, ObjectName, generated_name
from wigwag.sources.kubernetes.references import ORDERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.kube.kinds import Kind
    from wigwag.operator.resources.kubernetes import ObjectMeta

Json: TypeAlias = Any
LABELS = {MANAGED_BY: OPERATOR, COMPONENT: "direct-set"}
LABELLED = (JOB, CRON_JOB, POD)
"""Carriers that get a label when they are reviewed, so that only those with flags have to be watched."""
LABEL = {CARRIER: "true"}
KINDS = {each.kind: each for each in (DEPLOYMENT, STATEFUL_SET, DAEMON_SET, *LABELLED)}
"""What may carry flags."""


class Carrier(NamedTuple):
    """An object that may carry flags."""

    kind: Kind
    name: ObjectName

    def __str__(self) -> str:
        return f"{self.kind.kind}/{self.name.name}"

    @property
    def flag(self) -> ObjectName:
        """The FeatureFlag with its flags."""
        return ObjectName(self.name.namespace, generated_name(self.kind.kind, self.name.name))

    @property
    def collision(self) -> str:
        """What to say if somebody else's FeatureFlag has that name."""
        taken = f"the FeatureFlag {self.flag}, which would hold the flags, exists and is not the operator's"
        return f"{PLACE}: {taken}; rename or delete it, or name it by {ORDERS[0]} in place of the flags"


def carrier_of(about: ObjectMeta) -> Carrier | None:
    """Return whose flags a FeatureFlag holds; None if it is not generated."""
    kind, _, name = (about.annotations or {}).get(CARRIER, "").partition("/")
    if kind not in KINDS or not LABELS.items() <= (about.labels or {}).items():
        return None
    carrier = Carrier(KINDS[kind], ObjectName(about.namespace, name))
    return carrier if carrier.flag.name == about.name else None


def generated_flag(carrier: Carrier, uid: str, text: str, live: Mapping[str, Json] | None) -> dict[str, Json]:
    """Return the FeatureFlag as it should be; `live` is that which there is, and it is ours."""
    metadata = {} if live is None else live["metadata"]
    about = {
        **metadata,
        "name": carrier.flag.name,
        "namespace": carrier.flag.namespace,
        "labels": {**(metadata.get("labels") or {}), **LABELS},
        "annotations": {**(metadata.get("annotations") or {}), CARRIER: str(carrier)},
        "ownerReferences": [owner_reference(carrier.kind, {"metadata": {"name": carrier.name.name, "uid": uid}})],
    }
    kind = {"apiVersion": FEATURE_FLAG.api, "kind": FEATURE_FLAG.kind}
    return {**(live or {}), **kind, "metadata": about, "spec": {"flagSpec": flag_spec(text)}}
