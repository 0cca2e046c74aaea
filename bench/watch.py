"""From a change in the API server to a client: how long it takes, what it costs, and what the API server has to do.

    scripts/bench watch                     changes directly and through the proxy, a list of 10,000 objects, memory
    scripts/bench watch --quick             fewer changes, 1,000 objects
    scripts/bench watch --api-load          500 agents on one FeatureFlag directly, against 500 through one proxy
    scripts/bench watch --peer 'flagd start -f core.openfeature.dev/bench/flags -p {port} -m {management} -g {sync}'

The API server is a real one, on this machine, with etcd beside it and nobody else to serve: a controller-manager looks
at each change, too, and with two cores that alone makes it a millisecond later. Time is from before the PATCH is sent
until the event is at a client that listens to the agent. What no agent can change is told beside it: how long the PATCH
itself took to be answered, and how long it takes until a bare connection that does nothing but watch is told. Exits 1
if a target is missed. The first two are flagd's on a machine like ours with nothing else to do, so on a busy one they
tell how busy it is; a change that is late at a bare watch, too, is not held against the agent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from bench.agent import PORTS, Agent, document, report
from bench.process import rss
from bench.proxy import OURS as PROXY
from bench.proxy import Proxy
from tests.real import programs
from tests.real.controlplane import ControlPlane
from tests.real.processes import until
from wigwag.kube.client import Kube
from wigwag.kube.config.cluster import find_cluster
from wigwag.kube.kinds import FEATURE_FLAG
from wigwag.kube.watch.follow import watch_kube
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.spec import Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources.kubernetes.objects import decode_flag

NAMESPACE, NAME = "bench", "flags"
TARGET = f"core.openfeature.dev/{NAMESPACE}/{NAME}"
START = f"{sys.executable} -m wigwag start {PORTS} --bind 127.0.0.1"
EVENTS = "/flagd.evaluation.v1.Service/EventStream"
DIRECT = f"{START} -f {TARGET}"
MEDIAN_MS, WORST_MS, RSS_MB = 4.9, 11.0, 56.0
"""The first two are flagd's on such a machine."""
AGENTS, CHANGES, WARM_UP = 500, 20, 20
OWN = 2
"""Watches that the control plane may have of its own."""


def manifest(name: str, revision: int) -> dict[str, Any]:
    """Return the FeatureFlag that is changed, of three flags, or one of the many, of ten."""
    about = {"name": name, "namespace": NAMESPACE, "labels": {} if name == NAME else {"bench": "list"}}
    flags = json.loads(document(revision))["flags"]
    spec = {"flags": {f"{name}-{n}": flags[f"flag-{n}"] for n in range(3 if name == NAME else 10)}}
    return {
        "apiVersion": FEATURE_FLAG.api,
        "kind": "FeatureFlag",
        "metadata": about,
        "spec": {"flagSpec": spec},
    }


@contextmanager
def control_plane(*flags: str) -> Iterator[ControlPlane]:
    """Start an API server, without controllers that would watch, too; processes that start from now on use it.

    `flags` are further ones of the API server.
    """
    alone = programs.kubernetes()._replace(controllers=None)
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder), alone, flags) as plane:
        os.environ["KUBECONFIG"] = str(plane.cluster.access.kubeconfig(Path(folder) / "kubeconfig"))
        plane.cluster.add_namespace(NAMESPACE)
        plane.cluster.apply(manifest(NAME, 0))
        yield plane


def kube() -> Kube:
    return Kube(find_cluster(os.environ))


class Line:
    """A connection with nothing in between, so that no client of ours is measured with it."""

    def __init__(self, port: int, trust: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = trust.wrap_socket(plain, server_hostname="127.0.0.1") if trust else plain

    def send(self, method: str, path: str, body: bytes = b"", **fields: str) -> None:
        about = {"Host": "bench", "Content-Length": str(len(body)), **fields}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in about.items())
        self._socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    def read(self, whole: Callable[[bytes], bool]) -> bytes:
        """Return what comes, as soon as it is whole."""
        found = b""
        while not whole(found):
            piece = self._socket.recv(1 << 16)
            if not piece:
                sys.exit(f"the server hung up after {found[:200]!r}")
            found += piece
        return found

    def count(self) -> int:
        """Read up to the end, and return how many bytes came."""
        size, piece = 0, memoryview(bytearray(1 << 20))
        while found := self._socket.recv_into(piece):
            size += found
        self._socket.close()
        return size

    async def hear(self, word: bytes) -> float:
        """Wait until a word comes, and return when that was: not when the loop learns of it."""

        def read() -> float:
            self.read(lambda found: word in found)
            return time.perf_counter()

        return await asyncio.to_thread(read)


