"""What a pod waits for its admission: an AdmissionReview asked directly, and what `POST pods` takes longer with us.

    scripts/bench admission            1,000 FeatureFlags and FeatureFlagSources and 5,000 pods are there
    scripts/bench admission --quick    little of everything

The operator is a process of its own, with its controllers at work. Directly, reviews come one after the other on one
connection, so p50 is the latency of a review and CPU is what the process used for it. Pods that go to the API server
are dry runs, so nothing is stored; in turn they are in a namespace that the webhook is for, and in one that it is not
for. A pod that is not annotated is not sent to us; what is added to it is the match conditions, which the API server
evaluates. An injected pod is sent twice (`reinvocationPolicy: IfNeeded`): the API server mounts a token into the new
container. FeatureFlags are created for real. Beside each figure is that of open-feature-operator 0.9.2 on a machine
like ours, measured with another client. Exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import statistics
import sys
import time
from base64 import b64decode
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.operator_cluster import BenchCluster, MeasuredOperator, bench_cluster
from bench.operator_objects import asks, asks_in_process, feature_flag, fill, owner, placed, pod, pods, source
from bench.table import ComparisonTable
from bench.watch import Api, Line, answered
from tests.real import workloads
from tests.real.operated import SYSTEM
from wigwag.kube.kinds import FEATURE_FLAG, FEATURE_FLAG_SOURCE, IN_PROCESS_CONFIGURATION, POD
from wigwag.operator.admission.registration import MUTATING, MUTATING_NAME, POD_PATH, VALIDATING, VALIDATING_NAME

SPACE = "admission"
WARM_UP = 20
ANNOTATIONS: dict[str, dict[str, str]] = {
    "not annotated": {},
    "file": asks("file"),
    "http": asks("http"),
    "in-process": asks_in_process("in-process"),
    "kubernetes": asks("kubernetes"),
}
DIRECT = {"not annotated": 0.44, "file": 0.69, "http": 0.99, "in-process": 0.84, "kubernetes": 100.0}
DIRECT_TARGET = {**DIRECT, "kubernetes": 1.0}
ADDED = {"not annotated": 1.15, "file": 2.9, "kubernetes": 49.0}
ADDED_TARGET = {"not annotated": 0.5, "file": 3.0, "kubernetes": 3.0}
"""The original's medians in ms, and what ours may be."""
BARE_MS = 2.5
"""What the API server itself takes for a FeatureFlag on an idle machine; if it takes more, so may ours."""


