"""The status of a Flagd, and the Events about it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.operator.known import NOW, Laid, flagd_object, settings, source_object
from wigwag.operator.reconcile.flagd import flagd_status, plan_flagd
from wigwag.operator.reconcile.status import ConditionEvent, ConditionState, LiveDeployment, events
from wigwag.operator.resources.flagd import Flagd, FlagdStatus

LATER = NOW + 60
KNOWN = Laid(sources={"team-a/flags": source_object({"source": "https://flags.test", "provider": "http"})})


def deployment(ready: int, generation: int = 1, **status: Any) -> dict[str, Any]:
    counts = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": ready}
    return {"metadata": {"name": "flagd-sample", "generation": generation}, "status": {**counts, **status}}


def status_of(
    flagd: Flagd, known: Laid, live: Any = None, refusals: tuple[str, ...] = (), now: float = NOW
) -> FlagdStatus:
    return flagd_status(flagd, plan_flagd(flagd, known, settings()), live, refusals, now)


def shown(status: FlagdStatus) -> list[tuple[str, str, str]]:
    return [(each.type, each.status, each.reason) for each in status.conditions]


def test_all_is_well() -> None:
    flagd = flagd_object(replicas=2)
    status = status_of(flagd, KNOWN, deployment(2))
    assert shown(status) == [
        ("Accepted", "True", "Valid"),
        ("Resolved", "True", "Resolved"),
        ("Programmed", "True", "Ready"),
    ]
    assert (status.observed_generation, status.replicas, status.ready_replicas) == (3, 2, 2)
    assert {each.observed_generation for each in status.conditions} == {3}
    assert status.conditions[2].message == "2 of 2 replicas are ready"
    assert status.digest == plan_flagd(flagd, KNOWN, settings()).digest != ""


def test_a_missing_source_is_said_once() -> None:
    flagd = flagd_object()
    status = status_of(flagd, Laid())
    assert shown(status) == [
        ("Accepted", "True", "Valid"),
        ("Resolved", "False", "SourceNotFound"),
        ("Programmed", "False", "Unresolved"),
    ]
    (event,) = events(flagd.status.conditions, status.conditions)
    assert event == ConditionEvent("Warning", "SourceNotFound", status.conditions[1].message)
    again = status_of(replace(flagd, status=status), Laid(), now=LATER)
    assert again == status
    assert events(status.conditions, again.conditions) == []


def test_a_source_that_appears_is_an_event_and_a_new_time() -> None:
    before = status_of(flagd_object(replicas=2), Laid())
    now = status_of(replace(flagd_object(replicas=2), status=before), KNOWN, deployment(2), now=LATER)
    times = [each.last_transition_time for each in (*before.conditions, *now.conditions)]
    assert times == ["2027-01-15T08:00:00Z"] * 3 + ["2027-01-15T08:00:00Z"] + ["2027-01-15T08:01:00Z"] * 2
    assert [each[:2] for each in events(before.conditions, now.conditions)] == [
        ("Normal", "Resolved"),
        ("Normal", "Programmed"),
    ]


def test_when_the_source_goes_the_digest_and_the_pods_stay() -> None:
    before = status_of(flagd_object(replicas=2), KNOWN, deployment(2))
    now = status_of(replace(flagd_object(replicas=2), status=before), Laid(), deployment(2))
    assert shown(now)[1:] == [("Resolved", "False", "SourceNotFound"), ("Programmed", "True", "Ready")]
    assert now.digest == before.digest


def test_an_object_of_somebody_else_is_told() -> None:
    flagd, reason = flagd_object(), "Service flagd-sample exists and is not ours"
    status = status_of(flagd, KNOWN, deployment(1), (reason,))
    assert shown(status)[2] == ("Programmed", "False", "Refused")
    assert events((), status.conditions) == [ConditionEvent("Warning", "Refused", reason)]


def test_an_object_that_is_not_accepted_says_nothing_about_its_source() -> None:
    flagd = flagd_object(serviceType="ExternalName")
    status = status_of(flagd, KNOWN)
    assert shown(status)[:2] == [("Accepted", "False", "Invalid"), ("Resolved", "Unknown", "Invalid")]
    assert [each.reason for each in events((), status.conditions)] == ["Invalid"]


def test_a_warning_is_an_event_and_its_end_is_none() -> None:
    known = Laid(sources={"team-a/flags": replace(KNOWN.sources["team-a/flags"], spec=warned())})
    before = status_of(flagd_object(), known)
    assert events((), before.conditions)[0][:2] == ("Warning", "Accepted")
    now = status_of(replace(flagd_object(), status=before), KNOWN)
    assert [each for each in events(before.conditions, now.conditions) if each.reason == "Accepted"] == []


def warned() -> Any:
    return replace(KNOWN.sources["team-a/flags"].spec, socket_path="/run/flagd.sock")


@pytest.mark.parametrize(
    ("live", "state"),
    [
        (deployment(2), ConditionState("True", "Ready", "2 of 2 replicas are ready")),
        (deployment(1), ConditionState("False", "Progressing", "1 of 2 replicas are ready")),
        (deployment(2, generation=2), ConditionState("False", "Progressing", "0 of 2 replicas are ready")),
        (deployment(2, updatedReplicas=1), ConditionState("False", "Progressing", "1 of 2 replicas are ready")),
        (
            deployment(0, conditions=[{"type": "ReplicaFailure", "status": "True", "message": "no quota"}]),
            ConditionState("False", "Failing", "0 of 2 replicas are ready; no quota"),
        ),
        ({"metadata": {"generation": 1}}, ConditionState("False", "Progressing", "0 of 2 replicas are ready")),
    ],
)
def test_a_rollout(live: dict[str, Any], state: ConditionState) -> None:
    assert LiveDeployment.read(live).rollout(2) == state


def test_no_replicas_are_ready_at_once() -> None:
    assert LiveDeployment.read(deployment(0, replicas=0, updatedReplicas=0)).rollout(0).status == "True"
