"""Objects that the operator makes and repairs, for its benchmark: the proxy, those of Flagds, ConfigMaps of flags."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.operator_cluster import BenchCluster, MeasuredOperator, Sighting, Sightings
from bench.operator_objects import feature_flag, placed, source
from bench.table import ComparisonTable
from tests.real import workloads
from tests.real.operated import SYSTEM
from wigwag.kube.kinds import CONFIG_MAP, DEPLOYMENT, FEATURE_FLAG, FEATURE_FLAG_SOURCE, FLAGD, INGRESS, SERVICE
from wigwag.operator.names import PROXY

PROXIED, SPACE, FILES = "proxied", "reconciled", "files"


def proxy_source(bench: BenchCluster) -> float:
    """Create the one source that needs the proxy; return when that was asked."""
    if not bench.cluster.exists(f"/api/v1/namespaces/{PROXIED}"):
        bench.namespaces([PROXIED])
        bench.api.create(FEATURE_FLAG, feature_flag("flags", PROXIED))
    return bench.api.create(FEATURE_FLAG_SOURCE, source("source", PROXIED, "flagd-proxy", "flags"))


def no_proxy(bench: BenchCluster) -> None:
    """Delete the source, and then the proxy, which nobody needs now."""
    bench.api.delete(FEATURE_FLAG_SOURCE, PROXIED, "source")
    time.sleep(bench.requests.quiet)
    bench.api.delete(DEPLOYMENT, SYSTEM, PROXY)
    time.sleep(bench.requests.quiet)


def proxies(table: ComparisonTable, bench: BenchCluster, operator: MeasuredOperator, count: int, sources: int) -> None:
    """Have the proxy made, again and again; then create many sources that need it."""
    table.head("the proxy")
    seen = bench.watch(DEPLOYMENT.path(SYSTEM))
    made, back = [], []
    for _ in range(count):
        mark = len(seen.events)
        begun = proxy_source(bench)
        made.append(_until(seen, mark, begun, _added(PROXY)))
        bench.requests.settle()
        mark = len(seen.events)
        begun = bench.api.delete(DEPLOYMENT, SYSTEM, PROXY)
        back.append(_until(seen, mark, begun, _added(PROXY)))
        bench.requests.settle()
        no_proxy(bench)
    table.row("FeatureFlagSource until the proxy's Deployment, p50", statistics.median(made), "ms", 8, 50)
    table.row("the same, worst", max(made), "ms", 24)
    table.row("proxy's Deployment deleted until it is back, worst", max(back), "ms", None, 1000)
    proxy_source(bench)
    bench.requests.settle()
    mark, cpu = bench.requests.mark(), operator.cpu()
    many = [source(f"many-{number}", PROXIED, "flagd-proxy", "flags") for number in range(sources)]
    bench.create_all(FEATURE_FLAG_SOURCE, many)
    bench.requests.settle()
    writes = bench.requests.writes(mark)
    statuses = [each for each in writes if each["objectRef"].get("subresource") == "status"]
    table.row(f"{sources} sources more: writes of the proxy's objects", len(writes) - len(statuses), "", 500, 5)
    table.row("writes of a source's status, for each", len(statuses) / sources, "", None, 1)
    table.row("CPU for each", (operator.cpu() - cpu) / sources * 1000, "ms")


def flagds(table: ComparisonTable, bench: BenchCluster, operator: MeasuredOperator, count: int) -> None:
    """Create Flagds, and change what belongs to them."""
    table.head("Flagds")
    bench.namespaces([SPACE])
    bench.api.create(FEATURE_FLAG, feature_flag("flags", SPACE))
    bench.api.create(FEATURE_FLAG_SOURCE, source("source", SPACE, "kubernetes", "flags"))
    bench.requests.settle()
    children = {kind: bench.watch(kind.path(SPACE)) for kind in (DEPLOYMENT, SERVICE, INGRESS)}
    times: dict[str, list[float]] = {kind.kind: [] for kind in children}
    cpu = operator.cpu()
    for number in range(count):
        name = f"flagd-{number}"
        begun = bench.api.create(FLAGD, _flagd(name))
        for kind, seen in children.items():
            times[kind.kind].append(_until(seen, 0, begun, _added(name)))
        bench.requests.settle()
    for (name, each), original in zip(times.items(), (18, 34, 66), strict=True):
        table.row(f"Flagd until its {name}, p50", statistics.median(each), "ms", original, 50)
    table.row("CPU for each Flagd", (operator.cpu() - cpu) / count * 1000, "ms")
    _repairs(table, bench, children[DEPLOYMENT], children[INGRESS])
    _annotations(table, bench, operator)


def _flagd(name: str, *, ingress: bool = True) -> dict[str, Any]:
    spec = {"enabled": ingress, "hosts": [f"{name}.example"], "ingressClassName": "nginx"}
    return placed(workloads.flagd(name, "source", replicas=1, ingress=spec), SPACE)


def _repairs(table: ComparisonTable, bench: BenchCluster, deployments: Sightings, ingresses: Sightings) -> None:
    """Break what one Flagd has, each time in another way."""
    name, api = "flagd-0", bench.api

    def timed(what: str, seen: Sightings, act: Callable[[], float], wanted: Callable[[Sighting], object]) -> None:
        bench.requests.settle()
        mark = len(seen.events)
        table.row(f"{what}, after", _until(seen, mark, act(), wanted), "ms", None, 1000)

    timed("Deployment deleted by hand: back", deployments, lambda: api.delete(DEPLOYMENT, SPACE, name), _added(name))
    edit = {"spec": {"replicas": 7}}
    timed(
        "Deployment edited by hand: as it was",
        deployments,
        lambda: api.patch(DEPLOYMENT, SPACE, name, edit),
        lambda each: each.name == name and each.object["spec"]["replicas"] == 1,
    )
    timed(
        "source changed: in the Deployment",
        deployments,
        lambda: api.patch(FEATURE_FLAG_SOURCE, SPACE, "source", {"spec": {"logFormat": "console"}}),
        lambda each: each.name == name and "console" in str(each.object["spec"]["template"]),
    )
    timed(
        "Ingress disabled: gone",
        ingresses,
        lambda: api.patch(FLAGD, SPACE, name, {"spec": {"ingress": {"enabled": False}}}),
        lambda each: each.name == name and each.kind == "DELETED",
    )


def _annotations(table: ComparisonTable, bench: BenchCluster, operator: MeasuredOperator) -> None:
    """Change an annotation that matters to nobody, and one that the Service takes over from its Flagd."""
    times = 10
    for name, reads, writes in (("kubectl.kubernetes.io/revision", 10, 0), ("example.org/revision", None, None)):
        bench.requests.settle()
        mark, cpu = bench.requests.mark(), operator.cpu()
        for number in range(times):
            bench.api.patch(FLAGD, SPACE, "flagd-1", {"metadata": {"annotations": {name: str(number)}}})
            time.sleep(bench.requests.quiet)
        bench.requests.settle()
        written = len(bench.requests.writes(mark))
        own = [each for each in bench.requests.since(mark) if each["objectRef"].get("namespace") == SPACE]
        read = sum(each["verb"] == "get" for each in own)  # others probe watches
        which = "one that the Service takes over" if writes is None else "an annotation"
        table.row(f"{times} changes of {which}: reads", read, "", None, reads)
        table.row(f"{times} changes of {which}: writes", written, "", 30, writes)
        table.row("CPU for each", (operator.cpu() - cpu) / times * 1000, "ms")


def config_maps(table: ComparisonTable, bench: BenchCluster, operator: MeasuredOperator, count: int) -> None:
    """Change FeatureFlags that a workload mounts."""
    table.head("FeatureFlags in ConfigMaps, provider file")
    bench.namespaces([FILES])
    bench.api.create(FEATURE_FLAG, feature_flag("flags", FILES))
    bench.api.create(FEATURE_FLAG_SOURCE, source("source", FILES, "file", "flags"))
    seen = bench.watch(CONFIG_MAP.path(FILES))
    bench.api.create(DEPLOYMENT, placed(workloads.deployment("web", "source", replicas=1), FILES))
    seen.wait(_added("flags"))
    times, cpu = [], operator.cpu()
    for revision in range(1, count + 1):
        bench.requests.settle()
        mark, spec = len(seen.events), feature_flag("flags", FILES, revision=revision)["spec"]
        begun = bench.api.patch(FEATURE_FLAG, FILES, "flags", {"spec": spec})
        word = f'"revision":{revision}'
        times.append(
            _until(seen, mark, begun, lambda each, word=word: word in str(each.object["data"]).replace(" ", ""))  # type: ignore[misc]
        )
    table.row("FeatureFlag changed until the ConfigMap has it, p50", statistics.median(times), "ms")
    table.row("the same, worst", max(times), "ms", None, 1000)
    table.row("CPU for each", (operator.cpu() - cpu) / count * 1000, "ms")


def _added(name: str) -> Callable[[Sighting], bool]:
    return lambda each: each.kind == "ADDED" and each.name == name


def _until(seen: Sightings, mark: int, begun: float, wanted: Callable[[Sighting], object]) -> float:
    """Return the milliseconds from a request until something is seen."""
    return (seen.wait(wanted, mark).time - begun) * 1000
