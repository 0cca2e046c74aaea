"""What watt watches, for its benchmark: an API server with many Services, and a Consul agent with many services.

Both are real ones. A change is one request on a connection that stays open, and each change is one of another object.
The API server writes an audit log of reads, so that the requests of watt can be counted.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from bench.watch import NAMESPACE, Api, Line, answered, control_plane, kube
from tests.real import programs
from tests.real.consul import ConsulServer
from tests.real.controlplane import ControlPlane
from wigwag.kube.kinds import Kind

SERVICE = Kind("", "v1", "services", kind="Service")
RESOLVER = "consul"
"""The ConfigMap that says which services of Consul to watch."""
L = TypeVar("L", bound=Line)
_IDLE = 20.0
_WRITERS = 8
OBJECT_BYTES = 1000
"""About the size of a Service as compact JSON, without what only the server needs."""
_OTHER_BYTES = 480
"""Those of them that are no filler."""
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": ["get", "list", "watch"], "users": ["admin"]}, {"level": "None"}],
}


def service(number: int, size: int = OBJECT_BYTES) -> dict[str, Any]:
    """Return a Service of about so many bytes. It has no cluster IP, because there are not enough of them."""
    name = f"service-{number:05}"
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {"app": name, "tier": f"t{number % 7}"},
        "annotations": {"bench": f"{number:05}" * ((size - _OTHER_BYTES) // 5)},
    }
    spec = {"clusterIP": "None", "selector": {"app": name}, "ports": [{"name": "http", "port": 80 + number % 1000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


class Connections(Generic[L]):
    """Connections by number, which stay open. One that was idle for long is replaced: the server may have closed it."""

    def __init__(self, connect: Callable[[], L]) -> None:
        self._connect = connect
        self._open: dict[int, tuple[L, float]] = {}

    def get(self, number: int) -> L:
        now = time.monotonic()
        line, used = self._open.get(number, (None, now))
        if line is None or now - used > _IDLE:
            line = self._connect()
        self._open[number] = line, now
        return line

    def forget(self) -> None:
        """Forget all: the server was killed."""
        self._open.clear()


class KubernetesUpstream:
    """The API server, its Services, and who has asked it."""

    def __init__(self, plane: ControlPlane, audit: Path, size: int) -> None:
        """`size` is that of a Service, in bytes."""
        self.plane, self._audit, self._size = plane, audit, size
        self.connections = Connections(Api)
        self.services = 0

    def grow(self, services: int) -> None:
        """Create Services until there are so many."""
        asyncio.run(_create([service(number, self._size) for number in range(self.services, services)]))
        self.services = services

    def resolve(self, consul: ConsulUpstream, services: int) -> None:
        """Have so many services of Consul watched."""
        data = {"consulAddress": consul.address, "datacenter": "dc1", "services": " ".join(consul.names(services))}
        metadata = {
            "name": RESOLVER,
            "namespace": NAMESPACE,
            "annotations": {"getambassador.io/consul-resolver": "true"},
        }
        self.plane.cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    def change(self, number: int, revision: int, line: int = 0) -> float:
        """Change a Service by one of several connections; return when the request was sent."""
        body = json.dumps({"metadata": {"annotations": {"revision": str(revision)}}}).encode()
        return self.send("PATCH", number, body, line)

    def send(self, method: str, number: int, body: bytes, line: int = 0) -> float:
        """Send a request about a Service; return when that was."""
        path = SERVICE.path(NAMESPACE) if method == "POST" else SERVICE.path(NAMESPACE, f"service-{number:05}")
        connection = self.connections.get(line)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        start = time.perf_counter()
        connection.send(method, path, body, Authorization=connection.authorization, Content_Type=kind)
        status = connection.read(answered).split(maxsplit=2)[1]
        assert status.startswith(b"2"), f"{method} {path} was answered with {status!r}"
        return start

    def requests(self) -> int:
        """Return how many requests watt has made so far."""
        entries = [json.loads(line) for line in self._audit.read_text().splitlines()]
        return len({entry["auditID"] for entry in entries if entry.get("userAgent", "").startswith("wigwag/")})


async def _create(manifests: list[dict[str, Any]]) -> None:
    client, slots = kube(), asyncio.Semaphore(_WRITERS)

    async def create(manifest: dict[str, Any]) -> None:
        async with slots:
            await client.create(SERVICE, manifest)

    async with asyncio.TaskGroup() as group:
        for manifest in manifests:
            group.create_task(create(manifest))
    client.close()


class ConsulUpstream:
    """A Consul agent, and its services, each with one instance."""

    def __init__(self, server: ConsulServer) -> None:
        self.server = server
        self.address = server.consul.address.removeprefix("http://")
        self.connections = Connections(lambda: Line(int(self.address.rpartition(":")[2])))
        self.services = 0

    def names(self, services: int) -> list[str]:
        return [f"web-{number:04}" for number in range(services)]

    def grow(self, services: int) -> None:
        """Register services until there are so many."""
        for number in range(self.services, services):
            self.change(number, 0)
        self.services = max(self.services, services)

    def change(self, number: int, revision: int, line: int = 0) -> float:
        """Give the instance of a service another port; return when the request was sent."""
        name = f"web-{number:04}"
        instance = {"ID": f"{name}-1", "Name": name, "Address": "10.0.0.1", "Port": 1024 + revision % 60_000}
        body = json.dumps({**instance, "Tags": ["v1"], "Meta": {"version": "1"}}).encode()
        connection = self.connections.get(line)
        start = time.perf_counter()
        connection.send("PUT", "/v1/agent/service/register", body, Content_Type="application/json")
        status = connection.read(answered).split(maxsplit=2)[1]
        assert status == b"200", f"the registration was answered with {status!r}"
        return start

    def bare_change(self, number: int, revision: int) -> float:
        """Change a service; return the seconds until a query that waits for that is answered, on a bare connection."""
        path, line = f"/v1/health/service/web-{number:04}?passing=true", self.connections.get(-1)
        line.send("GET", path)
        index = re.search(rb"(?i)x-consul-index: (\d+)", line.read(answered))
        assert index, "Consul has told no index"
        line.send("GET", f"{path}&index={index[1].decode()}&wait=10s")
        time.sleep(0.05)
        start = self.change(number, revision)
        line.read(answered)
        return time.perf_counter() - start

    def restart(self, seconds: float) -> float:
        """Kill the agent, start it so many seconds later, and register everything again: it has forgotten all.

        Return when it was there again.
        """
        self.server.server.kill()
        time.sleep(seconds)
        self.server.server.start()
        back = time.perf_counter()
        self.connections.forget()
        services, self.services = self.services, 0
        self.grow(services)
        return back


@contextmanager
def kubernetes(size: int = OBJECT_BYTES) -> Iterator[KubernetesUpstream]:
    """Start an API server whose Services have about so many bytes."""
    with tempfile.TemporaryDirectory() as folder:
        policy, audit = Path(folder, "policy.json"), Path(folder, "audit.log")
        policy.write_text(json.dumps(_POLICY))
        audit.touch()
        with control_plane(f"--audit-policy-file={policy}", f"--audit-log-path={audit}") as plane:
            yield KubernetesUpstream(plane, audit, size)


@contextmanager
def consul(connections: int) -> Iterator[ConsulUpstream]:
    """Start an agent that allows a client so many connections."""
    program = programs.consul()
    with (
        tempfile.TemporaryDirectory() as folder,
        ConsulServer(Path(folder), program, connections=connections) as server,
    ):
        yield ConsulUpstream(server)
