"""What a pod waits for its admission: an AdmissionReview asked directly, and what `POST pods` takes longer with us.

    scripts/bench admission            2,000 reviews of each kind, 400 pods of each kind in turn
    scripts/bench admission --quick    a tenth of that

The webhooks run in a process of their own, over TLS, with our own CA. Directly, reviews come one after the other on one
connection, so p50 is the latency of a review and CPU is what the process used for it. The pods go to a real API server
with etcd beside it, as dry runs, so nothing is stored: with the webhooks registered, and before and after that. A pod
that is not annotated is not sent to us; what is added to it is the match conditions, which the API server evaluates. An
injected pod is sent twice (`reinvocationPolicy: IfNeeded`): the API server mounts a token into the new container. What
is behind the path reads the annotations and adds one container. Beside each figure is that of open-feature-operator
0.9.2 on a machine like ours, measured with another client. Exits 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import uvloop

from bench.watch import Api, Line, answered, control_plane
from tests.real.cluster import Cluster
from tests.real.processes import until
from wigwag.operator.admission.registration import MUTATING, MUTATING_NAME, POD_PATH, WebhookEndpoint, mutating
from wigwag.operator.admission.review import AdmissionRequest, AdmissionResponse, allowed, denied, patched
from wigwag.operator.admission.server import AdmissionService, admission_port
from wigwag.operator.certificates.rotation import advance
from wigwag.operator.certificates.secret import bundle, served
from wigwag.wire.server.server import serve
from wigwag.wire.tls import MemoryCertificate

ENABLED = {"openfeature.dev/enabled": "true", "openfeature.dev/featureflagsource": "flags"}
PODS = "/api/v1/namespaces/bench/pods"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
SIDECAR = {"name": "flagd", "image": "flagd", "restartPolicy": "Always", "args": ["start", "--port", "8013"]}
WARM_UP = 50


class Metadata(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] = {}
    owner_references: list[dict[str, Any]] = []


class Container(msgspec.Struct):
    name: str


class Containers(msgspec.Struct, rename="camel"):
    init_containers: list[Container] = []


class Pod(msgspec.Struct):
    metadata: Metadata
    spec: Containers


decode_pod = msgspec.json.Decoder(Pod).decode


def inject(request: AdmissionRequest) -> AdmissionResponse:
    """Add a container to pods that ask for it: about what injection does."""
    pod = decode_pod(request.object)
    if pod.metadata.annotations.get("openfeature.dev/enabled") != "true":
        return allowed("OpenFeature is disabled")
    if not pod.metadata.owner_references:
        return denied(403, "static or orphaned pods cannot be mutated")
    if any(container.name == "flagd" for container in pod.spec.init_containers):
        return allowed("injected already")
    place = "/spec/initContainers/-" if pod.spec.init_containers else "/spec/initContainers"
    return patched([{"op": "add", "path": place, "value": SIDECAR if pod.spec.init_containers else [SIDECAR]}])


def pod(annotations: dict[str, str]) -> dict[str, Any]:
    """Return a pod of about 3 KB, as a Deployment makes it."""
    variables = [{"name": f"SETTING_{number}", "value": "x" * 40} for number in range(20)]
    container = {"name": "app", "image": "registry.example/app:1", "env": variables, "ports": [{"containerPort": 80}]}
    about = {"generateName": "web-", "annotations": annotations, "ownerReferences": [OWNER]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 30}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}


def review(annotations: dict[str, str]) -> bytes:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"uid": "u", "kind": kind, "operation": "CREATE", "namespace": "bench", "object": pod(annotations)}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


class Cost(NamedTuple):
    """Milliseconds."""

    p50: float
    p99: float
    cpu: float


class Webhooks:
    """A process with the webhooks: its port, the CA to trust, and the CPU time it has used."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout
        self._process = process
        started = json.loads(process.stdout.readline())
        self.port, self.bundle = int(started["port"]), str(started["bundle"])

    def cpu(self) -> float:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@contextmanager
