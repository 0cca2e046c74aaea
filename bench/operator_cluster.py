"""A cluster for the operator's benchmark: a control plane, fake nodes, the operator as a process, and its requests.

Everything is real but the kubelets: pods become ready as soon as they are scheduled (`tests.real.fakenodes`). The
operator has an account of its own, and the API server writes an audit log of that account: so its requests can be
counted. What the benchmark itself asks for goes through connections that stay open. When something was seen is noted by
a watch that does nothing else.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from bench.memory_limit import MemoryLimit
from bench.process import cpu_seconds, peak_rss, rss
from bench.watch import Api, Line, answered
from bench.watt_upstreams import Connections
from tests.real import programs
from tests.real.cluster import Cluster
from tests.real.controlplane import ControlPlane
from tests.real.fakenodes import FakeNodes
from tests.real.operated import SYSTEM, install
from tests.real.operators import OperatorProcess
from tests.real.processes import claim_port, until
from wigwag.kube.kinds import NAMESPACE, POD, SERVICE_ACCOUNT, Kind

T = TypeVar("T")
ACCOUNT = "operator"
THREADS, NODES = 8, 4
LONG = 600.0
_RBAC = "rbac.authorization.k8s.io"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"]}, {"level": "None"}],
}


class Asker:
    """Requests to the API server on connections that stay open, one for each thread."""

    def __init__(self) -> None:
        self._connections = Connections(Api)

    def ask(self, method: str, path: str, body: Any = None, media: str = "application/json") -> tuple[int, Any]:
        """Send a request; return status and body."""
        line = self._connections.get(threading.get_ident())
        content = b"" if body is None else json.dumps(body).encode()
        line.send(method, path, content, Authorization=line.authorization, Content_Type=media)
        answer = line.read(answered)
        head, _, payload = answer.partition(b"\r\n\r\n")
        return int(head.split(maxsplit=2)[1]), payload

    def call(self, method: str, path: str, body: Any = None, media: str = "application/json") -> float:
        """Send a request that must succeed; return when that was."""
        start = time.perf_counter()
        status, payload = self.ask(method, path, body, media)
        if status >= 300:
            sys.exit(f"{method} {path} was answered with {status}: {payload[:1000]!r}")
        return start

    def create(self, kind: Kind, manifest: dict[str, Any]) -> float:
        """Create an object; return when that was asked."""
        body = {**manifest, "apiVersion": kind.api, "kind": kind.kind}
        return self.call("POST", kind.path(manifest["metadata"].get("namespace", "")), body)

    def patch(self, kind: Kind, namespace: str, name: str, change: Any) -> float:
        """Merge a change into an object; return when that was asked."""
        return self.call("PATCH", kind.path(namespace, name), change, "application/merge-patch+json")

    def delete(self, kind: Kind, namespace: str, name: str) -> float:
        """Delete an object; return when that was asked."""
        return self.call("DELETE", kind.path(namespace, name))


def together(calls: Sequence[Callable[[], T]], threads: int = THREADS) -> list[T]:
    """Run functions in threads; return their results in order."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda call: call(), calls))


class Sighting(NamedTuple):
    """An event of a watch, and when it was seen."""

    time: float
    kind: str
    """ADDED, MODIFIED or DELETED."""
    object: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])


class Sightings:
    """All events of a watch from now on, read in a thread of its own."""

    def __init__(self, cluster: Cluster, path: str) -> None:
        version = cluster.rest.call("GET", path, query={"limit": 1}).json["metadata"]["resourceVersion"]
        self.events: list[Sighting] = []
        self._news = threading.Condition()
        threading.Thread(target=self._read, args=(cluster, path, version), daemon=True).start()

    def _read(self, cluster: Cluster, path: str, version: str) -> None:
        """Read until the server is gone; one that is busy may end a watch, which then goes on from where it was."""
        while True:
            query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "3600"}
            try:
                with cluster.rest.lines(path, query, timeout=3600) as lines:
                    for line in lines:
                        if line["type"] == "ERROR":  # it is too late to go on
                            return
                        version = line["object"]["metadata"]["resourceVersion"]
                        with self._news:
                            self.events.append(Sighting(time.perf_counter(), line["type"], line["object"]))
                            self._news.notify_all()
            except (ValueError, HTTPException, ConnectionResetError):
                continue
            except OSError:
                return

    def wait(self, wanted: Callable[[Sighting], object], after: int = 0, timeout: float = LONG) -> Sighting:
        """Return the first event, after so many, that is wanted."""
        at = after
        deadline = time.monotonic() + timeout
        with self._news:
            while True:
                while at < len(self.events):
                    at += 1
                    if wanted(self.events[at - 1]):
                        return self.events[at - 1]
                if not self._news.wait(deadline - time.monotonic()):
                    sys.exit(f"what was awaited did not happen within {timeout:g} s")


class RequestLog:
    """The requests of the operator."""

    def __init__(self, path: Path, quiet: float) -> None:
        """`quiet` is how many seconds without a request show that the operator has nothing to do."""
        self._path, self.quiet = path, quiet

    def mark(self) -> int:
        """Return where the log ends now."""
        return self._path.stat().st_size

    def since(self, mark: int) -> list[dict[str, Any]]:
        """Return the requests after a mark, without renewals of the Lease; the end of a watch is not a request."""
        with self._path.open("rb") as file:
            file.seek(max(0, mark - 1))
            content = file.read()  # at once: the server writes on
        lines = (content.partition(b"\n")[2] if mark else content).split(b"\n")  # not one that was being written then
        entries = [json.loads(line) for line in lines[:-1]]  # nor one that is now
        requests = {
            each["auditID"]: each for each in entries if each["stage"] != "ResponseComplete" or not _is_watch(each)
        }
        return [each for each in requests.values() if each["objectRef"].get("resource") != "leases"]

    def writes(self, mark: int) -> list[dict[str, Any]]:
        """Return those that change something, without Events, which say what was changed."""
        reads = ("get", "list", "watch")
        return [each for each in self.since(mark) if each["verb"] not in reads and _resource(each) != "events"]

    def settle(self, times: float = 1.0) -> None:
        """Wait until the operator has asked for nothing, so many times as long as it takes to be sure."""
        mark, since = self.mark(), time.monotonic()
        while time.monotonic() - since < times * self.quiet:
            time.sleep(0.05)
            if self.since(mark):
                mark, since = self.mark(), time.monotonic()


