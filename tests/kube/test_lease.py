"""Leader election: exactly one leads, whatever clocks, requests and processes do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.kube.leases import TROUBLES, Election
from tests.pipeline.fakes import run, settle
from wigwag.errors import UsageError
from wigwag.kube.control.lease import LeaseRecord, LeaseTiming

PHASE = st.tuples(
    st.sampled_from(TROUBLES),
    st.sampled_from(TROUBLES),
    st.sampled_from([0.3, 2.0, 5.0, 9.0, 13.0, 20.0]),
    st.booleans(),
)


@settings(max_examples=40, deadline=None)
@example([("slow response", "fine", 9.0, False), ("lost", "fine", 20.0, False)], [0.85, 1.15])
@example([("paused", "fine", 20.0, False)], [1.0, 1.0])
@example([("lost", "fine", 20.0, False)], [0.85, 1.15])
@given(st.lists(PHASE, max_size=8), st.lists(st.floats(0.85, 1.15), min_size=2, max_size=3))
def test_there_are_never_two_leaders_and_in_the_end_there_is_one(
    phases: list[tuple[str, str, float, bool]], rates: list[float]
) -> None:
    async def main() -> None:
        async with Election(rates) as election:
            await election.advance(1.0)
            for leaders, others, seconds, backwards in phases:
                for replica in election.replicas:
                    trouble = leaders if election.server.spec["holderIdentity"] == replica.name else others
                    await election.trouble(replica, trouble, backwards)
                await election.advance(seconds)
            for replica in election.replicas:
                await election.trouble(replica, "fine")
            await election.advance(60.0)
            assert len(election.leaders()) == 1
            assert sum(replica.working for replica in election.replicas) == 1

    run(main, timeout=150.0)


def test_the_first_leads_and_renews_with_one_request_each() -> None:
    async def main() -> None:
        async with Election() as election:
            await election.advance(1.0)
            (leader,) = election.leaders()
            acquired = election.server.spec["acquireTime"]
            writes = election.server.writes
            await election.advance(20.0)
            assert election.leaders() == [leader]
            spec = election.server.spec
            assert 9 <= election.server.writes - writes <= 10
            assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (leader, 15, 0)
            assert spec["renewTime"] > spec["acquireTime"] == acquired

    run(main)


def test_when_the_leader_dies_another_takes_over_after_the_duration() -> None:
    async def main() -> None:
        async with Election() as election:
            await election.advance(5.0)
            (dead,) = (replica for replica in election.replicas if replica.leads)
            (other,) = (replica for replica in election.replicas if not replica.leads)
            dead.clock.paused = True
            await election.advance(12.0)
            assert election.leaders() == []
            await election.advance(10.0)
            assert election.leaders() == [other.name]
            assert election.server.spec["leaseTransitions"] == 1
            dead.clock.go_on(backwards=False)
            await settle()
            assert not dead.working
            await election.advance(30.0)
            assert election.leaders() == [other.name]

    run(main)


def test_a_leader_that_cannot_renew_stops_before_others_may_begin() -> None:
    async def main() -> None:
        async with Election() as election:
            await election.advance(5.0)
            (leader,) = (replica for replica in election.replicas if replica.leads)
            leader.there = 100.0
            await election.advance(12.1)
            assert not leader.working
            assert not leader.elector.holds()
            await election.advance(20.0)
            assert election.leaders() not in ([], [leader.name])

    run(main)


def test_a_lease_that_is_released_is_taken_at_the_next_attempt() -> None:
    async def main() -> None:
        async with Election() as election:
            await election.advance(5.0)
            (leader,) = (replica for replica in election.replicas if replica.leads)
            await election.stop(leader)
            assert election.server.spec["holderIdentity"] == ""
            assert not leader.elector.holds()
            await election.advance(4.5)
            assert election.leaders() not in ([], [leader.name])

    run(main)


def test_a_replica_that_is_woken_takes_a_lease_that_was_released_at_once() -> None:
    async def main() -> None:
        async with Election() as election:
            await election.advance(5.0)
            (leader,) = (replica for replica in election.replicas if replica.leads)
            (other,) = (replica for replica in election.replicas if not replica.leads)
            other.elector.wake()
            await election.advance(0.1)
            assert election.leaders() == [leader.name], "the lease is held"
            await election.stop(leader)
            other.elector.wake()
            await election.advance(0.1)
            assert election.leaders() == [other.name]

    run(main)


def test_an_update_that_was_committed_without_an_answer_costs_no_leadership() -> None:
    async def main() -> None:
        async with Election() as election:
            await election.advance(5.0)
            (leader,) = (replica for replica in election.replicas if replica.leads)
            leader.fault = "unanswered"
            await election.advance(5.0)
            leader.fault = ""
            await election.advance(20.0)
            assert (election.leaders(), leader.terms) == ([leader.name], 1)

    run(main)


def test_a_lease_that_somebody_deletes_is_created_by_the_leader_again() -> None:
    async def main() -> None:
        async with Election() as election:
            await election.advance(5.0)
            leaders = election.leaders()
            election.server.lease = None
            await election.advance(20.0)
            assert election.leaders() == leaders == [election.server.spec["holderIdentity"]]

    run(main)


def test_labels_of_the_lease_stay() -> None:
    async def main() -> None:
        async with Election() as election:
            await election.advance(5.0)
            lease: Any = election.server.lease
            metadata = {**lease["metadata"], "labels": {"team": "a"}, "resourceVersion": "1000"}
            election.server.lease = {**lease, "metadata": metadata}
            leaders = election.leaders()
            await election.advance(5.0)
            assert election.leaders() == leaders
            lease = election.server.lease
            assert lease["metadata"]["labels"] == {"team": "a"}

    run(main)


def test_when_the_work_ends_the_election_ends_and_its_error_is_raised() -> None:
    async def main() -> None:
        for error in (None, RuntimeError("work")):
            election = Election([1.0])
            (replica,) = election.replicas

            async def work(error: Exception | None = error) -> None:
                if error:
                    raise error

            task = asyncio.ensure_future(replica.elector.run(work))
            while not task.done():
                await election.advance(0.1)
            if error is not None:
                with pytest.raises(ExceptionGroup):
                    task.result()
            assert election.server.spec["holderIdentity"] == ""

    run(main)


def test_timing_in_which_two_could_lead_is_refused() -> None:
    with pytest.raises(UsageError, match="renew deadline < duration"):
        LeaseTiming(duration=10, renew_deadline=10.0)
    with pytest.raises(UsageError):
        LeaseTiming(retry=9.0)


def test_a_lease_of_somebody_else_may_be_empty() -> None:
    assert LeaseRecord.read({"spec": {"holderIdentity": None}}) == LeaseRecord.read({}) == LeaseRecord()
