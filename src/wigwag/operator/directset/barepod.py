"""Pods that carry flags themselves: only bare ones, since flags of a controlled pod belong to what controls it.

A pod is marked with a label, so that the controller which keeps its flags watches these pods and no others.

The other case here is a pod whose standing orders are read by an agent that somebody put into it (`--uri
core.openfeature.dev/`): it is left alone, or it would be served twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wigwag.kube.kinds import POD
from wigwag.operator.directset.document import PLACE, check_inline
from wigwag.operator.directset.generated import Carrier, carrier_of
from wigwag.operator.injection.verdict import FORBIDDEN, Denied
from wigwag.operator.names import ENABLED, INLINE_FLAGS, ObjectName
from wigwag.sources.kubernetes.names import FLAGS
from wigwag.sources.kubernetes.references import ORDERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.injection.pod import AdmittedPod, PodSpec
    from wigwag.operator.injection.verdict import Verdict
    from wigwag.operator.settings import OperatorSettings


def check_pod_flags(pod: AdmittedPod, namespace: str, known: KnownObjects, settings: OperatorSettings) -> Verdict:
    """Decide about the flags in the annotation of a pod."""
    about = pod.metadata
    text = (about.annotations or {})[INLINE_FLAGS]
    controller = next((each for each in about.owner_references or () if each.get("controller")), None)
    if controller is not None:
        owner = f"the pod is one of {controller.get('kind')} {controller.get('name')}, and cannot have flags of its own"
        remedy = "write them to metadata.annotations of its Deployment, StatefulSet, DaemonSet, CronJob or Job"
        other = f"if it is of another kind, put them into a FeatureFlag and name that by {ORDERS[0]}"
        return Denied(FORBIDDEN, f"{PLACE}: {owner}; {remedy}; {other}")
    if not about.name:
        return Denied(FORBIDDEN, f"{PLACE}: the FeatureFlag with the flags is named after the pod; give it a name")
    carrier = Carrier(POD, ObjectName(namespace, about.name))
    present = known.feature_flag(carrier.flag)
    if present is not None and carrier_of(present) != carrier:
        return Denied(FORBIDDEN, carrier.collision)
    return check_inline(text, lint=settings.flags.validation_enabled)


def has_own_agent(annotations: Mapping[str, str], spec: PodSpec) -> bool:
    """Tell whether a pod, which nobody has enabled, has an agent that reads its annotations by itself."""
    if ENABLED in annotations or not any(each in annotations for each in ORDERS):
        return False
    return any(_reads_annotations(each) for each in [*spec.containers, *(spec.init_containers or ())])


def _reads_annotations(container: Mapping[str, Any]) -> bool:
    """Look for the address as an argument of its own, after `--uri=`, in `--sources`, or as a variable."""
    given = [*(container.get("command") or ()), *(container.get("args") or ())]
    given += [each.get("value") or "" for each in container.get("env") or ()]
    return any(each.removeprefix("--uri=") == FLAGS or f'"{FLAGS}"' in each for each in map(str, given))