class Api(Line):
    """A connection to the API server."""

    def __init__(self) -> None:
        cluster = find_cluster(os.environ)
        super().__init__(int(cluster.server.rpartition(":")[2]), cluster.trust.context())
        self.authorization = f"Bearer {cluster.user.token}"


def answered(found: bytes) -> bool:
    """Tell whether this is all of an answer; a long one comes in chunks."""
    head, end, body = found.partition(b"\r\n\r\n")
    size = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end) and (len(body) == int(size[1]) if size else body.endswith(b"\r\n0\r\n\r\n"))


class Patches:
    """Changes the flag on a connection that stays open. Ours never uses one again for what it may not repeat."""

    def __init__(self) -> None:
        self._line = Api()

    def send(self, revision: int) -> tuple[float, float]:
        """Change the flag; return when that was asked, and when it was answered."""
        news = {"flags": {f"{NAME}-0": {"metadata": {"revision": revision}}}}
        body, path = json.dumps({"spec": {"flagSpec": news}}).encode(), FEATURE_FLAG.path(NAMESPACE, NAME)
        fields = {"Authorization": self._line.authorization, "Content_Type": "application/merge-patch+json"}
        start = time.perf_counter()
        self._line.send("PATCH", path, body, **fields)
        answer = self._line.read(answered)
        end = time.perf_counter()
        if not answer.startswith(b"HTTP/1.1 200"):
            sys.exit(f"the PATCH was answered with {answer[:200]!r}")
        return start, end


class Times(NamedTuple):
    """Milliseconds of one change."""

    patch: float
    event: float


async def changes_heard(line: Line, word: bytes, changes: int, base: int) -> list[Times]:
    """Return the times from a PATCH to its answer, and until a word is heard. Who sends it has its own process."""
    command, pipe = [sys.executable, "-m", "bench.watch", "--patch"], asyncio.subprocess.PIPE
    sender = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert sender.stdin
    ends = []
    for revision in range(base, base + changes + WARM_UP):
        await asyncio.sleep(0.05)
        sender.stdin.write(f"{revision}\n".encode())
        ends.append(await line.hear(word))
    sent = json.loads((await sender.communicate(b""))[0])
    times = [Times((done - start) * 1000, (end - start) * 1000) for (start, done), end in zip(sent, ends, strict=True)]
    return times[WARM_UP:]


async def changes_to_client(agent: Agent, changes: int, base: int) -> list[Times]:
    """Have a client told by an agent: an event stream over Connect."""
    line = Line(agent.ports["port"])
    line.send("POST", EVENTS, b"\0\0\0\0\2{}", Content_Type="application/connect+json")
    await line.hear(b"provider_ready")
    return await changes_heard(line, b"configuration_change", changes, base)


async def changes_to_bare_watch(changes: int, base: int) -> list[Times]:
    """Have a bare connection told by the API server: nothing that watches can be faster."""
    line = Api()
    query = f"watch=true&fieldSelector=metadata.name%3D{NAME}"
    line.send("GET", f"{FEATURE_FLAG.path(NAMESPACE)}?{query}", Authorization=line.authorization)
    await line.hear(b"ADDED")
    return await changes_heard(line, b"MODIFIED", changes, base)


def send_patches() -> None:
    """Change the flag to each revision that is read; in the end, tell when that was. The clock is the machine's."""
    patches = Patches()
    print(json.dumps([patches.send(int(line)) for line in sys.stdin]))


def told(name: str, times: list[Times], worst_allowed: float | None = None) -> bool:
    events = [each.event for each in times]
    middle, tail, worst = statistics.median(events), statistics.quantiles(events, n=100)[-1], max(events)
    good = worst_allowed is None or (middle <= MEDIAN_MS and worst <= worst_allowed)
    patch = statistics.median(each.patch for each in times)
    later = statistics.median(each.event - each.patch for each in times)
    print(f"{name:32} p50 {middle:5.1f} ms  p99 {tail:5.1f} ms  max {worst:5.1f} ms")
    print(f"{'':32} p50 of the PATCH's answer {patch:.1f} ms, from there on {later:.1f} ms")
    if worst_allowed is not None:
        print(f"{'':32} targets: p50 {MEDIAN_MS:g} ms, max {worst_allowed:.1f} ms{'' if good else '   missed'}")
    return good


