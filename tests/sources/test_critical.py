"""Which documents of sources are passed on first, and how many of them."""

from __future__ import annotations

import json
import logging

import pytest

from tests.pipeline.fakes import FakeClock
from wigwag.sources.critical import MOST_REMEMBERED, PASSES, SECONDS, CriticalChanges
from wigwag.sources.document import Document
from wigwag.sources.source import Source

A, B = Source("a", "file"), Source("b", "file")


def flag(revision: int, critical: bool = True) -> Document:
    metadata = {"critical": critical, "revision": revision}
    return Document(json.dumps({"flags": {"stop": {"variants": {"on": True}, "metadata": metadata}}}).encode())


def test_a_change_is_first_and_a_first_document_or_the_same_flags_again_are_not() -> None:
    judge = CriticalChanges(FakeClock())
    assert [judge(A, flag(1)), judge(A, flag(1)), judge(A, flag(2)), judge(B, flag(2))] == [False, False, True, False]
    assert judge(A, flag(2, critical=False)), "it was critical until now"
    assert not judge(A, flag(3, critical=False))


def test_a_source_that_has_used_its_passes_is_ordinary_and_others_keep_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    judge = CriticalChanges(clock)
    assert not judge(A, flag(0))
    assert not judge(B, flag(0))
    with caplog.at_level(logging.WARNING):
        assert [judge(A, flag(n)) for n in range(1, PASSES + 3)] == [True] * PASSES + [False] * 2
    assert len(caplog.messages) == 1, "it is logged once a minute"
    assert "source a" in caplog.messages[0]
    assert judge(B, flag(1))
    clock._now += SECONDS
    assert [judge(A, flag(n)) for n in (100, 101)] == [True, False]
    assert judge.changes.values == {("first",): PASSES + 2, ("ordinary",): 3}


def test_so_many_sources_are_remembered() -> None:
    judge = CriticalChanges(FakeClock())
    judge(A, flag(0))
    for number in range(MOST_REMEMBERED):
        judge(Source(f"s{number}", "file"), flag(0))
    assert not judge(A, flag(1)), "forgotten, so this is its first document"
