"""Hundreds of random schedules of sources, faults, restarts and subscribers, on a virtual clock.

More of them, or one again: `python -m tests.simulation --help`. What is checked is in `checks`.
"""

from __future__ import annotations

import pytest

from tests.simulation.disk import Disk
from tests.simulation.flags import UNUSABLE, Author
from tests.simulation.links import Link
from tests.simulation.run import simulate
from tests.simulation.schedule import STEPS, steps
from tests.simulation.search import attempt, quiet, search
from tests.simulation.subscribers import Subscriber

CHUNKS, CHUNK = 12, 50


@pytest.mark.timeout(240)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_happens_the_agent_keeps_its_promises(chunk: int) -> None:
    failures = list(search(range(chunk * CHUNK, (chunk + 1) * CHUNK), most=1))
    assert not failures, str(failures[0])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_is_the_same_schedule_each_time(seed: int) -> None:
    with quiet():
        first, second = (simulate(seed, steps(seed)) for _ in range(2))
    assert first == second
    assert len(first) == STEPS


def test_a_long_schedule_holds_too() -> None:
    with quiet():
        assert attempt(4_000_001, range(300), 300) is None


def test_a_fault_is_found_shortened_and_told_with_the_command_that_shows_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Disk, "synced", lambda disk: None)  # a disk that forgets: nothing is ever safe on it
    failure = next(search(range(400), most=1))
    assert str(failure).startswith("AssertionError: P4: ")
    assert len(failure.taken) < STEPS / 2
    chosen = ",".join(map(str, failure.taken)) or "none"
    assert f"python -m tests.simulation --seed {failure.seed} --length {STEPS} --steps {chosen}" in str(failure)
    with quiet():
        again = attempt(failure.seed, failure.taken, STEPS)
    assert str(again) == str(failure.error)


def test_what_only_looks_like_a_source_that_still_holds_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rightly = Link._act

    def wrongly(link: Link, what: str) -> object:
        return None if what == "confirm" else rightly(link, what)

    def told(link: Link) -> None:
        link.upstream.unchanged(link._now(), link._limit)
        link._put("confirm")

    monkeypatch.setattr(Link, "_act", wrongly)
    monkeypatch.setattr(Link, "confirm", told)
    failure = next(search(range(400), patience=0))
    assert str(failure).startswith("AssertionError: P3: ")


def test_a_subscriber_that_misses_a_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rightly = Subscriber._take

    def forgetful(subscriber: Subscriber, chunk: bytes) -> None:
        if subscriber.now() % 3 > 0.5 or not subscriber.told:
            rightly(subscriber, chunk)

    monkeypatch.setattr(Subscriber, "_take", forgetful)
    failure = next(search(range(400), patience=0))
    assert str(failure).startswith("AssertionError: P5: ")


def test_documents_are_of_every_kind_the_model_knows() -> None:
    from random import Random

    author = Author(Random(1))
    documents = [author.document() for _ in range(400)]
    flags = [known for doc in documents for _, _, known in doc.items]
    assert {doc.text for doc in documents if not doc.usable} == set(UNUSABLE)
    assert any(known is None for known in flags)
    assert any(known and known.broken for known in flags)
    assert any(known and known.disabled for known in flags)
    assert {known.kind for known in flags if known} == {"boolean", "string", "integer", "float", "object"}
    assert any(len({key for _, key, _ in doc.items}) < len(doc.items) for doc in documents)
