"""Several sources: some dead at the start, some that share a server, some that define the same flag."""

from __future__ import annotations

from functools import partial

import grpc
import pytest

from tests.agent import seen
from tests.agent.laboratory import Lab, laboratory, run
from tests.agent.seen import evaluations, flags
from tests.agent.upstreams import GrpcUpstream, HttpUpstream, upstream
from tests.sources.blob_stores import Store
from tests.sources.faulty import answer
from wigwag.agent.run import SOURCE_GRACE_SECONDS

PAIRS = [("http", "grpc"), ("grpc", "blob"), ("blob", "http")]


@pytest.mark.parametrize(("dead", "alive"), PAIRS)
def test_flags_of_the_living_wait_a_little_for_a_required_source_that_is_dead(
    dead: str, alive: str, store: Store
) -> None:
    async def main() -> None:
        with upstream(dead, store) as late, upstream(alive, store) as here:
            late.refuse()
            here.serve(flags(1, alive))
            async with laboratory(here.source(), late.source()) as lab:
                await lab.meanwhile(lambda: lab.state(0) == "live" and lab.state(1) == "failing")
                await lab.lapse(SOURCE_GRACE_SECONDS - 0.1)
                assert await lab.ask(seen.value, alive) == "not_found"
                assert await lab.ask(seen.ready) == 412
                await lab.lapse(0.2)
                answers = await lab.ask(partial(evaluations, whole=False), alive)
                assert {answers[name][1]["value"] for name in ("v1", "v2", "OFREP")} == {"revision 1"}
                assert await lab.ask(seen.ready) == 412  # what it would say is not known
                page = await lab.source(1)
                assert (page["state"], page["required"], page["ageSeconds"]) == ("failing", True, None)
                assert "age_seconds" not in page["metrics"]
                await both(lab, late, alive, dead)

    run(main)


@pytest.mark.parametrize(("dead", "alive"), PAIRS)
def test_nothing_waits_for_an_optional_source_that_is_dead(dead: str, alive: str, store: Store) -> None:
    async def main() -> None:
        with upstream(dead, store) as late, upstream(alive, store) as here:
            late.refuse()
            here.serve(flags(1, alive))
            async with laboratory(here.source(), late.source(optional=True)) as lab:
                await lab.meanwhile(lambda: lab.value(alive) == "revision 1")
                assert await lab.ask(seen.ready) == 200
                await lab.until(lambda: lab.state(1) == "failing")
                page = await lab.source(1)
                assert (page["required"], page["metrics"]["up"]) == (False, 0)
                await both(lab, late, alive, dead)

    run(main)


async def both(lab: Lab, late: HttpUpstream | GrpcUpstream, alive: str, dead: str) -> None:
    """The dead one comes to life, and is served beside the other."""
    late.serve(flags(1, dead))
    await lab.until(lambda: lab.value(dead) == "revision 1", 30.0)
    assert [await lab.ask(seen.value, key) for key in (alive, dead)] == ["revision 1"] * 2
    assert await lab.ask(seen.ready) == 200
    assert (await lab.source(1))["error"] is None


def test_two_selectors_of_one_server_are_two_sources() -> None:
    mine, yours = "flagSetId=mine", "flagSetId=yours"

    async def main() -> None:
        with GrpcUpstream() as up:
            up.serve(flags(1, "a", "b"), mine)
            up.serve(flags(2, "b", "c"), yours)
            async with laboratory(up.source(selector=mine), up.source(selector=yours)) as lab:
                await lab.meanwhile(lambda: lab.state(0) == lab.state(1) == "live" and lab.value("c"))
                pages = [await lab.source(priority) for priority in (0, 1)]
                assert [page["selector"] for page in pages] == [mine, yours]
                assert pages[0]["source"] == pages[1]["source"]
                assert [lab.value(key) for key in "abc"] == ["revision 1", "revision 2", "revision 2"]

                # one of them is refused, and only that one fails
                up.decline(grpc.StatusCode.PERMISSION_DENIED, yours)
                await lab.meanwhile(lambda: lab.state(1) == "failing")
                await lab.until(lambda: lab.state(0) == "live")
                up.say(flags(3, "a", "b"), mine)
                await lab.meanwhile(lambda: lab.value("a") == "revision 3")
                assert [lab.value(key) for key in "abc"] == ["revision 3", "revision 2", "revision 2"]
                pages = [await lab.source(priority) for priority in (0, 1)]
                assert [(page["state"], page["metrics"]["up"]) for page in pages] == [("live", 1), ("failing", 0)]
                assert "PERMISSION_DENIED" in pages[1]["error"]

                up.serve(flags(4, "c"), yours)
                await lab.until(lambda: lab.value("c") == "revision 4", 30.0)
                assert [lab.value(key) for key in "abc"] == ["revision 3", "revision 3", "revision 4"]

    run(main)


@pytest.mark.parametrize(("low", "high"), PAIRS)
def test_the_losing_definition_is_back_when_the_winner_drops_the_flag_but_not_when_it_fails(
    low: str, high: str, store: Store
) -> None:
    async def main() -> None:
        with upstream(low, store) as loser, upstream(high, store) as winner:
            loser.serve(flags(1, "x", "low"))
            winner.serve(flags(2, "x", "high"))
            async with laboratory(loser.source(), winner.source()) as lab:
                await lab.meanwhile(lambda: lab.value("x") == "revision 2" and lab.value("low"))
                winner.refuse()
                await lab.until(lambda: lab.state(1) == "failing")
                await lab.lapse(60.0)
                assert lab.value("x") == "revision 2"  # an error is no empty answer
                winner.serve(flags(3, "high"))
                await lab.until(lambda: lab.value("high") == "revision 3", 30.0)
                answers = await lab.ask(evaluations, "x")
                assert {answers[name][1]["value"] for name in ("v1", "v2", "OFREP")} == {"revision 1"}
                assert answers["sync"]["defaultVariant"] == "r1"
                winner.serve(flags(4, "x", "high"))
                if high == "grpc":
                    await lab.meanwhile(lambda: lab.value("x") == "revision 4")
                await lab.until(lambda: lab.value("x") == "revision 4", 30.0)

    run(main)


def test_a_document_without_flags_is_an_answer_and_a_failure_is_not() -> None:
    async def main() -> None:
        with HttpUpstream() as up:
            up.serve(flags(1, "x"))
            async with laboratory(up.source()) as lab:
                await lab.meanwhile(lambda: lab.value("x") == "revision 1")
                for body, status in ((b"", "200 OK"), (b"{}", "404 Not Found"), (b"", "204 No Content")):
                    up.behave(answer(body, status))
                    await lab.until(lambda: lab.state() == "failing")
                    assert lab.value("x") == "revision 1"
                    up.serve(flags(1, "x"))
                    await lab.until(lambda: lab.state() == "live")
                up.serve(flags(2))
                await lab.until(lambda: lab.value("x") is None)
                assert lab.state() == "live"
                assert await lab.ask(seen.ready) == 200

    run(main)
