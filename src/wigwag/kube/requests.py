"""Asking the API server once: a request, with what proves who we are, and its answer or an `ApiError`.

    Request ─▶ credentials of now ─▶ connection that trusts as they say ─▶ 2xx, or ApiError
                    ▲                                                    │
                    └──────────── 401, once: read or made anew ◀─────────┘

Redirects are not followed: the API server has none, and whoever sends us elsewhere would get our token.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import random
from time import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from wigwag.kube.config.credentials import Credentials
from wigwag.kube.config.plugins import Credential, run_plugin
from wigwag.kube.errors import ApiError, read_status
from wigwag.pipeline.clock import Clock, LoopClock
from wigwag.version import __version__
from wigwag.wire.client.addresses import Resolve, resolve
from wigwag.wire.client.client import Client, ClientResponse, StreamedResponse
from wigwag.wire.client.errors import FetchError
from wigwag.wire.client.proxies import Proxies
from wigwag.wire.client.url import Url, parse_url
from wigwag.wire.h1.client import ClientRequest, ResponseLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from wigwag.kube.config.cluster import Cluster, Plugin
    from wigwag.kube.config.credentials import RequestCredentials
    from wigwag.kube.config.tls import ClusterTrust
    from wigwag.kube.watch.spec import Query

JSON = "application/json"
LARGEST = 64 << 20
"""The largest answer that is taken, in bytes."""
STREAM = ResponseLimits(head=40.0, idle=None, total=None, body_bytes=None)
_LARGEST_REFUSAL = 256 << 10
_UNKNOWN = 401


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """What is asked."""

    path: str
    query: Query = ()
    method: str = "GET"
    body: bytes = b""
    media: str = JSON
    """What the body is."""
    accept: str = JSON

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class KubeDeps:
    """Where time, chance, addresses, proxies and plugins come from."""

    clock: Clock = LoopClock()
    wall: Callable[[], float] = time
    random: Callable[[], float] = random
    resolve: Resolve = resolve
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where HTTPS_PROXY and NO_PROXY are; plugins get it too."""
    run: Callable[[Plugin, Mapping[str, str]], Awaitable[Credential]] = run_plugin


@dataclass(frozen=True, slots=True)
class OneProxy(Proxies):
    """The proxy of a kubeconfig, which is for every address."""

    proxy: Url | None = None

    def choose(self, url: Url) -> Url | None:
        return self.proxy


@dataclass(slots=True)
class Abilities:
    """What was learnt about a server."""

    streams: bool = True
    """Whether it can send the objects of a list as the beginning of a watch."""


class Requests:
    """Asks one API server."""

    def __init__(
        self,
        cluster: Cluster,
        deps: KubeDeps = KubeDeps(),  # noqa: B008 - a frozen value
        limits: ResponseLimits = ResponseLimits(total=60.0, body_bytes=LARGEST),  # noqa: B008 - a frozen value
        agent: str = f"wigwag/{__version__}",
    ) -> None:
        self.deps, self.limits, self.abilities = deps, limits, Abilities()
        self._base, self._agent = parse_url(cluster.server), agent
        self._credentials = Credentials(cluster, deps.environment, deps.wall, deps.run)
        one = OneProxy(proxy=parse_url(cluster.proxy)) if cluster.proxy else None
        self._proxies = one or Proxies.of(deps.environment)
        self._client: tuple[ClusterTrust, Client] | None = None

    @property
    def endpoint(self) -> str:
        """The server's host and port."""
        return self._base.endpoint

    async def fetch(self, request: ApiRequest, limits: ResponseLimits | None = None) -> ClientResponse:
        """Return the whole answer; `ApiError` if the server refuses, `FetchError` if it cannot be asked."""
        async with self.stream(request, limits or self.limits) as incoming:
            body = b"".join([piece async for piece in incoming.pieces()])
        return ClientResponse(self._base, incoming.status, incoming.fields, body)

    @asynccontextmanager
    async def stream(self, request: ApiRequest, limits: ResponseLimits = STREAM) -> AsyncIterator[StreamedResponse]:
        """Yield an answer as soon as its head is there; errors are those of `fetch`."""
        async with AsyncExitStack() as open_:
            incoming = await self._ask(request, limits, open_)
            if not 200 <= incoming.status < 300:
                raise await _refusal(request, incoming)
            yield incoming

    def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            self._client[1].close()
            self._client = None

    async def _ask(self, request: ApiRequest, limits: ResponseLimits, open_: AsyncExitStack) -> StreamedResponse:
        proof = await self._credentials.current()
        incoming = await open_.enter_async_context(self._stream(request, limits, proof))
        if incoming.status != _UNKNOWN or not self._credentials.refused(proof):
            return incoming
        fresh = await self._credentials.current()
        if fresh == proof and not fresh.trust.certificate:
            return incoming  # nobody has replaced the token yet: the same again is refused again
        await open_.aclose()
        self.close()  # a connection knows us by the certificate that it was opened with
        return await open_.enter_async_context(self._stream(request, limits, fresh))

    @asynccontextmanager
    async def _stream(
        self, request: ApiRequest, limits: ResponseLimits, proof: RequestCredentials
    ) -> AsyncIterator[StreamedResponse]:
        fields = [("Accept", request.accept), ("User-Agent", self._agent), *proof.fields]
        if request.body:
            fields.append(("Content-Type", request.media))
        call = ClientRequest(self._url(request), request.method, tuple(fields), request.body)
        async with self._trusting(proof.trust).stream(call, limits=limits) as incoming:
            yield incoming

    def _url(self, request: ApiRequest) -> Url:
        base = self._base
        path = base.path.rstrip("/") + request.path
        target = f"{path}?{urlencode(request.query)}" if request.query else path
        return Url(base.scheme, base.host, base.port, target, base.userinfo)

    def _trusting(self, trust: ClusterTrust) -> Client:
        """Return the client for a trust; the one before goes, with the connections that were opened in its name."""
        if self._client is None or self._client[0] != trust:
            self.close()
            made = Client(trust=trust, proxies=self._proxies, limits=self.limits, resolve=self.deps.resolve)
            self._client = trust, made
        return self._client[1]


async def _refusal(request: ApiRequest, incoming: StreamedResponse) -> ApiError:
    """Read why a request was refused. If even that breaks off, the status is all there is."""
    body = b""
    with suppress(FetchError):
        async for piece in incoming.pieces():
            body += piece
            if len(body) > _LARGEST_REFUSAL:
                break
    status = read_status(body, incoming.status)
    return ApiError(str(request), status, _seconds(incoming.field("retry-after")))


def _seconds(text: str) -> float | None:
    """Read a Retry-After; the API server writes seconds."""
    return float(text) if text.isdecimal() and len(text) < 10 else None