def webhooks() -> Iterator[Webhooks]:
    command, pipe = [sys.executable, "-m", "bench.admission", "--serve"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield Webhooks(process)
        process.communicate()


async def serve_webhooks() -> None:
    """Serve until standard input ends; each line of it is answered with the CPU seconds so far."""
    _, data = advance({}, ["127.0.0.1"], "", datetime.now(UTC))
    pair = served(data)
    assert pair
    port = admission_port(AdmissionService({POD_PATH: inject}), MemoryCertificate(*pair), "127.0.0.1", 0)
    async with serve(port.handler, [port.listener], port.limits) as server:
        print(json.dumps({"port": server.addresses[0].rpartition(":")[2], "bundle": bundle(data)}), flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(time.process_time(), flush=True)


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
    return Cost(statistics.median(times), statistics.quantiles(times, n=100)[98], cost)


def direct(target: Webhooks, annotations: dict[str, str], count: int) -> Cost:
    line = Line(target.port, ssl.create_default_context(cadata=target.bundle))
    body = review(annotations)

    def ask() -> None:
        line.send("POST", f"{POD_PATH}?timeout=5s", body, Content_Type="application/json")
        if b'"allowed":true' not in line.read(answered):
            sys.exit("a review was refused")

    return measure(ask, count, target.cpu)


def posts(annotations: dict[str, str]) -> Callable[[], bytes]:
    """Return what creates a pod, as a dry run."""
    api, body = Api(), json.dumps(pod(annotations)).encode()
    fields = {"Authorization": api.authorization, "Content_Type": "application/json"}

    def ask() -> bytes:
        api.send("POST", f"{PODS}?dryRun=All", body, **fields)
        answer = api.read(answered)
        if not answer.startswith(b"HTTP/1.1 201"):
            sys.exit(f"a pod was refused: {answer[:1000]!r}")
        return answer

    return ask


def register(cluster: Cluster, target: Webhooks) -> None:
    endpoint = WebhookEndpoint(target.bundle, url=f"https://127.0.0.1:{target.port}")
    cluster.apply(mutating(endpoint))
    until(lambda: b"initContainers" in posts(ENABLED)(), "the webhook being called")


def added(target: Webhooks, count: int) -> dict[str, tuple[Cost, Cost]]:
    """Return what pods cost without the webhooks and with them, by kind."""
    with control_plane() as plane:
        account = {"name": "default", "namespace": "bench"}
        plane.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        costs: list[dict[str, Cost]] = []
        for turn in range(3):  # without, with, and without again: an API server gets faster as it runs
            if turn == 1:
                register(plane.cluster, target)
            if turn == 2:
                plane.cluster.delete(MUTATING.path(name=MUTATING_NAME))
                until(lambda: b"initContainers" not in posts(ENABLED)(), "the webhook no longer being called")
            costs.append({name: measure(posts(annotations), count, target.cpu) for name, annotations in KINDS.items()})
    without = {name: Cost(*map(statistics.fmean, zip(costs[0][name], costs[2][name], strict=True))) for name in KINDS}
    return {name: (without[name], costs[1][name]) for name in KINDS}


KINDS: dict[str, dict[str, str]] = {"not annotated": {}, "annotated": ENABLED}
DIRECT = {"not annotated": (0.44, "0.44"), "annotated": (0.69, "0.69 (file) to 0.99 (http)")}
ADDED = {"not annotated": (0.5, "0.9-1.4"), "annotated": (3.0, "2.6-3.2 (file), 40-58 (kubernetes)")}
"""Targets for the median in ms, and what the original takes."""


def row(name: str, p50: float, rest: str, target: tuple[float, str]) -> bool:
    missed = "" if p50 <= target[0] else "   missed"
    print(f"{name:36}p50 {p50:6.2f} ms  {rest}  (target {target[0]:g}; the original {target[1]}){missed}")
    return p50 <= target[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve_webhooks())
        return
    share, met = 10 if options.quick else 1, True
    with webhooks() as target:
        for name, annotations in KINDS.items():
            cost = direct(target, annotations, 2000 // share)
            rest = f"p99 {cost.p99:6.2f}  CPU {cost.cpu:.2f}"
            met &= row(f"review directly, {name}", cost.p50, rest, DIRECT[name])
        for name, (before, after) in added(target, 400 // share).items():
            whole = f"{before.p50:.2f} to {after.p50:.2f}, p99 {before.p99:.2f} to {after.p99:.2f}"
            rest = f"(the request: p50 {whole})  CPU {after.cpu:.2f}"
            met &= row(f"added to POST pods, {name}", after.p50 - before.p50, rest, ADDED[name])
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
