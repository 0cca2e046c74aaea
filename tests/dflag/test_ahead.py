"""Large documents are parsed in a thread, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.dflag.kubelet import Volume
from tests.pipeline.fakes import run
from wigwag import dflag
from wigwag.dflag import Directory, Policy
from wigwag.dflag.updating import documents
from wigwag.dflag.updating.contents import Contents, Unreadable
from wigwag.dflag.updating.documents import ValuesDocument, read_document
from wigwag.dflag.updating.plan import LARGE
from wigwag.dflag.updating.record import UpdateRecord

PLACE = Directory("/conf", documents=("*.yaml",))
FILLING = b"# " + b"x" * LARGE + b"\n"
GOOD, BAD = FILLING + b"rate: 20", FILLING + b"rate: ["


class Reader:
    """Parses documents, and notes which, and whether in the main thread."""

    def __init__(self) -> None:
        self.read: list[tuple[str, bool]] = []
        self.before: Callable[[], object] = lambda: None

    def __call__(self, key: str, content: bytes) -> ValuesDocument:
        self.read.append((key, threading.current_thread() is threading.main_thread()))
        self.before()
        return read_document(key, content)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    reader = Reader()
    monkeypatch.setattr(documents, "read_document", reader)
    return reader


def record() -> UpdateRecord:
    flags = dflag.FlagSet("test")
    flags.int("rate", 10)
    return UpdateRecord(flags, Policy())


def follow(record: UpdateRecord, contents: Contents) -> None:
    """Do what the updater does with each picture in a loop."""
    run(lambda: record.prepare({PLACE: contents}))
    record.apply({PLACE: contents}, static=False)


def test_large_documents_are_parsed_once_and_in_a_thread(reader: Reader) -> None:
    updates = record()
    contents: Contents = {"a.yaml": GOOD, "small.yaml": b"rate: 1", "single": GOOD, "no.yaml": Unreadable("gone")}
    follow(updates, contents)
    assert reader.read == [("a.yaml", False), ("small.yaml", True)]
    follow(updates, contents)
    assert len(reader.read) == 2


def test_a_large_document_with_a_fault_is_parsed_once_and_reported(reader: Reader) -> None:
    updates = record()
    for _ in range(2):
        follow(updates, {"a.yaml": BAD})
        (problem,) = updates.problems()
        assert (problem.key, "not valid YAML" in problem.reason) == ("a.yaml", True)
    assert reader.read == [("a.yaml", False)]


def test_a_document_is_parsed_again_when_it_has_changed_or_was_gone(reader: Reader) -> None:
    updates = record()
    follow(updates, {"a.yaml": GOOD})
    follow(updates, {"a.yaml": GOOD + b"1"})
    follow(updates, {})
    follow(updates, {"a.yaml": GOOD})
    assert reader.read == [("a.yaml", False)] * 3


def test_the_loop_goes_on_meanwhile(reader: Reader) -> None:
    release, updates = threading.Event(), record()
    reader.before = lambda: release.wait(20.0)

    async def main() -> None:
        task = asyncio.create_task(updates.prepare({PLACE: {"a.yaml": GOOD}}))
        await asyncio.sleep(0)
        release.set()
        await task

    run(main)
    assert reader.read == [("a.yaml", False)]


def test_an_updater_in_a_loop_parses_large_documents_so(tmp_path: Path, reader: Reader) -> None:
    flags = dflag.FlagSet("test")
    rate = flags.int("rate", 10)
    volume = Volume(tmp_path / "conf", {"a.yaml": GOOD})

    async def main() -> None:
        async with dflag.watching(flags, Directory(str(volume.path), documents=("*.yaml",))):
            assert rate.get() == 20
            volume.write({"a.yaml": GOOD + b"1"})
            await rate.wait_for(lambda value: value == 201)

    run(main)
    assert reader.read == [("a.yaml", False), ("a.yaml", False)]
