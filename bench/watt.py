"""watt against a real API server and a real Consul: how long from a change to the notify hook, and what it costs.

    scripts/bench watt                          100, 1,000 and 10,000 Services, 10, 300 and 1,000 services of Consul
    scripts/bench watt --quick                  100 and 1,000 Services, fewer changes
    scripts/bench watt --services 100,10000 --consul 10,300 --changes 50
    scripts/bench watt --services 10000 --only hooks --object-bytes 2400         a document of 35 MB
    scripts/bench watt --soak 600               random changes for so many seconds; memory must stay flat

Each row has our figure, that of the original, and the target. The original's were measured in 2026 with watt 0.7 (Go)
against the same servers on such a machine. Time is from before the change is sent until the hook writes its URL, or
has fetched what it asks for. So the API server's and Consul's own share is in it. CPU is that of watt without its
hooks, and without what it does when nothing changes. Exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.request import urlopen

from bench.process import ServerProcess, cpu_seconds, free_ports, peak_rss
from bench.table import ComparisonTable, figure
from bench.watch import NAMESPACE
from bench.watt_hooks import Asks, HookCalls, HookConfig, notify_hook
from bench.watt_upstreams import OBJECT_BYTES, ConsulUpstream, KubernetesUpstream, consul, kubernetes, service
from tests.real.processes import until

INTERVAL = 0.25
PAUSE = 0.32
"""Seconds between two changes: each finds the limiter idle."""
STARTS, WARM_UP = 3, 3
DEFAULT, RAISED = 200, 3000
"""Connections that a Consul agent allows a client."""
SLOTS = 1200
"""What --consul-connections is where the agent allows more."""
BARE_MS = 3.0
"""What Consul itself takes on a machine with nothing else to do; what it takes longer is not held against watt."""
TURNS_MS = 3000.0
"""Where watches take turns, a change of Consul is seen within so long."""
BURST, BURST_SECONDS = 1000, 5.0
JITTER = 0.1
"""Seconds by which the start of a hook may be late on a busy machine."""
CHANGED = 10
"""How many different objects are changed."""
Change: TypeAlias = Callable[[int, int], float]


class Original(NamedTuple):
    """Figures of watt 0.7, in ms and MiB."""

    first: float
    rss: float
    peak: float
    p50: float
    p99: float
    cpu: float
    consul_p50: float
    consul_cpu: float


ORIGINAL = {
    (100, 10): Original(267, 36, 45, 30, 71, 16.6, 18, 11),
    (100, 300): Original(676, 55, 69, 33, 107, 20, 19, 15),
    (1_000, 10): Original(757, 81, 157, 107, 210, 73, 80, 64),
    (1_000, 300): Original(743, 111, 182, 101, 222, 83, 113, 89),
    (10_000, 10): Original(7_900, 648, 1_165, 709, 1_454, 653, 659, 611),
    (10_000, 300): Original(154_000, 640, 1_187, 808, 1_155, 695, 922, 687),
}
"""By Services and services of Consul: measured 2026 with watt 0.7."""


class Targets(NamedTuple):
    """What ours must not exceed, in ms and MiB; None: it is only shown."""

    first: float | None = None
    rss: float | None = None
    p50: float | None = None
    cpu: float | None = None
    consul_p50: float | None = None
    consul_cpu: float | None = None


def targets(services: int, consul_services: int) -> Targets:
    """Return the targets; where there is none of its own, ours must not be worse than the original."""
    original = ORIGINAL.get((services, consul_services))
    if services <= 100 and consul_services <= 300:
        return Targets(original.first if original else None, 40 if consul_services <= 10 else 45, 15, 3, 10, 2)
    if services >= 10_000 and consul_services <= 300:
        return Targets(3_000, 150, 50, 10, 50, 10)
    return Targets(*original[:2], 50, 10, 50, 10) if original else Targets()


class Table(ComparisonTable):
    """The rows, and what they are compared by at the end."""

    def __init__(self) -> None:
        super().__init__("watt 0.7")
        self.cpu: dict[tuple[int, int], float] = {}
        """Milliseconds per change of a Service, by Services and services of Consul."""


class WattProcess(ServerProcess):
    """watt, which is ready when its notify hook was called for the first time."""

    def __init__(self, folder: Path, calls: HookCalls, hook: HookConfig, *options: str) -> None:
        [self.port] = free_ports(1)
        wigwag = f"{sys.executable} -m wigwag watt -s services -s configmaps -n {NAMESPACE} --port {self.port}"
        super().__init__(" ".join([wigwag, _hook_option(folder, hook), *options]), self.port)
        self.calls = calls

    def _ready(self) -> bool:
        return bool(self.calls.calls)

    def cpu(self) -> float:
        return cpu_seconds(self.process.pid)

    @property
    def peak(self) -> float:
        return peak_rss(self.process.pid)

    def snapshot(self, query: str = "") -> bytes:
        with urlopen(f"http://127.0.0.1:{self.port}/snapshots/latest?{query}", timeout=60) as response:
            return bytes(response.read())

    def idle_cpu(self, seconds: float = 2.0) -> float:
        """Return the CPU seconds per second while nothing changes."""
        before = self.cpu()
        time.sleep(seconds)
        return (self.cpu() - before) / seconds


def _hook_option(folder: Path, hook: HookConfig) -> str:
    """Return the option for a hook: a command is one, what has a projection needs a config file."""
    if isinstance(command := hook.get("command"), str):
        return f"--notify {shlex.quote(command)}"
    config = folder / "watt.json"
    config.write_text(json.dumps({"notify": [hook]}))
    return f"--config {config}"


@contextmanager
def watt(asks: Asks = "id", *options: str) -> Iterator[WattProcess]:
    names = [service(number)["metadata"]["name"] for number in range(CHANGED)]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        calls, hook = stack.enter_context(notify_hook(asks, folder, names))
        yield stack.enter_context(WattProcess(folder, calls, hook, *options))


class Measured(NamedTuple):
    """The cost of one change."""

    times: list[float]
    """Milliseconds from each change to its hook."""
    cpu: float
    """Milliseconds of CPU per change."""
    size: int
    """Bytes that a hook fetched."""

    @property
    def p50(self) -> float:
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.times, n=100)[-1]


_revisions = iter(range(1, 1 << 30))


def measure(process: WattProcess, change: Change, changes: int) -> Measured:
    """Change one object after the other, each time until the hook is done."""
    process.calls.settle(0.7)
    idle, times, start, cpu, size = process.idle_cpu(), [], 0.0, 0.0, 0
    for number in range(changes + WARM_UP):
        if number == WARM_UP:
            start, cpu = time.perf_counter(), process.cpu()
        calls = len(process.calls.calls)
        sent = change(number % CHANGED, next(_revisions))
        call = process.calls.wait(calls + 1)
        size = call.size
        times.append((call.time - sent) * 1000)
        time.sleep(PAUSE + random.random() * 0.05)
    seconds = time.perf_counter() - start
    used = process.cpu() - cpu - idle * seconds
    return Measured(times[WARM_UP:], max(0.0, used) / changes * 1000, size)


def one_size(
    table: Table, cluster: KubernetesUpstream, agent: ConsulUpstream, services: int, changes: int, *options: str
) -> None:
    """Measure one change of each kind with a hook that asks for nothing but the id."""
    original = ORIGINAL.get((cluster.services, services))
    goal, turns = targets(cluster.services, services), not options and services > 96
    agent.grow(services)
    cluster.resolve(agent, services)
    how = f", {' '.join(options)}" if options else ", watches take turns" if turns else ""
    table.head(f"{cluster.services:,} Services, {services:,} services of Consul{how}")
    starts = [_start_ms(*options) for _ in range(STARTS - 1)]
    with watt("id", *options) as process:
        best = min(process.ready_ms, *starts)
        table.row(f"first notify, best of {STARTS} starts", best, "ms", original and original.first, goal.first)
        table.row("first notify, CPU until then", process.cpu() * 1000, "ms")
        process.calls.settle(1.5)
        table.row("memory after the start", process.rss(), "MiB", original and original.rss, goal.rss)
        table.row("snapshot", len(process.snapshot()) / 1e6, "MB")
        table.row("CPU while nothing changes, per second", process.idle_cpu(3.0) * 1000, "ms")
        requests = cluster.requests()
        measured = measure(process, cluster.change, changes)
        table.row("Service change to notify, p50", measured.p50, "ms", original and original.p50, goal.p50)
        table.row("Service change to notify, p99", measured.p99, "ms", original and original.p99)
        table.row("Service change, CPU", measured.cpu, "ms", original and original.cpu, None if turns else goal.cpu)
        table.cpu[cluster.services, services] = measured.cpu
        asked = (cluster.requests() - requests) // (
            changes + WARM_UP
        )  # a comparison every few minutes is not of a change
        table.row("Service change, requests to the API server", asked, "", 24, 0)
        measured = measure(process, agent.change, changes // 2 if turns else changes)
        goal_p50 = TURNS_MS if turns else goal.consul_p50
        table.row("Consul change to notify, p50", measured.p50, "ms", original and original.consul_p50, goal_p50)
        goal_cpu = None if turns else goal.consul_cpu  # beside what the turns cost, it is hard to see
        table.row("Consul change, CPU", measured.cpu, "ms", original and original.consul_cpu, goal_cpu)
        table.row("peak memory", process.peak, "MiB", original and original.peak)


def _start_ms(*options: str) -> float:
    with watt("id", *options) as process:
        return process.ready_ms


def story(table: Table, cluster: KubernetesUpstream, agent: ConsulUpstream, changes: int) -> None:
    """Change an endpoint where there is little else. Nothing can be faster than a bare query that waits for it."""
    agent.grow(10)
    cluster.resolve(agent, 3)
    table.head(f"{cluster.services:,} Services, 3 services of Consul")
    bare = statistics.median(agent.bare_change(number % 3, next(_revisions)) for number in range(changes))
    table.row("endpoint change to a bare query of Consul, p50", bare * 1000, "ms")
    with watt() as process:
        before = len(process.calls.calls)
        measured = measure(process, lambda number, revision: agent.change(number % 3, revision), changes)
        table.row("endpoint change to notify, p50", measured.p50, "ms", 7, 7 + max(0.0, bare * 1000 - BARE_MS))
        table.row("endpoint change to notify, best", min(measured.times), "ms", 7)
        notifies = (len(process.calls.calls) - before) / (changes + WARM_UP)
        table.row("notifies per change", notifies, "", 1, 1)


def other_hooks(table: Table, cluster: KubernetesUpstream, agent: ConsulUpstream, changes: int) -> None:
    """Measure hooks that fetch something: what somebody asks for may grow with the number of objects."""
    original = ORIGINAL.get((cluster.services, 10))
    cluster.resolve(agent, 10)
    table.head(f"{cluster.services:,} Services, 10 services of Consul, hooks that fetch")
    for asks, p50, cpu in (("deltas", 50, 10), ("projection", 50, 10), ("document", 250, 150)):
        with watt(asks) as process:  # type: ignore[arg-type]
            measured = measure(process, cluster.change, changes)
            what = f"Service change until the hook has the {asks}, {figure(measured.size / 1e6)} MB"
            table.row(f"{what}, p50", measured.p50, "ms", original and original.p50, p50)
            table.row(f"{what}, p99", measured.p99, "ms", original and original.p99)
            table.row(f"{what}, CPU", measured.cpu, "ms", original and original.cpu, cpu)
            table.row("peak memory", process.peak, "MiB", original and original.peak)


def burst(table: Table, cluster: KubernetesUpstream, agent: ConsulUpstream) -> None:
    """Change much in a short time: one notify per interval, the last one soon after the last change."""
    cluster.resolve(agent, 10)
    table.head(f"{BURST:,} changes in {BURST_SECONDS:g} s, {cluster.services:,} Services, 10 services of Consul")
    peers = {"Service": (171, 3, 18_600, 14.9), "Consul": (39, 3, None, 2.8)}
    with watt() as process:
        for name, change in (("Service", cluster.change), ("Consul", agent.change)):
            process.calls.settle(1.0)
            before, cpu = len(process.calls.calls), process.cpu()
            last = _send(change, cluster.services if name == "Service" else 10)
            process.calls.settle(2.0)
            times = [call.time for call in process.calls.calls[before:]]
            most = max(sum(start <= each < start + INTERVAL - JITTER for each in times) for start in times)
            notifies, per_interval, late, used = peers[name]
            table.row(f"{name} changes, notifies", len(times), "", notifies)
            table.row(f"{name} changes, most notifies per interval", most, "", per_interval, 1)
            table.row(f"{name} changes, last notify late by", (times[-1] - last) * 1000, "ms", late, 500)
            table.row(f"{name} changes, CPU", process.cpu() - cpu, "s", used, 2)
        table.row("peak memory", process.peak, "MiB", 161)


def _send(change: Callable[[int, int, int], float], objects: int) -> float:
    """Send the changes evenly by several connections; return when the last one was sent."""
    lines, start = 4, time.perf_counter()
    ends = [0.0] * lines

    def send(line: int) -> None:
        for number in range(line, BURST, lines):
            time.sleep(max(0.0, start + number * BURST_SECONDS / BURST - time.perf_counter()))
            ends[line] = change(number % objects, next(_revisions), line)

    threads = [threading.Thread(target=send, args=(line,)) for line in range(lines)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(ends)


def away(table: Table, cluster: KubernetesUpstream, agent: ConsulUpstream, seconds: float) -> None:
    """Take the servers away and back; then see how long it takes until a change is in a snapshot."""
    cluster.resolve(agent, 10)
    table.head(f"servers that are away for {seconds:g} s")
    with watt() as process:
        process.calls.settle(1.0)
        back = agent.restart(seconds)
        agent.change(3, 7777)
        took = _seen(process, "service=web-0003", f'"Port": {1024 + 7777}') - back
        table.row("Consul away: back after", took, "s", 38, 2)
        process.calls.settle(1.0)
        cluster.plane.apiserver.kill()
        time.sleep(seconds)
        cluster.plane.apiserver.start()
        back = time.perf_counter()
        cluster.connections.forget()
        cluster.send("PATCH", 3, b'{"metadata": {"annotations": {"revision": "back"}}}')
        took = _seen(process, "name=service-00003", '"revision": "back"') - back
        table.row("API server away: back after", took, "s", 0.06, 1)


def _seen(process: WattProcess, query: str, text: str) -> float:
    """Wait until a text is in the newest snapshot, and return when that was."""
    until(lambda: text.encode() in process.snapshot(query), f"a snapshot with {text}", 120.0)
    return time.perf_counter()


def hook_runs(table: Table, cluster: KubernetesUpstream, agent: ConsulUpstream, services: int) -> None:
    """Count the calls of a watch hook that asks for services of Consul, until the first notify."""
    agent.grow(services)
    cluster.resolve(agent, 0)
    watches = [{"consul-address": agent.address, "service-name": name} for name in agent.names(services)]
    table.head(f"a watch hook, {cluster.services:,} Services, {services:,} services of Consul")
    with tempfile.TemporaryDirectory() as folder:
        answer, runs = Path(folder, "watches.json"), Path(folder, "runs")
        answer.write_text(json.dumps({"consul-watches": watches}))
        hook = Path(folder, "hook.sh")
        hook.write_text(f"wc -c >> {runs}\ncat {answer}\n")
        with watt("id", f"--watch 'sh {hook}'") as process:
            count = len(runs.read_text().splitlines())
            original = ORIGINAL.get((cluster.services, services))
            table.row("first notify", process.ready_ms, "ms", original and original.first, 3_000)
            table.row("runs of the watch hook until then", count, "", 301, 2)
            table.row("peak memory", process.peak, "MiB", original and original.peak)


def soak(seconds: float) -> None:
    """Change things at random, and compare the memory of the last third with that of the second."""
    table, chosen = Table(), random.Random(1)
    with kubernetes() as cluster, consul(DEFAULT) as agent:
        cluster.grow(1_000)
        agent.grow(50)
        cluster.resolve(agent, 10)
        with watt() as process:
            samples, end, spare = [], time.monotonic() + seconds, 5_000
            while time.monotonic() < end:
                number = chosen.randrange(1_000)
                kind = chosen.random()
                if kind < 0.6:
                    cluster.change(number, next(_revisions))
                elif kind < 0.8:
                    agent.change(number % 50, next(_revisions))
                elif kind < 0.95:
                    cluster.send("POST", 0, json.dumps(service(spare)).encode())
                    cluster.send("DELETE", spare, b"")
                    spare += 1
                else:
                    cluster.resolve(agent, chosen.randrange(1, 50))
                time.sleep(0.02)
                samples.append(process.rss())
            process.calls.settle(1.0)
            third = len(samples) // 3
            grown = statistics.median(samples[-third:]) - statistics.median(samples[third:-third])
            table.row(f"memory after {len(samples):,} changes in {seconds:g} s", samples[-1], "MiB")
            table.row("growth of memory from the second third to the last", grown, "MiB", None, 2)
            table.row("notifies", len(process.calls.calls), "")
            kept = len(json.loads(process.snapshot("kind=services"))["Kubernetes"]["services"])
            table.row("Services that are too many or missing", abs(kept - 1_000), "", None, 0)
    sys.exit(0 if table.met else 1)


def growth(table: Table) -> None:
    """Compare the cost of a change among 10,000 Services with that among 1,000."""
    small, big = (1_000, 10), (10_000, 10)
    if {small, big} <= table.cpu.keys():
        table.head("growth")
        ours, original = table.cpu[big] / table.cpu[small], ORIGINAL[big].cpu / ORIGINAL[small].cpu
        table.row("CPU of a Service change, 10,000 Services against 1,000", ours, "times", original, 2)


class Plan(NamedTuple):
    """What to measure."""

    sizes: list[int]
    counts: list[int]
    """Of services of Consul."""
    changes: int
    away: float
    """Seconds of an outage."""
    parts: list[str]


def all_counts(
    table: Table, cluster: KubernetesUpstream, agent: ConsulUpstream, large: ConsulUpstream, plan: Plan
) -> None:
    """Measure a size with each number of services of Consul; very many of them only once."""
    first = cluster.services == plan.sizes[0]
    if first:
        story(table, cluster, agent, plan.changes)
    for count in plan.counts if first else [each for each in plan.counts if each <= 300]:
        one_size(table, cluster, agent, count, plan.changes)
        if count > 96:
            one_size(table, cluster, large, count, plan.changes, f"--consul-connections={SLOTS}")


def other_parts(
    table: Table, cluster: KubernetesUpstream, agent: ConsulUpstream, large: ConsulUpstream, plan: Plan
) -> None:
    """Measure what is not measured for each number of services of Consul."""
    if "hooks" in plan.parts:
        other_hooks(table, cluster, agent, plan.changes)
    if "burst" in plan.parts and (cluster.services == 1_000 or len(plan.sizes) == 1):
        burst(table, cluster, agent)
    if "away" in plan.parts and cluster.services == plan.sizes[0]:
        away(table, cluster, agent, plan.away)
    if "watch" in plan.parts and cluster.services == plan.sizes[-1]:
        hook_runs(table, cluster, large, max(count for count in plan.counts if count <= 300))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="100 and 1,000 Services, fewer changes, short outages")
    parser.add_argument("--services", help="sizes, separated by commas")
    parser.add_argument("--consul", help="numbers of services of Consul, separated by commas")
    parser.add_argument("--changes", type=int, help="changes of each kind")
    parser.add_argument("--object-bytes", type=int, default=OBJECT_BYTES, help="the size of a Service")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="only a soak")
    parser.add_argument("--only", help="parts, separated by commas: sizes, hooks, burst, away, watch")
    options = parser.parse_args()
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    if options.soak:
        soak(options.soak)
    plan = Plan(
        _numbers(options.services or ("100,1000" if options.quick else "100,1000,10000")),
        _numbers(options.consul or ("10,300" if options.quick else "10,300,1000")),
        options.changes or (20 if options.quick else 50),
        5.0 if options.quick else 32.0,
        (options.only or "sizes,hooks,burst,away,watch").split(","),
    )
    table = Table()
    with kubernetes(options.object_bytes) as cluster, consul(DEFAULT) as agent, consul(RAISED) as large:
        for services in plan.sizes:
            cluster.grow(services)
            agent.grow(10)
            if "sizes" in plan.parts:
                all_counts(table, cluster, agent, large, plan)
            other_parts(table, cluster, agent, large, plan)
        growth(table)
    sys.exit(0 if table.met else 1)


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",")]


if __name__ == "__main__":
    main()
