"""watt as a library: real directories, files and hooks, in this process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.fakes import settle
from tests.sources.disk import Mount
from tests.sources.faulty import answer, serving
from tests.watt.processes import run_on, until
from tests.wire.served import LOOPS
from wigwag.errors import UsageError
from wigwag.watt import Watt, WattSnapshot
from wigwag.watt.hooks.hook import HookError

Main = Callable[[], Coroutine[Any, Any, None]]
FAST: dict[str, Any] = {"interval": 0}


def directory(path: Path) -> dict[str, str]:
    return {"source": "directory", "path": str(path)}


def uri(text: str) -> dict[str, str]:
    return {"source": "uri", "uri": text}


def files(snapshot: WattSnapshot, path: Path) -> dict[str, str]:
    found = {table.name: part for table, part in snapshot.tables.items() if table.section == "Files"}
    return {name: json.loads(entry.body) for (_, name), entry in found[str(path)].entries.items()}


def descriptors() -> set[str]:
    """The open files of this process, by what they are. uvloop keeps /dev/null once it has spawned a process."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the list itself
            found.add(f"{link.name} {link.readlink()}")
    return {each for each in found if not each.endswith("/dev/null")}


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    """Run a test on a loop, and see that nothing is left running: no task, no file, no thread."""

    def run_test(main: Main) -> None:
        async def body() -> None:
            before = descriptors()
            await main()
            await until(lambda: not [each for each in threading.enumerate() if each.name.startswith(("watt", "hook"))])
            assert not descriptors() - before  # another thread may have closed some

        run_on(request.param, body)

    return run_test


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "watched"
    path.mkdir()
    (path / "a").write_text("1")
    return path


def write(path: Path, text: str) -> None:
    fresh = path.parent.parent / f"{path.name}.new"
    fresh.write_text(text)
    fresh.rename(path)


