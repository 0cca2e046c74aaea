"""Pods that get an agent, for the operator's benchmark: many at once, and those whose source comes later."""

from __future__ import annotations

import statistics
import time
from functools import partial

from bench.operator_cluster import BenchCluster, MeasuredOperator, together
from bench.operator_objects import asks, feature_flag, owner, placed, pod, source
from bench.table import ComparisonTable
from tests.real import workloads
from tests.real.processes import until
from wigwag.kube.kinds import DEPLOYMENT, EVENT, FEATURE_FLAG, FEATURE_FLAG_SOURCE, POD

SPACE = "injection"


def first_pods(table: ComparisonTable, bench: BenchCluster, count: int) -> None:
    """Create the first pod of many namespaces at once."""
    table.head(f"{count} first pods in {count} namespaces at once, provider kubernetes")
    names = [f"first-{number:02}" for number in range(count)]
    bench.namespaces(names)
    bench.create_all(FEATURE_FLAG, [feature_flag("flags", name) for name in names])
    bench.create_all(FEATURE_FLAG_SOURCE, [source("source", name, "kubernetes", "flags") for name in names])
    owners = [owner(bench, name) for name in names]
    bench.requests.settle()
    bodies = [(name, pod(name, uid, asks("source"), "web")) for name, uid in zip(names, owners, strict=True)]
    begun = time.perf_counter()
    answers = together([partial(bench.api.ask, "POST", POD.path(name), body) for name, body in bodies], count)
    seconds = time.perf_counter() - begun
    injected = sum(b'"name":"flagd"' in payload for _, payload in answers)
    table.row("refused", sum(status >= 300 for status, _ in answers), "", 28, 0)
    table.row("without an agent", count - injected, "", None, 0)
    table.row("all of them created after", seconds * 1000, "ms")


def large_deployment(table: ComparisonTable, bench: BenchCluster, operator: MeasuredOperator, replicas: int) -> None:
    """Create a Deployment of many replicas."""
    table.head(f"a Deployment of {replicas} replicas, provider kubernetes")
    bench.namespaces([SPACE])
    bench.api.create(FEATURE_FLAG, feature_flag("flags", SPACE))
    bench.api.create(FEATURE_FLAG_SOURCE, source("source", SPACE, "kubernetes", "flags"))
    bench.requests.settle()
    cpu = operator.cpu()
    large = placed(workloads.deployment("large", "source", replicas=replicas), SPACE)
    begun = bench.api.create(DEPLOYMENT, large)
    pods = POD.path(SPACE)
    until(lambda: len(bench.cluster.get(pods)["items"]) >= replicas, f"{replicas} pods", 600)
    created = time.perf_counter() - begun
    path = DEPLOYMENT.path(SPACE, "large")
    until(lambda: bench.cluster.get(path)["status"].get("readyReplicas") == replicas, "ready pods", 600)
    ready = time.perf_counter() - begun
    containers = [each["spec"].get("initContainers") or [] for each in bench.cluster.get(pods)["items"]]
    missing = sum(not any(one["name"] == "flagd" for one in each) for each in containers)
    table.row("pods without an agent", missing, "", 299, 0)
    table.row("all pods created after", created, "s", 37)
    table.row("all pods ready after", ready, "s")
    table.row("CPU of the operator per pod", (operator.cpu() - cpu) / replicas * 1000, "ms", 3)
    bench.api.delete(DEPLOYMENT, SPACE, "large")


def source_later(table: ComparisonTable, bench: BenchCluster, count: int) -> None:
    """Create Deployments, and their sources when the API server has refused their pods."""
    table.head("a Deployment whose source comes later")
    bench.namespaces(["later"])
    bench.api.create(FEATURE_FLAG, feature_flag("flags", "later"))
    seen, events = bench.watch(POD.path("later")), bench.watch(EVENT.path("later"))
    times = []
    for number in range(count):
        name = f"later-{number}"
        mark = len(events.events)
        bench.api.create(DEPLOYMENT, placed(workloads.deployment(name, name), "later"))
        events.wait(lambda each, name=name: name in each.name and each.object["reason"] == "FailedCreate", mark)  # type: ignore[misc]
        time.sleep(0.1 * (number % 20))
        begun = bench.api.create(
            FEATURE_FLAG_SOURCE, source(name, "later", ("kubernetes", "file")[number % 2], "flags")
        )
        there = seen.wait(lambda each, name=name: each.kind == "ADDED" and each.name.startswith(f"{name}-"))  # type: ignore[misc]
        times.append((there.time - begun) * 1000)
    table.row("source created until an injected pod, p50", statistics.median(times), "ms", 70, 200)
    table.row("the same, worst", max(times), "ms")
