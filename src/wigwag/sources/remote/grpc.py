"""A gRPC server with flagd's sync service: flagd, its proxy, or another agent. It streams flag documents.

    connect ─▶ SyncFlags ─▶ document … ─▶ (ping acknowledged: unchanged) … ─▶ the stream ends ─▶ reconnect, or raise

Every message is a whole document. While a stream is silent, an acknowledged keep-alive ping shows that the last
document is still valid. `sync.v1`, which only flagd-proxy and old servers have, is tried when `flagd.sync.v1` is not
implemented; its `state` is ALL in practice. If it is a delta, the whole document is fetched: nothing here applies
deltas. The context that a server may send beside a document (`sync_context`) is for in-process providers, and ignored.

The hard case is how a stream ends. Servers end old streams (`--stream-deadline`), and load balancers old connections;
nothing has failed then, and reconnecting at once is right. With a stream that ends soon after it began, that would be a
busy loop. So a stream that lived long enough is reopened at once; one that the server ended properly, too, but only a
few times per minute; anything else is raised, and the pipeline restarts the source with its back-off.
"""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from dataclasses import dataclass, field, replace
from random import random
from typing import TYPE_CHECKING

from wigwag.errors import UsageError
from wigwag.pipeline.backoff import Backoff, Retry
from wigwag.pipeline.clock import Clock, LoopClock, sleep_until
from wigwag.pipeline.spec import UNCHANGED, Unavailable, Unchanged
from wigwag.pipeline.watch import closing
from wigwag.sources.document import Document
from wigwag.sources.remote.targets import check_authority, parse_target
from wigwag.sources.secret import read_authorization
from wigwag.wire.client.grpc import MAX_MESSAGE, open_channel
from wigwag.wire.client.http2 import Endpoint, KeepAlive
from wigwag.wire.client.tls import Trust
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs.protobuf import BYTES, DEEPEST, VARINT, MalformedError, read_tag, read_varint, skip, text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from wigwag.sources.credentials import CredentialsFolder
    from wigwag.wire.client.grpc import Channel
    from wigwag.wire.http import Headers

