"""An API server on loopback that does what the test says, request by request."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.sources.faulty import DROP, Asked, Server, serving, whole
from wigwag.kube.client import Kube, KubeDeps
from wigwag.kube.config.cluster import Cluster, KubeUser
from wigwag.kube.config.tls import ClusterTrust
from wigwag.kube.kinds import CONFIG_MAP
from wigwag.kube.watch.decode import END, Decode, plain
from wigwag.kube.watch.follow import watch_kube
from wigwag.kube.watch.listwatch import WatchTiming
from wigwag.kube.watch.spec import KubeWatch
from wigwag.pipeline.backoff import Backoff
from wigwag.pipeline.watch import closing

SPEC = KubeWatch(CONFIG_MAP, "ns")
QUICK = WatchTiming(backoff=Backoff(first=0.02, most=0.05), quiet=0.05, initial=0.2, hasty=0.02, long=0.0, verify=0.05)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def obj(name: str, version: int, content: str = "") -> dict[str, Any]:
    about = {"name": name, "namespace": "ns", "resourceVersion": str(version), "managedFields": [{"manager": "x"}]}
    return {"kind": "ConfigMap", "metadata": about, "data": {"content": content or f"{name}{version}"}}


def event(kind: str, about: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": about}).encode() + b"\n"


def bookmark(version: int, end: bool = False) -> bytes:
    about: dict[str, Any] = {"resourceVersion": str(version)}
    return event("BOOKMARK", {"metadata": {**about, **({"annotations": {END: "true"}} if end else {})}})


def status(code: int, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}


def refusal(code: int, reason: str = "", message: str = "", name: str = "", **headers: str) -> bytes:
    """`name`: of the object that the refusal is about."""
    about = {"details": {"name": name}} if name else {}
    body = json.dumps({**status(code, reason, message), **about}).encode()
    return whole(body, f"{code} {reason or 'Refused'}", **headers)


def one(made: dict[str, Any]) -> bytes:
    return whole(json.dumps(made).encode())


def listing(version: int, *items: dict[str, Any], token: str = "") -> bytes:
    about = {"resourceVersion": str(version), "continue": token}
    return whole(json.dumps({"kind": "ConfigMapList", "metadata": about, "items": items}).encode())


@dataclass
class Api:
    """Answers each request with the next of `script`; the last one stays.

    Requests for metadata alone are answered from `compared` in the same way, and do not count as queries.
    """

    script: list[bytes | Callable[[Api], Awaitable[bool]]]
    compared: list[bytes | Callable[[Api], Awaitable[bool]]] = field(default_factory=list)
    comparisons: list[Asked] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    server: Server | None = None
    url: str = ""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has closed the connection of a stream that stays open."""
    clients: list[Kube] = field(default_factory=list)

    def kube(self, *given: Any, url: str = "", **more: Any) -> Kube:
        """Return a client, which is closed in the end."""
        self.clients.append(kube(url or self.url, *given, **more))
        return self.clients[-1]

    async def behave(self, asked: Asked, server: Server) -> bytes | bool:
        if "PartialObjectMetadata" in asked.headers.get("accept", "") and "esourceVersion" not in asked.target:
            self.comparisons.append(asked)
            return await self._next(self.compared)
        self.asked.append(asked)
        self.server = server
        self.queries.append(dict(parse_qsl(urlsplit(asked.target).query)))
        return await self._next(self.script)

    async def _next(self, script: list[bytes | Callable[[Api], Awaitable[bool]]]) -> bytes | bool:
        step = script.pop(0) if len(script) > 1 else script[0]
        return step if isinstance(step, bytes) else await step(self)

    async def chunk(self, text: bytes) -> None:
        assert self.server is not None
        await self.server.write(b"%x\r\n%b\r\n" % (len(text), text))


def watch(*parts: bytes | float, end: bool = False, drop: bool = False) -> Callable[[Api], Awaitable[bool]]:
    """A stream of these parts, with pauses where there are numbers. Then it stays open, ends, or breaks off."""

    async def behave(api: Api) -> bool:
        assert api.server is not None
        await api.server.write(HEAD)
        for part in parts:
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                await api.chunk(part)
        if end:
            await api.server.write(b"0\r\n\r\n")
            return True
        if not drop:
            await api.server.gone()
            api.left.set()
        return DROP

    return behave


@asynccontextmanager
async def cluster(
    *script: bytes | Callable[[Api], Awaitable[bool]],
    context: ssl.SSLContext | None = None,
    compared: Sequence[bytes | Callable[[Api], Awaitable[bool]]] = (),
) -> AsyncIterator[Api]:
    """`compared`: the answers to requests for metadata; none: a server that does not let anybody ask."""
    api = Api(list(script), list(compared) or [refusal(403, "Forbidden")])
    async with serving(api.behave, context) as server:
        api.url = f"{server.scheme}://127.0.0.1:{server.port}"
        try:
            yield api
        finally:
            for client in api.clients:
                client.close()


def kube(
    url: str,
    user: KubeUser = KubeUser(),  # noqa: B008
    trust: ClusterTrust = ClusterTrust(),  # noqa: B008
    proxy: str = "",
    **deps: Any,
) -> Kube:
    given: dict[str, Any] = {"environment": {}, "random": lambda: 0.5, **deps}
    return Kube(Cluster(url, trust, user, "ns", proxy), KubeDeps(**given))


@asynccontextmanager
async def followed(
    client: Kube, spec: KubeWatch = SPEC, decode: Decode[Any] = plain, timing: WatchTiming = QUICK
) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Follow, and yield what returns the next item."""
    async with closing(watch_kube(client, spec, decode, timing)) as items:
        yield items.__anext__
