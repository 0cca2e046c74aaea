"""What one change of one object costs, by how many objects there are: 500 to 5,000 FeatureFlags of five flags each.

    scripts/bench scale                     500, 1,000, 2,500 and 5,000 objects
    scripts/bench scale --objects 5000      only so many
    scripts/bench scale --state             with --state-dir, so that every change is written to disk, too
    scripts/bench scale --selector source=…  streams and requests with a selector
    scripts/bench scale --real 5000         the same from a real API server to an event stream, ten flags in each object

The agent is a real one in a process of its own, with all ports; the API server is replaced by a feed in that process,
so that its own CPU is not counted. An event stream and a sync stream are attached, and the sync stream is sent the
whole document after each change. Columns:

    first        from start until the first snapshot, and the longest turn and stall meanwhile
    served       from the arrival of the changed object until the new snapshot is current
    event        until the event stream has told a client
    CPU          of the process, for one change: without streams, and with both
    turn         the most CPU that the event loop's thread used between two ticks of a timer of 1 ms: median and worst
    stall        the longest time between two such ticks: as turn, but with what else the machine had to do
    evaluation   the longest time one OFREP request took during a change, asked again and again by another process

Exits 1 if a turn is longer than the target (median of the largest set), or if CPU grows faster than allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from types import MappingProxyType
from typing import IO, Any

import grpc
import uvloop
from msgspec import Raw
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2, sync_pb2_grpc

from bench.process import rss
from bench.watch import EVENTS, NAMESPACE, START, Line, agent, control_plane, create
from wigwag.agent.options import AgentOptions
from wigwag.agent.run import Agent, AgentDeps
from wigwag.kube.kinds import FEATURE_FLAG
from wigwag.serve.face.process import FEWER_SEARCHES, settle
from wigwag.sources.kubernetes.address import read_address
from wigwag.sources.kubernetes.objects import Contents, ObjectsWatch, decode_flag, watch_objects

SIZES = (500, 1_000, 2_500, 5_000)
FLAGS, CHANGES, WARM_UP = 5, 15, 3
OBJECTS = read_address("core.openfeature.dev/bench?labels=")
TURN_MS, GROWTH = 20.0, 5.0
"""Targets: of the largest set; and CPU of 5,000 objects against that of 500, where everything anew would be 10."""
TICK, IDLE_MS = 0.001, 25.0


def flag_object(number: int, revision: int) -> bytes:
    """Return a FeatureFlag as the API server sends it."""
    rule = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", {"in": [{"var": "email"}, ["a@x", "b@x"]]}, "on", "off"]}
    flag = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}
    flags: dict[str, Any] = {f"object-{number}-{n}": {**flag, "targeting": rule} for n in range(FLAGS)}
    flags[f"object-{number}-0"] = {**flag, "metadata": {"revision": revision}}
    about = {"name": f"object-{number:05}", "namespace": "bench", "resourceVersion": str(revision + 1)}
    return json.dumps({"metadata": about, "spec": {"flagSpec": {"flags": flags}}}).encode()


class Served:
    """The agent, and what is measured within its process."""

    def __init__(self, objects: int, options: AgentOptions) -> None:
        self._objects: dict[tuple[str, str], Contents] = {
            ("bench", f"object-{n:05}"): decode_flag(Raw(flag_object(n, 0))) for n in range(objects)
        }
        self._count, self._news = objects, asyncio.Event()
        self._arrived = self._served = self._gap = self._busy = 0.0
        self._ticking = True
        self._agent = Agent(options, AgentDeps(documents=self._documents, settled=settle))

    def _documents(self, _: object) -> Any:
        return watch_objects(ObjectsWatch(OBJECTS), self._follow)

    async def _follow(self, *_: object) -> AsyncIterator[Any]:
        while True:
            yield MappingProxyType(self._objects.copy())
            await self._news.wait()
            self._news.clear()

    async def _note(self) -> None:
        async for _ in self._agent.pipeline.published:
            self._served = time.perf_counter()

    def change(self, revision: int) -> None:
        """Have the feed tell of a changed object."""
        number = revision * 37 % self._count
        self._arrived = time.perf_counter()
        self._objects[("bench", f"object-{number:05}")] = decode_flag(Raw(flag_object(number, revision)))
        self._news.set()

    async def tick(self) -> None:
        """Notice the longest time for which the loop did not get to this."""
        while True:
            start, worked = time.perf_counter(), time.thread_time()
            await asyncio.sleep(TICK if self._ticking else 0.05)
            if self._ticking:
                self._gap = max(self._gap, time.perf_counter() - start - TICK)
                self._busy = max(self._busy, time.thread_time() - worked)

    def command(self, line: str) -> dict[str, Any]:
        """Do what the parent asks, and answer."""
        word, _, value = line.strip().partition(" ")
        if word == "change":
            self.change(int(value))
        elif word == "ticking":
            self._ticking = value == "on"
        answer = {
            "served": (self._served - self._arrived) * 1000,
            "stall": self._gap * 1000,
            "busy": self._busy * 1000,
            "cpu": time.process_time() * 1000,
            "addresses": self._agent.lifecycle.addresses,
            "memory": rss(),
            "number": self._agent.snapshots.value.number,
        }
        self._gap = self._busy = 0.0
        return answer

    async def run(self) -> None:
        """Serve until stdin ends."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        start = time.perf_counter()

        def listen() -> None:
            for line in sys.stdin:
                asyncio.run_coroutine_threadsafe(self._answer(line), loop).result()
            loop.call_soon_threadsafe(stop.set)

        async with asyncio.TaskGroup() as group:
            beside = [group.create_task(self.tick()), group.create_task(self._note())]
            running = group.create_task(self._agent.run(stop))
            await self._agent.lifecycle.started.wait()
            await self._agent.pipeline.published.after(0)
            print(json.dumps({"first": (time.perf_counter() - start) * 1000, **self.command("")}), flush=True)
            await asyncio.to_thread(listen)
            await running
            for task in beside:
                task.cancel()

    async def _answer(self, line: str) -> None:
        print(json.dumps(self.command(line)), flush=True)


