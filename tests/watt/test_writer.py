"""Directory outputs: when they are written, what happens if they cannot be, and that dflag reads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.pipeline.fakes import FakeClock, run
from tests.watt.processes import until
from tests.watt.snapshots import consul, kubernetes, services, snapshot
from wigwag import dflag
from wigwag.pipeline.broadcast import Broadcast
from wigwag.pipeline.watch import WatchPolicy
from wigwag.watt.outputs.writer import Output, OutputWriter
from wigwag.watt.snapshots.formats import Format
from wigwag.watt.snapshots.projection import Projection
from wigwag.watt.snapshots.snapshot import TableName, WatchPart, WattSnapshot, entry

SERVICES = Projection(kinds=("services",))


class Written:
    """A writer beside the test, and the snapshots that it gets."""

    def __init__(self, path: Path, form: Format, files: dict[str, Projection]) -> None:
        self.path, self.clock, self.snapshots = path, FakeClock(), Broadcast[WattSnapshot]()
        output = Output(str(path), {name: (part, form) for name, part in files.items()})
        self.writer = OutputWriter(output, self.snapshots, WatchPolicy(clock=self.clock, random=lambda: 1.0))

    def publish(self, *parts: WatchPart, **waiting: Any) -> None:
        self.snapshots.publish(snapshot(*parts, **waiting).numbered(self.snapshots.serial + 1, 0.0, None))

    def read(self, name: str = "a.json") -> Any:
        return json.loads((self.path / name).read_text())

    def names(self, name: str = "a.json") -> list[str]:
        """The names of the services in a file."""
        return [each["metadata"]["name"] for each in self.read(name)["Kubernetes"]["services"]]

    def problem(self) -> str | None:
        """What is wrong with the directory."""
        return self.writer.error

    async def writes(self, number: int) -> None:
        await until(lambda: self.writer.writes == number)


@asynccontextmanager
async def writing(
    path: Path, form: Format = "watt1", files: dict[str, Projection] | None = None
) -> AsyncIterator[Written]:
    written = Written(path, form, files or {"a.json": SERVICES})
    async with asyncio.TaskGroup() as group:
        task = group.create_task(written.writer.run())
        yield written
        task.cancel()
    assert written.snapshots.subscribers == 0


def test_a_directory_has_the_newest_of_its_part(tmp_path: Path) -> None:
    async def main() -> None:
        async with writing(tmp_path / "out") as written:
            written.publish(services(("shop", "web")))
            await written.writes(1)
            assert written.names() == ["web"]
            written.publish(services(("shop", "web")), consul({("dc1", "web"): "10.0.0.1"}))
            written.publish(services(("shop", "api"), ("shop", "web")))
            await written.writes(2)
            assert written.names() == ["api", "web"], "Consul is no part of it, so it was no reason to write"

    run(main)


def test_nothing_is_written_before_there_is_a_snapshot(tmp_path: Path) -> None:
    async def main() -> None:
        async with writing(tmp_path / "out") as written:
            await asyncio.sleep(0)
        assert (written.path.exists(), written.writer.writes, written.writer.error) == (False, 0, None)

    run(main)


def test_a_file_of_equal_content_is_not_written_again_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        async with writing(tmp_path) as written:
            written.publish(services(("shop", "web")))
            await written.writes(1)
        generation = (tmp_path / "..data").readlink()
        async with writing(tmp_path) as written:
            written.publish(services(("shop", "web")))
            written.publish(services(("shop", "web")), consul({}))
            written.publish(services(("shop", "api")))
            await written.writes(1)
            assert (tmp_path / "..data").readlink() != generation

    run(main)


def test_a_v2_document_is_written_again_when_nothing_is_missing_any_more(tmp_path: Path) -> None:
    async def main() -> None:
        async with writing(tmp_path, "v2") as written:
            written.publish(services(("shop", "web")), waiting=("consul a|b|c",))
            await written.writes(1)
            assert (written.read()["complete"], written.read()["unresolved"]) == (False, ["consul a|b|c"])
            written.publish(services(("shop", "web")))
            await written.writes(2)
            assert written.read()["complete"]

    run(main)


def test_a_directory_that_cannot_be_written_is_tried_again_with_the_newest(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "a.json").write_text("somebody else's")
        async with writing(tmp_path) as written:
            written.publish(services(("shop", "one")))
            await until(lambda: written.clock.pending())
            assert "'a.json' is there already, and not ours; move it away" in (written.problem() or "")
            assert written.clock.pending() == [0.5]
            await written.clock.advance(0.5)
            await until(lambda: written.clock.pending())
            assert written.clock.pending() == [1.0], "the pause grows"
            written.publish(services(("shop", "two")))
            (tmp_path / "a.json").unlink()
            await written.clock.advance(1.0)
            await written.writes(1)
            assert written.names() == ["two"]
            assert written.problem() is None

    run(main)


def test_files_are_never_of_two_snapshots(tmp_path: Path) -> None:
    """A reader that opens `..data` once sees both files of one snapshot, however fast snapshots come."""

    async def main() -> None:
        maps = TableName("Kubernetes", "configmaps")
        parts = {"services.json": SERVICES, "maps.json": Projection(kinds=("configmaps",))}
        async with writing(tmp_path, files=parts) as written:
            for number in range(30):
                name = ("shop", f"n{number}")
                written.publish(services(name), kubernetes(maps, "ConfigMap", name))
                await until(lambda: (tmp_path / "..data").exists())
                folder = tmp_path / (tmp_path / "..data").readlink()
                try:
                    found = [json.loads((folder / each).read_text())["Kubernetes"] for each in parts]
                except FileNotFoundError:  # of a generation that is gone by now
                    continue
                (one,), (other,) = found[0]["services"], found[1]["configmaps"]
                assert one["metadata"]["name"] == other["metadata"]["name"]
            await until(lambda: written.names("services.json") == ["n29"])
            assert written.writer.error is None

    run(main)


def test_dflag_reads_it(tmp_path: Path) -> None:
    async def main() -> None:
        def values(rate: int) -> WatchPart:
            table = TableName("Files", "/etc/shop")
            return WatchPart.of(table, {("", "rate"): entry("rate", b'"%d"' % rate)})

        async with writing(tmp_path, files={"rates": Projection(sections=("Files",))}) as written:
            written.publish(values(5))
            await written.writes(1)
            flags = dflag.FlagSet("test")
            text = flags.str("rates", "{}", "what watt has written")
            with dflag.setup(flags, dflag.Directory(str(tmp_path))):
                assert json.loads(text.get())["Files"] == {"/etc/shop": {"rate": "5"}}
                written.publish(values(6))
                await written.writes(2)
                await until(lambda: json.loads(text.get())["Files"] == {"/etc/shop": {"rate": "6"}})

    run(main)
