"""Faults of time: servers that hang, outages of minutes, flags that grow stale, clocks that jump."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.agent import seen
from tests.agent.laboratory import DAY, Lab, laboratory, resolver, run
from tests.agent.seen import evaluations, flags
from tests.agent.upstreams import KINDS, HttpUpstream, upstream
from tests.sources.blob_stores import Store
from tests.sources.faulty import answer, silence
from tests.wire.client.server import Scripted
from wigwag.pipeline.backoff import Backoff

INTERVAL = 5.0
POLLS = round(60 / INTERVAL) + 1


async def mute(link: Scripted) -> None:
    await link.gone()


async def live(lab: Lab) -> None:
    await lab.meanwhile(lambda: all(state == "live" for state, _ in lab.statuses()))


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_does_not_wait_for_a_source_that_hangs(kind: str, store: Store) -> None:
    async def main() -> None:
        with upstream(kind, store) as up:
            up.serve(flags(1, "far"))
            async with laboratory(up.source()) as lab:
                await live(lab)
                before, count = await lab.ask(evaluations, "far"), up.asked
                if kind == "grpc":
                    up.script(mute)
                    await lab.until(lambda: lab.state() == "failing")  # the stream was young, so its end is a failure
                else:
                    up.behave(silence)
                await lab.clock.advance(INTERVAL)  # it asks again
                await lab.meanwhile(lambda: up.asked > count)
                assert not lab.taps[0].idle()
                lab.at_once("far")
                assert await lab.ask(evaluations, "far") == before
                assert not lab.taps[0].idle()  # all of that while it waited for the network
                up.serve(flags(2, "far"))
                up.cut()
                await lab.until(lambda: lab.value("far") == "revision 2", 30.0)
                assert lab.state() == "live"

    run(main)


@pytest.mark.parametrize("luck", range(8))
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_chance_does_a_minute_of_refusals_is_a_handful_of_tries(kind: str, luck: int, store: Store) -> None:
    async def main() -> None:
        with upstream(kind, store) as up:
            up.refuse()
            async with laboratory(up.source(), random=Random(luck).random) as lab:
                await lab.lapse(60.0)
                tries = lab.taps[0].items if kind == "blob" else resolver().looked_up[up.port]
                assert 5 <= tries <= 25
                await lab.lapse(600.0)
                later = lab.taps[0].items if kind == "blob" else resolver().looked_up[up.port]
                assert 10 <= later - tries <= 80  # 15 s from one to the next, on the average
                up.serve(flags(1, "far"))
                await lab.until(lambda: lab.value("far") == "revision 1", 30.0)

    run(main)


@pytest.mark.parametrize("readiness", ["served", "fresh"])
def test_a_long_outage_is_told_in_every_answer_and_by_the_probe_if_so_wished(readiness: str, store: Store) -> None:
    async def main() -> None:
        with upstream("http", store) as far, upstream("blob", store) as near:
            far.serve(flags(1, "far"))
            near.serve(flags(1, "near"))
            async with laboratory(far.source(), near.source(), stale_after=90.0, readiness=readiness) as lab:
                await live(lab)
                before = await told(lab)
                assert before["far"] == before["near"] == ("STATIC", "revision 1")
                far.refuse()
                await lab.lapse(80.0)
                assert await told(lab) == before
                await lab.lapse(15.0)
                stale = await told(lab)
                assert stale["far"] == ("STALE", "revision 1")
                assert stale["near"] == ("STATIC", "revision 1")
                assert (stale["stale"], stale["ready"]) == ((True, 1), 412 if readiness == "fresh" else 200)
                await lab.lapse(200.0)
                assert await told(lab) == stale
                far.serve(flags(1, "far"))  # as before, but heard of
                await lab.until(lambda: lab.state() == "live", 30.0)
                assert await told(lab) == before

    run(main)


async def told(lab: Lab) -> dict[str, Any]:
    """What clients and operators are told about age."""
    found: dict[str, Any] = {"ready": await lab.ask(seen.ready)}
    for key in ("far", "near"):
        answers = await lab.ask(evaluations, key)
        (found[key],) = {(answers[name][1]["reason"], answers[name][1]["value"]) for name in ("v1", "v2", "OFREP")}
    source = await lab.source()
    return found | {"stale": (source["stale"], source["metrics"]["stale"])}


@pytest.mark.parametrize("jump", [DAY, -DAY], ids=["a day ahead", "a day back"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_jumps_changes_nothing(kind: str, jump: float, store: Store) -> None:
    async def main() -> None:
        with upstream(kind, store) as up:
            up.serve(flags(1, "far"))
            seed = {} if kind == "grpc" else {"intervalSeed": "pod-7"}
            async with laboratory(up.source(**seed), stale_after=40.0) as lab:
                await live(lab)
                await lab.lapse(12.0)
                before, count = await lab.ask(evaluations, "far"), up.asked
                lab.jump = jump
                for _ in range(6):
                    await lab.lapse(10.0)
                    page = await lab.source()
                    assert (page["state"], page["error"], page["stale"]) == ("live", None, False)
                    assert 0 <= page["ageSeconds"] <= (30.0 if kind == "grpc" else INTERVAL)
                    assert page["metrics"]["age_seconds"] >= 0
                assert await lab.ask(evaluations, "far") == before  # not even stale
                assert up.asked - count <= (0 if kind == "grpc" else POLLS)
                up.serve(flags(2, "far"))
                if kind == "grpc":
                    await lab.meanwhile(lambda: lab.value("far") == "revision 2")
                await lab.until(lambda: lab.value("far") == "revision 2", INTERVAL)

    run(main)


def test_a_server_that_names_a_date_is_not_forgotten_by_a_clock_that_is_a_day_late(store: Store) -> None:
    async def main() -> None:
        with HttpUpstream() as up:
            up.serve(flags(1, "far"))
            async with laboratory(up.source()) as lab:
                await live(lab)
                lab.jump = -DAY
                up.behave(answer(b"", "503 Service Unavailable", Retry_After="Tue, 14 Nov 2023 22:31:00 GMT"))
                await lab.until(lambda: lab.state() == "failing")
                count, asked = up.asked, Backoff().longest_retry_after
                up.serve(flags(2, "far"))
                waited = await lab.until(lambda: lab.value("far") == "revision 2", asked + 1)
                assert waited > asked - 1  # as it asked, within reason
                assert up.asked == count + 1

    run(main)
