"""A server on loopback that misbehaves as the test says, and a watcher of it on a clock that the test moves.

A behaviour answers one request; when it returns False the connection is closed. Sockets are real, and time is not: a
minute of refusals takes as long as its requests.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.pipeline.fakes import FakeClock, settle
from wigwag.pipeline.watch import closing
from wigwag.sources.remote.http import HttpDeps, HttpWatch, watch_http
from wigwag.wire.client.addresses import Address

FLAGS = b'{"flags":{}}'
DROP = False
"""What a behaviour returns to have the connection closed."""


class Asked(NamedTuple):
    """A request that came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Behaviour: TypeAlias = Callable[[Asked, "Server"], Awaitable[bytes | bool]]
"""Returns a whole answer, or has written it by itself and tells whether the connection goes on."""


class Server:
    """Answers every request in the way that is in force, and keeps count."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked: list[Asked] = []
        self.connections = 0
        self.sent = 0
        self.port = 0
        self.scheme = "http"
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ends: ContextVar[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = ContextVar("ends")
        """Of the connection that a behaviour belongs to: one that goes on must not write into the next one."""

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/flags"

    @property
    def ends(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return self._ends.get()

    async def gone(self) -> bytes:
        """Wait until the client closes the connection, and return what it sent before."""
        return await self.ends[0].read()

    async def write(self, data: bytes) -> None:
        """Send, and wait until it is on its way."""
        _, writer = self.ends
        writer.write(data)
        await writer.drain()
        self.sent += len(data)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._one(reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in fields.items()}
        method, target, _ = head[0].split(" ")
        asked = Asked(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))
        self.asked.append(asked)
        self._ends.set((reader, writer))
        found = await self.behaviour(asked, self)
        if isinstance(found, bytes):
            await self.write(found)
            return True
        return found

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def serving(
    behaviour: Behaviour, context: ssl.SSLContext | None = None, path: str = "", held: socket.socket | None = None
) -> AsyncIterator[Server]:
    """Serve on a free port of loopback, on one that the test holds, or on a unix socket."""
    server = Server(behaviour)
    if path:
        listening = await asyncio.start_unix_server(server.serve, path)
    else:
        where: Any = {"sock": held} if held else {"host": "127.0.0.1", "port": 0}
        listening = await asyncio.start_server(server.serve, ssl=context, **where)
        server.port = listening.sockets[0].getsockname()[1]
    server.scheme = "https" if context else "http"
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await settle()


# behaviours


def answer(body: bytes = FLAGS, status: str = "200 OK", **headers: str) -> Behaviour:
    """A whole answer."""

    async def behave(_asked: Asked, _server: Server) -> bytes:
        return whole(body, status, **headers)

    return behave


def whole(body: bytes = FLAGS, status: str = "200 OK", **headers: str) -> bytes:
    """The bytes of a whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + body


def raw(data: bytes) -> Behaviour:
    """These bytes, and the end."""

    async def behave(_asked: Asked, server: Server) -> bool:
        await server.write(data)
        return DROP

    return behave


def endless(chunk: bytes, times: int, head: bytes = b"Transfer-Encoding: chunked\r\n") -> Behaviour:
    """A body that goes on for a long time."""

    async def behave(_asked: Asked, server: Server) -> bool:
        await server.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        piece = b"%x\r\n%b\r\n" % (len(chunk), chunk) if b"chunked" in head else chunk
        for _ in range(times):
            await server.write(piece)
        return DROP

    return behave


async def extension(_asked: Asked, server: Server) -> bool:
    """A chunk of one byte, dressed up in a long extension."""
    await server.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")
    for _ in range(200):
        await server.write(b"x" * 65536)
    return DROP


def drip(pause: float) -> Behaviour:
    """A byte now and then, for ever."""

    async def behave(_asked: Asked, server: Server) -> bool:
        await server.write(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
        while True:
            await server.write(b" ")
            await asyncio.sleep(pause)

    return behave


async def silence(_asked: Asked, _server: Server) -> bool:
    """No answer at all."""
    await asyncio.Event().wait()
    return DROP


def redirect(location: str, status: str = "302 Found") -> Behaviour:
    return answer(b"", status, Location=location)


# names and certificates


def names(**known: str) -> Callable[[str, int], Awaitable[Sequence[Address]]]:
    """A resolver that knows these names, with `_` for a dot, and addresses; any other name is loopback."""

    async def resolve(host: str, port: int) -> Sequence[Address]:
        literal = ":" in host or host.replace(".", "").isdigit()
        ip = known.get(host.replace(".", "_"), host if literal else "127.0.0.1")
        return [Address(10, (ip, port, 0, 0)) if ":" in ip else Address(2, (ip, port))]

    return resolve


class Authority:
    """An authority of our own, and servers with certificates that it signs."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self.path = folder / f"{name}.pem"
        self._folder, self._key = folder, generate_private_key(SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key, 1).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.path.write_bytes(made.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def issue(self, *dns: str, days: int = 1) -> Path:
        """Make a certificate for names, and 127.0.0.1, that ends in so many days; return it with its key."""
        key = generate_private_key(SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, dns[0])])
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in dns]
        alternatives.append(x509.IPAddress(ip_address("127.0.0.1")))
        made = self._builder(subject, key, days).add_extension(
            x509.SubjectAlternativeName(alternatives), critical=False
        )
        path = self._folder / f"{dns[0]}.{days}.pem"
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + made.sign(self._key, SHA256()).public_bytes(Encoding.PEM)
        )
        return path

    def context(self, *dns: str, days: int = 1) -> ssl.SSLContext:
        """Return a server's context with such a certificate."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.issue(*dns, days=days))
        return made

    def _builder(self, subject: x509.Name, key: EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=9))
            .not_valid_after(now + timedelta(days=days))
        )


# watching


class Watched:
    """A watcher whose time the test moves."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.jump = 0.0
        """How far the wall clock was set away from its course."""
        self.items: asyncio.Queue[Any] = asyncio.Queue()
        self.paused: list[float] = []
        """How long it waited each time."""

    def wall(self) -> float:
        return 1_700_000_000.0 + self.clock.now() + self.jump

    async def next(self) -> Any:
        """Return what it yields next; the time stands still."""
        return await self.items.get()

    async def on(self) -> Any:
        """Let the time pass to the next question, and return what it yields then."""
        await settle()
        assert self.items.empty()
        [pause] = self.clock.pending()
        self.paused.append(pause)
        await self.clock.advance(pause + 1e-6)
        return await self.items.get()


@asynccontextmanager
async def watching(url: str, deps: dict[str, Any] | None = None, **spec: Any) -> AsyncIterator[Watched]:
    """Watch a URL. Chance is a coin that always falls on the middle."""
    watched = Watched(FakeClock())
    given: dict[str, Any] = {"environment": {}, "random": lambda: 0.5, "resolve": names(), **(deps or {})}
    stream = watch_http(HttpWatch(url, **spec), HttpDeps(clock=watched.clock, wall=watched.wall, **given))

    async def read() -> None:
        async with closing(stream) as items:
            async for item in items:
                watched.items.put_nowait(item)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(read())
        yield watched
        task.cancel()