class Cost(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float
    cpu: float


def measure(ask: Callable[[], object], count: int, cpu: Callable[[], float] = lambda: 0.0) -> Cost:
    """Return what asking costs, one after the other."""
    for _ in range(WARM_UP):
        ask()
    used, times = cpu(), []
    for _ in range(count):
        start = time.perf_counter()
        ask()
        times.append((time.perf_counter() - start) * 1000)
    cost = (cpu() - used) / count * 1000
    return Cost(statistics.median(times), p99(times), cost)


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def review(pod: dict[str, Any]) -> bytes:
    """Return an AdmissionReview of a new pod."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"uid": "u", "kind": kind, "operation": "CREATE", "namespace": SPACE, "object": pod}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


class Admission:
    """Who asks: the webhooks directly, or the API server, which asks them."""

    def __init__(self, bench: BenchCluster, operator: MeasuredOperator) -> None:
        self._bench, self._operator = bench, operator
        bench.namespaces([SPACE])
        bench.api.create(FEATURE_FLAG, feature_flag("flags", SPACE))
        for provider in ("file", "http", "kubernetes"):
            bench.api.create(FEATURE_FLAG_SOURCE, source(provider, SPACE, provider, "flags"))
        bench.api.create(IN_PROCESS_CONFIGURATION, placed(workloads.in_process("in-process"), SPACE))
        self._owner = owner(bench, SPACE)
        bench.requests.settle()

    def direct(self, annotations: dict[str, str], count: int) -> Cost:
        """Ask the webhook itself."""
        configuration = self._bench.cluster.get(MUTATING.path(name=MUTATING_NAME))
        bundle = b64decode(configuration["webhooks"][0]["clientConfig"]["caBundle"]).decode()
        context = ssl.create_default_context(cadata=bundle)
        context.check_hostname = False  # it is for localhost
        line = Line(self._operator.port("admission"), context)
        body = review(pod(SPACE, self._owner, annotations))

        def ask() -> None:
            line.send("POST", f"{POD_PATH}?timeout=5s", body, Content_Type="application/json")
            answer = line.read(answered)
            if b'"allowed":true' not in answer:
                sys.exit(f"a review was refused: {answer[:1000]!r}")

        return measure(ask, count, self._operator.cpu)

    def post(self, namespace: str, annotations: dict[str, str]) -> Callable[[], object]:
        """Return what creates a pod, as a dry run."""
        api, body = Api(), json.dumps(pod(namespace, self._owner, annotations)).encode()
        fields = {"Authorization": api.authorization, "Content_Type": "application/json"}

        def ask() -> None:
            api.send("POST", f"{POD.path(namespace)}?dryRun=All", body, **fields)
            answer = api.read(answered)
            if not answer.startswith(b"HTTP/1.1 201"):
                sys.exit(f"a pod was refused: {answer[:1000]!r}")

        return ask

    def added(self, annotations: dict[str, str], count: int) -> tuple[list[float], list[float]]:
        """Return the milliseconds of pods that are not annotated, and of others, created in turn."""
        asks, times = [self.post(SYSTEM, annotations), self.post(SPACE, annotations)], ([], [])  # type: ignore[var-annotated]
        for turn in range(2 * (count + WARM_UP)):
            start = time.perf_counter()
            asks[turn % 2]()
            times[turn % 2].append((time.perf_counter() - start) * 1000)
        return times[0][WARM_UP:], times[1][WARM_UP:]

    def flags(self, name: str, count: int) -> Cost:
        """Create FeatureFlags."""
        numbers = iter(range(count + WARM_UP))

        def ask() -> None:
            number = next(numbers)
            self._bench.api.create(FEATURE_FLAG, feature_flag(f"{name}-{number}", SPACE, 1 + number % 20))

        return measure(ask, count, self._operator.cpu)


def measure_admission(
    table: ComparisonTable, bench: BenchCluster, operator: MeasuredOperator, reviews: int, posts: int
) -> None:
    """Print all rows."""
    table.head("AdmissionReviews, asked directly")
    admission = Admission(bench, operator)
    for name, asked in ANNOTATIONS.items():
        cost = admission.direct(asked, reviews)
        table.row(f"{name}, p50", cost.p50, "ms", DIRECT[name], DIRECT_TARGET[name])
        table.row(f"{name}, p99", cost.p99, "ms")
        table.row(f"{name}, CPU", cost.cpu, "ms", 3 if name == "kubernetes" else 0.6)
    table.head("added to POST pods")
    for name, original in ADDED.items():
        without, with_us = admission.added(ANNOTATIONS[name], posts)
        more = statistics.median(with_us) - statistics.median(without)
        table.row(f"{name}, p50", max(0.0, more), "ms", original, ADDED_TARGET[name])
        table.row(f"{name}, p50 of the whole request", statistics.median(with_us), "ms")
        table.row(f"{name}, p99 of the whole request without us", p99(without), "ms")
        table.row(f"{name}, p99 of the whole request", p99(with_us), "ms")
    table.head("FeatureFlags created through the webhook")
    created = admission.flags("checked", posts)
    bench.cluster.delete(VALIDATING.path(name=VALIDATING_NAME))
    bare = admission.flags("unchecked", posts)
    bench.register(operator)
    table.row("p50", created.p50, "ms", 7.7, 5 + max(0.0, bare.p50 - BARE_MS))
    table.row("p50 without the webhook", bare.p50, "ms")
    table.row("CPU, with the status of each", created.cpu, "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="little of everything")
    options = parser.parse_args()
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    flags, many, reviews, posts = (20, 40, 50, 20) if options.quick else (1000, 5000, 2000, 300)
    table = ComparisonTable("original")
    with bench_cluster() as bench, bench.operator() as operator:
        bench.register(operator)
        fill(bench, flags, 0)
        pods(bench, many, flags)
        measure_admission(table, bench, operator, reviews, posts)
    sys.exit(0 if table.met else 1)


if __name__ == "__main__":
    main()
