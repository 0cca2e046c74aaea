"""The parts of a controller on a real API server: one leader, objects as they should be, Events, repairs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real import programs
from tests.real.cluster import Cluster, Namespace
from tests.real.processes import until
from tests.real.watching import Counting
from wigwag.kube.client import DRY_RUN, STRICT
from wigwag.kube.control.apply import Applier, owner_reference
from wigwag.kube.control.controller import Controller, ControllerMetrics
from wigwag.kube.control.events import EventRecorder
from wigwag.kube.control.informer import Informer, label_key, own_key, owner_key
from wigwag.kube.control.lease import LeaderElector, LeaseTiming
from wigwag.kube.control.queue import WorkQueue
from wigwag.kube.errors import ApiError
from wigwag.kube.hub import Hub
from wigwag.kube.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, LEASE, SERVICE, Kind
from wigwag.kube.watch.decode import plain
from wigwag.kube.watch.spec import KubeWatch

LABELS = {"app.kubernetes.io/managed-by": "wigwag-test"}
ELECTOR = """
import asyncio, os, sys
from wigwag.kube.client import Kube
from wigwag.kube.config.cluster import find_cluster
from wigwag.kube.control.lease import LeaderElector, LeaseTiming

async def lead():
    print("leads", flush=True)
    await asyncio.Event().wait()

