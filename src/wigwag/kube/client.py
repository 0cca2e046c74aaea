"""A client of one API server: get, list, create, replace, patch, apply and delete objects; stream a watch.

    ApiRequest ─▶ current credentials ─▶ connection with their TLS settings ─▶ 2xx, or ApiError
                      ▲                                                     │
                      └────────── 401: refresh and retry, once ◀────────────┘

Objects are plain JSON (`dict`). Reads and `apply` are retried a few times while the server is busy or unreachable.
Other writes are not, because only the caller knows whether they may happen twice. Redirects are not followed: the API
server sends none, and another host would get our token. To follow objects, use `watch.follow.watch_kube`, or `hub` to
share watches.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import random
from time import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import urlencode

import msgspec

from wigwag.errors import UsageError
from wigwag.kube.config.credentials import Credential, Credentials, run_plugin
from wigwag.kube.errors import ApiError, read_status
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import Clock, LoopClock, sleep_until
from wigwag.version import __version__
from wigwag.wire.client.addresses import Resolve, resolve
from wigwag.wire.client.client import Client, ClientResponse, StreamedResponse
from wigwag.wire.client.errors import BrokenError, FetchError, UnreachableError
from wigwag.wire.client.proxies import Proxies
from wigwag.wire.client.url import Url, parse_url
from wigwag.wire.h1.client import ClientRequest, ResponseLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from wigwag.kube.config.cluster import Cluster, Plugin
    from wigwag.kube.config.credentials import RequestCredentials
    from wigwag.kube.config.tls import ClusterTrust
    from wigwag.kube.kinds import Kind, Query

Object: TypeAlias = dict[str, Any]
JSON = "application/json"
PARTIAL = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1," + JSON
"""Accepts an object, or with `List` a list, without anything but metadata."""
LARGEST = 64 << 20
"""The largest response that is accepted, in bytes."""
STREAM = ResponseLimits(head=40.0, idle=None, total=None, body_bytes=None)
ATTEMPTS = 4
"""How many times a request that may be repeated is tried."""
PATIENCE = 10.0
"""The longest Retry-After that such a request waits for, in seconds."""
DRY_RUN: Query = (("dryRun", "All"),)
"""For `query` of a write: the server checks it and answers, and stores nothing."""
STRICT: Query = (("fieldValidation", "Strict"),)
"""For `query` of a write: a field that the kind does not have is an error. By default the server drops it."""
SPARE, FRESH = 4, 5.0
"""How many idle connections are kept, and for how many seconds one may be used for a write: servers wait longer."""
PAGE = 500
NOT_MODIFIED = 304
_LARGEST_ERROR = 256 << 10
_UNAUTHORIZED = 401
_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request to an API server."""

    path: str
    query: Query = ()
    method: str = "GET"
    body: bytes = b""
    media: str = JSON
    """The content type of the body."""
    accept: str = JSON
    etag: str = ""
    """The response that we have: if it is still the same, the server answers 304 (Not Modified) with no body."""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class KubeDeps:
    """What tests replace: clocks, random numbers, name resolution, the environment and credential plugins."""

    clock: Clock = LoopClock()
    wall: Callable[[], float] = time
    random: Callable[[], float] = random
    resolve: Resolve = resolve
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Holds HTTPS_PROXY and NO_PROXY; plugins get it too."""
    run: Callable[[Plugin, Mapping[str, str]], Awaitable[Credential]] = run_plugin


@dataclass(frozen=True, slots=True)
class OneProxy(Proxies):
    """The proxy of a kubeconfig, which is for every address."""

    proxy: Url | None = None

    def choose(self, url: Url) -> Url | None:
        return self.proxy


@dataclass(slots=True)
class Capabilities:
    """What is known about a server, shared by all its watches."""

    watch_list: bool = True
    """Whether a watch can begin with the objects of a list (Kubernetes calls it WatchList)."""


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects of one list, all of the same resource version."""

    items: tuple[Object, ...]
    version: str


