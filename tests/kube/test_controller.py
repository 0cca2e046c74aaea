"""Controllers: how the results and errors of a reconcile are handled, and what they show."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.pipeline.fakes import FakeClock, run, settle
from wigwag.kube.control.controller import CONFLICTS, Again, Controller, ControllerMetrics
from wigwag.kube.control.queue import KeyQueue, WorkQueue
from wigwag.kube.errors import ApiError, ApiStatus
from wigwag.observe import Registry
from wigwag.pipeline.backoff import Backoff

CONFLICT = ApiError("PUT /x", ApiStatus(409, "Conflict", "changed"))
Reconcile = Callable[[str], Awaitable[Again | None]]


@asynccontextmanager
async def controlled(
    reconcile: Reconcile, clock: FakeClock, workers: int = 2, seconds: float = 30.0
) -> AsyncIterator[Controller[str]]:
    queue = WorkQueue[str](KeyQueue(Backoff(first=1.0, most=8.0), lambda: 1.0), clock)
    controller = Controller("shop", reconcile, queue, ControllerMetrics(), workers, seconds)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        yield controller
        task.cancel()


def test_a_result_says_when_to_look_again() -> None:
    async def main() -> None:
        clock, seen = FakeClock(), []

        async def reconcile(key: str) -> Again | None:
            seen.append(key)
            return Again(5.0) if len(seen) == 1 else None

        async with controlled(reconcile, clock) as controller:
            controller.queue.add("a")
            await clock.advance(4.9)
            assert seen == ["a"]
            await clock.advance(60.0)
            assert seen == ["a", "a"]

    run(main)


def test_a_conflict_is_retried_at_once_a_few_times_and_then_with_back_off() -> None:
    async def main() -> None:
        clock, calls = FakeClock(), [0]

        async def reconcile(key: str) -> None:
            calls[0] += 1
            raise CONFLICT

        async with controlled(reconcile, clock) as controller:
            controller.queue.add("a")
            await settle()
            assert calls == [CONFLICTS + 1]
            await clock.advance(1.1)
            assert calls == [2 * (CONFLICTS + 1)]

    run(main)


def test_an_error_is_logged_once_per_text_counted_shown_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock, errors = FakeClock(), ["no", "no", "other", ""]

        async def reconcile(key: str) -> None:
            if error := errors.pop(0):
                raise ApiError("GET /x", ApiStatus(500, "Internal", error))

        async with controlled(reconcile, clock) as controller:
            metrics = ControllerMetrics()
            controller.queue.add("a")
            await clock.advance(1.5)
            (failure,) = controller.status()["failures"]
            assert (failure["key"], failure["failures"], failure["retryInSeconds"]) == ("a", 2, 1.5)
            await clock.advance(20.0)
            assert (controller.failing, controller.status()["failing"]) == ({}, 0)
            assert "wigwag_controller_failing_keys" in Registry(metrics.instruments).render()

    with caplog.at_level(logging.INFO):
        run(main)
    texts = [record.getMessage() for record in caplog.records]
    assert [("no" in text, "other" in text) for text in texts] == [(True, False), (False, True), (False, False)]
    assert texts[-1] == "shop: a: reconciled, after 3 failures"


def test_retry_after_is_honoured() -> None:
    async def main() -> None:
        clock, calls = FakeClock(), [0]

        async def reconcile(key: str) -> None:
            calls[0] += 1
            raise ApiError("GET /x", ApiStatus(429, "TooManyRequests"), 10.0)

        async with controlled(reconcile, clock) as controller:
            controller.queue.add("a")
            await clock.advance(10.5)
            assert calls == [1]
            await clock.advance(1.0)
            assert calls == [2]

    run(main)


def test_a_reconcile_that_hangs_is_cancelled_and_holds_up_no_other_key() -> None:
    async def main() -> None:
        clock, seen = FakeClock(), []

        async def reconcile(key: str) -> None:
            seen.append(key)
            if key == "slow":
                await asyncio.Event().wait()

        async with controlled(reconcile, clock, seconds=30.0) as controller:
            for key in ("slow", "a", "b"):
                controller.queue.add(key)
            await settle()
            assert seen == ["slow", "a", "b"]
            await clock.advance(30.0)
            assert controller.failing["slow"].error == "not reconciled within 30 s"
            controller.queue.add("slow")
            await clock.advance(0.1)
            assert seen[3:] == ["slow"]

    run(main)


def test_a_defect_in_one_reconcile_stops_no_worker(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock, seen = FakeClock(), []

        async def reconcile(key: str) -> None:
            seen.append(key)
            if key != "good":
                raise asyncio.CancelledError if key == "cancelled" else ZeroDivisionError

        async with controlled(reconcile, clock, workers=1) as controller:
            for key in ("bad", "cancelled", "good"):
                controller.queue.add(key)
            await settle()
            assert seen == ["bad", "cancelled", "good"]
            assert sorted(controller.failing) == ["bad", "cancelled"]

    run(main)
    assert "Traceback" in caplog.text


def test_a_key_of_namespace_and_name_is_shown_as_kubectl_does(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock = FakeClock()

        async def reconcile(key: tuple[str, str]) -> None:
            raise ExceptionGroup("tasks", [CONFLICT])

        queue = WorkQueue[tuple[str, str]](clock=clock)
        controller = Controller("shop", reconcile, queue, ControllerMetrics())
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controller.run())
            queue.add(("team-a", "x"))
            queue.add(("", "cluster"))
            await settle()
            assert [each["key"] for each in controller.status()["failures"]] == ["team-a/x", "cluster"]
            task.cancel()

    run(main)
    assert "shop: team-a/x: ApiError: PUT /x: the API server answered 409" in caplog.text