class Child:
    """The process of the agent, as its parent sees it."""

    def __init__(self, objects: int, *options: str) -> None:
        command = [sys.executable, "-m", "bench.scale", "--serve", "--objects", str(objects), *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self._read()
        self.ports = {name: int(found[0].rpartition(":")[2]) for name, found in self.first["addresses"].items()}

    def ask(self, line: str) -> dict[str, Any]:
        stdin: IO[str] | None = self._process.stdin
        assert stdin
        stdin.write(line + "\n")
        stdin.flush()
        return self._read()

    def wait_until_idle(self) -> None:
        """Wait until what follows from the start, such as a look for problems, is done."""
        before = self.ask("")["cpu"]
        while True:
            time.sleep(0.5)
            now = self.ask("")["cpu"]
            if now - before < IDLE_MS:
                return
            before = now

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the agent gave up")
        return dict(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(20)


class Streams:
    """An event stream and a sync stream. `told` counts what came on each, `at` is when."""

    def __init__(self, ports: dict[str, int], selector: str) -> None:
        self.told, self.at, self._closed = {"event": 0, "sync": 0}, {"event": 0.0, "sync": 0.0}, False
        self._news = threading.Condition()
        self._events = http.client.HTTPConnection("127.0.0.1", ports["evaluation"])
        head = {"Content-Type": "application/connect+json", "Flagd-Selector": selector}
        self._events.request("POST", "/flagd.evaluation.v1.Service/EventStream", b"\0\0\0\0\2{}", head)
        options = [("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{ports['sync']}", options)
        request = sync_pb2.SyncFlagsRequest(selector=selector)
        self._sync = sync_pb2_grpc.FlagSyncServiceStub(self._channel).SyncFlags(request)
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read_events, self._read_sync)]
        for thread in self._threads:
            thread.start()

    def _note(self, name: str) -> None:
        with self._news:
            self.told[name] += 1
            self.at[name] = time.perf_counter()
            self._news.notify_all()

    def _read_events(self) -> None:
        response = self._events.getresponse()
        while piece := response.read1():
            if b"configuration_change" in piece:
                self._note("event")

    def _read_sync(self) -> None:
        try:
            for _ in self._sync:
                self._note("sync")
        except grpc.RpcError:
            if not self._closed:
                raise

    def wait(self, **wanted: int) -> None:
        """Wait until so many have come."""
        with self._news:
            if not self._news.wait_for(lambda: all(self.told[name] >= count for name, count in wanted.items()), 60):
                sys.exit(f"a change did not come through: {self.told} instead of {wanted}")

    def close(self) -> None:
        self._closed = True
        self._sync.cancel()
        self._channel.close()


class Prober:
    """Another process that evaluates again and again, and tells the longest time that one evaluation took."""

    def __init__(self, port: int, selector: str) -> None:
        command = [sys.executable, "-m", "bench.scale", "--probe", str(port), "--selector", selector]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def longest(self) -> float:
        """Return the longest since the last time this was asked, in milliseconds."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


def probe(port: int, selector: str) -> None:
    """Evaluate until stdin ends."""
    longest, lock = [0.0], threading.Lock()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.connect()
        while True:
            start = time.perf_counter()
            head = {"Content-Type": "application/json", "Flagd-Selector": selector}
            connection.request("POST", "/ofrep/v1/evaluate/flags/object-1-1", b'{"context":{"tier":"gold"}}', head)
            response = connection.getresponse()
            if not response.read() or response.status != 200:
                sys.exit("an evaluation failed")
            with lock:
                longest[0] = max(longest[0], time.perf_counter() - start)
            time.sleep(0.0005)

    threading.Thread(target=ask, daemon=True).start()
    for _ in sys.stdin:
        with lock:
            print(longest[0] * 1000, flush=True)
            longest[0] = 0.0


def cpu_of_changes(child: Child, first: int, streams: Streams | None, pause: float) -> float:
    """Return the CPU time of one change in milliseconds: all that follows from it, but nothing else."""
    before = child.ask("")["cpu"]
    for revision in range(first, first + CHANGES):
        told = dict(streams.told) if streams else {}
        number = child.ask(f"change {revision}")["number"]
        if streams:
            streams.wait(**{name: count + 1 for name, count in told.items()})
        while child.ask("")["number"] == number:
            time.sleep(0.01)
        time.sleep(pause)
    busy = child.ask("")["cpu"] - before
    before = child.ask("")["cpu"]
    time.sleep(pause * CHANGES)
    idle = child.ask("")["cpu"] - before
    return float((busy - idle) / CHANGES)


def measured(objects: int, selector: str, *options: str) -> dict[str, float]:
    """Return a row of the table."""
    child = Child(objects, *options)
    pause = 1.2 if "--state" in options else 0.25
    child.ask("ticking off")
    child.ask("change 1")
    child.wait_until_idle()
    alone = cpu_of_changes(child, 100, None, pause)
    streams = Streams(child.ports, selector)
    streams.wait(sync=1)
    child.wait_until_idle()
    both = cpu_of_changes(child, 200, streams, pause)
    prober = Prober(child.ports["OFREP"], selector)
    prober.longest()
    child.ask("ticking on")
    rows = []
    for revision in range(300, 300 + CHANGES + WARM_UP):
        time.sleep(pause)
        told = dict(streams.told)
        child.ask("")
        prober.longest()
        start = time.perf_counter()
        child.ask(f"change {revision}")
        streams.wait(**{name: count + 1 for name, count in told.items()})
        time.sleep(pause)
        found = child.ask("")
        event, sync = ((streams.at[name] - start) * 1000 for name in ("event", "sync"))
        rows.append((found["served"], event, sync, found["busy"], found["stall"], prober.longest()))
    rows = rows[WARM_UP:]
    memory = child.ask("")["memory"]
    prober.close()
    streams.close()
    child.close()
    columns = [list(column) for column in zip(*rows, strict=True)]
    times = dict(zip(("served", "event", "sync", "busy", "stall", "evaluation"), columns, strict=True))
    return {
        "first": child.first["first"],
        "first stall": child.first["stall"],
        "first busy": child.first["busy"],
        "served": statistics.median(times["served"]),
        "event": statistics.median(times["event"]),
        "sync": statistics.median(times["sync"]),
        "alone": alone,
        "both": both,
        "busy": statistics.median(times["busy"]),
        "worst busy": max(times["busy"]),
        "stall": statistics.median(times["stall"]),
        "worst stall": max(times["stall"]),
        "evaluation": statistics.median(times["evaluation"]),
        "worst evaluation": max(times["evaluation"]),
        "memory": memory,
    }


def table(sizes: list[int], selector: str, options: list[str]) -> bool:
    print("one change of one object (ms)")
    print(
        "objects   flags |  first  turn  stall | served  event   sync | CPU alone  with streams | turn  worst ", end=""
    )
    print("| stall  worst | evaluation  worst |  memory")
    rows = {}
    for objects in sizes:
        row = rows[objects] = measured(objects, selector, *options)
        print(
            f"{objects:>7,}{objects * FLAGS:>8,} |"
            f"{row['first']:>7.0f}{row['first busy']:>6.0f}{row['first stall']:>7.0f} |"
            f"{row['served']:>7.1f}{row['event']:>7.1f}{row['sync']:>7.1f} |"
            f"{row['alone']:>10.1f}{row['both']:>14.1f} |"
            f"{row['busy']:>5.1f}{row['worst busy']:>7.1f} |{row['stall']:>6.1f}{row['worst stall']:>7.1f} |"
            f"{row['evaluation']:>11.1f}{row['worst evaluation']:>7.1f} |{row['memory']:>5.0f} MB",
            flush=True,
        )
    least, most = rows[min(sizes)], rows[max(sizes)]
    met = most["busy"] <= TURN_MS and (len(sizes) == 1 or most["alone"] <= max(GROWTH * least["alone"], 10.0))
    print(f"targets: turn {TURN_MS:g} ms, CPU alone at most {GROWTH:g} times that of the smallest", end="")
    print("" if met else "   missed")
    return met


def real(objects: int) -> None:
    """Change one of many FeatureFlags of a real API server, and tell when a client of the agent knows."""
    with control_plane() as plane:
        uvloop.run(create(objects))
        with agent(f"{START} -f 'core.openfeature.dev/{NAMESPACE}?labels=bench=list'") as ours:
            print(f"{objects:,} objects: ready in {ours.ready_ms / 1000:.2f} s, {ours.rss():.0f} MB")
            line = Line(ours.ports["port"])
            line.send("POST", EVENTS, b"\0\0\0\0\2{}", Content_Type="application/connect+json")
            line.read(lambda found: b"provider_ready" in found)
            time.sleep(3)
            times, before = [], 0.0
            for revision in range(1, CHANGES + WARM_UP + 1):
                before = ours.cpu() if revision == WARM_UP + 1 else before
                name = f"f{revision:05}"
                news = {"flags": {f"{name}-0": {"metadata": {"revision": revision + objects}}}}
                start = time.perf_counter()
                plane.cluster.patch(FEATURE_FLAG.path(NAMESPACE, name), {"spec": {"flagSpec": news}})
                line.read(lambda found: b"configuration_change" in found)
                times.append((time.perf_counter() - start) * 1000)
                time.sleep(0.2)
            cost = (ours.cpu() - before) / CHANGES * 1000
            worst = max(times[WARM_UP:])
            print(f"from the PATCH to the event: p50 {statistics.median(times[WARM_UP:]):.1f} ms, max {worst:.1f} ms")
            print(f"CPU of the agent for a change: {cost:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, action="append", help="how many objects; may be repeated")
    parser.add_argument("--state", action="store_true", help="keep the flags on disk, too")
    parser.add_argument("--selector", default="", help="what streams and requests select")
    parser.add_argument("--real", type=int, metavar="N", help="against a real API server with so many objects")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--probe", type=int, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.real:
        real(told.real)
    elif told.probe:
        probe(told.probe, told.selector)
    elif told.serve:
        with tempfile.TemporaryDirectory() as folder:
            uvloop.run(served(told.objects[0], folder if told.state else ""))
    else:
        sys.exit(not table(told.objects or list(SIZES), told.selector, ["--state"] if told.state else []))


async def served(objects: int, state: str) -> None:
    """Make the agent within its loop."""
    gc.set_threshold(*FEWER_SEARCHES)
    ports: dict[str, Any] = {"port": 0, "management_port": 0, "sync_port": 0, "ofrep_port": 0}
    options = AgentOptions(uri=("file:objects.json",), bind="127.0.0.1", state_dir=state, **ports)
    await Served(objects, options).run()


if __name__ == "__main__":
    main()