def _is_watch(entry: dict[str, Any]) -> bool:
    return bool(entry["verb"] == "watch")


def _resource(entry: dict[str, Any]) -> str:
    return str(entry["objectRef"].get("resource"))


class MeasuredOperator(OperatorProcess):
    """The operator, and how long it took to start: until a TLS handshake with the webhooks, and until it is ready."""

    serving_ms = ready_ms = 0.0
    limit = MemoryLimit(None)

    def spawn(self) -> subprocess.Popen[str]:
        process = super().spawn()
        self.limit.add(process.pid)
        return process

    def __enter__(self) -> Self:
        self.started = time.perf_counter()
        super().__enter__()
        return self

    def wait_for_log(self, wanted: Callable[[dict[str, Any]], bool], after: int = 0) -> dict[str, Any]:
        line = super().wait_for_log(wanted, after)
        if not self.ready_ms:
            until(self._shakes_hands, "a TLS handshake with the webhooks")
            self.serving_ms = (time.perf_counter() - self.started) * 1000
            until(lambda: self.fetch("probes", "/readyz")[0] == 200, "a ready operator")
            self.ready_ms = (time.perf_counter() - self.started) * 1000
        return line

    def _shakes_hands(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            Line(self.port("admission"), context)
        except OSError:
            return False
        return True

    def cpu(self) -> float:
        """Return the CPU seconds so far."""
        return cpu_seconds(self.process.pid)

    def rss(self) -> float:
        return rss(self.process.pid)

    def peak(self) -> float:
        return peak_rss(self.process.pid)


class BenchCluster:
    """The cluster; the operator in it is started, stopped and started again."""

    def __init__(self, plane: ControlPlane, folder: Path, audit: Path, quiet: float) -> None:
        self.plane, self.cluster, self.folder = plane, plane.cluster, folder
        self.requests, self.api = RequestLog(audit, quiet), Asker()
        self._port = claim_port()
        account = {"name": ACCOUNT, "namespace": SYSTEM}
        access = plane.cluster.add_namespace(SYSTEM).account(ACCOUNT)
        role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
        binding = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "bench-operator"}}
        subjects = [{"kind": "ServiceAccount", **account}]
        plane.cluster.apply({**binding, "roleRef": role, "subjects": subjects})
        self._config = access.kubeconfig(folder / "operator.kubeconfig")

    def operator(self, *options: str, **variables: str) -> MeasuredOperator:
        """Return an operator that is not started yet; `variables` are of its environment."""
        environment = {"KUBECONFIG": str(self._config), "POD_NAMESPACE": SYSTEM, **variables}
        address = f"--webhook-bind-address=127.0.0.1:{self._port}"
        return MeasuredOperator("--leader-elect", address, *options, ready=False, environment=environment)

    def register(self, operator: OperatorProcess) -> None:
        """Have the webhooks called, and wait until they are."""
        operator.register(self.cluster, namespace=SYSTEM)
        about = {"name": "orphan", "annotations": {"openfeature.dev/enabled": "true"}}
        spec = {"containers": [{"name": "app", "image": "app"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
        path = f"{POD.path('default')}?dryRun=All"
        until(lambda: b"orphaned" in self.api.ask("POST", path, pod)[1], "a call of the webhooks")

    def namespaces(self, names: Sequence[str]) -> None:
        """Make namespaces that are ready for pods."""
        together([partial(self.api.create, NAMESPACE, {"metadata": {"name": name}}) for name in names])
        for name in names:
            account = SERVICE_ACCOUNT.path(name, "default")
            until(lambda path=account: self.api.ask("GET", path)[0] == 200, f"the account of {name}")  # type: ignore[misc]

    def create_all(self, kind: Kind, manifests: Sequence[dict[str, Any]]) -> None:
        """Create many objects of a kind."""
        together([partial(self.api.create, kind, body) for body in manifests])

    def watch(self, path: str) -> Sightings:
        """Note when objects change, from now on."""
        return Sightings(self.cluster, path)


@contextmanager
def bench_cluster(quiet: float = 0.5, addresses: str = "10.1.0.0/16") -> Iterator[BenchCluster]:
    """Start it all but the operator; `quiet` is as for `RequestLog`, `addresses` as for `FakeNodes`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        policy, audit = folder / "policy.json", folder / "audit.log"
        policy.write_text(json.dumps(_POLICY))
        audit.touch()
        flags = (
            f"--audit-policy-file={policy}",
            f"--audit-log-path={audit}",
            "--service-cluster-ip-range=10.2.0.0/16",  # enough for a Service of each Flagd
        )
        plane = ControlPlane(folder / "plane", programs.kubernetes(), flags)
        with plane, FakeNodes(plane, NODES, addresses):
            os.environ["KUBECONFIG"] = str(plane.cluster.access.kubeconfig(folder / "kubeconfig"))
            install(plane.cluster)
            yield BenchCluster(plane, folder, audit, quiet)
