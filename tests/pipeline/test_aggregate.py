"""The mailbox between watchers and the control loop: what is missing, what holds, and what a change costs."""

from __future__ import annotations

from wigwag.pipeline.aggregate import Aggregate, Values
from wigwag.pipeline.spec import Wanted


class HashedSpec:
    """A spec that counts how often it is hashed: those of Consul are expensive."""

    hashes = 0

    def __hash__(self) -> int:
        HashedSpec.hashes += 1
        return id(self)


def test_a_change_costs_no_hash_of_the_other_specs() -> None:
    specs, aggregate = [HashedSpec() for _ in range(200)], Aggregate[HashedSpec, int]()
    aggregate.want([Wanted(spec) for spec in specs], 0.0)
    for spec in reversed(specs):
        aggregate.put(spec, 0)
    aggregate.take()
    HashedSpec.hashes = 0
    aggregate.put(specs[7], 1)
    values = aggregate.take()
    assert not aggregate.held(aggregate.missing(values), 0.0)
    assert HashedSpec.hashes < 10
    assert list(values) == specs
    assert (values[specs[7]], values[specs[8]]) == (1, 0)


def test_what_answered_after_the_values_were_taken_is_missing_in_them() -> None:
    aggregate = Aggregate[str, int]()
    aggregate.want([Wanted("a"), Wanted("b")], 0.0)
    aggregate.put("a", 1)
    values = aggregate.take()
    aggregate.put("b", 2)
    assert (aggregate.waiting(), aggregate.missing(values)) == ((), ("b",))
    aggregate.want([Wanted("b"), Wanted("c"), Wanted("a")], 0.0)
    aggregate.put("c", 3)
    assert aggregate.missing(values) == ("b", "c")
    kept = aggregate.keep(values)
    assert (kept, kept.waiting) == ({"a": 1}, ("b", "c"))


def test_values_that_are_no_longer_wanted_are_not_kept() -> None:
    aggregate = Aggregate[str, int]()
    aggregate.want([Wanted("b")], 0.0)
    assert aggregate.keep(Values({"a": 1, "b": 2})) == {"b": 2}


def test_only_a_required_watch_holds_and_only_for_its_time() -> None:
    aggregate = Aggregate[str, int]()
    aggregate.want([Wanted("a"), Wanted("b", required=False), Wanted("c", grace=5.0)], 10.0)
    assert aggregate.held(aggregate.waiting(), 10.0) == {"a": None, "c": 15.0}
    assert aggregate.held(aggregate.waiting(), 15.0) == {"a": None}
    assert aggregate.held(aggregate.waiting(), 11.0, longest=2.0) == {"a": 12.0, "c": 12.0}
