"""The operator on a real API server, controller-manager and scheduler: every figure beside that of the original.

    scripts/bench operator                                 1,000 flags and sources, 250 Flagds, 5,000 pods; 5 minutes
    scripts/bench operator --quick                         little of everything, in half a minute
    scripts/bench operator --only memory,restart           parts: start, memory, restart, admission, injection,
                                                           reconcile, rollout

The original's figures are those of open-feature-operator 0.9.2 (Go), measured in 2026 on such a machine against the
same servers. Times are from before a request is sent until a bare watch sees what comes of it, so the API server's own
share is in them. CPU is that of the operator alone. Requests are counted in the API server's audit log. Parts follow
each other in one cluster, so the later ones have all objects of the earlier ones present. Memory is that of the
process. It is restarted in a control group with 128 MiB, if this machine lets us make one. Exits 1 if a target is
missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench import operator_injection, operator_reconcile, operator_rollout
from bench.admission import measure_admission
from bench.memory_limit import MemoryLimit, memory_limit
from bench.operator_cluster import BenchCluster, MeasuredOperator, bench_cluster
from bench.operator_objects import fill, pods
from bench.table import ComparisonTable
from tests.real.operated import SYSTEM
from wigwag.kube.kinds import DEPLOYMENT, LEASE
from wigwag.operator.names import LEASE as LEASE_NAME
from wigwag.operator.names import PROXY

PARTS = ("start", "memory", "restart", "admission", "injection", "reconcile", "rollout")
LIMIT_MIB = 128


class Plan(NamedTuple):
    """How much of everything."""

    flags: int = 1000
    flagds: int = 250
    pods: int = 5000
    starts: int = 5
    reviews: int = 2000
    posts: int = 300
    first_pods: int = 30
    replicas: int = 500
    changes: int = 20
    proxied: int = 250
    workloads: int = 200
    quiet: float = 0.5
    """Seconds without a request that show that the operator has nothing to do."""


QUICK = Plan(20, 4, 40, 1, 50, 20, 5, 10, 2, 10, 10, quiet=0.1)


class Bench:
    """The parts, one after the other; the operator runs on between them."""

    def __init__(self, table: ComparisonTable, cluster: BenchCluster, plan: Plan) -> None:
        self.table, self.cluster, self.plan = table, cluster, plan
        self.operator: MeasuredOperator = cluster.operator()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the operator until the block ends: the one that is there then."""
        with self.cluster.operator() as first:  # compiles the modules, makes the certificates, registers the webhooks
            self.cluster.register(first)
            first.stop()
        self.operator.__enter__()
        try:
            yield
        finally:
            self.operator.__exit__(None, None, None)

    def _stopped(self) -> float:
        """Stop the operator; return the seconds that it took."""
        begun = time.perf_counter()
        code = self.operator.stop()
        seconds = time.perf_counter() - begun
        self.operator.__exit__(None, None, None)
        if code:
            sys.exit(f"the operator ended with {code}")
        return seconds

    def _again(self, limit: MemoryLimit = MemoryLimit(None)) -> None:  # noqa: B008 - a frozen value
        self.operator = self.cluster.operator()
        self.operator.limit = limit
        self.operator.__enter__()

    def start(self) -> None:
        """Start and stop it in a cluster where there is nothing to do."""
        table = self.table
        table.head("start and stop, no objects")
        started, stopped = [self.operator], []
        for _ in range(self.plan.starts):
            self.cluster.requests.settle()
            stopped.append(self._stopped())
            self._again()
            started.append(self.operator)
        serving, ready = (min(getattr(each, name) for each in started) for name in ("serving_ms", "ready_ms"))
        table.row(f"start until webhooks are served, best of {len(started)}", serving, "ms", 100, 1000)
        table.row(f"start until ready, best of {len(started)}", ready, "ms", 1100, 1000)
        self.cluster.requests.settle()
        table.row("start until ready and idle, CPU", self.operator.cpu() * 1000, "ms")
        table.row("memory", self.operator.rss(), "MiB", 50, 60)
        table.row("SIGTERM until the process has ended, worst", max(stopped) * 1000, "ms", 30_000, 2000)
        self._idle()

    def memory(self) -> None:
        """Create many objects while it runs."""
        table, plan = self.table, self.plan
        table.head(f"{plan.flags:,} FeatureFlags and FeatureFlagSources, {plan.flagds} Flagds")
        begun, cpu = time.perf_counter(), self.operator.cpu()
        fill(self.cluster, plan.flags, plan.flagds)
        self.cluster.requests.settle(4)
        objects = 2 * plan.flags + plan.flagds
        table.row("created, and reconciled, after", time.perf_counter() - begun - 4 * self.cluster.requests.quiet, "s")
        table.row("CPU per object", (self.operator.cpu() - cpu) / objects * 1000, "ms")
        table.row("memory", self.operator.rss(), "MiB", 62, 80)
        begun, cpu = time.perf_counter(), self.operator.cpu()
        pods(self.cluster, plan.pods, plan.flags)
        self.cluster.requests.settle(4)
        table.row(f"{plan.pods:,} pods more, after", time.perf_counter() - begun - 4 * self.cluster.requests.quiet, "s")
        table.row("CPU per pod, a fifth of them injected", (self.operator.cpu() - cpu) / plan.pods * 1000, "ms")
        table.row("memory", self.operator.rss(), "MiB", 145, 80)
        table.row("memory, peak", self.operator.peak(), "MiB", 178, LIMIT_MIB)

    def restart(self) -> None:
        """Stop it and start it again, with the memory that the original's chart gives it."""
        with memory_limit(LIMIT_MIB) as limit:
            self._restart(limit)
            self._first_reconcile()  # which ends the process in the group

    def _restart(self, limit: MemoryLimit) -> None:
        """Nothing may happen: nothing has changed meanwhile."""
        table, cluster = self.table, self.cluster
        table.head("restart, nothing has changed")
        before = self._generations()
        table.row("stop", self._stopped(), "s", 30, 2)
        lease = cluster.cluster.get(LEASE.path(SYSTEM, LEASE_NAME))
        table.row("Leases that are still held", bool(lease["spec"].get("holderIdentity")), "", 1, 0)
        mark = cluster.requests.mark()
        self._again(limit)
        cluster.requests.settle(4)
        requests = cluster.requests.since(mark)
        table.row("start until ready", self.operator.ready_ms / 1000, "s")
        table.row("requests", len(requests), "", 987, 100)
        table.row("requests that write", len(cluster.requests.writes(mark)), "", None, 0)
        after = self._generations()
        rolled = sum(after[each] != generation for each, generation in before.items())
        table.row("workloads that were rolled", rolled, "", 202, 0)
        table.row("memory", self.operator.rss(), "MiB", 154, 80)
        table.row("memory, peak", self.operator.peak(), "MiB", 178, LIMIT_MIB)
        if (kills := limit.kills()) is not None:
            table.row(f"in a limit of {LIMIT_MIB} MiB: killed", kills, "", 1, 0)
        table.row("CPU until idle", self.operator.cpu() * 1000, "ms")

    def _idle(self) -> None:
        """Count the requests of an operator that has nothing to do: those that probe its watches."""
        cluster, seconds = self.cluster, 80 * self.cluster.requests.quiet
        mark, cpu = cluster.requests.mark(), self.operator.cpu()
        time.sleep(seconds)
        requests = [each for each in cluster.requests.since(mark) if each["verb"] != "watch"]
        self.table.row("requests while nothing changes, per minute", len(requests) / seconds * 60, "")
        self.table.row("CPU while nothing changes, per second", (self.operator.cpu() - cpu) / seconds * 1000, "ms")

    def _first_reconcile(self) -> None:
        """Break something while nobody looks, and see when it is repaired."""
        cluster = self.cluster
        seen = cluster.watch(DEPLOYMENT.path(SYSTEM))
        operator_reconcile.proxy_source(cluster)
        seen.wait(lambda each: each.name == PROXY)
        self._stopped()
        cluster.api.delete(DEPLOYMENT, SYSTEM, PROXY)
        mark = len(seen.events)
        self._again()
        back = seen.wait(lambda each: each.kind == "ADDED" and each.name == PROXY, mark)
        self.table.row(
            "start until the first reconcile has made an object", back.time - self.operator.started, "s", 15, 3
        )
        operator_reconcile.no_proxy(cluster)

    def _generations(self) -> dict[str, int]:
        items = self.cluster.cluster.get(DEPLOYMENT.path())["items"]
        return {each["metadata"]["uid"]: each["metadata"]["generation"] for each in items}

    def admission(self) -> None:
        measure_admission(self.table, self.cluster, self.operator, self.plan.reviews, self.plan.posts)

    def injection(self) -> None:
        operator_injection.first_pods(self.table, self.cluster, self.plan.first_pods)
        operator_injection.large_deployment(self.table, self.cluster, self.operator, self.plan.replicas)
        operator_injection.source_later(self.table, self.cluster, self.plan.changes)

    def reconcile(self) -> None:
        operator_reconcile.proxies(self.table, self.cluster, self.operator, self.plan.changes, self.plan.proxied)
        operator_reconcile.flagds(self.table, self.cluster, self.operator, self.plan.changes)
        operator_reconcile.config_maps(self.table, self.cluster, self.operator, self.plan.changes)

    def rollout(self) -> None:
        operator_rollout.rollouts(self.table, self.cluster, self.operator, self.plan.workloads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    options = parser.parse_args()
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    table = ComparisonTable("original")
    plan = QUICK if options.quick else Plan()
    with bench_cluster(plan.quiet) as cluster:
        bench = Bench(table, cluster, plan)
        with bench.running():
            for part in options.only.split(","):
                getattr(bench, part)()
    sys.exit(0 if table.met else 1)


if __name__ == "__main__":
    main()
