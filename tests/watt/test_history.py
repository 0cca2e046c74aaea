"""The history: numbers, changes, and what is dropped."""

from __future__ import annotations

import pytest

from tests.watt.snapshots import CONFIG_MAPS, SERVICES, kubernetes, services, snapshot
from wigwag.watt.snapshots.history import WattHistory, replaced_bytes
from wigwag.watt.snapshots.snapshot import Delta, WattSnapshot

ALL = tuple(("shop", str(each)) for each in range(100))


def changed(text: str) -> WattSnapshot:
    return snapshot(services(*ALL, data=text))


def test_numbers_begin_at_1_and_count_up() -> None:
    clock = iter([10.0, 20.0])
    history = WattHistory(now=lambda: next(clock))
    first = history.add(snapshot())
    second = history.add(snapshot(services(("shop", "a"))))
    assert (first.id, first.created, second.id, second.created) == (1, 10.0, 2, 20.0)
    assert history.latest is second
    assert (history.get(1), history.get(2)) == (first, second)


def test_before_the_first_there_is_none() -> None:
    assert WattHistory().latest is None
    assert WattHistory().ids() == []


def test_changes_are_against_the_one_before() -> None:
    history = WattHistory()
    assert [delta.type for delta in history.add(snapshot(services(("shop", "a")))).deltas] == ["add"]
    second = history.add(snapshot(services(("shop", "a"), spec=1)))
    assert second.deltas == (Delta(SERVICES, ("shop", "a"), "update"),)
    assert history.add(snapshot()).deltas == (Delta(SERVICES, ("shop", "a"), "delete"),)


def test_subscribers_get_the_newest() -> None:
    history = WattHistory()
    seen: list[tuple[int, bool]] = []
    history.snapshots.subscribe(lambda: seen.append((history.snapshots.value.id, history.latest is not None)))
    history.add(snapshot())
    history.add(snapshot())
    assert seen == [(1, True), (2, True)]


def test_only_so_many_are_kept() -> None:
    history = WattHistory(count=3)
    for _ in range(5):
        history.add(snapshot())
    assert history.ids() == [3, 4, 5]


@pytest.mark.parametrize("number", [-1, 0, 1, 2, 6, 10**17])
def test_others_are_not_there(number: int) -> None:
    history = WattHistory(count=3)
    assert history.get(number) is None
    for _ in range(5):
        history.add(snapshot())
    assert history.get(number) is None


def test_old_ones_are_dropped_when_they_cost_too_much() -> None:
    history = WattHistory(budget=300_000)
    for each in "abcdef":
        history.add(changed(each * 1000))
    assert history.ids() == [4, 5, 6]
    assert 200_000 < history.cost <= 300_000


def test_the_newest_stays_whatever_it_costs() -> None:
    history = WattHistory(budget=0)
    history.add(changed("a" * 1000))
    assert history.ids() == [1]
    history.add(changed("b" * 1000))
    assert history.ids() == [2]
    assert history.cost == 0


def test_what_is_shared_costs_nothing() -> None:
    maps = kubernetes(CONFIG_MAPS, "ConfigMap", *ALL, data="x" * 1000)
    one, other = snapshot(maps, services(("shop", "a"))), snapshot(maps, services(("shop", "a"), spec=1))
    assert 0 < replaced_bytes(one, other.numbered(2, 0.0, one)) < 1_000


def test_the_cost_does_not_grow_with_time() -> None:
    history = WattHistory(count=4)
    costs = []
    for each in range(50):
        history.add(changed(f"{each:04}"))
        costs.append(history.cost)
    assert len(set(costs[5:])) == 1