class TestIteration:
    def test_snapshots_come_as_files_change(self, run: Callable[[Main], None], folder: Path) -> None:
        async def main() -> None:
            seen = []
            async with Watt(watches=[directory(folder)], **FAST) as watt:
                async for snapshot in watt:
                    seen.append((snapshot.id, snapshot.complete, files(snapshot, folder)))
                    if len(seen) == 2:
                        break
                    write(folder / "a", "2")
            assert seen == [(1, True, {"a": "1"}), (2, True, {"a": "2"})]

        run(main)

    def test_two_in_one_process_do_not_know_each_other(
        self, run: Callable[[Main], None], folder: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()

        async def main() -> None:
            async with Watt(watches=[directory(folder)]) as one, Watt(watches=[directory(other)]) as two:
                first, second = await anext(aiter(one)), await anext(aiter(two))
            assert (files(first, folder), files(second, other)) == ({"a": "1"}, {})

        run(main)

    def test_the_end_of_the_block_ends_iterations_elsewhere(self, run: Callable[[Main], None], folder: Path) -> None:
        async def main() -> None:
            seen = []

            async def read(watt: Watt) -> None:
                seen.extend([snapshot.id async for snapshot in watt])

            async with asyncio.TaskGroup() as group, Watt(watches=[directory(folder)]) as watt:
                group.create_task(read(watt))
                await anext(aiter(watt))
            assert seen == [1]

        run(main)

    def test_a_mount_is_seen_one_generation_at_a_time(self, run: Callable[[Main], None], tmp_path: Path) -> None:
        mount = Mount(tmp_path / "mount")
        mount.write({"a": b"0", "b": b"0"})
        seen: list[dict[str, str]] = []

        async def main() -> None:
            async with Watt(watches=[directory(mount.path)], notify=[lambda each: seen.append(each)], **FAST) as watt:
                generation = 0
                async for snapshot in watt:
                    found = files(snapshot, mount.path)
                    assert len(set(found.values())) == 1, "never two generations in one snapshot"
                    if found["a"] == "30":
                        break
                    while generation < 30:
                        generation += 1
                        text = b"%d" % generation
                        mount.write({"a": text, "b": text} | ({"c": text} if generation % 2 else {}))
                        await asyncio.sleep(0)
            for each in seen:
                assert len(set(files(each, mount.path).values())) == 1  # type: ignore[arg-type]

        run(main)

    def test_documents_of_uris(self, run: Callable[[Main], None], tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text('{"a": [1]}')

        async def main() -> None:
            async with Watt(watches=[uri(f"file:{tmp_path}/a.json")]) as watt:
                snapshot = await anext(aiter(watt))
            ((table, part),) = snapshot.tables.items()
            assert (table.section, table.name) == ("Documents", f"{tmp_path}/a.json")
            assert [entry.body for entry in part.entries.values()] == [b'{"a":[1]}']

        run(main)

    def test_a_document_of_a_server(self, run: Callable[[Main], None]) -> None:
        async def main() -> None:
            async with serving(answer(b'{"a": 1}')) as server, Watt(watches=[uri(server.url)]) as watt:
                snapshot = await anext(aiter(watt))
            assert [entry.body for part in snapshot.tables.values() for entry in part.entries.values()] == [b'{"a":1}']

        run(main)


class TestHooks:
    def test_functions_get_the_snapshot_itself(self, run: Callable[[Main], None], folder: Path) -> None:
        seen: list[tuple[str, int, Any, Any]] = []
        done = threading.Event()

        def plain(snapshot: WattSnapshot) -> None:
            seen.append(("plain", snapshot.id, snapshot.objects("services"), snapshot.endpoints("web")))
            done.set()

        async def awaited(snapshot: WattSnapshot) -> None:
            seen.append(("awaited", snapshot.id, snapshot.objects("services"), snapshot.endpoints("web")))

        async def main() -> None:
            async with Watt(watches=[directory(folder)], notify=[awaited, plain]):
                await until(done.is_set)
            assert seen == [("awaited", 1, [], []), ("plain", 1, [], [])]

        run(main)

    def test_a_function_derives_watches(self, run: Callable[[Main], None], folder: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()

        def derive(snapshot: WattSnapshot) -> dict[str, Any]:
            wanted = files(snapshot, folder).get("more") == "yes"
            return {"watches": [directory(other)] if wanted else []}

        async def main() -> None:
            async with Watt(watches=[directory(folder)], watch=derive, **FAST) as watt:
                async for snapshot in watt:
                    tables = {table.name for table in snapshot.tables}
                    if snapshot.id == 1:
                        assert tables == {str(folder)}
                        write(folder / "more", "yes")
                    elif tables == {str(folder), str(other)}:
                        return

        run(main)

    def test_a_fatal_hook_ends_the_block_with_its_error(self, run: Callable[[Main], None], folder: Path) -> None:
        async def main() -> None:
            with pytest.raises(HookError, match="the hook false: exit status 1"):
                async with Watt(watches=[directory(folder)], notify=[{"command": "false", "on-failure": "fatal"}]):
                    await asyncio.Event().wait()

        run(main)

    def test_a_resync_calls_all_of_them_again(self, run: Callable[[Main], None], folder: Path) -> None:
        calls: list[str] = []

        async def derive(_: WattSnapshot) -> dict[str, Any]:
            calls.append("watch")
            return {}

        async def notify(_: WattSnapshot) -> None:
            calls.append("notify")

        async def main() -> None:
            async with Watt(watches=[directory(folder)], watch=derive, notify=notify, **FAST) as watt:
                await until(lambda: calls == ["watch", "notify"])
                watt.resync()
                await until(lambda: sorted(calls) == ["notify", "notify", "watch", "watch"])
                assert watt.history.ids() == [1]

        run(main)

    def test_notify_hooks_wait_until_snapshots_are_served(self, run: Callable[[Main], None], folder: Path) -> None:
        """Their URL would lead nowhere: a directory is read sooner than a host name is looked up."""
        calls: list[int] = []

        async def notify(snapshot: WattSnapshot) -> None:
            calls.append(snapshot.id)

        async def main() -> None:
            watt, served = Watt(watches=[directory(folder)], notify=notify), asyncio.Event()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in watt.background(served)]
                await anext(aiter(watt))
                await settle()
                assert calls == []
                served.set()
                await until(lambda: calls == [1])
                for task in tasks:
                    task.cancel()
            watt.close()

        run(main)

    def test_commands_get_the_environment_that_was_given(
        self, run: Callable[[Main], None], folder: Path, tmp_path: Path
    ) -> None:
        async def main() -> None:
            target = tmp_path / "target"
            environment = {"PATH": os.environ["PATH"], "TARGET": str(target)}
            notify = ['printf "%s" "$WATT_SNAPSHOT_ID" > "$TARGET.new" && mv "$TARGET.new" "$TARGET" #']
            async with Watt(watches=[directory(folder)], notify=notify, environment=environment):
                await until(target.exists)
            assert target.read_text() == "1"

        run(main)


class TestTheEnd:
    def test_what_the_block_raises_is_raised_as_it_is(self, run: Callable[[Main], None], folder: Path) -> None:
        async def main() -> None:
            async def block() -> None:
                async with Watt(watches=[directory(folder)], notify=[lambda _: None]) as watt:
                    await anext(aiter(watt))
                    raise KeyError("mine")

            with pytest.raises(KeyError):
                await block()

        run(main)

    def test_a_cancellation_goes_through(self, run: Callable[[Main], None], folder: Path) -> None:
        async def main() -> None:
            async def watch() -> None:
                async with Watt(watches=[directory(folder)]) as watt:
                    await anext(aiter(watt))
                    entered.set()
                    await asyncio.Event().wait()

            entered = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                task = group.create_task(watch())
                await entered.wait()
                task.cancel()
            assert task.cancelled()

        run(main)

    def test_it_runs_once(self, run: Callable[[Main], None], folder: Path) -> None:
        async def main() -> None:
            watt = Watt(watches=[directory(folder)])
            async with watt:
                pass
            with pytest.raises(RuntimeError, match="this Watt has ended; make another one"):
                async with watt:
                    pass

        run(main)

    @pytest.mark.parametrize(
        "settings", [{}, {"sorce": ["a"]}, {"watches": [{"source": "directory"}]}, {"source": "/"}]
    )
    def test_what_cannot_be_meant_is_a_usage_error(self, run: Callable[[Main], None], settings: dict[str, Any]) -> None:
        async def main() -> None:
            with pytest.raises(UsageError):
                Watt(**settings)

        run(main)


def test_the_import_is_light() -> None:
    """Neither the server nor the client of Kubernetes nor the evaluation of flags is needed to watch a directory."""
    program = """
import asyncio, sys, tempfile
from wigwag.watt import Watt, WattSnapshot
async def main():
    with tempfile.TemporaryDirectory() as folder:
        async with Watt(watches=[{"source": "directory", "path": folder}]) as watt:
            async for snapshot in watt:
                return
asyncio.run(main())
print(*sorted(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    heavy = ("wigwag.serve", "wigwag.kube.client", "wigwag.kube.config", "wigwag.wire.server", "wigwag.wire.h2",
             "wigwag.flags.flagset", "wigwag.flags.store", "wigwag.flags.rules.compile",
             "wigwag.agent", "yaml")  # fmt: skip
    assert [name for name in loaded if name.startswith(heavy)] == []