_, kubeconfig, namespace, identity = sys.argv
kube = Kube(find_cluster({}, kubeconfig))
timing = LeaseTiming(duration=5, renew_deadline=4.0, retry=0.3)
asyncio.run(LeaderElector(kube, namespace, "election", identity, timing).run(lead))
"""


@pytest.fixture
def kube_path(cluster: Cluster, tmp_path: Path) -> Path:
    return cluster.access.kubeconfig(tmp_path / "admin")


@asynccontextmanager
async def client(path: Path) -> AsyncIterator[Counting]:
    kube = Counting(path)
    try:
        yield kube
    finally:
        kube.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(120.0):
            await main

    asyncio.run(limited())


def config_map(namespace: Namespace, name: str = "made", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace.name}, "data": data}


def deployment(namespace: Namespace, cpu: str = "1000m") -> dict[str, Any]:
    container = {
        "name": "app",
        "image": "example.org/app:1",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "resources": {"requests": {"cpu": cpu}},
        "args": [],
    }
    spec = {"containers": [container]}
    template = {"metadata": {"labels": {"app": "made"}}, "spec": spec}
    body = {"replicas": 1, "selector": {"matchLabels": {"app": "made"}}, "template": template}
    return {"metadata": {"name": "made", "namespace": namespace.name}, "spec": body}


def applier(kube: Counting, **more: Any) -> Applier:
    return Applier(kube, "wigwag-test", LABELS, "example.org/applied", **more)


def writes(kube: Counting) -> int:
    return sum(request.method != "GET" for request, _ in kube.asked)


async def eventually(ask: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(until, ask, what)


def test_apply_writes_once_and_ten_more_passes_write_nothing(namespace: Namespace, kube_path: Path) -> None:
    async def main() -> None:
        async with client(kube_path) as kube:
            ours = applier(kube, query=STRICT)
            made: list[tuple[Kind, dict[str, Any]]] = [
                (CONFIG_MAP, config_map(namespace, key="value")),
                (DEPLOYMENT, deployment(namespace)),
                (SERVICE, {**config_map(namespace), "spec": {"selector": {"app": "made"}, "ports": [{"port": 80}]}}),
            ]
            made[2][1].pop("data")
            assert [(await ours.apply(*each)).outcome for each in made] == ["created"] * 3
            before = writes(kube)
            seen = [(await ours.apply(*each)) for each in made for _ in range(10)]
            assert {each.outcome for each in seen} == {"unchanged"}
            assert writes(kube) == before == 3
            kube.asked.clear()
            for each in made:  # as a watch would have them
                live = plain_object(await kube.get(each[0], "made", namespace.name))
                for _ in range(10):
                    assert (await ours.apply(*each, live)).outcome == "unchanged"
            assert len(kube.asked) == 3
            listed = (await kube.list(CONFIG_MAP, namespace.name, labels="app.kubernetes.io/managed-by")).items
            assert [(await ours.apply(*made[0], each)).outcome for each in listed] == ["unchanged"]
            after_restart = applier(kube)
            outcomes = [(await after_restart.apply(*each)).outcome for each in made]
            assert outcomes == ["unchanged", "updated", "unchanged"]  # "1000m" is "1" on the server
            version = (await kube.get(DEPLOYMENT, "made", namespace.name))["metadata"]["generation"]
            assert version == 1

    run(main())


def plain_object(value: dict[str, Any]) -> dict[str, Any]:
    value["metadata"].pop("managedFields", None)
    return value


def test_apply_repairs_edits_and_takes_fields_away_that_are_no_longer_intended(
    namespace: Namespace, kube_path: Path
) -> None:
    async def main() -> None:
        async with client(kube_path) as kube:
            ours = applier(kube)
            await ours.apply(CONFIG_MAP, config_map(namespace, a="1", b="2"))
            path = namespace.path("v1", "ConfigMap", "made")
            namespace.cluster.patch(path, {"data": {"a": "edited", "c": "theirs"}})
            assert (await ours.apply(CONFIG_MAP, config_map(namespace, a="1", b="2"))).outcome == "updated"
            assert namespace.cluster.get(path)["data"] == {"a": "1", "b": "2", "c": "theirs"}
            assert (await ours.apply(CONFIG_MAP, config_map(namespace, a="1"))).outcome == "updated"
            assert namespace.cluster.get(path)["data"] == {"a": "1", "c": "theirs"}

            namespace.cluster.patch(path, {"data": {"a": "edited"}})
            polite = applier(kube, force=False)
            refused = await polite.apply(CONFIG_MAP, config_map(namespace, a="1"))
            assert refused.outcome == "refused"
            assert ".data.a" in refused.reason

    run(main())


def test_an_object_of_somebody_else_is_refused_and_not_touched(namespace: Namespace, kube_path: Path) -> None:
    async def main() -> None:
        async with client(kube_path) as kube:
            ours = applier(kube)
            theirs = namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", **config_map(namespace, a="1")})
            refused = await ours.apply(CONFIG_MAP, config_map(namespace, b="2"))
            assert refused.outcome == "refused"
            assert "is not ours (it has no label app.kubernetes.io/managed-by=wigwag-test)" in refused.reason
            assert await kube.get(CONFIG_MAP, "made", namespace.name) == theirs
            assert writes(kube) == 0

            # The same name, but another object than the one that was seen last:
            mine = (await ours.apply(CONFIG_MAP, config_map(namespace, "other", a="1"))).object
            path = namespace.path("v1", "ConfigMap", "other")
            namespace.cluster.delete(path)
            namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", **config_map(namespace, "other", x="y")})
            again = await ours.apply(CONFIG_MAP, config_map(namespace, "other", a="2"), mine)
            assert again.outcome == "refused"
            assert namespace.cluster.get(path)["data"] == {"x": "y"}

            # An object that was seen last, and is gone:
            namespace.cluster.delete(path)
            assert (await ours.apply(CONFIG_MAP, config_map(namespace, "other", a="2"), mine)).outcome == "created"

    run(main())


def test_an_owner_controls_an_object_and_another_owner_does_not(namespace: Namespace, kube_path: Path) -> None:
    async def main() -> None:
        async with client(kube_path) as kube:
            ours = applier(kube)
            owners = [
                (await ours.apply(CONFIG_MAP, config_map(namespace, name))).object for name in ("owner-a", "owner-b")
            ]
            bodies = [config_map(namespace, key="value") for _ in owners]
            for body, owner in zip(bodies, owners, strict=True):
                body["metadata"]["ownerReferences"] = [owner_reference(CONFIG_MAP, owner)]
            outcomes = [(await ours.apply(CONFIG_MAP, body)) for body in (*bodies, bodies[0])]
            assert [each.outcome for each in outcomes] == ["created", "refused", "unchanged"]
            assert outcomes[1].reason == "ConfigMap made is controlled by ConfigMap owner-a"

    run(main())


def test_prune_deletes_what_is_ours_and_no_longer_wanted(namespace: Namespace, kube_path: Path) -> None:
    async def main() -> None:
        async with client(kube_path) as kube:
            ours = applier(kube)
            for name in ("a", "b", "c"):
                await ours.apply(CONFIG_MAP, config_map(namespace, name))
            namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", **config_map(namespace, "theirs")})
            where = namespace.name
            pruned = await ours.prune(CONFIG_MAP, {(where, "b")}, where)
            assert sorted(pruned) == [(where, "a"), (where, "c")]
            left = {each["metadata"]["name"] for each in (await kube.list(CONFIG_MAP, where)).items}
            assert {"b", "theirs"} <= left
            assert not {"a", "c"} & left
            assert await ours.prune(CONFIG_MAP, {(where, "b")}, where) == []
            stale = [{"metadata": {"name": "b", "namespace": where, "labels": LABELS, "uid": "another"}}]
            await ours.prune(CONFIG_MAP, (), where, stale)
            assert (await kube.get(CONFIG_MAP, "b", where))["metadata"]["name"] == "b"

    run(main())


def test_a_dry_run_stores_nothing_and_strict_refuses_unknown_fields(namespace: Namespace, kube_path: Path) -> None:
    async def main() -> None:
        async with client(kube_path) as kube:
            created = await applier(kube, query=DRY_RUN).apply(CONFIG_MAP, config_map(namespace, a="1"))
            assert created.object["data"] == {"a": "1"}
            assert not namespace.cluster.exists(namespace.path("v1", "ConfigMap", "made"))
            with pytest.raises(ApiError, match="unknown field"):
                await kube.create(CONFIG_MAP, {**config_map(namespace), "extra": 1}, query=DRY_RUN + STRICT)

    run(main())


def test_events_are_shown_with_their_object(namespace: Namespace, kube_path: Path) -> None:
    async def main() -> None:
        async with client(kube_path) as kube, asyncio.TaskGroup() as group:
            about = (await applier(kube).apply(CONFIG_MAP, config_map(namespace))).object
            recorder = EventRecorder(kube, "wigwag-test", "pod-1")
            task = group.create_task(recorder.run())
            fields = f"involvedObject.uid={about['metadata']['uid']}"

            async def events(count: int) -> dict[str, Any]:
                while True:
                    listed = (await kube.list(EVENT, namespace.name, fields=fields)).items
                    if listed and listed[0]["count"] == count:
                        (event,) = listed
                        return event

            for count in (1, 2, 3):
                recorder.record(CONFIG_MAP, about, "Warning", "NotOurs", "it has no label")
                event = await events(count)
            assert (event["type"], event["reason"], event["message"]) == ("Warning", "NotOurs", "it has no label")
            assert event["source"]["component"] == event["reportingComponent"] == "wigwag-test"
            listed = (await kube.list(Kind("events.k8s.io", "v1", "events"), namespace.name)).items
            assert [each["deprecatedCount"] for each in listed] == [3]
            task.cancel()

    run(main())
    kubectl = programs.kubernetes().kubectl
    if kubectl is not None:
        command = [str(kubectl), "--kubeconfig", str(kube_path), "-n", namespace.name, "describe", "configmap", "made"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()
        assert {"Warning", "NotOurs", "(x3", "wigwag-test"} <= set(shown)


def test_a_controller_repairs_what_is_deleted_or_edited(namespace: Namespace, kube_path: Path) -> None:
    """Deployments are the parents; each is to have a ConfigMap, found again by its owner and by a label."""

    async def main() -> None:
        kube = Counting(kube_path)
        hub, queue = Hub(lambda: kube), WorkQueue[tuple[str, str]]()
        parents, children = Informer[dict[str, Any]](), Informer[dict[str, Any]]()
        parents.feed(queue.add, own_key)
        children.feed(queue.add, owner_key(DEPLOYMENT), label_key("example.org/parent"))
        ours = applier(kube)

        async def reconcile(key: tuple[str, str]) -> None:
            parent = parents.get(key)
            if parent is None:
                return
            body = config_map(namespace, f"{key[1]}-flags", parent=key[1])
            body["metadata"] |= {
                "ownerReferences": [owner_reference(DEPLOYMENT, parent)],
                "labels": {"example.org/parent": key[1]},
            }
            await ours.apply(CONFIG_MAP, body, children.get((key[0], f"{key[1]}-flags")))

        controller = Controller("test", reconcile, queue, ControllerMetrics())
        path = namespace.path("v1", "ConfigMap", "made-flags")
        exists = lambda: namespace.cluster.exists(path)  # noqa: E731
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (hub.run(), controller.run())]
            for informer, kind in ((parents, DEPLOYMENT), (children, CONFIG_MAP)):
                items = hub.watch(KubeWatch(kind, namespace.name), plain)
                tasks.append(group.create_task(informer.follow(items)))
            namespace.apply({"apiVersion": "apps/v1", "kind": "Deployment", **deployment(namespace)})
            await eventually(exists, "the ConfigMap of a new Deployment")
            namespace.cluster.delete(path)
            await eventually(exists, "the ConfigMap after it was deleted")
            namespace.cluster.patch(path, {"data": {"parent": "edited"}})
            await eventually(lambda: namespace.cluster.get(path)["data"] == {"parent": "made"}, "the edit undone")
            namespace.cluster.patch(path, {"metadata": {"ownerReferences": None, "labels": {"example.org/parent": ""}}})
            await eventually(lambda: namespace.cluster.get(path)["metadata"].get("ownerReferences"), "the owner back")
            assert controller.failing == {}
            for task in tasks:
                task.cancel()

    run(main())


def elect(path: Path, namespace: Namespace, identity: str, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", ELECTOR, str(path), namespace.name, identity]
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output)


def test_of_two_processes_one_leads_and_the_other_takes_over(
    namespace: Namespace, kube_path: Path, tmp_path: Path
) -> None:
    logs = {name: tmp_path / name for name in "ab"}
    processes = {name: elect(kube_path, namespace, name, log) for name, log in logs.items()}

    def leading() -> list[str]:
        return [name for name, log in logs.items() if log.read_text().startswith("leads")]

    try:
        until(leading, "a first leader")
        (first,) = leading()
        (second,) = {"a", "b"} - {first}
        lease = namespace.path("coordination.k8s.io/v1", "Lease", "election")
        assert namespace.cluster.get(lease)["spec"]["holderIdentity"] == first
        renewed = namespace.cluster.get(lease)["spec"]["renewTime"]
        until(lambda: namespace.cluster.get(lease)["spec"]["renewTime"] != renewed, "a renewal")
        assert leading() == [first]
        os.kill(processes[first].pid, signal.SIGKILL)
        until(lambda: second in leading(), "the other leads after the first was killed")
        spec = namespace.cluster.get(lease)["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == (second, 1, 5)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def test_a_leader_that_stops_releases_its_lease(namespace: Namespace, kube_path: Path) -> None:
    async def main() -> None:
        async with client(kube_path) as kube, asyncio.TaskGroup() as group:
            leads = {name: asyncio.Event() for name in "ab"}
            timing = LeaseTiming(duration=30, renew_deadline=20.0, retry=0.1)

            async def lead(name: str) -> None:
                leads[name].set()
                await asyncio.Event().wait()

            electors = {name: LeaderElector(kube, namespace.name, "election", name, timing) for name in "ab"}
            first = group.create_task(electors["a"].run(lambda: lead("a")))
            await leads["a"].wait()
            second = group.create_task(electors["b"].run(lambda: lead("b")))
            await eventually(lambda: electors["b"].record.holder == "a", "the second sees the first")
            assert (electors["a"].holds(), electors["b"].holds()) == (True, False)
            first.cancel()
            await leads["b"].wait()  # which would take 30 s if the lease had to expire
            second.cancel()
        spec = namespace.cluster.get(LEASE.path(namespace.name, "election"))["spec"]
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("", 1)

    run(main())
