"""One client's connection: requests from a machine to the handler, and answers back.

Everything that one `data_received` produces leaves in one write. Answers that need no waiting are made right there;
only streams and awaitables get a task, which belongs to the server's task group. A stream is pulled when its exchange
is writable and the transport is not full, and at no other time: a slow client costs one chunk of memory per stream.
What is posted for many streams is not even pulled: a reader takes it from the board under the same condition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine
from functools import partial
from ssl import SSLObject
from typing import Any, cast

from wigwag.wire.admission import Admission, Admitted
from wigwag.wire.blocks import HeaderEncoder
from wigwag.wire.exchange import Exchange, Machine
from wigwag.wire.frames import PREFACE
from wigwag.wire.http import Answer, Broadcast, Early, Handler, Peer, Reply, Stream
from wigwag.wire.http1 import Http1
from wigwag.wire.http2 import Http2
from wigwag.wire.limits import WireLimits
from wigwag.wire.pipe import Pipe
from wigwag.wire.reader import GATHERED_BYTES, BoardReader
from wigwag.wire.refuse import refusal
from wigwag.wire.render import Renderer
from wigwag.wire.tls import identity

log = logging.getLogger("wigwag.wire")


class Host:
    """What the connections of a server share."""

    __slots__ = (
        "admission",
        "connections",
        "early",
        "empty",
        "encoder",
        "handler",
        "limits",
        "loop",
        "renderer",
        "tasks",
    )

    def __init__(
        self, handler: Handler, limits: WireLimits, tasks: asyncio.TaskGroup, early: Early | None = None
    ) -> None:
        self.handler, self.limits, self.tasks, self.early = handler, limits, tasks, early
        self.loop = asyncio.get_running_loop()
        self.encoder, self.renderer = HeaderEncoder(), Renderer()
        self.admission = Admission(limits)
        self.connections: set[Connection] = set()
        self.empty = asyncio.Event()
        self.empty.set()


class Connection(Pipe):
    """One connection of either protocol."""

    def __init__(self, host: Host, admitted: Admitted | None = None) -> None:
        """`admitted` is released when the connection is closed."""
        super().__init__(host.loop)
        self._host, self._admitted = host, admitted
        self._peer: Peer
        self._sniffed = b""
        self._tasks: set[asyncio.Task[None] | BoardReader] = set()
        self._behind: dict[BoardReader, None] = {}

    # the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; whether there is room was decided when the connection was accepted."""
        super().connection_made(transport)
        host = self._host
        host.connections.add(self)
        host.empty.clear()
        self.transport.set_write_buffer_limits(high=host.limits.write_buffer)
        secure = cast("SSLObject | None", transport.get_extra_info("ssl_object"))
        self._peer = peer_of(transport, secure)
        if secure and secure.selected_alpn_protocol() == "h2":
            self._begin(b"")
            self.flush()

    def data_received(self, data: bytes) -> None:
        """Serve what arrived, with one write."""
        machine = self.machine
        if machine is None:
            data = self._sniffed + data
            if (machine := self._begin(data)) is None:
                self._sniffed = data
                return
        if not self.lingers:
            machine.receive(data, self.loop.time())
            self._serve(machine)

    def eof_received(self) -> bool:
        """Note that the client has said everything; it may still be waiting for answers."""
        self.ended = True
        if self.machine is None or self.lingers:
            return False
        self.machine.half_closed()
        self._serve(self.machine)
        return not self.machine.closing and not self.transport.get_extra_info("ssl_object")

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel whatever was being done for this client."""
        self.lingers = self.lingers or self.loop.time()
        for task in list(self._tasks):
            task.cancel()
        if self._admitted is not None:
            self._admitted.release()
        host = self._host
        host.connections.discard(self)
        if not host.connections:
            host.empty.set()

    # the server's calls

    def look(self, now: float) -> None:
        """Give up what has taken too long."""
        limits = self._host.limits
        lingered = self.lingers and now > self.lingers and not self.transport.get_write_buffer_size()
        if lingered or self.stuck(now) > limits.write_seconds:
            self.transport.abort()
        elif self.lingers:
            return
        elif self.machine:
            self.machine.expire(now)
            self._serve(self.machine)
        elif now - self.began > limits.header_seconds:
            self.transport.close()

    def drain(self) -> None:
        """Take no new requests, and close when the present ones are answered."""
        if self.machine is None:
            self.transport.close()
        elif not self.lingers:
            self.machine.drain()
            if self.machine.closing and not self.machine.out:
                self.transport.close()  # idle, and nothing to read why: no reason to linger
            else:
                self._serve(self.machine)

    def cut(self) -> None:
        """Cancel what is under way; the connection closes with it."""
        working = list(self._tasks)
        for task in working:
            task.cancel()
        if not working:
            self.transport.abort()
        elif self.machine:
            self._serve(self.machine)

    # requests and answers

    def _begin(self, data: bytes) -> Machine | None:
        """Choose the protocol by its first bytes, if there are enough of them."""
        host = self._host
        if data.startswith(PREFACE[: len(data)]) and len(data) < len(PREFACE) and data:
            return None
        if not data or data.startswith(PREFACE):
            self.machine = Http2(host.limits, host.encoder, self._peer, host.loop.time(), host.early)
        else:
            self.machine = cast("Machine", Http1(host.limits, host.renderer, self._peer, host.loop.time()))
        self._sniffed = b""
        return self.machine

    def _serve(self, machine: Machine) -> None:
        """Answer what is ready and send what there is to send."""
        ready = machine.ready
        while ready:
            exchange = ready.popleft()
            if not exchange.gone:
                self._answer(exchange)
        for exchange in machine.cancelled:
            if exchange.task:
                exchange.task.cancel()
        machine.cancelled.clear()
        if machine.widened:
            machine.widened = False
            self.wake()
        self.flush()

    def _answer(self, exchange: Exchange) -> None:
        try:
            answer = self._host.handler(exchange.request)
            if type(answer) is Reply:
                exchange.reply(answer)
                return
            if type(answer) is Broadcast and not exchange.piece:
                self._read(exchange, answer)
                return
        except Exception as error:  # noqa: BLE001 — around a request
            self._failed(exchange, error)
            return
        task = self._host.tasks.create_task(self._work(exchange, cast("Stream | Awaitable[Answer]", answer)))
        exchange.task = task
        self._tasks.add(task)
        task.add_done_callback(partial(self._worked, answer))

    def _worked(self, answer: object, task: asyncio.Task[None]) -> None:
        """Forget a task; if it was cancelled before it began, what it was to wait for never began either."""
        self._tasks.discard(task)
        if isinstance(answer, Coroutine):
            answer.close()

    def _failed(self, exchange: Exchange, error: Exception) -> None:
        """Answer for a handler that could not."""
        request = exchange.request
        log.error("handler failed: %r %r", request.method, request.path, exc_info=error)
        exchange.reply(refusal(500, request.headers))

    async def _work(self, exchange: Exchange, answer: Stream | Awaitable[Answer]) -> None:
        """Answer with what has to be waited for."""
        began = False
        try:
            ready = answer if isinstance(answer, Stream) else await answer
            if isinstance(ready, Reply):
                exchange.reply(ready)
            elif type(ready) is Broadcast and not exchange.piece:
                self._read(exchange, ready)
            else:
                began = True
                await self._stream(exchange, ready)
        except Exception as error:  # around a request
            if began:
                log.exception("stream failed: %r %r", exchange.request.method, exchange.request.path)
                exchange.abort()
            else:
                self._failed(exchange, error)
        except asyncio.CancelledError:
            exchange.abort(cancelled=True)
            raise
        finally:
            if self.machine:
                self._serve(self.machine)

    # boards

    def _read(self, exchange: Exchange, answer: Broadcast) -> None:
        """Answer with what is posted, from now on."""
        if exchange.begin(answer.status, answer.headers):
            exchange.task = reader = BoardReader(self, exchange, answer)
            self._tasks.add(reader)
            reader.begin(answer)

    def tell_later(self, reader: BoardReader) -> None:
        """Tell a reader again when there may be room."""
        self._behind[reader] = None

    def wake(self) -> None:
        """Let whoever waits for room look again."""
        super().wake()
        if self._behind:
            behind, self._behind = self._behind, {}
            for reader in behind:
                reader.told()

    def written(self, size: int) -> None:
        """Something was sent: see that it leaves, now or with what others send."""
        if size > GATHERED_BYTES:
            self.flush()
        else:
            self.flush_soon()

    def done(self, reader: BoardReader) -> None:
        """Forget a reader."""
        self._tasks.discard(reader)
        self._behind.pop(reader, None)

    # streams that are pulled

    async def _stream(self, exchange: Exchange, stream: Stream) -> None:
        chunks = stream.chunks
        try:
            if exchange.begin(stream.status, stream.headers):
                await self._pull(exchange, chunks)
                exchange.end(stream.trailers() if stream.trailers else ())
        finally:
            if close := getattr(chunks, "aclose", None):
                await close()

    async def _pull(self, exchange: Exchange, chunks: AsyncIterator[bytes]) -> None:
        """Take chunks, each when the one before is on its way."""
        self.flush()
        await self.writable(exchange)
        async for chunk in chunks:
            step = exchange.piece or len(chunk) or 1
            for at in range(0, len(chunk), step):
                exchange.send(chunk[at : at + step])
                if exchange.piece or step > GATHERED_BYTES:
                    self.flush()
                else:
                    self.flush_soon()
                await self.writable(exchange)


def peer_of(transport: asyncio.BaseTransport, secure: SSLObject | None) -> Peer:
    """Return who is at the other end."""
    name: Any = transport.get_extra_info("peername")
    address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"
    return Peer(address, "https", identity(secure)) if secure else Peer(address)
