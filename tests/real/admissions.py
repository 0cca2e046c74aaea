"""Admissions as load: pods that an API server is asked to create, for ever or all at once, on connections that stay.

    with AdmissionLoad(cluster, "team", SOURCE) as load:
        …
    assert load.refused == []

Every pod is a dry run, which webhooks are called for all the same. `Replicas` is what a Service is to the API server:
one address for the webhooks of several operators.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPSConnection
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from tests.agent.upstreams import Reader, Upstream, Writer
from tests.real.cluster import Cluster
from tests.real.test_admission import pod, unique
from tests.tunnel import until_either_ends
from wigwag.operator.admission.registration import POD_PATH


class Replicas(Upstream):
    """A port in front of several others: a connection goes to one that accepts it, each time to the next."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__(self._pass)
        self._ports, self._turn = list(ports), 0

    def leave(self, port: int) -> None:
        """Send new connections elsewhere, as a Service does with a pod that is being deleted; those there are stay."""
        self._ports = [each for each in self._ports if each != port]

    async def _pass(self, reader: Reader, writer: Writer) -> None:
        self._turn += 1
        ports = self._ports
        for at in range(len(ports)):
            try:
                there = await asyncio.open_connection("127.0.0.1", ports[(self._turn + at) % len(ports)])
            except OSError:
                continue
            try:
                await until_either_ends(_pump(reader, there[1]), _pump(there[0], writer))
                writer.close()  # not aborted: a response may be on its way
                await writer.wait_closed()
            finally:
                there[1].transport.abort()
            return


async def _pump(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


class JsonConnection:
    """A connection that posts JSON; one that was closed is opened again."""

    def __init__(self, url: str, authority: str, token: str = "") -> None:
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        context = ssl.create_default_context(cadata=authority)
        there = urlsplit(url)
        self._connection = HTTPSConnection(there.hostname or "", there.port, context=context, timeout=20)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Return status and body; 0 and why, if there was no answer."""
        try:
            self._connection.request("POST", path, json.dumps(body), self._headers)
            response = self._connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, HTTPException) as error:
            self._connection.close()
            return 0, {"message": repr(error)}

    def close(self) -> None:
        """Close it."""
        self._connection.close()


def to_cluster(cluster: Cluster) -> JsonConnection:
    """Return a connection to the API server."""
    return JsonConnection(cluster.access.server, cluster.access.authority, cluster.access.token)


def dry_run(connection: JsonConnection, namespace: str, annotations: Mapping[str, str]) -> tuple[bool, str]:
    """Have a pod admitted; tell whether it was injected, and what else was said."""
    body = pod(unique("load"), dict(annotations))
    status, answer = connection.post(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    injected = status == 201 and [each["name"] for each in answer["spec"].get("initContainers") or []] == ["flagd"]
    return injected, f"{status}: {answer.get('message', 'not injected')}"


def review(connection: JsonConnection, namespace: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Ask a webhook about a pod as the API server does; return its response."""
    request: dict[str, Any] = {"uid": unique("review"), "operation": "CREATE", "namespace": namespace}
    request |= {"kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod("app", dict(annotations))}
    envelope = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    status, answer = connection.post(POD_PATH, envelope)
    assert status == 200, answer
    response: dict[str, Any] = answer["response"]
    return response


class AdmissionLoad:
    """`with AdmissionLoad(…) as load:`; `refused` has what was said about pods that were not injected."""

    def __init__(self, cluster: Cluster, namespace: str, annotations: Mapping[str, str], threads: int = 4) -> None:
        self._cluster, self._namespace, self._annotations = cluster, namespace, annotations
        self._stop = threading.Event()
        self.injected, self.refused = 0, list[str]()
        self.threads = threads
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]

    def _run(self) -> None:
        connection = to_cluster(self._cluster)
        while not self._stop.is_set():
            injected, said = dry_run(connection, self._namespace, self._annotations)
            if injected:
                self.injected += 1
            else:
                self.refused.append(said)
        connection.close()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
