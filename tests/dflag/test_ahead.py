"""Large documents are read in a thread, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.dflag.kubelet import Volume
from tests.pipeline.fakes import run
from wigwag import dflag
from wigwag.dflag import Directory
from wigwag.dflag.updating.ahead import LARGE, BackgroundParser
from wigwag.dflag.updating.contents import Contents, Unreadable
from wigwag.dflag.updating.documents import ValuesDocument, read_document
from wigwag.dflag.updating.places import Place
from wigwag.dflag.updating.plan import Opened
from wigwag.errors import DocumentError

PLACE = Directory("/conf", documents=("*.yaml",))
FILLING = b"# " + b"x" * LARGE + b"\n"
GOOD, BAD = FILLING + b"rate: 20", FILLING + b"rate: ["
NOTHING: dict[tuple[Place, str], Opened] = {}


class Reader:
    """Reads, and notes what and where."""

    def __init__(self) -> None:
        self.read: list[tuple[str, bool]] = []

    def __call__(self, key: str, content: bytes) -> ValuesDocument:
        self.read.append((key, threading.current_thread() is threading.main_thread()))
        return read_document(key, content)


def prepared(ahead: BackgroundParser, contents: Contents, opened: dict[tuple[Place, str], Opened] = NOTHING) -> None:
    run(lambda: ahead.prepare({PLACE: contents}, opened))


def test_what_is_large_is_read_once_and_elsewhere() -> None:
    reader = Reader()
    ahead = BackgroundParser(reader)
    contents: Contents = {"a.yaml": GOOD, "small.yaml": b"rate: 1", "single": GOOD, "no.yaml": Unreadable("gone")}
    prepared(ahead, contents)
    prepared(ahead, contents)
    assert ahead("a.yaml", GOOD) == ahead("a.yaml", GOOD) == read_document("a.yaml", GOOD)
    assert reader.read == [("a.yaml", False)]
    assert ahead("small.yaml", b"rate: 1") == read_document("a.yaml", b"rate: 1")
    assert reader.read[1:] == [("small.yaml", True)]


def test_what_is_wrong_is_told_whenever_it_is_asked_for() -> None:
    reader = Reader()
    ahead = BackgroundParser(reader)
    prepared(ahead, {"a.yaml": BAD})
    for _ in range(2):
        with pytest.raises(DocumentError, match="not valid YAML"):
            ahead("a.yaml", BAD)
    assert reader.read == [("a.yaml", False)]


def test_what_is_known_is_not_read_and_what_is_gone_is_forgotten() -> None:
    reader = Reader()
    ahead = BackgroundParser(reader)
    prepared(ahead, {"a.yaml": GOOD}, {(PLACE, "a.yaml"): Opened(GOOD, read_document("a.yaml", GOOD))})
    assert reader.read == []
    prepared(ahead, {"a.yaml": GOOD}, {(PLACE, "a.yaml"): Opened(BAD, read_document("a.yaml", GOOD))})
    prepared(ahead, {})
    ahead("a.yaml", GOOD)
    assert reader.read == [("a.yaml", False), ("a.yaml", True)]


def test_the_loop_goes_on_meanwhile() -> None:
    release = threading.Event()

    def slow(key: str, content: bytes) -> ValuesDocument:
        assert release.wait(20.0)
        return read_document(key, content)

    async def main() -> None:
        ahead = BackgroundParser(slow)
        task = asyncio.create_task(ahead.prepare({PLACE: {"a.yaml": GOOD}}, NOTHING))
        await asyncio.sleep(0)
        release.set()
        await task
        assert ahead("a.yaml", GOOD).tree.keys() == {"rate"}

    run(main)


def test_an_updater_in_a_loop_reads_large_documents_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    monkeypatch.setattr(BackgroundParser.__init__, "__defaults__", (reader,))
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
