"""Rollouts, for the operator's benchmark: a source with `rolloutOnChange` changes, and many Deployments name it."""

from __future__ import annotations

import statistics
import time
from functools import partial

from bench.operator_cluster import BenchCluster, MeasuredOperator, Sightings, together
from bench.operator_objects import feature_flag, placed, source
from bench.table import ComparisonTable
from tests.real import workloads
from wigwag.kube.kinds import DEPLOYMENT, FEATURE_FLAG, FEATURE_FLAG_SOURCE
from wigwag.operator.names import SOURCE_DIGESTS

SPACE = "rolled"
PATIENCE = 60.0


def rollouts(table: ComparisonTable, bench: BenchCluster, operator: MeasuredOperator, count: int) -> None:
    """Change the source, first alone, and then while somebody edits each Deployment."""
    bench.namespaces([SPACE])
    bench.api.create(FEATURE_FLAG, feature_flag("flags", SPACE))
    for name in ("source", "other"):
        bench.api.create(
            FEATURE_FLAG_SOURCE, source(name, SPACE, "kubernetes", "flags", rolloutOnChange=name == "source")
        )
    seen = bench.watch(DEPLOYMENT.path(SPACE))
    names = [f"web-{number:03}" for number in range(count)]
    listed = ["other, source" if number % 10 == 0 else "source" for number in range(count)]
    bodies = [workloads.deployment(name, sources) for name, sources in zip(names, listed, strict=True)]
    bench.create_all(DEPLOYMENT, [placed(each, SPACE) for each in bodies])
    table.head(f"rolloutOnChange, {count} Deployments")
    _change(table, bench, operator, seen, names, "json", edits=False)
    table.head("the same, while each Deployment is edited once")
    _change(table, bench, operator, seen, names, "console", edits=True)


def _change(
    table: ComparisonTable,
    bench: BenchCluster,
    operator: MeasuredOperator,
    seen: Sightings,
    names: list[str],
    log_format: str,
    *,
    edits: bool,
) -> None:
    _settle(seen, 4 * bench.requests.quiet)
    bench.requests.settle()
    digests = _digests(seen)
    mark, requests, cpu = len(seen.events), bench.requests.mark(), operator.cpu()
    change = {"spec": {"logFormat": log_format, "port": 9000 + edits}}
    begun = bench.api.patch(FEATURE_FLAG_SOURCE, SPACE, "source", change)
    if edits:
        together([partial(_edit, bench, name) for name in names])
    times = _times(seen, mark, begun, digests, set(names))
    bench.requests.settle()
    used = operator.cpu() - cpu
    writes = [each for each in bench.requests.writes(requests) if each["objectRef"]["resource"] == "deployments"]
    first, median, last = (14, 3700, 8800) if not edits else (None, None, None)
    table.row("not rolled", len(names) - len(times), "", 104 if edits else 0, 0)
    table.row("first patched after", min(times), "ms", first)
    table.row("median", statistics.median(times), "ms", median)
    table.row("last", max(times), "ms", last, 3000)
    table.row("patches that were not needed", len(writes) - len(names), "", None if edits else 172, 0)
    table.row("CPU for each", used / len(names) * 1000, "ms", 2.1)


def _edit(bench: BenchCluster, name: str) -> None:
    variable = [{"name": "app", "image": "app", "env": [{"name": "EDITED", "value": str(time.time())}]}]
    change = {"spec": {"template": {"spec": {"containers": variable}}}}
    bench.api.patch(DEPLOYMENT, SPACE, name, change)


def _digests(seen: Sightings) -> dict[str, str]:
    return {each.name: _digest(each.object) for each in seen.events}


def _digest(deployment: dict[str, object]) -> str:
    spec: dict[str, dict[str, dict[str, dict[str, str]]]] = deployment["spec"]  # type: ignore[assignment]
    return spec["template"]["metadata"]["annotations"].get(SOURCE_DIGESTS, "")


def _times(seen: Sightings, mark: int, begun: float, digests: dict[str, str], names: set[str]) -> list[float]:
    """Return the milliseconds until each Deployment has another digest; those that never have are left out."""
    deadline, times, at = time.monotonic() + PATIENCE, dict[str, float](), mark
    while len(times) < len(names) and time.monotonic() < deadline:
        time.sleep(0.05)
        while at < len(seen.events):
            each, at = seen.events[at], at + 1
            if each.name not in times and _digest(each.object) != digests[each.name]:
                times[each.name] = (each.time - begun) * 1000
    return list(times.values()) or [PATIENCE * 1000]


def _settle(seen: Sightings, seconds: float) -> None:
    """Wait until no Deployment changes any more."""
    known, since = len(seen.events), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.02)
        if len(seen.events) > known:
            known, since = len(seen.events), time.monotonic()
