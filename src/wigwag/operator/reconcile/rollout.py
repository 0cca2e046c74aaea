"""Which workloads are to be rolled because a FeatureFlagSource with `rolloutOnChange` has changed.

Two digests decide, so that a rollout can stop at any point and go on, and a restart of the operator rolls nothing:

| digest | where | says |
|---|---|---|
| of the source | its `status.digest` | what all its workloads run with |
| of the workload | an annotation of its pod template | what it was last rolled for |

A source is edited if its status shows an older generation. Then each workload that runs with another digest is patched,
which rolls it and records the new digest in one write. When there is none left, the status takes digest and generation.
A patch that is repeated, lost or overtaken by an edit does no harm: the next plan is made from what there is. If the
digest differs and the generation does not, the operator is new, and not the source: nothing is rolled. A remote of a
FeatureFlag that changes is an edit, too: its digest is part of that of a workload, and `status.remotes` says what all
run with (see `remotes`).

The hard case is the first digest of a workload: to write it on a pod template is a restart by itself. So it is not
written before the first change. Until then the status of the source stands for all workloads without a digest of their
own; and a source that is new has nothing to compare with, so its digest is recorded and nothing is rolled. A workload
that has a digest goes by it: a change that is taken back half way rolls those again that had it, and no others.

A workload whose new pods would be refused is held back, since rolling it would replace pods that run by none.

The other way round, a Deployment whose pods were refused tries again after a back-off of up to 16 minutes. As soon as
they would no longer be refused, an annotation on the Deployment itself makes its controllers look at once. The pod
template stays as it is, so nothing that runs is restarted.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from wigwag.flags.model import canonical
from wigwag.kube.control.events import timestamp
from wigwag.operator.injection.decide import MOST_NAMES
from wigwag.operator.injection.sources import SourceResolver
from wigwag.operator.injection.verdict import Denied
from wigwag.operator.names import AGENT_IMAGE, RESTARTED_AT, SOURCE_DIGESTS
from wigwag.operator.reconcile.remotes import remote_change, remotes_part, with_remotes
from wigwag.operator.reconcile.usage import agent_spec, usable_sources
from wigwag.operator.resources.featureflagsource import FeatureFlagSourceSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from wigwag.operator.injection.known import KnownObjects
    from wigwag.operator.injection.patch import Patch
    from wigwag.operator.names import ObjectName
    from wigwag.operator.reconcile.remotes import RemoteChange
    from wigwag.operator.reconcile.workloads import Workload
    from wigwag.operator.resources.featureflagsource import FeatureFlagSource
    from wigwag.operator.settings import OperatorSettings

DIGITS = 16


class Rollout(NamedTuple):
    """A workload that is to be rolled."""

    workload: Workload
    patch: Patch
    """A JSON patch. It tests the digests that the plan is based on, so it rolls once, even if it is sent twice; and no
    resource version, so that an edit of something else at the same time is no conflict."""
    after: float
    """Seconds from now."""


class HeldRollout(NamedTuple):
    """A workload that cannot be rolled yet."""

    workload: Workload
    reason: str


@dataclass(frozen=True)
class RolloutPlan:
    """What is left to do until all workloads run with a source as it is now."""

    due: tuple[Rollout, ...] = ()
    held: tuple[HeldRollout, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the status of the source may take its digest."""
        return not self.due and not self.held


