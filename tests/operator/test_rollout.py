"""Rollouts on change.

| group | test |
|---|---|
| U63 | `test_u63_a_change_rolls_every_kind_of_workload` |
| U64 | `test_u64_without_rollout_on_change_nothing_is_rolled` |
| U65 | `test_u65_without_workloads_there_is_nothing_to_do` |

Of §6.4: a list with spaces; a restart of the operator.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode
from msgspec.structs import replace

from tests.operator.known import Laid, settings, source_object
from wigwag.kube.kinds import DEPLOYMENT
from wigwag.operator.injection.patch import Patch
from wigwag.operator.names import (
    ALLOW_FROM,
    ENABLED,
    FEATURE_FLAG_SOURCE,
    POD_WEBHOOK,
    PODS_RETRIED,
    RESTARTED_AT,
    SOURCE_DIGESTS,
    ObjectName,
)
from wigwag.operator.reconcile.rollout import RolloutPlan, RolloutPlanner, is_edited, source_digest
from wigwag.operator.reconcile.workloads import KINDS, Workload, read_workload
from wigwag.operator.resources.featureflagsource import FeatureFlagSource, FeatureFlagSourceStatus

FLAGS = ObjectName("team-a", "flags")
OTHER = ObjectName("ops", "other")
LATER = ObjectName("team-a", "later")
NOW = 1_800_000_000.0


class Cluster(Laid):
    """Sources and workloads, and the operator's part: it carries out plans."""

    def __init__(self) -> None:
        super().__init__(flags={"team-a/shop": {}})
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.rolled: list[str] = []
        self.runs: dict[str, str] = {}
        """The digest of the source `flags` that the pods of a workload were injected with."""

    def source(self, name: ObjectName, port: int = 1, *, rollout: bool = True, **spec: Any) -> None:
        """Create or change a source, as a user does."""
        made = source_object({"source": "http://x", "provider": "http"}, port=port, rolloutOnChange=rollout, **spec)
        before = self.sources.get(str(name))
        generation = (before.metadata.generation if before else 0) + 1
        metadata = replace(made.metadata, generation=generation, annotations={ALLOW_FROM: "*"})
        status = before.status if before else FeatureFlagSourceStatus()
        self.sources[str(name)] = replace(made, metadata=metadata, status=status)

    def workload(self, name: str, listed: str = "flags", kind: str = "Deployment") -> None:
        metadata = {"name": name, "namespace": "team-a", "uid": name}
        annotations = {ENABLED: "true", FEATURE_FLAG_SOURCE: listed}
        template = {"metadata": {"annotations": annotations}}
        self.objects[kind, name] = {"metadata": metadata, "spec": {"template": template}}
        self.runs[name] = source_digest(self.sources[str(FLAGS)].spec)

    def workloads(self) -> list[Workload]:
        kinds = {each.kind: each for each in KINDS}
        return [read for (kind, _), each in self.objects.items() if (read := read_workload(kinds[kind], encode(each)))]

    def plan(self, name: ObjectName = FLAGS, rate: float = 100.0) -> RolloutPlan:
        planner = RolloutPlanner(known=self, settings=settings(), now=NOW, rate=rate)
        return planner.plan(name, self.workloads())

    def refuse(self, name: str, message: str, since: str = "t0") -> None:
        """Have the controllers say that pods of a Deployment were refused."""
        condition = {"type": "ReplicaFailure", "status": "True", "message": message, "lastTransitionTime": since}
        self.objects["Deployment", name]["status"] = {"conditions": [condition]}

    def retries(self, name: ObjectName = FLAGS) -> list[str]:
        planner = RolloutPlanner(known=self, settings=settings(), now=NOW, rate=1.0)
        return [each.name.name for each in planner.retries(name, self.workloads())]

    def settle(self, name: ObjectName = FLAGS, most: int = 10_000) -> int:
        """Reconcile a source once, with at most so many patches; return how many there were."""
        plan = self.plan(name)
        for rollout in plan.due[:most]:
            found = rollout.workload
            apply(self.objects[found.kind.kind, found.name.name], rollout.patch)
            self.rolled.append(found.name.name)
            self.runs[found.name.name] = source_digest(self.sources[str(FLAGS)].spec)
        source = self.sources[str(name)]
        if self.plan(name).is_complete:
            status = replace(
                source.status, digest=source_digest(source.spec), observed_generation=source.metadata.generation
            )
            self.sources[str(name)] = replace(source, status=status)
        return min(len(plan.due), most)