@contextmanager
def agent(command: str) -> Iterator[Agent]:
    with tempfile.TemporaryDirectory() as folder, Agent(command, Path(folder)) as started:
        yield started


@contextmanager
def proxy() -> Iterator[Proxy]:
    with tempfile.TemporaryDirectory() as folder, Proxy(PROXY, Path(folder)) as started:
        yield started


def through(port: int) -> str:
    """Return the command of an agent behind a proxy."""
    sources = json.dumps([{"uri": f"127.0.0.1:{port}", "provider": "grpc", "selector": TARGET}])
    return f"{START} --sources '{sources.replace('{', '{{').replace('}', '}}')}'"


def latencies(changes: int, peer: str | None) -> bool:
    bare = uvloop.run(changes_to_bare_watch(changes, 500))
    told("change to a bare watch", bare)
    worst = max(WORST_MS, *(each.event for each in bare))
    with agent(DIRECT) as ours:
        met = told("change to client", uvloop.run(changes_to_client(ours, changes, 1_000)), worst)
        met &= report("memory of the agent", ours.rss(), "MB", RSS_MB)
    with proxy() as between, agent(through(between.port)) as ours:
        told("change to client, proxy between", uvloop.run(changes_to_client(ours, changes, 2_000)))
    if peer:
        with agent(peer) as other:
            told("change to client, peer", uvloop.run(changes_to_client(other, changes, 3_000)))
            print(f"{'memory of the peer':44}{other.rss():>9.1f} MB")
    return met


# many objects


async def create(objects: int) -> None:
    client, slots = kube(), asyncio.Semaphore(8)

    async def one(number: int) -> None:
        async with slots:
            await client.create(FEATURE_FLAG, manifest(f"f{number:05}", number))

    async with asyncio.TaskGroup() as group:
        for number in range(objects):
            group.create_task(one(number))
    client.close()


async def list_all() -> dict[str, float]:
    """List and decode in this process, and tell what that took."""
    client, before, start = kube(), rss(), time.perf_counter()
    client.capabilities.watch_list = "--pages" not in sys.argv
    async with closing(
        watch_kube(client, KubeWatch(FEATURE_FLAG, NAMESPACE, labels="bench=list"), decode_flag)
    ) as items:
        async for item in items:
            if isinstance(item, Unavailable | Unchanged):
                sys.exit(f"the list failed: {item}")
            size = sum(len(held[""]) for held in item.values()) / 1e6
            found = {"objects": len(item), "seconds": time.perf_counter() - start, "documents": size}
            break
    client.close()
    return {**found, "memory": rss() - before}


def listing(objects: int) -> None:
    start = time.perf_counter()
    uvloop.run(create(objects))
    print(f"\n{objects:,} FeatureFlags of 10 flags each, made in {time.perf_counter() - start:.0f} s")
    for how in ("--stream", "--pages"):
        command = [sys.executable, "-m", "bench.watch", "--list", how]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        size, memory = found["documents"], found["memory"]
        took = f"{found['seconds']:.2f} s, {memory:.0f} MB for {size:.0f} MB of documents"
        print(f"listed ({how[2:]}) and decoded: {took}")
    with agent(f"{START} -f 'core.openfeature.dev/{NAMESPACE}?labels=bench=list'") as ours:
        print(f"an agent on all of them: ready in {ours.ready_ms / 1000:.2f} s, {ours.rss():.0f} MB")


# what the API server has to do


async def watch_many(count: int) -> None:
    """Be so many agents: each has a connection of its own. Tell when all know, and on each line from stdin again."""
    revisions, clients, news = [-1] * count, [kube() for _ in range(count)], asyncio.Event()
    spec = KubeWatch(FEATURE_FLAG, NAMESPACE, NAME)

    async def follow(number: int) -> None:
        async with closing(watch_kube(clients[number], spec, decode_flag)) as items:
            async for item in items:
                if not isinstance(item, Unavailable | Unchanged):
                    text = next(iter(item.values()))[""]
                    found = re.search(rb'"revision": ?(\d+)', text)
                    revisions[number] = int(found[1]) if found else 0
                    news.set()

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(follow(number))
        while line := await asyncio.to_thread(sys.stdin.readline):
            wanted = int(line)
            while min(revisions) < wanted:
                await news.wait()
                news.clear()
            print("all", flush=True)
        os._exit(0)


