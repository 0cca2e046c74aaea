"""What happens in the middle of a look: a target that does things at the worst moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.fakes import FakeClock, run
from tests.sources.disk import Reader, reading_stream
from wigwag.sources.disk.follow import FileMark, FollowDeps, FollowTiming, follow
from wigwag.sources.disk.listen import Lookup, chain

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path


class FakeTarget:
    """A file whose marks never change, so that only ears help; and what is to happen once, after a step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.after: dict[str, Callable[[], object]] = {}

    def _then(self, step: str) -> None:
        self.after.pop(step, lambda: None)()

    def lookups(self) -> tuple[Lookup, ...]:
        found = chain(str(self.path)).lookups
        self._then("lookups")
        return found

    def marks(self) -> tuple[FileMark, ...]:
        self._then("marks")
        return (FileMark(self.path.name, 0, 0, 0, 0, 1),)

    def read(self) -> bytes:
        content = self.path.read_bytes()
        self._then("read")
        return content


def following(target: FakeTarget) -> AbstractAsyncContextManager[Reader]:
    """Follow a target on clocks that stand still."""
    clock = FakeClock()
    return reading_stream(follow(target, FollowTiming(), FollowDeps(clock, lambda: 100.0)), clock)


def test_what_was_disturbed_while_it_was_read_is_read_again(tmp_path: Path) -> None:
    async def main() -> None:
        target = FakeTarget(tmp_path / "f")
        target.path.write_bytes(b"old")
        target.after["read"] = lambda: target.path.write_bytes(b"new")
        async with following(target) as reader:
            assert await reader.next() == b"new"

    run(main)


def test_what_disappears_in_the_middle_and_comes_back_is_no_trouble(tmp_path: Path) -> None:
    async def main() -> None:
        target = FakeTarget(tmp_path / "f")
        target.path.write_bytes(b"old")

        def vanish() -> None:
            target.path.unlink()
            target.after["lookups"] = lambda: target.path.write_bytes(b"new")

        target.after["marks"] = vanish
        async with following(target) as reader:
            assert await reader.nothing()
            await reader.clock.advance(0.02)
            assert await reader.next() == b"new"

    run(main)


def test_a_link_that_turns_while_the_ears_are_being_armed_is_followed_to_its_new_end(tmp_path: Path) -> None:
    async def main() -> None:
        for name in "ab":
            (tmp_path / name).mkdir()
            (tmp_path / name / "f").write_bytes(name.encode())
        target = FakeTarget(tmp_path / "link" / "f")
        (tmp_path / "link").symlink_to("a")

        def turn() -> None:
            (tmp_path / "next").symlink_to("b")
            (tmp_path / "next").rename(tmp_path / "link")

        target.after["lookups"] = turn
        async with following(target) as reader:
            assert await reader.next() == b"b"
            (tmp_path / "b" / "f").write_bytes(b"heard there")
            assert await reader.next() == b"heard there"

    run(main)
