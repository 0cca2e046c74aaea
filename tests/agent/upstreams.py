"""Where an agent under test gets its flags from: real servers, each at a port of its own, that misbehave as told.

    http    a server of HTTP/1.1 whose every answer is chosen by the test
    grpc    grpcio's, seen through a pipe that can be cut, or a script of raw HTTP/2 in its place
    blob    moto's S3, seen through a server that can answer in its place

Each runs in a thread of its own, so that it is there whatever the agent does, and keeps its port while it refuses
connections. `serve` always means: all is well again, and these are the flags.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qs

import grpc
from h2.exceptions import ProtocolError
from openfeature.schemas.protobuf.flagd.sync.v1 import sync_pb2

from tests.sources.blob_stores import Store
from tests.sources.faulty import DROP, Asked, Authority, Behaviour, Server, answer
from tests.sources.grpc_server import SyncServer
from tests.tunnel import until_either_ends
from tests.wire.client.server import Script, Scripted

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
Play: TypeAlias = Callable[[Reader, Writer], Awaitable[None]]
"""What becomes of a connection."""

KINDS = ("http", "grpc", "blob")
TOKEN = "hush-header"
"""What proves to a server who we are. Nobody else may ever see it."""


class Upstream:
    """A port. With an authority it speaks TLS, and its certificate can expire and be renewed."""

    host = "127.0.0.1"

    def __init__(self, play: Play, authority: Authority | None = None, protocols: tuple[str, ...] = ()) -> None:
        self._play, self._authority = play, authority
        self._context = _context(authority, protocols) if authority else None
        self._connections: set[asyncio.Task[None]] = set()
        self.arrived = 0
        """How many connections came."""
        self._held = _bound(0)  # and nobody listens there: whoever comes is refused, and no other test gets the port
        self.port = int(self._held.getsockname()[1])
        self._listening: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._held.close()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def asked(self) -> int:
        """How often it was asked."""
        return self.arrived

    @property
    def ca_path(self) -> Path:
        assert self._authority is not None
        return self._authority.path

    def listen(self) -> None:
        """Take connections."""
        self._do(self._listen())

    def refuse(self) -> None:
        """Take no more connections, and drop those that are."""
        self._do(self._refuse())

    def cut(self) -> None:
        """Drop every connection."""
        self._do(self._cut())

    def play(self, play: Play) -> None:
        """From now on, meet connections in this way; those that are open are dropped."""
        self._play = play
        self.cut()

    def certify(self, days: int) -> None:
        """Show a certificate that ends in so many days, or has; it is looked at when somebody connects."""
        assert self._authority is not None
        assert self._context is not None
        self._context.load_cert_chain(self._authority.issue("localhost", days=days))
        self.cut()

    def recover(self) -> None:
        """Listen, and have a good certificate."""
        if self._authority:
            self.certify(days=1)
        if self._listening is None:
            self.listen()

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(self._met, sock=_bound(self.port), ssl=self._context)

    async def _refuse(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        await self._cut()

    async def _cut(self) -> None:
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _met(self, reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.arrived += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._play(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()


def _bound(port: int) -> socket.socket:
    """A socket at a port that several of ours may have, of which those that listen get the connections."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((Upstream.host, port))
    return made


def _context(authority: Authority, protocols: tuple[str, ...]) -> ssl.SSLContext:
    """Without tickets: who comes again with one need not look at the certificate."""
    made = authority.context("localhost")
    made.options |= ssl.OP_NO_TICKET
    made.num_tickets = 0
    if protocols:
        made.set_alpn_protocols(list(protocols))
    return made


class HttpUpstream(Upstream):
    """A document at a URL."""

    kind = "http"

    def __init__(self, authority: Authority | None = None) -> None:
        self._server = Server(answer())
        super().__init__(self._server.serve, authority)

    @property
    def asked(self) -> int:
        """How many requests came."""
        return len(self._server.asked)

    @property
    def sent(self) -> int:
        """How many bytes of answers the network took."""
        return self._server.sent

    def behave(self, behaviour: Behaviour) -> None:
        """Answer in this way."""
        self._server.behaviour = behaviour

    def serve(self, document: str) -> None:
        self.behave(answer(document.encode(), ETag=f'"{hash(document)}"'))
        self.recover()

    def source(self, host: str = "", **more: Any) -> dict[str, Any]:
        """The element of `--sources`."""
        scheme, trust = ("https", {"certPath": str(self.ca_path)}) if self._authority else ("http", {})
        url = f"{scheme}://{host or self.host}:{self.port}/flags?token={TOKEN}"
        return {"uri": url, "provider": "http", "authHeader": f"Bearer {TOKEN}", **trust, **more}


