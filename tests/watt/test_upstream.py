"""The tests of watt and of its successor in Emissary, and ours for the same behaviour. Paths are below `tests`.

| upstream | ours |
|---|---|
| AggregatorShutdown | watt/test_schedules.py::test_cancelled_while_it_starts_or_while_a_hook_runs_nothing_is_left |
| | real/test_watt_faults.py::test_sigterm_drains |
| AggregatorBootstrap | watt/test_upstream.py::test_aggregator_bootstrap |
| IntervalLimiter | pipeline/test_limit.py::test_the_interval_answers_as_watts_own_vector |
| WatchSet_Interpolate | watt/test_upstream.py::test_watch_set_interpolate |
| AddAndRemoveKubernetesWatchers | watt/test_upstream.py::test_add_and_remove_kubernetes_watchers |
| AddAndRemoveConsulWatchers | watt/test_upstream.py::test_add_and_remove_consul_watchers |
| test_watt_scaling | watt/test_schedules.py::test_ten_thousand_changes_of_derived_watches_leave_nothing |
| | real/test_watt_faults.py::test_hundreds_of_services_added_and_dropped_by_a_config_map_leave_nothing |
| BootstrapNoNotifyBeforeSync | watt/test_upstream.py::test_bootstrap_no_notify_before_sync |
| BootstrapNotifyEvenOnEmptyWatch | watt/test_upstream.py::test_bootstrap_notify_even_on_empty_watch |
| BatchChangesBeforeNotify | watt/test_upstream.py::test_batch_changes_before_notify |
| NotifyNotInfinitelyBlocked | watt/test_upstream.py::test_notify_not_infinitely_blocked |
| NotifyOnUpdate | watt/test_upstream.py::test_notify_on_update |
| consul Reconcile, Cleanup | watt/test_upstream.py::test_consul_reconcile_and_cleanup |
| consul Bootstrap | watt/test_upstream.py::test_consul_bootstrap |
| FSWatcher ExtantFiles, NoExtantFiles | watt/test_upstream.py::test_fs_watcher_extant_files_and_none |
| FSWatcher Slow | sources/test_directory.py::test_one_file_that_is_being_written_holds_back_the_others |
| kates CRUD, PatchWatch | real/test_reflector.py::test_objects_are_created_changed_applied_and_deleted |
| kates Coherence | kube/test_reflector.py |
| kates Deltas, with delays | watt/test_upstream.py::test_kates_deltas |
| | watt/test_history.py::test_changes_are_against_the_one_before |
| NotifyWebhookUrl ConnectionRefused, EOF | watt/test_upstream.py::test_notify_webhook_url_connection_refused_and_eof |
| | watt/test_call.py::test_a_url_where_nobody_listens_says_so |
| SanitizeExternalSnapshot | watt/test_upstream.py::test_sanitize_external_snapshot |
| ambex ratelimit | none: it limits by memory what Envoy drains; ours are the limiters of pipeline/test_limit.py |

There is no supervisor: task groups and `pipeline.watch` are in its place. Its tests:

| upstream | ours |
|---|---|
| NormalExit | pipeline/test_watch.py::test_a_watcher_that_ends_is_started_again_too |
| ErrorExit, Retry, GoError | pipeline/test_watch.py::test_a_failed_watcher_is_started_again_later_and_later |
| PanicExit, DoPanic, GoPanic | pipeline/test_watch.py::test_a_watcher_cancelled_from_within_has_failed |
| Dependency… | pipeline/test_run.py::test_derive_is_not_asked_before_all_initial_watches_have_answered |
| ShutdownOnError, ShutdownOnPanic | watt/test_schedules.py::test_a_fatal_hook_ends_the_block_with_its_error |
| Shutdown, Cancel… | pipeline/test_run.py::test_a_pipeline_that_stops_leaves_no_timer_and_no_open_generator |
| WorkerShutdown, Go | pipeline/test_watch.py::test_what_is_wanted_stays_and_what_is_not_is_cancelled |
| SuperviseAfterRun | pipeline/test_run.py::test_watches_can_be_added_and_removed_from_outside_at_any_time |
| WorkerWait, WaitOnWorker… | pipeline/test_watch.py::test_a_watcher_that_is_slow_to_close_holds_up_nobody |
| Restart | pipeline/test_watch.py::test_a_spec_that_goes_and_comes_back_at_once_has_one_watcher_and_a_new_status |
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from tests.pipeline.fakes import FakeWatcher, run, settle
from tests.watt.processes import until
from tests.watt.receiver import receiving
from tests.watt.world import INTERVAL, World, kinds, part, resolver
from wigwag.kube.kinds import Kind
from wigwag.watt.snapshots.snapshot import WattSnapshot
from wigwag.watt.watches.objects import decoder
from wigwag.watt.watches.specs import ConsulSpec, KubernetesSpec
from wigwag.watt.watches.watchset import read_watch_set
from wigwag.watt.watt import Watt

TESTS = Path(__file__).parent.parent


def test_every_test_of_the_table_exists() -> None:
    named = re.findall(r"(\S+\.py)::(test_\w+)", __doc__ or "")
    assert len(named) > 30
    for path, name in named:
        assert f"def {name}(" in (TESTS / path).read_text(), f"{path}::{name}"


def notified(ids: list[int]) -> Any:
    async def hook(snapshot: WattSnapshot) -> None:
        ids.append(snapshot.id)

    return hook


async def config_map(world: World, *services: str) -> None:
    await world.objects("configmaps", "dc", **resolver(*services))


def test_aggregator_bootstrap() -> None:
    """Services only: nothing. With ConfigMaps: watches, but no snapshot. With endpoints: a snapshot."""

    async def main() -> None:
        calls: list[int] = []

        async def hook(snapshot: WattSnapshot) -> Any:
            calls.append(len(snapshot.tables))
            return kinds("pods")

        async with World(source=["services", "configmaps"], watch=[hook]).running() as world:
            await world.objects("services", "a")
            assert (world.ids(), calls) == ([], []), "not even the hook is called"
            await config_map(world, "bar")
            assert (world.ids(), len(world.wanted())) == ([], 4)
            await world.endpoints("bar", "10.0.0.1")
            assert world.ids() == [], "the kind that the hook named has not answered"
            await world.objects("pods")
            assert world.ids() == [1]
            assert world.latest.endpoints("bar") == [{"Address": "10.0.0.1"}]
            assert world.latest.complete

    run(main)


@pytest.mark.parametrize("address", ["$HOST_IP:8500", "${HOST_IP}:8500", "10.0.0.1:8500"])
def test_watch_set_interpolate(address: str) -> None:
    """The variable and its value are one watch."""
    text = '{"consul-watches": [{"id": "x", "consul-address": "%s", "datacenter": "dc1", "service-name": "bar"}]}'
    [wanted] = read_watch_set((text % address).encode(), {"HOST_IP": "10.0.0.1"})
    assert str(wanted.spec) == "consul 10.0.0.1:8500|dc1|bar"
    [same] = read_watch_set((text % "10.0.0.1:8500").encode(), {})
    assert wanted.spec == same.spec


def test_add_and_remove_kubernetes_watchers() -> None:
    async def main() -> None:
        answer = kinds("pods", "nodes")

        async def hook(snapshot: WattSnapshot) -> Any:
            return answer

        async with World(source=["services"], watch=[hook]).running() as world:
            await world.objects("services", "a")
            assert [str(spec) for spec in world.fake.running()] == [
                "kubernetes nodes|*|*|*", "kubernetes pods|*|*|*", "kubernetes services|*|*|*",
            ]  # fmt: skip
            answer = kinds("nodes", "nodes", "secrets")
            await world.objects("services", "b")
            started = [spec for spec in world.fake.started if isinstance(spec, KubernetesSpec)]
            assert [spec.kind for spec in started] == ["services", "pods", "nodes", "secrets"], "each once"
            assert KubernetesSpec("pods") in world.fake.stopped

    run(main)


def test_add_and_remove_consul_watchers() -> None:
    async def main() -> None:
        async with World(source=["configmaps"]).running() as world:
            await config_map(world, "bar", "baz")
            bar = world.consul("bar")
            assert len(world.fake.running()) == 3
            await config_map(world, "baz", "qux", "qux")
            assert (len(world.fake.running()), world.fake.stopped) == (3, [bar])
            await world.objects("configmaps")
            assert len(world.fake.running()) == 1

    run(main)


def test_bootstrap_no_notify_before_sync() -> None:
    async def main() -> None:
        ids: list[int] = []
        async with World(source=["services", "pods"], notify=[notified(ids)]).running() as world:
            for number in range(5):
                await world.objects("services", f"s{number}")
                await world.clock.advance(60.0)
            assert ids == []
            await world.objects("pods", "p")
            assert ids == [1]
            assert world.names("services") == ["s4"]

    run(main)


def test_bootstrap_notify_even_on_empty_watch() -> None:
    async def main() -> None:
        ids: list[int] = []
        async with World(source=["services", "pods"], notify=[notified(ids)]).running() as world:
            await world.objects("services")
            await world.objects("pods")
            assert (ids, world.latest.size) == ([1], 0)

    run(main)


def test_batch_changes_before_notify() -> None:
    async def main() -> None:
        ids: list[int] = []
        async with World(source=["services"], notify=[notified(ids)]).running() as world:
            await world.objects("services")
            for number in range(10):
                await world.objects("services", *(f"s{each}" for each in range(number)))
            assert ids == [1]
            await world.clock.advance(INTERVAL)
            assert ids == [1, 2]
            assert len(world.names("services")) == 9

    run(main)


def test_notify_not_infinitely_blocked() -> None:
    """Changes that never end do not put a snapshot off for ever, and neither does a watch that never answers."""

    async def main() -> None:
        ids: list[int] = []

        async def hook(snapshot: WattSnapshot) -> Any:
            return kinds("nosuch") if len(ids) > 1 else kinds()

        async with World(source=["services"], watch=[hook], notify=[notified(ids)]).running() as world:
            for number in range(200):
                await world.objects("services", f"s{number}")
                await world.clock.advance(0.05)
            assert len(ids) > 30
            assert world.latest.unresolved

    run(main)


def test_notify_on_update() -> None:
    async def main() -> None:
        ids: list[int] = []
        async with World(source=["services"], notify=[notified(ids)]).running() as world:
            for port, expected in ((80, [1]), (80, [1]), (81, [1, 2]), (81, [1, 2])):
                await world.objects("services", "web", port=port)
                await world.clock.advance(1.0)
                assert ids == expected
            await world.objects("services")
            await world.clock.advance(1.0)
            assert ids == [1, 2, 3], "a deletion is a change, too"

    run(main)


def test_consul_reconcile_and_cleanup() -> None:
    """Watches follow the resolvers, and the data goes with the watch."""

    async def main() -> None:
        async with World(source=["configmaps"]).running() as world:
            await config_map(world, "bar", "baz")
            await world.endpoints("bar", "10.0.0.1")
            await world.endpoints("baz", "10.0.0.2")
            assert world.latest.endpoints("bar") == [{"Address": "10.0.0.1"}]
            await world.objects("configmaps", "dc", **resolver("bar", "baz", address="other:8500"))
            await world.clock.advance(INTERVAL)
            assert {spec.watch.access.address for spec in world.wanted() if isinstance(spec, ConsulSpec)} == {
                "other:8500"
            }
            await world.clock.advance(60.0)
            assert world.latest.endpoints("bar") == [], "not those of the old address"
            assert len(world.latest.unresolved) == 2
            await world.objects("configmaps")
            await world.clock.advance(INTERVAL)
            assert (world.latest.endpoints("baz"), world.latest.complete) == ([], True)
            assert len(world.wanted()) == 1

    run(main)


def test_consul_bootstrap() -> None:
    """Every service has to answer, and nothing is an answer."""

    async def main() -> None:
        async with World(source=["configmaps"]).running() as world:
            await config_map(world, "a", "b", "c")
            await world.endpoints("a", "10.0.0.1")
            await world.endpoints("b")
            assert world.ids() == []
            await world.endpoints("c")
            assert world.ids() == [1]

    run(main)


def test_fs_watcher_extant_files_and_none(tmp_path: Path) -> None:
    """Files that are there are in the first snapshot, and one that comes is in the next."""

    async def main() -> None:
        (tmp_path / "full").mkdir()
        (tmp_path / "empty").mkdir()
        (tmp_path / "full" / "cert").write_text("1")
        watches = [{"source": "directory", "path": str(tmp_path / name)} for name in ("full", "empty")]
        async with Watt(watches=watches, interval=0) as watt:
            files: list[dict[str, Any]] = []
            async for snapshot in watt:
                files.append({table.name: len(part.entries) for table, part in snapshot.tables.items()})
                if sum(files[-1].values()) == 2:
                    break
                (tmp_path / "empty" / "key").write_text("2")
        assert list(files[0].values()) == [1, 0]

    run(main)


def test_kates_deltas() -> None:
    async def main() -> None:
        async with World(source=["services"]).running() as world:
            seen = []
            for names in (["a", "b"], ["b", "c"], [], ["a"]):
                await world.objects("services", *names)
                await world.clock.advance(INTERVAL)
                seen.append([(delta.key[1], delta.type) for delta in world.latest.deltas])
            await world.objects("services", "a", port=1)
            await world.objects("services", "a", "z", port=2)
            await world.clock.advance(INTERVAL)
            await world.clock.advance(INTERVAL)
            assert seen == [
                [("a", "add"), ("b", "add")],
                [("a", "delete"), ("c", "add")],
                [("b", "delete"), ("c", "delete")],
                [("a", "add")],
            ]
            both = [(delta.key[1], delta.type) for _, each in world.published[4:] for delta in each.deltas]
            assert ("z", "add") in both
            assert ("a", "update") in both

    run(main)


def test_notify_webhook_url_connection_refused_and_eof() -> None:
    """Where nobody listens, or somebody hangs up, the hook is called again; the original ends for the latter."""

    async def main() -> None:
        fake = FakeWatcher()
        async with receiving() as received:
            received.answer = b""
            unused = asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
            async with await unused as server:
                port = server.sockets[0].getsockname()[1]
            hooks = [f"http://127.0.0.1:{port}/", received.url]
            async with Watt(watcher=fake.watch, environment={}, source=["services"], notify=hooks) as watt:
                await settle()
                await fake.push(KubernetesSpec("services"), part("services", "a"))
                await until(lambda: watt.notify_hooks.statuses()[0].failures == 2)
                assert "127.0.0.1" in str(watt.notify_hooks.statuses()[0].error)
                assert (received.heads, watt.ready) == ([], False)

                async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    await reader.readuntil(b"}")
                    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                    writer.close()

                async with await asyncio.start_server(accept, "127.0.0.1", port):
                    await until(lambda: watt.notify_hooks.statuses()[1].failures == 2)
                    received.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
                    await until(lambda: watt.ready)
                assert [status.last_ok for status in watt.notify_hooks.statuses()] == [1, 1]

    run(main)


def test_sanitize_external_snapshot() -> None:
    """Values of Secrets are in no snapshot, not even as what kubectl applied last; but their change is one."""

    def secret(value: str) -> Raw:
        applied = json.dumps({"data": {"password": value}})
        annotations = {"kubectl.kubernetes.io/last-applied-configuration": applied, "team": "a"}
        metadata = {"name": "db", "namespace": "shop", "annotations": annotations, "managedFields": [{"x": value}]}
        return Raw(json.dumps({"metadata": metadata, "data": {"password": value}, "stringData": {"t": value}}).encode())

    kind = Kind("", "v1", "secrets", kind="Secret")
    one, other = decoder(kind)(secret("aHVudGVyMg==")), decoder(kind)(secret("c3dvcmRmaXNo"))
    assert b"aHVudGVyMg==" not in one.body
    document = json.loads(one.body)
    assert (document["data"], document["stringData"]) == ({"password": ""}, {"t": ""})
    assert document["metadata"]["annotations"] == {"team": "a"}
    assert one != other, "a hook is called when a Secret changes"
    assert b"aHVudGVyMg==" in decoder(kind, secrets=True)(secret("aHVudGVyMg==")).body