class Load:
    """What an API server has done so far, by its own account."""

    def __init__(self, plane: ControlPlane) -> None:
        text = plane.cluster.rest.call("GET", "/metrics").body.decode()
        kind = [line for line in text.splitlines() if 'resource="featureflags"' in line and 'subresource=""' in line]
        self.watches = _sum(kind, "apiserver_longrunning_requests{", 'verb="WATCH"')
        self.requests = sum(
            _sum(kind, "apiserver_request_total{", f'verb="{verb}"') for verb in ("LIST", "WATCH", "GET")
        )
        fields = Path(f"/proc/{plane.apiserver.pid}/stat").read_text().rpartition(")")[2].split()
        self.cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.rss = rss(plane.apiserver.pid)


def _sum(lines: list[str], start: str, word: str) -> int:
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(start) and word in line)


@contextmanager
def crowd(command: list[str], processes: int = 1) -> Iterator[list[subprocess.Popen[str]]]:
    with ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(processes)
        ]
        try:
            yield started
        finally:
            for process in started:
                process.kill()


def wait(processes: list[subprocess.Popen[str]], revision: int) -> None:
    for process in processes:
        assert process.stdin
        process.stdin.write(f"{revision}\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout
        if not process.stdout.readline():
            sys.exit("the watchers gave up")


class Measured(NamedTuple):
    """What a crowd costs the API server."""

    watches: int
    times: list[float]
    cpu: float
    rss: float


def measured(plane: ControlPlane, processes: list[subprocess.Popen[str]], base: int) -> Measured:
    """Change the flag a few times, each time until all have it."""
    patches = Patches()
    patches.send(base)
    wait(processes, base)
    before = Load(plane)
    times = []
    for revision in range(base + 1, base + 1 + CHANGES):
        start = time.perf_counter()
        patches.send(revision)
        wait(processes, revision)
        times.append((time.perf_counter() - start) * 1000)
    after = Load(plane)
    return Measured(after.watches, times, (after.cpu - before.cpu) / CHANGES * 1000, after.rss)


def table(name: str, plane: ControlPlane, others: Load, found: Measured) -> None:
    """Print a row. A watch is counted as a request when it ends, so all have ended by now."""
    until(lambda: Load(plane).watches <= OWN, "the end of all watches")
    left = Load(plane)
    watches, requests = found.watches - left.watches, left.requests - others.requests
    print(f"{name:20}{watches:>8}{requests:>10}{statistics.median(found.times):>16.0f} ms", end="")
    print(f"{found.cpu:>14.1f} ms{found.rss:>9.0f} MB")


def api_load() -> None:
    print(f"{AGENTS} on one flag      watches  requests  until all have it  CPU per change   memory")
    here = [sys.executable, "-m", "bench.watch", "--watchers", str(AGENTS // 2)]
    with control_plane() as plane:
        others = Load(plane)
        with crowd(here, 2) as processes:
            found = measured(plane, processes, 10_000)
        table("directly", plane, others, found)
    with control_plane() as plane:
        others = Load(plane)
        with proxy() as between:
            there = [sys.executable, "-m", "bench.proxy", "--subscribe", str(between.port), TARGET, *2 * [str(AGENTS)]]
            with crowd(there) as processes:
                found = measured(plane, processes, 20_000)
        table("through one proxy", plane, others, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer changes, 1,000 objects")
    parser.add_argument("--api-load", action="store_true", help="count watches and requests of 500 agents instead")
    parser.add_argument("--peer", help="a command with {port}, {management} and {sync}")
    for name in ("--stream", "--pages", "--list", "--patch"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--watchers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.list:
        print(json.dumps(uvloop.run(list_all())))
    elif options.patch:
        send_patches()
    elif options.watchers:
        uvloop.run(watch_many(options.watchers))
    elif options.api_load:
        api_load()
    else:
        with control_plane():
            met = latencies(100 if options.quick else 300, options.peer)
            listing(1_000 if options.quick else 10_000)
        sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