class BlobUpstream(HttpUpstream):
    """An object in a bucket of S3."""

    kind = "blob"

    def __init__(self, store: Store, authority: Authority | None = None) -> None:
        super().__init__(authority)
        self._store = store

    def put(self, content: str) -> None:
        """Replace the object."""
        self._store.put("team.json", content.encode(), "application/json")

    def serve(self, document: str) -> None:
        self.put(document)
        (endpoint,) = parse_qs(self._store.query.removeprefix("?"))["endpoint"]
        self.behave(_forward(int(endpoint.rpartition(":")[2])))
        self.recover()

    def source(self, host: str = "", **more: Any) -> dict[str, Any]:
        scheme, trust = ("https", {"certPath": str(self.ca_path)}) if self._authority else ("http", {})
        endpoint = f"{scheme}://{host or self.host}:{self.port}"
        uri = f"s3://flags/team.json?endpoint={endpoint}&region=us-east-1&use_path_style=true"
        return {"uri": uri, "provider": "s3", **trust, **more}


def _forward(port: int) -> Behaviour:
    """Have another server of HTTP answer."""

    async def behave(asked: Asked, server: Server) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            fields = asked.headers | {"connection": "close"}
            lines = [f"{asked.method} {asked.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
            writer.write("\r\n".join((*lines, "", "")).encode() + asked.body)
            await server.write(await reader.read(-1))
        finally:
            writer.close()
        return DROP

    return behave


class _Sync(SyncServer):
    """grpcio's server, which may also refuse in the words of gRPC, and tell each selector something else."""

    def __init__(self) -> None:
        super().__init__("{}")
        self._documents: dict[str, str] = {}
        self.refusals: dict[str, grpc.StatusCode] = {}

    def tell(self, selector: str, document: str) -> None:
        with self._changed:
            self._documents[selector] = document
            self._changed.notify_all()

    def SyncFlags(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802 - the service's name
        refusal = self.refusals.get(request.selector)
        if refusal:
            said = dict(context.invocation_metadata()).get("authorization")
            context.abort(refusal, f"not with {said!r}")
        sent: str | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._over or self._news(request, sent))  # noqa: B023 - called at once
                if self._over:
                    return
                sent = self._documents[request.selector]
            yield sync_pb2.SyncFlagsResponse(flag_configuration=sent)

    def _news(self, request: Any, sent: str | None) -> bool:
        return self._documents.get(request.selector) != sent


class GrpcUpstream(Upstream):
    """A server of flag documents. Each connection is asked for one stream."""

    kind = "grpc"

    def __init__(self, authority: Authority | None = None) -> None:
        self._backend = _Sync()
        super().__init__(self._pass, authority, ("h2",))

    def __enter__(self) -> Self:
        self._backend.__enter__()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._backend.__exit__(kind, error, trace)

    def say(self, document: str, selector: str = "") -> None:
        """Send a document on every stream of a selector."""
        self._backend.tell(selector, document)

    def decline(self, code: grpc.StatusCode, selector: str = "") -> None:
        """Answer requests with a status; streams that are open are dropped."""
        self._backend.refusals[selector] = code
        self.cut()

    def script(self, script: Script) -> None:
        """Speak HTTP/2, or not, as a script says."""

        async def play(reader: Reader, writer: Writer) -> None:
            with suppress(ProtocolError, AssertionError):  # the client has gone
                await script(Scripted(reader, writer))

        self.play(play)

    def serve(self, document: str, selector: str = "") -> None:
        self._backend.refusals.pop(selector, None)
        self.say(document, selector)
        if self._play != self._pass:
            self.play(self._pass)
        self.recover()

    def source(self, host: str = "", **more: Any) -> dict[str, Any]:
        trust = {"tls": True, "certPath": str(self.ca_path)} if self._authority else {}
        headers = {"authorization": f"Bearer {TOKEN}"}
        return {"uri": f"{host or self.host}:{self.port}", "provider": "grpc", "headers": headers, **trust, **more}

    async def _pass(self, reader: Reader, writer: Writer) -> None:
        """Let grpcio answer."""
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._backend.port)
        try:
            await until_either_ends(_pump(reader, other_writer), _pump(other_reader, writer))
        finally:
            other_writer.transport.abort()


async def _pump(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


def upstream(kind: str, store: Store, authority: Authority | None = None) -> Any:
    """Make a server for a kind of source."""
    if kind == "blob":
        return BlobUpstream(store, authority)
    return {"http": HttpUpstream, "grpc": GrpcUpstream}[kind](authority)
