"""How watt is doing: bounded, whatever hooks ask for; and the gate of a Watt whose watches the test drives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.pipeline.fakes import FakeClock, FakeWatcher, run, settle
from tests.watt.snapshots import CONFIG_MAPS, compact
from wigwag.observe import Registry
from wigwag.pipeline.watch import WatchPolicy
from wigwag.sources.consul.endpoints import ServiceEndpoints
from wigwag.watt.report import MOST_SHOWN, WattReport
from wigwag.watt.snapshots.snapshot import WatchPart, WattSnapshot, entry
from wigwag.watt.watches.resolvers import ANNOTATION
from wigwag.watt.watches.specs import ConsulSpec, DirectorySpec, KubernetesSpec
from wigwag.watt.watches.watchers import endpoints_part, files_part
from wigwag.watt.watt import Watt


class Driven:
    """A Watt whose watches yield what the test says, on a clock that stands still."""

    def __init__(self, **settings: Any) -> None:
        self.clock, self.watcher = FakeClock(), FakeWatcher()
        policy = WatchPolicy(clock=self.clock, random=lambda: 1.0, late=2.0)
        self.watt = Watt(policy=policy, watcher=self.watcher.watch, environment={}, **settings)
        self.report = WattReport(self.watt, self.clock.now)

    def latest(self) -> WattSnapshot:
        assert self.watt.history.latest is not None
        return self.watt.history.latest

    def metrics(self) -> str:
        registry = Registry()
        self.report.register(registry)
        return registry.render()


@asynccontextmanager
async def driven(**settings: Any) -> AsyncIterator[Driven]:
    made = Driven(**settings)
    async with made.watt:
        await settle()
        yield made


def maps(*services: str) -> WatchPart:
    """ConfigMaps, one of which names services."""
    metadata = {"name": "a", "namespace": "shop", "annotations": {ANNOTATION: "true"}}
    data = {"consulAddress": "consul", "services": " ".join(services)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    return WatchPart.of(CONFIG_MAPS, {("shop", "a"): entry("a", compact(body))}, "cm")


def test_metrics_tell_some_watches_apart_and_count_all() -> None:
    async def main() -> None:
        watches = [{"source": "directory", "path": f"/{number:03}"} for number in range(MOST_SHOWN + 100)]
        async with driven(watches=watches) as made:
            await made.watcher.push(DirectorySpec("/000"), files_part(DirectorySpec("/000"), {}))
            text = made.metrics()
            assert text.count("wigwag_watt_watch_up{") == MOST_SHOWN
            assert 'wigwag_watt_watch_up{watch="directory /000"} 1' in text, "the first ones are shown"
            assert f'wigwag_watt_watches{{state="starting"}} {MOST_SHOWN + 99}' in text
            page = made.report.page()
            assert (len(page["watches"]), len(page["waiting"])) == (MOST_SHOWN + 100, MOST_SHOWN + 99)
            json.dumps(page)

    run(main)


def test_the_first_snapshot_waits_for_the_services_that_a_resolver_names() -> None:
    async def main() -> None:
        async with driven(source=["cm"]) as made:
            history, config_maps = made.watt.history, KubernetesSpec("cm")
            await made.watcher.push(config_maps, maps("web", "api"))
            web, api = (spec for spec in made.watcher.running() if isinstance(spec, ConsulSpec))
            assert [str(spec) for spec in (web, api)] == ["consul consul:8500|*|api", "consul consul:8500|*|web"]
            await made.watcher.push(web, endpoints_part(web, ServiceEndpoints()))
            assert history.ids() == []
            await made.watcher.push(api, endpoints_part(api, ServiceEndpoints()))
            assert made.latest().complete

            await made.watcher.push(config_maps, maps("web", "new"))
            assert history.ids() == [1], "the new service has two seconds"
            await made.clock.advance(2.0)
            assert history.ids() == [1, 2]
            assert made.latest().unresolved == ("consul consul:8500|*|new",)
            assert made.report.page()["waiting"] == ["consul consul:8500|*|new"]

            await made.watcher.push(config_maps, maps())
            assert [str(spec) for spec in made.watcher.running()] == ["kubernetes cm|*|*|*"]
            assert [table.section for table in made.latest().tables] == ["Kubernetes"]

    run(main)


def test_problems_of_resolvers_are_on_the_page() -> None:
    async def main() -> None:
        async with driven(source=["cm"]) as made:
            await made.watcher.push(KubernetesSpec("cm"), maps("a/b"))
            (problem,) = made.report.page()["resolvers"].items()
            assert problem == ("configmaps shop/a", "'a/b' is not the name of a service; write it as in Consul")
        async with driven(source=["cm"], consul_resolvers=False) as made:
            await made.watcher.push(KubernetesSpec("cm"), maps("web"))
            assert made.report.page()["resolvers"] == {}
            assert len(made.watcher.running()) == 1

    run(main)
