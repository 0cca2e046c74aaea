"""A fleet on one machine: how long a change takes from the API server to the last agent, and what it costs on the way.

    scripts/bench fleet                     100 and 1,000 agents, 200 FeatureFlags, 50 namespaces; some ten minutes
    scripts/bench fleet --quick             100 agents, in two minutes
    scripts/bench fleet --agents 500 --providers kubernetes --json figures.json

API server, etcd, controller-manager, scheduler, operator and proxy are real processes; pods are kwok's, injected by the
operator's webhook, and `fleet_agents` answers at their addresses. An agent uses two FeatureFlags: one that the whole
fleet shares, and one of four of its namespace. It gets them through the proxy, which is started with the arguments of
the Deployment that the operator has made, or by watches of its own. Both are measured, in a cluster each.

Time is from before a change is sent to the API server, whose call of the operator's webhook is in it, until an agent
has the new flags; and until the status of the FeatureFlag says that all have. Requests are those of the operator, by
the audit log; writes of Events are among them. On a machine with few cores the agents' own CPU is in the times. Exits 1
if a status never says that all agents have a change.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.fleet_agents import FleetAgent, FleetConfig
from bench.operator_cluster import BenchCluster, MeasuredOperator, Sighting, Sightings, bench_cluster, together
from bench.operator_objects import asks, feature_flag, owner, placed, pod
from bench.process import ServerProcess, cpu_seconds, rss
from bench.table import figure
from tests.real import workloads
from tests.real.cluster import Namespace
from tests.real.operated import SYSTEM
from tests.real.processes import claim_port, until
from wigwag.kube.kinds import DEPLOYMENT, FEATURE_FLAG, FEATURE_FLAG_SOURCE, POD
from wigwag.operator.names import ALLOW_FROM, PROXY
from wigwag.operator.names import FEATURE_FLAG_SOURCE as SOURCE

PROVIDERS = ("flagd-proxy", "kubernetes")
SHARED = "shared/global"
ADDRESSES = "127.1.0.0/16"
"""Of pods: the operator reaches whoever listens there."""
PATIENCE = 120.0


class Plan(NamedTuple):
    """How much of everything."""

    agents: int
    flags: int = 200
    namespaces: int = 50
    changes: int = 20
    idle: float = 30.0
    """Seconds in which nothing is changed."""


class Figure(NamedTuple):
    """One row of one fleet."""

    part: str
    name: str
    value: float
    unit: str = ""


class Agents:
    """The process of all simulated agents."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "bench.fleet_agents", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._expect(b"listening")

    def begin(self, config: FleetConfig) -> None:
        """Have agents connect, and wait until each has its flags."""
        self._send(config)
        self._expect(b"ready")

    def times(self, wanted: Sequence[tuple[str, int]]) -> list[list[float]]:
        """Wait until all agents of flags have their revisions; return when, for each flag."""
        self._send(wanted)
        return msgspec.json.decode(self._line(), type=list[list[float]])

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _send(self, message: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        self._process.stdin.flush()

    def _expect(self, word: bytes) -> None:
        if (line := self._line().strip()) != word:
            sys.exit(f"the agents said {line!r} instead of {word!r}")

    def _line(self) -> bytes:
        assert self._process.stdout
        if not (line := self._process.stdout.readline()):
            sys.exit("the agents gave up")
        return line


class FleetCluster:
    """A cluster with the operator, and with all objects of a fleet."""

    def __init__(self, bench: BenchCluster, operator: MeasuredOperator, plan: Plan, provider: str, port: int) -> None:
        self.bench, self.operator, self.plan, self._provider, self._port = bench, operator, plan, provider, port
        self._teams = [f"team-{number:03}" for number in range(plan.namespaces)]
        names = [f"flags-{number:04}" for number in range(plan.flags - 1)]
        self.flags = {f"{self._teams[at % plan.namespaces]}/{name}": 0 for at, name in enumerate(names)} | {SHARED: 0}
        """The revision of each FeatureFlag."""

    def fill(self) -> None:
        """Make namespaces, flags, sources and pods, and wait until all pods run."""
        bench = self.bench
        space, name = SHARED.split("/")
        bench.namespaces([space, *self._teams])
        shared = feature_flag(name, space, 20)
        shared["metadata"]["annotations"] = {ALLOW_FROM: "*"}
        own = [each for each in self.flags if each != SHARED]
        bench.create_all(FEATURE_FLAG, [shared, *map(_team_flag, own)])
        bench.create_all(FEATURE_FLAG_SOURCE, [self._source(*each.split("/")) for each in own])
        if self._provider == "flagd-proxy":
            until(self._proxy_is_ready, "the proxy's Deployment", PATIENCE)
        owners = dict(zip(self._teams, together([partial(owner, bench, each) for each in self._teams]), strict=True))
        chosen = [own[at % len(own)].split("/") for at in range(self.plan.agents)]
        pods = [pod(team, owners[team], asks(name), f"web-{at:05}") for at, (team, name) in enumerate(chosen)]
        until(lambda: self._is_admitted(pods[-1]), "the operator knowing all of it", PATIENCE)
        bench.create_all(POD, pods)

    def _source(self, namespace: str, name: str) -> dict[str, Any]:
        entries = [{"source": each, "provider": self._provider} for each in (SHARED, name)]
        return placed(workloads.source(name, *entries, managementPort=self._port), namespace)

    def _proxy_is_ready(self) -> bool:
        answer = self.bench.cluster.rest.ask("GET", DEPLOYMENT.path(SYSTEM, PROXY))
        return answer.status == 200 and bool(answer.json["status"].get("readyReplicas"))

    def _is_admitted(self, manifest: dict[str, Any]) -> bool:
        path = f"{POD.path(manifest['metadata']['namespace'])}?dryRun=All"
        return self.bench.api.ask("POST", path, manifest)[0] == 201

    def agents(self) -> tuple[FleetAgent, ...]:
        """Wait until each pod has an address; return who is there."""

        def running() -> list[Any]:
            items = [each for each in self.bench.cluster.get(POD.path())["items"] if _is_agent(each)]
            return items if len(items) == self.plan.agents and all(map(_address, items)) else []

        pods = until(running, "all pods running", PATIENCE)
        return tuple(FleetAgent(_address(each), (SHARED, _own_flag(each))) for each in pods)

    @contextmanager
    def proxy(self, management: int) -> Iterator[ServerProcess | None]:
        """Run the proxy as its Deployment says, if it is needed."""
        if self._provider != "flagd-proxy":
            yield None
            return
        spec = self.bench.cluster.get(DEPLOYMENT.path(SYSTEM, PROXY))["spec"]["template"]["spec"]
        access = Namespace(self.bench.cluster, SYSTEM).account(spec["serviceAccountName"])
        config, mine = access.kubeconfig(self.bench.folder / "proxy.kubeconfig"), os.environ["KUBECONFIG"]
        command = f"{sys.executable} -m wigwag {' '.join(spec['containers'][0]['args'])} --bind 127.0.0.1"
        os.environ["KUBECONFIG"] = str(config)
        server = ServerProcess(command, management)
        try:
            server.__enter__()
        finally:
            os.environ["KUBECONFIG"] = mine
        try:
            yield server
        finally:
            server.__exit__(None, None, None)

    def is_reported(self) -> bool:
        """Tell whether the status of the shared flag says that all agents have it as it is now."""
        live = self.bench.cluster.get(FEATURE_FLAG.path(*SHARED.split("/")))
        return _is_complete(SHARED, self.flags[SHARED], Sighting(0.0, "", live))

    def change(self, flag: str) -> tuple[float, int]:
        """Change a flag; return when that was asked, and its new revision."""
        self.flags[flag] += 1
        namespace, name = flag.split("/")
        news = {f"{name}-0": {"metadata": {"revision": self.flags[flag]}}}
        start = time.monotonic()
        self.bench.api.patch(FEATURE_FLAG, namespace, name, {"spec": {"flagSpec": {"flags": news}}})
        return start, self.flags[flag]


def _team_flag(flag: str) -> dict[str, Any]:
    namespace, name = flag.split("/")
    return feature_flag(name, namespace, 5)


def _is_agent(each: dict[str, Any]) -> bool:
    return SOURCE in (each["metadata"].get("annotations") or {})


def _address(each: dict[str, Any]) -> str:
    return str(each["status"].get("podIP") or "")


def _own_flag(each: dict[str, Any]) -> str:
    about = each["metadata"]
    return f"{about['namespace']}/{about['annotations'][SOURCE]}"


class Statuses:
    """What FeatureFlags say about their agents, from now on."""

    def __init__(self, seen: Sightings) -> None:
        self._seen = seen

    def mark(self) -> int:
        return len(self._seen.events)

    def complete(self, flag: str, revision: int, mark: int) -> float:
        """Wait until the status says that all agents have a revision; return when, by `time.monotonic`."""
        try:
            found = self._seen.wait(partial(_is_complete, flag, revision), mark, PATIENCE)
        except SystemExit:
            said = [each.object.get("status") or {} for each in self._seen.events if _name(each) == flag]
            sys.exit(f"{flag}: not all agents have revision {revision}: {json.dumps(said[-1].get('agents'))[:2000]}")
        return found.time - time.perf_counter() + time.monotonic()


def _name(seen: Sighting) -> str:
    return f"{seen.object['metadata']['namespace']}/{seen.name}"


def _is_complete(flag: str, revision: int, seen: Sighting) -> bool:
    about, status = seen.object["metadata"], seen.object.get("status") or {}
    if _name(seen) != flag:
        return False
    said, agents = seen.object["spec"]["flagSpec"]["flags"], status.get("agents") or {}
    is_newest = said[f"{about['name']}-0"]["metadata"]["revision"] == revision
    is_said = agents.get("observedGeneration") == about["generation"] and agents.get("digest") == status.get("digest")
    return is_newest and is_said and agents.get("current") == agents.get("total")


class Usage:
    """What has been used so far."""

    def __init__(self, operator: MeasuredOperator, proxy: ServerProcess | None) -> None:
        page = operator.fetch("metrics", "/metrics")[1].decode()
        self.asks, self.statuses = (
            sum(
                float(value) for value in re.findall(rf"^wigwag_propagation_{name}_total\S* (\S+)$", page, re.MULTILINE)
            )
            for name in ("asks", "status_writes")
        )
        self.operator = operator.cpu()
        self.proxy = cpu_seconds(proxy.process.pid) if proxy else 0.0


class FleetBench:
    """The parts, one after the other."""

    def __init__(
        self,
        fleet: FleetCluster,
        agents: Agents,
        proxy: ServerProcess | None,
        statuses: Statuses,
        figures: list[Figure],
    ) -> None:
        self._fleet, self._agents, self._proxy, self._statuses, self._figures = fleet, agents, proxy, statuses, figures
        self._requests, self._plan = fleet.bench.requests, fleet.plan

    def _row(self, part: str, name: str, value: float, unit: str = "") -> None:
        self._figures.append(Figure(part, name, value, unit))
        print(f"{self._plan.agents} agents, {part}: {name}: {figure(value)} {unit}", file=sys.stderr, flush=True)

    def changes(self, part: str, flags: Sequence[str]) -> None:
        """Change flags one after the other."""
        arrived, last, said = list[float](), list[float](), list[float]()
        self._fleet_change(flags[0])  # not counted: what is touched for the first time
        self._requests.settle()
        mark, before = self._requests.mark(), Usage(self._fleet.operator, self._proxy)
        for flag in flags:
            times, complete = self._fleet_change(flag)
            arrived += times
            last.append(max(times))
            said.append(complete)
        self._requests.settle()
        ordered = sorted(arrived)
        self._row(part, "agents that have it, p50", ordered[len(ordered) // 2], "ms")
        self._row(part, "p99", ordered[int(len(ordered) * 0.99)], "ms")
        self._row(part, "the last agent, median of changes", statistics.median(last), "ms")
        self._row(part, "the last agent, worst change", max(last), "ms")
        self._row(part, "the status says that all have it, median", statistics.median(said), "ms")
        self._costs(part, mark, before, len(flags))

    def _fleet_change(self, flag: str) -> tuple[list[float], float]:
        """Change a flag; return the milliseconds until each agent had it, and until the status said so."""
        mark = self._statuses.mark()
        start, revision = self._fleet.change(flag)
        (times,) = self._agents.times([(flag, revision)])
        complete = self._statuses.complete(flag, revision, mark)
        return [(when - start) * 1000 for when in times], (complete - start) * 1000

    def _costs(self, part: str, mark: int, before: Usage, changes: int) -> None:
        requests = [each for each in self._requests.since(mark) if each["verb"] not in ("get", "list", "watch")]
        used = Usage(self._fleet.operator, self._proxy)
        self._row(part, "requests of the operator that write, per change", len(requests) / changes)
        self._row(part, "of them, the status of how many agents have it", (used.statuses - before.statuses) / changes)
        self._row(part, "questions to agents, per change", (used.asks - before.asks) / changes)
        self._row(part, "CPU of the operator, per change", (used.operator - before.operator) / changes * 1000, "ms")
        if self._proxy:
            self._row(part, "CPU of the proxy, per change", (used.proxy - before.proxy) / changes * 1000, "ms")

    def storm(self) -> None:
        """Change all flags at once."""
        part, flags = "all flags at once", list(self._fleet.flags)
        mark, before, known = self._requests.mark(), Usage(self._fleet.operator, self._proxy), self._statuses.mark()
        begun = time.monotonic()
        changed = together([partial(self._fleet.change, flag) for flag in flags])
        wanted = [(flag, revision) for flag, (_, revision) in zip(flags, changed, strict=True)]
        starts = [start for start, _ in changed]
        arrived = sorted(
            (when - start) * 1000
            for start, times in zip(starts, self._agents.times(wanted), strict=True)
            for when in times
        )
        complete = max(self._statuses.complete(*each, known) for each in wanted)
        self._requests.settle()
        self._row(part, "changes per second", len(flags) / (max(starts) - begun or 1.0))
        self._row(part, "agents that have it, p50", arrived[len(arrived) // 2], "ms")
        self._row(part, "p99", arrived[int(len(arrived) * 0.99)], "ms")
        self._row(part, "the last agent", arrived[-1], "ms")
        self._row(part, "every status says that all have it, after", (complete - begun) * 1000, "ms")
        writes = Usage(self._fleet.operator, self._proxy).statuses - before.statuses
        self._row(part, "writes of such a status, per second", writes / (complete - begun))
        self._costs(part, mark, before, len(flags))

    def idle(self) -> None:
        """Change nothing."""
        part, seconds = "nothing changes", self._plan.idle
        mark, before = self._requests.mark(), Usage(self._fleet.operator, self._proxy)
        time.sleep(seconds)
        used, requests = Usage(self._fleet.operator, self._proxy), self._requests.since(mark)
        writes = [each for each in requests if each["verb"] not in ("get", "list", "watch")]
        self._row(part, "requests of the operator that write, per minute", len(writes) / seconds * 60)
        self._row(part, "questions to agents, per second", (used.asks - before.asks) / seconds)
        self._row(part, "CPU of the operator, per second", (used.operator - before.operator) / seconds * 1000, "ms")

    def memory(self) -> None:
        part, bench = "memory", self._fleet.bench
        self._row(part, "operator", self._fleet.operator.rss(), "MiB")
        self._row(part, "operator, at most", self._fleet.operator.peak(), "MiB")
        if self._proxy:
            self._row(part, "proxy", self._proxy.rss(), "MiB")
        self._row(part, "API server", rss(bench.plane.apiserver.pid), "MiB")


def measure(plan: Plan, provider: str, quiet: float) -> list[Figure]:
    """Measure one fleet, in a cluster of its own."""
    figures: list[Figure] = []
    sync, metrics, management = claim_port(), claim_port(), claim_port()
    variables = {"FLAGD_PROXY_PORT": str(sync), "FLAGD_PROXY_MANAGEMENT_PORT": str(metrics)}
    with bench_cluster(quiet, ADDRESSES) as bench, bench.operator(**variables) as operator:
        bench.register(operator)
        fleet = FleetCluster(bench, operator, plan, provider, management)
        with closing(Agents(management)) as agents:  # which are asked as soon as there are pods
            fleet.fill()
            with fleet.proxy(metrics) as proxy:
                known = fleet.agents()
                agents.begin(FleetConfig(known, sync if proxy else 0))
                until(fleet.is_reported, "a status that says that all agents have the first flags", 3 * PATIENCE)
                statuses = Statuses(bench.watch(FEATURE_FLAG.path()))
                bench.requests.settle(4)
                run = FleetBench(fleet, agents, proxy, statuses, figures)
                run.changes("a flag that all agents use", [SHARED] * plan.changes)
                run.changes("a flag of one team", [known[at % len(known)].flags[1] for at in range(plan.changes)])
                run.storm()
                run.idle()
                run.memory()
                agents.close()  # before the proxy, which would end their streams
    return figures


def show(provider: str, found: dict[int, list[Figure]]) -> None:
    """Print the figures of fleets beside each other; with two, what the larger one takes more."""
    counts = list(found)
    print(f"\n{provider:60}" + "".join(f"{f'{count:,} agents':>16}" for count in counts) + f"{'growth':>10}")
    part = ""
    for rows in zip(*found.values(), strict=True):
        if rows[0].part != part:
            part = rows[0].part
            print(f" {part}")
        values = [each.value for each in rows]
        growth = f"{values[-1] / values[0]:.1f} x" if len(values) > 1 and values[0] else ""
        print(
            f"  {rows[0].name:58}" + "".join(f"{f'{figure(v)} {rows[0].unit}':>16}" for v in values) + f"{growth:>10}"
        )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="100 agents, and fewer changes")
    parser.add_argument("--agents", help="how many, separated by commas: a fleet of each size is measured")
    parser.add_argument("--flags", type=int, default=200)
    parser.add_argument("--namespaces", type=int, default=50)
    parser.add_argument("--changes", type=int, help="of each kind")
    parser.add_argument("--providers", default=",".join(PROVIDERS), help="separated by commas")
    parser.add_argument("--idle", type=float, help="seconds in which nothing is changed")
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    options = parser.parse_args()
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    counts = [int(each) for each in (options.agents or ("100" if options.quick else "100,1000")).split(",")]
    changes = options.changes or (5 if options.quick else 20)
    idle = options.idle if options.idle is not None else (10.0 if options.quick else 30.0)
    results: dict[str, dict[int, list[Figure]]] = {}
    print(f"{options.flags} FeatureFlags in {options.namespaces} namespaces, {os.cpu_count()} cores")
    for provider in options.providers.split(","):
        results[provider] = found = {}
        for agents in counts:
            found[agents] = measure(Plan(agents, options.flags, options.namespaces, changes, idle), provider, 0.5)
        show(provider, found)
    if options.json:
        options.json.write_text(json.dumps(_plain(results), indent=2) + "\n")


def _plain(results: dict[str, dict[int, list[Figure]]]) -> list[dict[str, Any]]:
    return [
        {"provider": provider, "agents": agents, **each._asdict()}
        for provider, found in results.items()
        for agents, figures in found.items()
        for each in figures
    ]


if __name__ == "__main__":
    main()