def apply(target: dict[str, Any], patch: Patch) -> None:
    """Apply a JSON patch, all of it or nothing."""
    for tested in (True, False):
        for each in patch:
            *steps, last = (step.replace("~1", "/") for step in each["path"].split("/")[1:])
            place: Any = target
            for step in steps:
                place = place[step]
            if tested and each["op"] == "test":
                assert place.get(last) == each["value"]
            elif not tested and each["op"] == "add":
                place[last] = each["value"]


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.source(FLAGS)
    made.workload("web")
    made.settle()
    assert not made.rolled
    return made


def test_u63_a_change_rolls_every_kind_of_workload(cluster: Cluster) -> None:
    cluster.workload("db", kind="StatefulSet")
    cluster.workload("log", kind="DaemonSet")
    cluster.source(FLAGS, 2)
    (first, *_) = cluster.plan().due
    with pytest.raises(AssertionError):
        apply({**cluster.objects["StatefulSet", "db"], "metadata": {"uid": "another"}}, first.patch)
    cluster.settle()
    annotations = cluster.objects["StatefulSet", "db"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations[RESTARTED_AT] == "2027-01-15T08:00:00Z"
    assert annotations[SOURCE_DIGESTS] == f"team-a/flags={source_digest(cluster.sources[str(FLAGS)].spec)}"
    with pytest.raises(AssertionError):
        apply(cluster.objects["StatefulSet", "db"], first.patch)  # sent twice, it rolls once
    assert cluster.rolled == ["db", "log", "web"]
    assert cluster.settle() == 0


def test_u64_without_rollout_on_change_nothing_is_rolled(cluster: Cluster) -> None:
    cluster.source(FLAGS, 2, rollout=False)
    assert cluster.settle() == 0
    cluster.source(FLAGS, 2)  # switched on: the workloads have what they have
    assert cluster.settle() == 0
    cluster.source(FLAGS, 3)
    assert cluster.settle() == 1


def test_u65_without_workloads_there_is_nothing_to_do(cluster: Cluster) -> None:
    cluster.objects.clear()
    cluster.source(FLAGS, 2)
    assert cluster.plan() == RolloutPlan()
    assert cluster.plan(ObjectName("team-a", "gone")) == RolloutPlan()


def test_a_restart_of_the_operator_rolls_nothing(cluster: Cluster) -> None:
    for port in (2, 3):
        cluster.source(FLAGS, port)
        cluster.settle()
        assert cluster.plan() == RolloutPlan()  # made from the objects alone, as after a restart
    assert cluster.rolled == ["web", "web"]


def test_a_new_version_of_the_operator_rolls_nothing(cluster: Cluster) -> None:
    """It makes another digest of the same content, for example because a field is new."""
    source = cluster.sources[str(FLAGS)]
    cluster.sources[str(FLAGS)] = replace(source, status=replace(source.status, digest="of an older version"))
    assert cluster.plan() == RolloutPlan()


@pytest.mark.parametrize("listed", ["ops/other, flags", "flags ,ops/other", "team-a/flags", " flags,"])
def test_lists_have_spaces_and_names_with_and_without_namespaces(cluster: Cluster, listed: str) -> None:
    cluster.source(OTHER)
    cluster.workload("spaced", listed)
    cluster.source(FLAGS, 2)
    cluster.settle()
    assert cluster.rolled == ["spaced", "web"]


def test_a_change_that_is_taken_back_half_way_rolls_those_that_had_it(cluster: Cluster) -> None:
    cluster.workload("db")
    cluster.source(FLAGS, 2)
    cluster.settle(most=1)
    cluster.source(FLAGS, 1)
    cluster.settle()
    assert cluster.rolled == ["db", "db"]


def test_a_workload_of_another_source_is_not_rolled(cluster: Cluster) -> None:
    cluster.workload("b", "flags-2")
    cluster.workload("c", "ops/flags")
    cluster.source(FLAGS, 2)
    cluster.settle()
    assert cluster.rolled == ["web"]


def test_two_sources_that_change_together_roll_once(cluster: Cluster) -> None:
    cluster.source(OTHER)
    cluster.settle(OTHER)
    cluster.workload("web", "flags, ops/other")
    cluster.source(FLAGS, 2)
    cluster.source(OTHER, 2)
    cluster.settle(FLAGS)
    cluster.settle(OTHER)
    assert cluster.rolled == ["web"]


def test_a_source_that_is_made_again_rolls_what_was_rolled_for_another_content(cluster: Cluster) -> None:
    cluster.source(FLAGS, 2)
    cluster.settle()
    del cluster.sources[str(FLAGS)]
    cluster.source(FLAGS, 2)
    assert cluster.plan() == RolloutPlan()
    del cluster.sources[str(FLAGS)]
    cluster.source(FLAGS, 3)
    cluster.workload("new")
    assert [each.workload.name.name for each in cluster.plan().due] == ["web"]


def test_a_workload_that_is_undone_is_not_rolled_again(cluster: Cluster) -> None:
    """`kubectl rollout undo` brings the old digest back, but its pods are new and have the source as it is."""
    cluster.source(FLAGS, 2)
    cluster.settle()
    cluster.objects["Deployment", "web"]["spec"]["template"]["metadata"]["annotations"][SOURCE_DIGESTS] = "x=1"
    assert cluster.plan() == RolloutPlan()


def test_rollouts_are_paced(cluster: Cluster) -> None:
    for number in range(3):
        cluster.workload(f"w{number}")
    cluster.source(FLAGS, 2)
    assert [each.after for each in cluster.plan(rate=2.0).due] == [0.0, 0.5, 1.0, 1.5]


def test_a_workload_whose_new_pods_would_be_refused_waits(cluster: Cluster) -> None:
    cluster.workload("broken", "flags,missing")
    cluster.source(FLAGS, 2)
    cluster.settle()
    assert cluster.rolled == ["web"]
    plan = cluster.plan()
    assert not plan.is_complete
    assert "team-a/missing" in plan.held[0].reason
    cluster.source(ObjectName("team-a", "missing"))
    cluster.settle()
    assert cluster.rolled == ["web", "broken"]
    assert not is_edited(cluster.sources[str(FLAGS)])


def test_a_flag_that_is_missing_holds_a_rollout(cluster: Cluster) -> None:
    cluster.source(FLAGS, 2, sources=[{"source": "gone", "provider": "kubernetes"}])
    (held,) = cluster.plan().held
    assert "team-a/gone" in held.reason


def test_pods_that_were_refused_are_created_again_when_they_would_not_be_refused_once_for_each_refusal(
    cluster: Cluster,
) -> None:
    refused = f'admission webhook "{POD_WEBHOOK}" denied the request: featureflagsources "later" not found'
    cluster.workload("waits", "flags, later")
    cluster.refuse("waits", refused)
    assert cluster.retries() == []
    cluster.source(LATER)
    assert cluster.retries() == cluster.retries(LATER) == ["waits"]
    cluster.objects["Deployment", "waits"]["metadata"]["annotations"] = {PODS_RETRIED: "t0"}
    assert cluster.retries() == []
    cluster.refuse("waits", refused, since="t1")
    assert cluster.retries() == ["waits"]
    cluster.refuse("waits", "exceeded quota")
    assert cluster.retries() == []


def test_workloads_that_may_not_use_a_source_are_not_rolled(cluster: Cluster) -> None:
    cluster.source(OTHER)
    cluster.settle(OTHER)
    cluster.workload("web", "ops/other")
    cluster.source(OTHER, 2)
    source = cluster.sources[str(OTHER)]
    cluster.sources[str(OTHER)] = replace(source, metadata=replace(source.metadata, annotations=None))
    assert cluster.plan(OTHER) == RolloutPlan()


def test_a_workload_in_deletion_is_left_alone(cluster: Cluster) -> None:
    cluster.source(FLAGS, 2)
    cluster.objects["Deployment", "web"]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert cluster.plan() == RolloutPlan()


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=8), st.integers(1, 5))
def test_rollouts_converge_wherever_they_are_interrupted(changes: list[tuple[int, int]], workloads: int) -> None:
    """Changes while patches are under way; each reconcile gets some of them out, then the operator is killed."""
    cluster = Cluster()
    cluster.source(FLAGS)
    for number in range(workloads):
        cluster.workload(f"w{number}", "flags, ops/other" if number % 2 else "flags")
    cluster.source(OTHER)
    cluster.settle()
    for port, patches in changes:
        cluster.source(FLAGS, port)
        cluster.settle(most=patches)
    cluster.settle()
    assert cluster.plan() == RolloutPlan()
    digest = source_digest(cluster.sources[str(FLAGS)].spec)
    assert cluster.sources[str(FLAGS)].status.digest == digest
    assert set(cluster.runs.values()) == {digest}
    if {port for port, _ in changes} <= {1}:
        assert not cluster.rolled


def test_the_digest_is_of_what_agents_get() -> None:
    def digest(**spec: Any) -> str:
        made: FeatureFlagSource = source_object({"source": "a"}, **spec)
        return source_digest(made.spec)

    assert digest() == digest(rolloutOnChange=True)
    assert digest() != digest(port=9)
    assert read_workload(DEPLOYMENT, encode({})) is None
