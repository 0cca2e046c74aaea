"""When a pod without an agent may be evicted, and that a webhook which is not called does not cost pod after pod."""

from __future__ import annotations

from tests.operator.known import NOW
from tests.operator.upgrades.fleets import agent, missed, web
from wigwag.operator.upgrades.missed import NOT_CALLED, NOT_FOR_IT, EvictionGuard


def test_without_evidence_one_pod_is_tried_and_the_others_wait_for_what_comes_after_it() -> None:
    first, second = missed("web-a"), missed("web-b")
    guard = EvictionGuard()
    assert guard.finding(first, [], [first, second]).action == "evict"
    guard = guard.after(first, [], [first, second])
    assert guard.finding(second, [], [first, second]).action == "wait"
    assert guard.finding(second, [], [second]).action == "wait", "the next pod is not there yet"


def test_a_next_pod_without_an_agent_ends_it_until_some_pod_gets_one() -> None:
    first, second = missed("web-a"), missed("web-b")
    guard = EvictionGuard().after(first, [], [first, second])
    again = missed("web-c", NOW + 1)
    assert guard.finding(second, [], [second, again]) == ("leave", NOT_CALLED)
    assert guard.finding(again, [], [second, again]) == ("leave", NOT_CALLED)
    injected = agent("other-a", web(name="other"), created=NOW + 2)
    for pod in (second, again):
        assert guard.finding(pod, [injected], [second, again]).action == "evict"


def test_a_next_pod_with_an_agent_proves_that_the_webhook_is_called_even_within_a_second() -> None:
    first, second = missed("web-a"), missed("web-b")
    guard = EvictionGuard().after(first, [agent("old")], [first, second])
    assert guard.finding(second, [agent("old")], [second]).action == "wait"
    assert guard.finding(second, [agent("old"), agent("web-c", created=NOW)], [second]).action == "evict"


def test_a_workload_that_the_webhook_is_not_called_for_is_left_alone_and_others_are_not() -> None:
    first, other = missed("web-a"), missed("api-a", workload=web(name="api"))
    injected = agent("new", web(name="new"), created=NOW + 1)
    guard = EvictionGuard()
    assert guard.finding(first, [injected], [first, other]).action == "evict"
    guard = guard.after(first, [injected], [first, other])
    again, newest = missed("web-b", NOW + 2), agent("newest", web(name="new"), created=NOW + 3)
    assert guard.finding(again, [injected, newest], [again, other]) == ("leave", NOT_FOR_IT)
    assert guard.finding(other, [injected, newest], [again, other]).action == "evict"
