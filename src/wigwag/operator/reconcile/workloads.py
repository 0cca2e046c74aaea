"""Workloads: Deployments, StatefulSets and DaemonSets whose pods get an agent or the environment of a provider.

Only what counts here is kept of an object, so that thousands of them take little memory. A workload counts by the
annotations of its pod template, as a pod does. Its own say which flags it carries, which are not kept here: a digest
tells when they change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct, field

from wigwag.kube.kinds import DAEMON_SET, DEPLOYMENT, STATEFUL_SET
from wigwag.operator.directset.document import text_digest
from wigwag.operator.directset.remarks import is_remark
from wigwag.operator.injection.decide import MOST_NAMES
from wigwag.operator.injection.podflags import PodFlags, pod_flags
from wigwag.operator.names import (
    AGENT_IMAGE,
    IN_PROCESS_CONFIGURATION,
    INLINE_FLAGS,
    POD_WEBHOOK,
    PODS_RETRIED,
    REMARKS,
    SOURCE_DIGESTS,
    ObjectName,
    mode_of,
    parse_names,
    source_names,
)
from wigwag.sources.kubernetes.references import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wigwag.kube.kinds import Kind
    from wigwag.operator.names import Mode

KINDS = (DEPLOYMENT, STATEFUL_SET, DAEMON_SET)
DEFAULT_ACCOUNT = "default"
"""The service account of pods that name none."""


class Workload(NamedTuple):
    """A workload that names sources or configurations."""

    kind: Kind
    name: ObjectName
    uid: str
    account: ObjectName
    """The service account of its pods."""
    mode: Mode
    named: tuple[ObjectName, ...]
    """The sources, shared ones first, or in the mode `in-process` the InProcessConfigurations."""
    rolled_for: str | None
    """The annotation with the digests of its sources when the operator last rolled it; None if it never did."""
    deleting: bool = False
    refused_since: str = ""
    """When the webhook began to refuse its pods; empty if it does not. Only Deployments say so."""
    retried: str = ""
    """The `refused_since` for which the operator had its pods created again."""
    agent_image: str | None = None
    """The image of agents that the operator last rolled it for; None if it never did."""
    not_rolled: str = ""
    """Why a changed pod template would not replace its pods; empty: it would."""
    flags: PodFlags = PodFlags()
    """What the annotations of its pods name beside sources."""
    carried: str = ""
    """The digest of the flags in its own annotation; empty if there is none."""
    remarks: str | None = None
    """What is written in the annotation for remarks."""

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"

    def digest_of(self, source: ObjectName) -> str:
        """Return the digest of a source that it was last rolled for; empty if it never was."""
        return parse_digests(self.rolled_for or "").get(str(source), "")


class _WorkloadMeta(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _TemplateSpec(Struct, rename="camel"):
    service_account_name: str = ""


class _Template(Struct):
    metadata: _WorkloadMeta = field(default_factory=_WorkloadMeta)
    spec: _TemplateSpec = field(default_factory=_TemplateSpec)


class _UpdateStrategy(Struct):
    type: str = ""


class _WorkloadSpec(Struct, rename="camel"):
    template: _Template = field(default_factory=_Template)
    paused: bool = False
    update_strategy: _UpdateStrategy = field(default_factory=_UpdateStrategy)

    @property
    def not_rolled(self) -> str:
        if self.paused:
            return "it is paused"
        return "its update strategy is OnDelete" if self.update_strategy.type == "OnDelete" else ""


class _WorkloadCondition(Struct, rename="camel"):
    type: str = ""
    status: str = ""
    message: str = ""
    last_transition_time: str = ""


class _WorkloadStatus(Struct):
    conditions: list[_WorkloadCondition] | None = None


class _WorkloadObject(Struct):
    metadata: _WorkloadMeta = field(default_factory=_WorkloadMeta)
    spec: _WorkloadSpec = field(default_factory=_WorkloadSpec)
    status: _WorkloadStatus = field(default_factory=_WorkloadStatus)


_decode = msgspec.json.Decoder(_WorkloadObject).decode


def read_workload(kind: Kind, raw: bytes) -> Workload | None:
    """Decode what counts of an object; None if nothing is injected into its pods."""
    try:
        workload = _decode(raw)
    except msgspec.ValidationError:
        return None
    template, about = workload.spec.template, workload.metadata
    annotations = template.metadata.annotations or {}
    mode, own = mode_of(annotations), about.annotations or {}
    carries = bool(own.keys() & {INLINE_FLAGS, *ORDERS}) or is_remark(own.get(REMARKS, ""))
    if mode not in ("sidecar", "in-process") and not carries:
        return None
    if mode == "in-process":
        named = parse_names(annotations[IN_PROCESS_CONFIGURATION], about.namespace)
    else:
        named = source_names(annotations, about.namespace)
    return Workload(
        kind=kind,
        name=ObjectName(about.namespace, about.name),
        uid=about.uid,
        account=ObjectName(about.namespace, template.spec.service_account_name or DEFAULT_ACCOUNT),
        mode=mode,
        named=tuple(dict.fromkeys(named[: MOST_NAMES + 1])),
        rolled_for=annotations.get(SOURCE_DIGESTS),
        deleting=about.deletion_timestamp is not None,
        refused_since=_refused_since(workload.status.conditions or ()),
        retried=own.get(PODS_RETRIED, ""),
        agent_image=annotations.get(AGENT_IMAGE),
        not_rolled=workload.spec.not_rolled,
        flags=pod_flags(annotations, about.namespace) if mode == "sidecar" else PodFlags(),
        carried=text_digest(own.get(INLINE_FLAGS, "")),
        remarks=own.get(REMARKS),
    )


def _refused_since(conditions: Iterable[_WorkloadCondition]) -> str:
    failures = (each for each in conditions if (each.type, each.status) == ("ReplicaFailure", "True"))
    return next((each.last_transition_time for each in failures if POD_WEBHOOK in each.message), "")


def parse_digests(value: str) -> dict[str, str]:
    """Read the annotation that says which digests a workload was rolled for.

    >>> parse_digests("team-a/flags=0f1e, ops/flags=9a8b,?")
    {'team-a/flags': '0f1e', 'ops/flags': '9a8b'}
    """
    pairs = (each.strip().partition("=") for each in value.split(","))
    return {name: digest for name, separator, digest in pairs if separator}