class Kube:
    """An API server. Close it.

        kube = Kube(find_cluster(os.environ))
        pod = await kube.get(POD, "shop-0", "team-a")
        await kube.patch(POD, "shop-0", {"metadata": {"labels": {"flags": "on"}}}, "team-a")

    A refusal raises `ApiError`, whose `status` is the server's own; a server that cannot be reached, `FetchError`.
    """

    def __init__(
        self,
        cluster: Cluster,
        deps: KubeDeps = KubeDeps(),  # noqa: B008 - a frozen value
        limits: ResponseLimits = ResponseLimits(total=60.0, body_bytes=LARGEST),  # noqa: B008 - a frozen value
    ) -> None:
        self.deps, self.limits, self.capabilities = deps, limits, Capabilities()
        self._base = parse_url(cluster.server)
        self._credentials = Credentials(cluster, deps.environment, deps.wall, deps.run)
        one = OneProxy(proxy=parse_url(cluster.proxy)) if cluster.proxy else None
        self._proxies = one or Proxies.of(deps.environment)
        self._client: tuple[ClusterTrust, Client] | None = None

    @property
    def endpoint(self) -> str:
        """The server's host and port."""
        return self._base.endpoint

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client[1].close()
            self._client = None

    async def get(self, kind: Kind, name: str, namespace: str = "", subresource: str = "") -> Object:
        """Return an object; `ApiError` with the status 404 if there is none."""
        return self._object(await self._retried(ApiRequest(kind.path(namespace, name, subresource))))

    async def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return an object; None if there is none, or no such kind."""
        try:
            return await self.get(kind, name, namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def find_metadata(self, kind: Kind, name: str, namespace: str = "") -> Mapping[str, Any] | None:
        """Return the metadata of an object, which may be large; None if there is none."""
        request = ApiRequest(kind.path(namespace, name), accept=PARTIAL.format(""))
        try:
            return _metadata(self._object(await self._retried(request)))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def list(self, kind: Kind, namespace: str = "", labels: str = "", fields: str = "") -> ObjectList:
        """Return all objects, page by page; without pages if the continue token expires meanwhile."""
        selectors = tuple((key, text) for key, text in (("labelSelector", labels), ("fieldSelector", fields)) if text)
        try:
            return await self._pages(ApiRequest(kind.path(namespace), selectors), PAGE)
        except ApiError as error:
            if not error.status.expired:
                raise
        return await self._pages(ApiRequest(kind.path(namespace), selectors), 0)

    async def create(
        self,
        kind: Kind,
        body: Mapping[str, Any],
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        query: Query = (),
    ) -> Object:
        """Create an object, or POST to a subresource; return what the server stored.

        `query` of this and other writes: `DRY_RUN`, `STRICT`, or both of them added.
        """
        path = kind.path(namespace or _metadata(body).get("namespace", ""), name, subresource)
        return await self._write("POST", path, body, JSON, query)

    async def replace(self, kind: Kind, body: Mapping[str, Any], subresource: str = "", query: Query = ()) -> Object:
        """Replace an object; `ApiError` with the status 409 if the resource version in `body` is not the current."""
        return await self._write("PUT", _path(kind, body, subresource), body, JSON, query)

    async def patch(
        self,
        kind: Kind,
        name: str,
        change: Any,
        namespace: str = "",
        how: Literal["merge", "json", "strategic"] = "merge",
        subresource: str = "",
        query: Query = (),
    ) -> Object:
        """Change a part of an object."""
        return await self._write("PATCH", kind.path(namespace, name, subresource), change, _PATCHES[how], query)

    async def apply(
        self,
        kind: Kind,
        body: Mapping[str, Any],
        manager: str,
        *,
        force: bool = False,
        subresource: str = "",
        query: Query = (),
    ) -> Object:
        """Set the fields in `body` as a field manager (server-side apply). Twice is the same as once, so it is retried.

        `ApiError` with the status 409 if another manager owns one of them, unless `force` takes it over.
        """
        query = (("fieldManager", manager), ("force", "true" if force else "false"), *query)
        path, content = _path(kind, body, subresource), msgspec.json.encode(body)
        return self._object(await self._retried(ApiRequest(path, query, "PATCH", content, _APPLY)))

    async def delete(
        self, kind: Kind, name: str, namespace: str = "", options: Mapping[str, Any] | None = None
    ) -> None:
        """Delete an object; `options` are those of DeleteOptions: `preconditions`, `propagationPolicy`."""
        body = b"" if options is None else msgspec.json.encode(options)
        await self.fetch(ApiRequest(kind.path(namespace, name), method="DELETE", body=body))

    async def fetch(self, request: ApiRequest, limits: ResponseLimits | None = None) -> ClientResponse:
        """Send a request once and return the whole response."""
        async with self.stream(request, limits or self.limits) as incoming:
            body = b"".join([piece async for piece in incoming.pieces()])
        return ClientResponse(self._base, incoming.status, incoming.fields, body)

    @asynccontextmanager
    async def stream(self, request: ApiRequest, limits: ResponseLimits = STREAM) -> AsyncIterator[StreamedResponse]:
        """Send a request once and yield the response when its head has arrived."""
        async with AsyncExitStack() as stack:
            incoming = await self._send(request, limits, stack)
            if not (200 <= incoming.status < 300 or (incoming.status == NOT_MODIFIED and request.etag)):
                raise await _error(request, incoming)
            yield incoming

    async def _retried(self, request: ApiRequest) -> ClientResponse:
        """Fetch with retries while the server is busy or unreachable."""
        deps = self.deps
        retry = Retry(Backoff(first=0.4, most=PATIENCE), deps.random)
        for _ in range(ATTEMPTS - 1):
            try:
                return await self.fetch(request)
            except ApiError as error:
                retry_after = error.retry_after or 0.0
                if not error.busy or retry_after > PATIENCE:
                    raise
            except (UnreachableError, BrokenError):
                retry_after = 0.0
            await sleep_until(deps.clock, retry.next(deps.clock.now(), retry_after))
        return await self.fetch(request)

    async def _write(self, method: str, path: str, body: Any, media: str = JSON, query: Query = ()) -> Object:
        return self._object(await self.fetch(ApiRequest(path, query, method, msgspec.json.encode(body), media)))

    async def _pages(self, request: ApiRequest, limit: int) -> ObjectList:
        items: list[Object] = []
        paged: Query = (("limit", str(limit)),) if limit else ()
        token, version = "", ""
        while True:
            more: Query = (("continue", token),) if token else ()
            page = self._object(await self._retried(ApiRequest(request.path, (*request.query, *paged, *more))))
            items += page.get("items") or ()
            metadata = _metadata(page)
            token, version = metadata.get("continue", ""), version or metadata.get("resourceVersion", "")
            if not token:
                return ObjectList(tuple(items), version)

    def _object(self, response: ClientResponse) -> Object:
        try:
            return msgspec.json.decode(response.body, type=Object)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise FetchError(self.endpoint, "the response is not a JSON object; check what listens there") from error

    async def _send(self, request: ApiRequest, limits: ResponseLimits, stack: AsyncExitStack) -> StreamedResponse:
        credentials = await self._credentials.current()
        incoming = await stack.enter_async_context(self._send_as(credentials, request, limits))
        if incoming.status != _UNAUTHORIZED or not self._credentials.refused(credentials):
            return incoming
        fresh = await self._credentials.current()
        if fresh == credentials and not fresh.trust.certificate:
            return incoming  # the token is still the same, so it would be refused again
        await stack.aclose()
        self.close()  # open connections were authenticated with the old certificate
        return await stack.enter_async_context(self._send_as(fresh, request, limits))

    @asynccontextmanager
    async def _send_as(
        self, credentials: RequestCredentials, request: ApiRequest, limits: ResponseLimits
    ) -> AsyncIterator[StreamedResponse]:
        fields = [("Accept", request.accept), ("User-Agent", f"wigwag/{__version__}"), *credentials.fields]
        if request.body:
            fields.append(("Content-Type", request.media))
        if request.etag:
            fields.append(("If-None-Match", request.etag))
        call = ClientRequest(self._url(request), request.method, tuple(fields), request.body)
        async with self._http(credentials.trust).stream(call, limits=limits) as incoming:
            yield incoming

    def _url(self, request: ApiRequest) -> Url:
        base = self._base
        path = base.path.rstrip("/") + request.path
        target = f"{path}?{urlencode(request.query)}" if request.query else path
        return Url(base.scheme, base.host, base.port, target, base.userinfo)

    def _http(self, trust: ClusterTrust) -> Client:
        """Return the HTTP client for these TLS settings; one with others is closed."""
        if self._client is None or self._client[0] != trust:
            self.close()
            client = Client(
                trust=trust,
                proxies=self._proxies,
                limits=self.limits,
                resolve=self.deps.resolve,
                spare=SPARE,
                fresh=FRESH,
            )
            self._client = trust, client
        return self._client[1]


async def _error(request: ApiRequest, incoming: StreamedResponse) -> ApiError:
    """Read the reason of a refusal. If the body breaks off, the status code is all there is."""
    body = b""
    with suppress(FetchError):
        async for piece in incoming.pieces():
            body += piece
            if len(body) > _LARGEST_ERROR:
                break
    status = read_status(body, incoming.status)
    seconds = incoming.field("retry-after")
    retry_after = float(seconds) if seconds.isdecimal() and len(seconds) < 10 else None
    return ApiError(str(request), status, retry_after)


def _metadata(body: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _path(kind: Kind, body: Mapping[str, Any], subresource: str) -> str:
    metadata = _metadata(body)
    if not metadata.get("name"):
        raise UsageError(f"{kind}: the object has no metadata.name; set one")
    return kind.path(metadata.get("namespace", ""), metadata["name"], subresource)
