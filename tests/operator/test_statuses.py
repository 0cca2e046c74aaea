"""The status of FeatureFlagSources and InProcessConfigurations.

| group | test |
|---|---|
| U16 | `test_u16_a_flag_that_is_missing_is_named` |
| U42, U43 | `test_u42_u43_a_source_waits_for_the_proxy` |
| U66 | `test_u42_u43_a_source_waits_for_the_proxy` (whether it is deployed is the proxy's own) |
| U95 | `test_a_source_elsewhere_without_a_grant_says_who_wants_it` |
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.operator.known import NOW, Laid, in_process_object, settings, source_object
from wigwag.kube.kinds import DEPLOYMENT
from wigwag.operator.injection.known import ProxyState
from wigwag.operator.names import ALLOW_FROM, ObjectName
from wigwag.operator.reconcile.rollout import HeldRollout, Rollout, RolloutPlan, source_digest
from wigwag.operator.reconcile.sources import SourceStatuses
from wigwag.operator.reconcile.workloads import Workload
from wigwag.operator.resources.featureflagsource import PROVIDERS, FeatureFlagSource, FeatureFlagSourceStatus
from wigwag.operator.resources.kubernetes import Condition, ObjectStatus

FLAGS = ObjectName("team-a", "flags")
DONE = RolloutPlan()


def workload(namespace: str = "team-a", mode: Any = "sidecar", name: str = "web") -> Workload:
    return Workload(DEPLOYMENT, ObjectName(namespace, name), "1", ObjectName(namespace, "x"), mode, (FLAGS,), None)


def source(*entries: dict[str, Any], generation: int = 1, **given: Any) -> FeatureFlagSource:
    made = source_object(*entries, **given)
    return replace(made, metadata=replace(made.metadata, generation=generation))


def status_of(
    found: FeatureFlagSource,
    known: Laid,
    *workloads: Workload,
    plan: RolloutPlan = DONE,
    now: float = NOW,
    **options: Any,
) -> FeatureFlagSourceStatus:
    statuses = SourceStatuses(known=known, settings=settings(**options), now=now)
    return statuses.of_source(FLAGS, found, workloads, plan)


def condition(status: ObjectStatus, kind: str) -> Condition:
    (found,) = (each for each in status.conditions if each.type == kind)
    return found


def shown(status: ObjectStatus, kind: str) -> tuple[str, str]:
    found = condition(status, kind)
    return found.status, found.reason


def test_a_source_that_is_well() -> None:
    found = source({"source": "shop"}, {"source": "http://x", "provider": "http"})
    status = status_of(found, Laid(flags={"team-a/shop": {}}), workload(), workload(mode="in-process"))
    assert {each.type: each.status for each in status.conditions} == dict.fromkeys(
        ("Accepted", "Resolved", "Programmed", "Granted"), "True"
    )
    assert (status.sources, status.workloads, status.observed_generation) == (2, 1, 1)
    assert status.digest == source_digest(found.spec)
    assert condition(status, "Accepted").last_transition_time == "2027-01-15T08:00:00Z"


@pytest.mark.parametrize("provider", ["kubernetes", "file", "flagd-proxy", ""])
def test_u16_a_flag_that_is_missing_is_named(provider: str) -> None:
    found = source({"source": "shop", "provider": provider}, {"source": "cart", "provider": provider})
    status = status_of(found, Laid(flags={"team-a/cart": {}}, state=ProxyState(1, NOW)))
    assert shown(status, "Resolved") == ("False", "FlagMissing")
    message = condition(status, "Resolved").message
    assert "team-a/shop" in message
    assert "cart" not in message


def test_names_are_read_in_the_namespaces_of_those_who_use_the_source() -> None:
    found = source({"source": "shop"}, annotations={ALLOW_FROM: "team-b"})
    known = Laid(flags={"team-a/shop": {}})
    assert shown(status_of(found, known), "Resolved") == ("True", "Resolved")
    status = status_of(found, known, workload("team-b"))
    assert shown(status, "Resolved") == ("False", "FlagMissing")
    assert "team-b/shop" in condition(status, "Resolved").message
    known.flags["team-b/shop"] = {}
    assert shown(status_of(found, known, workload("team-b")), "Resolved") == ("True", "Resolved")


def test_a_flag_elsewhere_without_a_grant_reads_like_one_that_does_not_exist() -> None:
    found, known = source({"source": "ops/shop"}), Laid(flags={"ops/shop": {}})
    without_grant, without_flag = (status_of(found, each) for each in (known, Laid()))
    assert without_grant.conditions == without_flag.conditions
    assert shown(without_grant, "Resolved") == ("False", "FlagNotGranted")
    assert "openfeature.dev/allow-from: team-a" in condition(without_grant, "Resolved").message
    known.flags["ops/shop"] = {ALLOW_FROM: "team-a"}
    assert shown(status_of(found, known), "Resolved")[0] == "True"


def test_a_config_map_of_the_users_is_named() -> None:
    known = Laid(flags={"team-a/shop": {}}, foreign={"team-a/shop"})
    status = status_of(source({"source": "shop", "provider": "file"}), known)
    assert shown(status, "Resolved") == ("False", "ConfigMapNotOurs")
    assert shown(status_of(source({"source": "shop"}), known), "Resolved")[0] == "True"


def test_a_source_elsewhere_without_a_grant_says_who_wants_it() -> None:
    found, known = source({"source": "shop"}), Laid(flags={"team-a/shop": {}})
    status = status_of(found, known, workload(), workload("team-b"))
    assert shown(status, "Granted") == ("False", "GrantMissing")
    assert condition(status, "Granted").message.startswith("Deployment team-b/web; ")
    assert "openfeature.dev/allow-from: team-b" in condition(status, "Granted").message
    assert status.workloads == 1
    assert shown(status, "Resolved")[0] == shown(status, "Programmed")[0] == "True"
    assert status_of(found, known, workload(), workload("team-b"), cross_namespace="allow").workloads == 2


@pytest.mark.parametrize("spec", [{"provider": "flagd-proxy"}, {}])
def test_u42_u43_a_source_waits_for_the_proxy(spec: dict[str, str]) -> None:
    found = source({"source": "shop", **spec}, defaultSyncProvider="flagd-proxy")
    known = Laid(flags={"team-a/shop": {}})
    assert shown(status_of(found, known), "Programmed") == ("False", "ProxyNotReady")
    known.state = ProxyState(1, NOW)
    assert shown(status_of(found, known), "Programmed") == ("True", "UpToDate")


def test_an_unknown_provider_is_not_accepted() -> None:
    status = status_of(source({"source": "shop", "provider": "ftp"}), Laid())
    assert shown(status, "Accepted") == ("False", "UnknownProvider")
    assert "ftp" in condition(status, "Accepted").message


def test_the_digest_is_that_of_the_last_rollout_until_the_next_is_complete() -> None:
    known = Laid(flags={"team-a/shop": {}})
    first = source({"source": "shop"})
    first = replace(first, status=status_of(first, known))
    second = replace(source({"source": "shop"}, port=9, generation=2), status=first.status)
    rolling = RolloutPlan(due=(Rollout(workload(), (), 0.0),))
    status = status_of(second, known, plan=rolling)
    assert (status.digest, status.observed_generation) == (first.status.digest, 1)
    assert shown(status, "Programmed") == ("False", "RollingOut")
    assert condition(status, "Programmed").observed_generation == 2
    held = status_of(second, known, plan=RolloutPlan(held=(HeldRollout(workload(), "no flag"),)))
    assert shown(held, "Programmed") == ("False", "RolloutHeld")
    assert "Deployment team-a/web: no flag" in condition(held, "Programmed").message
    assert held.digest == first.status.digest
    status = status_of(second, known)
    assert (status.digest, status.observed_generation) == (source_digest(second.spec), 2)


def test_an_in_process_configuration_counts_its_workloads() -> None:
    statuses = SourceStatuses(known=Laid(), settings=settings(), now=NOW)
    found = in_process_object(port=9)
    workloads = [workload(mode="in-process"), workload(), workload("team-b", "in-process")]
    status = statuses.of_in_process(FLAGS, found, workloads)
    assert status.workloads == 1
    assert shown(status, "Accepted") == ("True", "Valid")
    assert shown(status, "Granted") == ("False", "GrantMissing")
    later = SourceStatuses(known=Laid(), settings=settings(), now=NOW + 9)
    assert later.of_in_process(FLAGS, replace(found, status=status), workloads) == status


ENTRIES = st.lists(
    st.fixed_dictionaries(
        {"source": st.sampled_from(["shop", "ops/shop", "a/b/c"]), "provider": st.sampled_from([*PROVIDERS, "", "ftp"])}
    ),
    min_size=1,
    max_size=4,
)
WORKLOADS = st.lists(st.builds(workload, st.sampled_from(["team-a", "team-b"])), max_size=3)


@given(ENTRIES, WORKLOADS, st.dictionaries(st.sampled_from(["team-a/shop", "ops/shop"]), st.just({ALLOW_FROM: "*"})))
def test_a_second_look_changes_nothing(entries: Any, workloads: list[Workload], flags: Any) -> None:
    found, known = source(*entries), Laid(flags=flags)
    status = status_of(found, known, *workloads)
    assert status_of(replace(found, status=status), known, *workloads, now=NOW + 60) == status
    assert len(condition(status, "Resolved").message) < 5000