@dataclass(frozen=True, kw_only=True)
class RolloutPlanner:
    """Plans rollouts at one moment."""

    known: KnownObjects
    settings: OperatorSettings
    now: float
    """Unix seconds."""
    rate: float
    """Patches in a second."""

    def plan(self, name: ObjectName, workloads: Iterable[Workload]) -> RolloutPlan:
        """Return the rollouts that a source is behind with."""
        source = self.known.feature_flag_source(name)
        if source is None or not source.spec.rollout_on_change:
            return RolloutPlan()
        due: list[Rollout] = []
        held: list[HeldRollout] = []
        naming = (each for each in workloads if name in each.named)
        for workload in sorted(naming, key=lambda each: (each.name, each.kind.plural)):
            sources = usable_sources(workload, self.known, self.settings)
            if name not in sources or not is_behind(source, workload.digest_of(name), self._change(source, workload)):
                continue
            if reason := self._refusal(workload, sources):
                held.append(HeldRollout(workload, reason))
            else:
                due.append(Rollout(workload, self._patch(workload, sources), len(due) / self.rate))
        return RolloutPlan(tuple(due), tuple(held))

    def retries(self, name: ObjectName, workloads: Iterable[Workload]) -> list[Workload]:
        """Return the workloads whose pods were refused, and would not be now; each once for each time of refusal."""
        return [each for each in workloads if name in each.named and self.is_retried(each)]

    def is_retried(self, workload: Workload) -> bool:
        """Tell whether the pods of a workload were refused, and would not be now."""
        refused = workload.refused_since not in ("", workload.retried)
        return refused and not self.refusal(workload)

    def refusal(self, workload: Workload) -> str:
        """Return why new pods of a workload would be refused; empty if they would not."""
        return self._refusal(workload, usable_sources(workload, self.known, self.settings))

    def for_agent(self, workload: Workload, image: str, after: float) -> Rollout | HeldRollout:
        """Return the rollout of a workload that gives its pods agents with this image, once."""
        sources = usable_sources(workload, self.known, self.settings)
        if reason := workload.not_rolled or self._refusal(workload, sources):
            return HeldRollout(workload, reason)
        patch: Patch = (
            {"op": "test", "path": _place(AGENT_IMAGE), "value": workload.agent_image},
            *self._patch(workload, sources),
            {"op": "add", "path": _place(AGENT_IMAGE), "value": image},
        )
        return Rollout(workload, patch, after)

    def _patch(self, workload: Workload, sources: Mapping[ObjectName, FeatureFlagSource]) -> Patch:
        """Return the patch. It records all sources: new pods get every one of them as it is now."""
        digests = ",".join(
            f"{name}={with_remotes(source_digest(source.spec), self._change(source, workload).after)}"
            for name, source in sources.items()
        )
        return (
            {"op": "test", "path": "/metadata/uid", "value": workload.uid},
            {"op": "test", "path": _place(SOURCE_DIGESTS), "value": workload.rolled_for},
            {"op": "add", "path": _place(RESTARTED_AT), "value": timestamp(self.now)},
            {"op": "add", "path": _place(SOURCE_DIGESTS), "value": digests},
        )

    def _change(self, source: FeatureFlagSource, workload: Workload) -> RemoteChange:
        return remote_change(source, workload.name.namespace, self.known, self.settings)

    def _refusal(self, workload: Workload, sources: Mapping[ObjectName, FeatureFlagSource]) -> str:
        """Return why new pods of a workload would be refused; empty if they would not."""
        if len(workload.named) > MOST_NAMES:
            return f"it names more than {MOST_NAMES} sources"
        if missing := [str(each) for each in workload.named if each not in sources]:
            return f"it names sources that do not exist, or that it may not use: {', '.join(missing)}"
        if workload.flags.problem:
            return workload.flags.problem
        resolver = SourceResolver(
            namespace=workload.name.namespace,
            known=self.known,
            settings=self.settings,
            now=self.now,
            awaited=workload.flags.awaited,
        )
        needs = resolver.resolve(agent_spec(workload, sources, self.settings))
        return needs.message if isinstance(needs, Denied) else ""


def _place(annotation: str) -> str:
    """Return the path of an annotation of the pod template, which has annotations: it names sources."""
    return f"/spec/template/metadata/annotations/{annotation.replace('/', '~1')}"


def is_behind(source: FeatureFlagSource, rolled_for: str, remotes: RemoteChange) -> bool:
    """Tell whether a workload runs with another content of a source, by the digest that it was last rolled for."""
    digest = with_remotes(source_digest(source.spec), remotes.after)
    has_others = bool(rolled_for) and remotes_part(rolled_for) != remotes_part(
        digest
    )  # of a change that was taken back
    is_changed = is_edited(source) or remotes.before != remotes.after or has_others
    if rolled_for == digest or (source.status.digest and not is_changed):
        return False
    if not source.status.digest:
        return bool(rolled_for)
    return with_remotes(source.status.digest, remotes.before) != digest or bool(rolled_for)


def is_edited(source: FeatureFlagSource) -> bool:
    """Tell whether somebody has edited a source since all its workloads have had it."""
    return source.status.observed_generation != source.metadata.generation


def source_digest(spec: FeatureFlagSourceSpec) -> str:
    """Return a digest of what agents get from a source; whether it is rolled out, and who may use it, is no part."""
    members = {name: getattr(spec, name) for name in FeatureFlagSourceSpec.__struct_fields__}
    content = FeatureFlagSourceSpec(**{**members, "rollout_on_change": None})
    return sha256(canonical(content)).hexdigest()[:DIGITS]