SERVICES = ("flagd.sync.v1.FlagSyncService", "sync.v1.FlagSyncService")
SELECTOR = b"flagd-selector"
DELTAS, PING = (2, 3, 4), 5
"""States of a message of the old service: ADD, UPDATE and DELETE; and PING, without content."""
LONG = 10.0
"""Seconds after which the end of a stream is normal."""
PAUSES = Backoff(most=LONG)
"""Between streams of which each delivered a document."""
FETCH_SECONDS = 30.0
HIDDEN = "***"
_SHORTEST_SECRET = 4
"""Shorter values may be parts of words."""
_CONTENT, _STATE = 1 << 3 | BYTES, 2 << 3 | VARINT
_MOST_FIELDS = 1000
_NAME = re.compile(r"[0-9a-z_.\-]+")
_VALUE = re.compile(r"[ -~]*")
_RESERVED = {"te", "host", "connection", "keep-alive", "upgrade", "transfer-encoding", "content-type", "user-agent"}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GrpcWatch:
    """The documents of a sync service."""

    target: str
    """As gRPC writes it; see `targets`."""
    tls: bool = False
    cert_path: str = ""
    """The CA bundle, in PEM; empty: that of the system."""
    provider_id: str = ""
    selector: str = ""
    max_message: int = MAX_MESSAGE
    """The largest document, in bytes. (flagd's default is 4 MiB.)"""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent as metadata. They may be secret, so they are never shown."""
    keep_alive: float = 30.0
    """Seconds of silence after which a ping is sent; 0: never."""
    token_file: str = ""
    """The file with the bearer token; read for each connection, because it may be replaced at any time."""
    authority: str = ""
    """The `:authority`, if it is not that of the target."""
    credentials: CredentialsFolder | None = None
    """Holds the header and the files for TLS, instead; read for each connection."""

    def __str__(self) -> str:
        return f"grpc:{self.target}" + (f" ({self.selector})" if self.selector else "")


@dataclass(frozen=True, slots=True)
class GrpcDeps:
    """What tests replace: the clock, random numbers and timeouts."""

    clock: Clock = LoopClock()
    random: Callable[[], float] = random
    patience: float = 10.0
    """Seconds to connect to one address; after a ping, twice as long."""


def check(spec: GrpcWatch) -> Endpoint:
    """Return the endpoint of a spec; `UsageError` if it is wrong."""
    target = parse_target(spec.target)
    if spec.authority:
        check_authority(spec.authority)
    for name, value in spec.headers:
        _check_header(spec, name.lower(), value)
    return Endpoint(target.places, spec.authority or target.authority, spec.tls, Trust(spec.cert_path))


def _check_header(spec: GrpcWatch, name: str, value: str) -> None:
    if not _NAME.fullmatch(name) or name in _RESERVED or name.startswith("grpc-"):
        raise UsageError(f"{spec}: the header {name!r} cannot be sent as metadata; leave it out")
    if not name.endswith("-bin") and (not _VALUE.fullmatch(value) or value != value.strip()):
        raise UsageError(f"{spec}: the value of the header {name!r} must be printable ASCII, or its name end in -bin")


async def watch_grpc(
    spec: GrpcWatch,
    deps: GrpcDeps = GrpcDeps(),  # noqa: B008 - a frozen value
) -> AsyncIterator[Document | Unavailable | Unchanged]:
    """Yield every document that the server sends, and `UNCHANGED` when a ping shows that the last one is valid."""
    source, clock, retry = _Source(spec, deps), deps.clock, Retry(PAUSES, deps.random)
    while True:
        began, answered, error = clock.now(), False, None
        try:
            async with closing(source.session()) as session:
                async for item in session:
                    answered |= isinstance(item, Document)
                    yield item
        except RpcError as caught:
            error = RpcError(caught.code, f"{caught.code.name}: {_shown(caught.message, source.headers)}")
        lived = clock.now() - began
        if answered:
            retry.succeeded()
        if error is not None and error.code is Code.UNAUTHENTICATED and source.token_replaced():
            log.info("%s: the token was refused and has been replaced; connecting with the new one", spec)
            await sleep_until(clock, retry.next(clock.now()))
            continue
        if not answered or (lived < LONG and error is not None and error.code is not Code.DEADLINE_EXCEEDED):
            raise error or RpcError(Code.UNAVAILABLE, "the server ended the stream without sending a document")
        log.info("%s: the stream ended after %.1f s (%s); reconnecting", spec, lived, error or "OK")
        await sleep_until(clock, retry.next(clock.now()))


def _shown(message: str, headers: tuple[tuple[str, str], ...]) -> str:
    """Return the message of a server without our headers: some servers quote the token that they refuse.

    >>> _shown("unknown token 'abcd-efgh'", (("authorization", "Bearer abcd-efgh"),))
    "unknown token '***'"
    """
    for _, value in headers:
        for part in (value, value.rpartition(" ")[2]):
            message = message.replace(part, HIDDEN) if len(part) >= _SHORTEST_SECRET else message
    return message


class _Source:
    """The connections of one watch, and what is known about the server."""

    def __init__(self, spec: GrpcWatch, deps: GrpcDeps) -> None:
        self._spec, self._deps = spec, deps
        self._endpoint = replace(check(spec), patience=deps.patience)
        self._service, self._every = SERVICES[0], spec.keep_alive
        self._request = text(1, spec.provider_id) + text(2, spec.selector)
        self.headers = spec.headers
        """The headers of the current connection, with the token."""
        self._metadata: Headers = ()

    async def session(self) -> AsyncIterator[Document | Unavailable | Unchanged]:
        """Connect, and yield the items of one stream; of the old service, if the server has only that."""
        self.headers = (*self._spec.headers, *self._authorization())
        self._metadata = _metadata(self.headers, self._spec.selector)
        keep_alive = KeepAlive(self._every, 2 * self._deps.patience)
        missing: RpcError | None = None
        async with open_channel(self._place(), keep_alive, self._deps.clock, self._spec.max_message) as channel:
            try:
                for service in sorted(SERVICES, key=lambda each: each != self._service):  # the one that worked, first
                    try:
                        async with closing(self._follow(channel, service)) as items:
                            async for item in items:
                                self._service = service
                                yield item
                    except RpcError as error:
                        if error.code is not Code.UNIMPLEMENTED:
                            raise
                        missing = missing or error
                    else:
                        return
            finally:
                self._every *= 2 if channel.too_many_pings else 1
        raise missing or RpcError(Code.UNIMPLEMENTED)

    def token_replaced(self) -> bool:
        """Return whether the token file holds another token than the one that the last connection used."""
        try:
            return (*self._spec.headers, *self._authorization()) != self.headers
        except UsageError:
            return False  # the next attempt says what is wrong with the file

    def _authorization(self) -> tuple[tuple[str, str], ...]:
        path, folder = self._spec.token_file, self._spec.credentials
        header = folder.authorization() if folder else read_authorization(path) if path else ""
        return (("authorization", header),) if header else ()

    def _place(self) -> Endpoint:
        """Return the endpoint, with the files for TLS that there are now."""
        folder = self._spec.credentials
        return replace(self._endpoint, trust=folder.trust(self._spec.cert_path)) if folder else self._endpoint

    async def _follow(self, channel: Channel, service: str) -> AsyncIterator[Document | Unavailable | Unchanged]:
        first = True
        with channel.stream(f"/{service}/SyncFlags", self._request, self._metadata) as stream:
            async with closing(stream.beats()) as beats:
                async for message in beats:
                    if message is not None:
                        item = await self._read(channel, service, message)
                        first &= not isinstance(item, Document)
                        yield item
                    elif first:
                        yield Unavailable("the server is connected, but has not sent a document yet")
                    elif not stream.partial:  # a newer document is not on its way
                        yield UNCHANGED

    async def _read(self, channel: Channel, service: str, message: bytes) -> Document | Unchanged:
        content, state = _synced(message)
        if service == SERVICES[0] or state not in (PING, *DELTAS):
            return Document(content, "json")
        if state == PING:
            return UNCHANGED
        whole = await channel.unary(f"/{service}/FetchAllFlags", self._request, self._metadata, deadline=FETCH_SECONDS)
        return Document(_synced(whole)[0], "json")


def _synced(message: bytes) -> tuple[bytes, int]:
    """Read `SyncFlagsResponse`: 1 flag_configuration, and 2 state, which only the old service has.

    Other fields are skipped, but not many, and no groups: megabytes of tiny fields would take a minute.
    """
    content, state, position, end = b"", 0, 0, len(message)
    try:
        for _ in range(_MOST_FIELDS):
            if position == end:
                return content, state
            key, position = read_tag(message, position)
            if key == _STATE:
                state, position = read_varint(message, position)
            elif key == _CONTENT:
                size, position = read_varint(message, position)
                content, position = message[position : position + size], position + size
            else:
                position = skip(message, position, key, DEEPEST)
    except IndexError as error:
        raise MalformedError("the message is truncated") from error
    raise MalformedError(f"the message has {_MOST_FIELDS} fields or more")


def _metadata(headers: tuple[tuple[str, str], ...], selector: str) -> Headers:
    """Return the headers of a request, with the selector for current servers (old ones read it from the body)."""
    metadata = [(name.lower().encode(), value.encode()) for name, value in headers]
    if selector and _VALUE.fullmatch(selector) and SELECTOR not in dict(metadata):
        metadata.append((SELECTOR, selector.encode()))
    return tuple((name, b64encode(value) if name.endswith(b"-bin") else value) for name, value in metadata)
