"""One client's connection: requests from a machine to the handler, and responses back.

Everything that one `data_received` produces leaves in one write. Responses that need no waiting are made right there;
only streams and awaitables get a task, which belongs to the server's task group. A stream is pulled when its exchange
is writable and the transport is not full, and at no other time: a slow client costs one chunk of memory per stream.
A broadcast is not even pulled: a `BroadcastSender` takes its newest message under the same condition.

The hard case is a client that sends more than its share. What it sent is parsed in small pieces, and after each piece
and each response the clock is read; when it is up, the rest stays in `_unread`, reading pauses, and `Turns` calls
`work` when it is this connection's turn again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import cast

from wigwag.wire.h1.server import Http1
from wigwag.wire.h2.frames import PREFACE
from wigwag.wire.h2.hpack import HeaderEncoder
from wigwag.wire.h2.server import Http2
from wigwag.wire.http import Early, Handler, Reply, Request, Response, Stream, error_reply
from wigwag.wire.limits import WireLimits
from wigwag.wire.peer import Peer
from wigwag.wire.rpcs.grpc import BroadcastResponse
from wigwag.wire.server.accept import Admission, Admitted
from wigwag.wire.server.exchange import Exchange, Machine
from wigwag.wire.server.retained import Retained
from wigwag.wire.server.sender import GATHERED_BYTES, BroadcastSender
from wigwag.wire.server.shared import SharedResources
from wigwag.wire.server.turns import MARK, NOTABLE, SLICE, TimeShare
from wigwag.wire.server.writer import ConnectionWriter

PIECE = 8 * 1024
"""Bytes that are parsed at a time: at most a few hundred frames or requests."""


class Host:
    """What the connections of a server share."""

    def __init__(
        self,
        handler: Handler,
        limits: WireLimits,
        tasks: asyncio.TaskGroup,
        early: Early | None = None,
        shared: SharedResources | None = None,
    ) -> None:
        self.handler, self.limits, self.tasks = handler, limits, tasks
        self.early, self.shared = early, shared or SharedResources()
        self.loop = asyncio.get_running_loop()
        self.encoder = HeaderEncoder()
        self.admission = Admission(limits)
        self.connections: set[Connection] = set()
        self.empty = asyncio.Event()
        self.empty.set()
        self.leaving = False
        """Whether the server is being drained, so that a connection that begins now is one that had been accepted."""


class Connection(asyncio.Protocol):
    """One connection of either protocol."""

    def __init__(self, host: Host, admitted: Admitted | None = None) -> None:
        """`admitted` is released when the connection is closed."""
        self._host, self._admitted = host, admitted
        self.loop, self._began = host.loop, host.loop.time()
        self.machine: Machine | None = None
        self.writer: ConnectionWriter
        self._turns, self._clock = host.shared.turns, host.shared.turns.clock
        self._most_retained = host.limits.retained_bytes
        self.share, self.buffered = TimeShare(), 0
        self._peer: Peer
        self._sniffed = b""
        self._unread, self._at = b"", 0
        """What was read and is not parsed, and where that begins."""
        self._tasks: set[asyncio.Task[None] | BroadcastSender] = set()
        self._room: list[tuple[Exchange, asyncio.Future[None]]] = []
        self._behind: dict[BroadcastSender, None] = {}
        """Streams that wait for room: those that are pulled, and those of broadcasts."""

    # the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; whether there is room was decided when the connection was accepted."""
        host = self._host
        self.writer = ConnectionWriter(cast("asyncio.Transport", transport), host.loop, host.limits, self._drained)
        host.connections.add(self)
        host.empty.clear()
        self._peer = Peer.of(transport)
        secure = transport.get_extra_info("ssl_object")
        if secure and secure.selected_alpn_protocol() == "h2":
            self._begin(b"")
            self.writer.flush()

    def data_received(self, data: bytes) -> None:
        """Serve what arrived, with one write; or the first of it, if it is more than this client's share."""
        machine = self.machine
        if machine is None:
            data = self._sniffed + data
            if (machine := self._begin(data)) is None:
                self._sniffed = data
                return
        if self.writer.lingers:
            return
        turns = self._turns
        if turns.crowded or self._unread or len(data) > PIECE:
            self._unread, self._at = self._unread[self._at :] + data, 0
            until = turns.admit(self)
            if until:
                turns.done(self, until, self.work(until))
            else:
                self.writer.hold(True)
            return
        began = self._clock()  # nearly always
        machine.receive(data, began)
        more = bool(machine.ready) and self._respond_ready(machine, began + SLICE)
        self.settle(machine)
        used = self._clock() - began
        turns.spent += used
        if more or turns.spent > MARK or used > NOTABLE:
            turns.note(self, used, more)

    def eof_received(self) -> bool:
        """Note that the client has said everything; it may still be waiting for responses."""
        machine, writer = self.machine, self.writer
        writer.ended = True
        if machine is None or writer.lingers:
            return False
        if not self._unread:
            machine.half_closed()
            self.settle(machine)
        return not machine.closing and not writer.transport.get_extra_info("ssl_object")

    def pause_writing(self) -> None:
        """Stop pulling and reading, and count what waits."""
        self.writer.pause()
        self._note()

    def resume_writing(self) -> None:
        """Go on, with what waited for room first."""
        self.writer.resume()
        self.wake()
        self._serve()

    def _drained(self) -> None:
        """Go on with large responses when it is this connection's turn."""
        if self.machine is not None:
            self.machine.output.widened = True
            self._turns.later(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel whatever was being done for this client."""
        self.writer.lost()
        self._unread = b""
        for task in list(self._tasks):
            task.cancel()
        if self._admitted is not None:
            self._admitted.release()
        host = self._host
        if self.machine is not None:
            self.machine.cut("")
        host.shared.note(self, 0, waits=False)
        host.connections.discard(self)
        if not host.connections:
            host.empty.set()

    # the scheduler's call

    def work(self, until: float) -> bool:
        """Parse and respond until that time; return whether more could be done now."""
        machine, writer = self.machine, self.writer
        if machine is None or writer.lingers:
            self._unread = b""
            return False
        if machine.output.choked():
            machine.output.pump()
        more = self._respond_ready(machine, until)
        unread, size = self._unread, len(self._unread)
        while self._at < size and not (more or writer.full or machine.crowded()):
            piece = unread[self._at : self._at + PIECE]
            self._at += len(piece)
            machine.receive(piece, self.loop.time())
            more = self._respond_ready(machine, until) or (self._at < size and self._clock() >= until)
        if self._at >= size and size:
            self._unread, self._at = b"", 0
            if writer.ended:
                machine.half_closed()
        self.settle(machine)
        if writer.lingers:
            self._unread, self._at, more = b"", 0, False
        writer.hold(bool(self._unread))
        return more

    def _respond_ready(self, machine: Machine, until: float) -> bool:
        """Respond to what is ready; return whether the time was up before that."""
        retained, writer = machine.output.retained, self.writer
        if retained.size > self._most_retained:
            return False
        ready, clock, written = machine.ready, self._clock, 0
        while ready and not writer.full:
            exchange = ready.popleft()
            if not exchange.gone:
                written += self._respond(exchange)
                if written > PIECE and retained.size > self._most_retained:
                    return False
            if ready:
                if written > self._host.limits.write_buffer:
                    written = 0
                    writer.flush()  # see whether the transport takes it
                if clock() >= until:
                    return True
        return False

    def settle(self, machine: Machine) -> None:
        """Send what there is to send, and let those go on who waited for that."""
        if machine.cancelled:
            for exchange in machine.cancelled:
                if exchange.task:
                    exchange.task.cancel()
            machine.cancelled.clear()
        output = machine.output
        if output.widened:
            output.widened = False
            self.wake()
        self.writer.flush()
        if output.retained.size:
            self._note()

    def _note(self) -> None:
        """Count what waits for this client, and see that it is not too much for the process."""
        machine, shared = self.machine, self._host.shared
        waits = machine is not None and machine.output.retained.size > 0
        shared.note(self, self.writer.transport.get_write_buffer_size(), waits=waits)
        shared.enforce(self.loop.time())

    def _serve(self) -> None:
        """Send what there is to send, and go on with what waits, if it is this connection's turn."""
        machine = self.machine
        if machine is None:
            return
        if not (machine.ready or self._unread or machine.output.choked()):
            self.settle(machine)
            return
        until = self._turns.admit(self)
        if until:
            self._turns.done(self, until, self.work(until))
        else:
            self.settle(machine)

    # the process's calls, for what waits

    def keeps(self) -> int:
        """Return the bytes that closing this connection would free."""
        return self.buffered + (self.machine.output.retained.exclusive() if self.machine else 0)

    def waited(self) -> float:
        """Return since when the client has taken too little."""
        return self.writer.progress.since

    def cut(self, reason: str) -> None:
        """Close the connection, and free what waits."""
        machine = self.machine
        for task in list(self._tasks):
            task.cancel()
        if machine is not None:
            machine.cut(reason)
            self.settle(machine)
        if self.writer.full or machine is None:
            self.writer.transport.abort()
        self._host.shared.note(self, 0, waits=False)

    # the server's calls

    def expire(self, now: float) -> None:
        """Give up what has taken too long."""
        limits, writer = self._host.limits, self.writer
        transport = writer.transport
        if transport.get_write_buffer_size() or self in self._host.shared.connections:
            self._note()
        lingered = writer.lingers and now > writer.lingers and not transport.get_write_buffer_size()
        if lingered or writer.stuck(now) > limits.write_seconds:
            transport.abort()
        elif writer.lingers:
            return
        elif self.machine:
            self.machine.expire(now)
            self._serve()
        elif now - self._began > limits.header_seconds:
            transport.close()

    def announce(self) -> None:
        """Let the client know that it should leave; what it still asks for is responded to."""
        if self.machine is not None and not self.writer.lingers:
            self.machine.announce()
            self._serve()

    def drain(self) -> None:
        """Take no new requests, and close when the present ones are responded to."""
        machine, writer = self.machine, self.writer
        if machine is None:
            writer.transport.close()
        elif not writer.lingers:
            machine.drain()
            if machine.closing and not machine.out:
                writer.lingers = self.loop.time()
                writer.transport.close()  # idle, and nothing to read why: no reason to linger
            else:
                self._serve()

    def stop(self) -> None:
        """Cancel what is under way; the connection closes with it."""
        working = list(self._tasks)
        for task in working:
            task.cancel()
        if not working:
            self.writer.transport.abort()
        elif self.machine:
            self._serve()

    # requests and responses

    def _begin(self, data: bytes) -> Machine | None:
        """Choose the protocol by its first bytes, if there are enough of them."""
        host = self._host
        retained = Retained(host.shared.retained)
        http2 = host.limits.http2
        if http2 and data.startswith(PREFACE[: len(data)]) and len(data) < len(PREFACE) and data:
            return None
        if http2 and (not data or data.startswith(PREFACE)):
            machine: Machine = Http2(host.limits, host.encoder, self._peer, host.loop.time(), retained, host.early)
        else:
            machine = Http1(host.limits, self._peer, host.loop.time(), retained)
        machine.output.room = host.limits.write_buffer
        self.machine = self.writer.machine = machine
        if host.leaving:
            machine.announce()
        self._sniffed = b""
        return machine

    def _respond(self, exchange: Exchange) -> int:
        """Respond to a request, or begin to; return the size of the response if it was made."""
        try:
            response = self._host.handler(exchange.request)
            if type(response) is Reply:
                exchange.reply(response)
                return len(response.body)
            if type(response) is BroadcastResponse:
                self._send(exchange, response)
                return 0
        except Exception as error:  # noqa: BLE001 — around a request
            self._failed(exchange, error)
            return 0
        task = self._host.tasks.create_task(self._work(exchange, cast("Stream | Awaitable[Response]", response)))
        exchange.task = task
        self._tasks.add(task)
        task.add_done_callback(partial(self._worked, response))
        return 0

    def _worked(self, response: object, task: asyncio.Task[None]) -> None:
        """Forget a task; if it was cancelled before it began, what it was to wait for never began either."""
        self._tasks.discard(task)
        if isinstance(response, Coroutine):
            response.close()

    def _failed(self, exchange: Exchange, error: Exception) -> None:
        """Respond for a handler that could not."""
        request = exchange.request
        self._log("handler failed: %r %r", request, error)
        exchange.reply(error_reply(500, request.headers))

    async def _work(self, exchange: Exchange, response: Stream | Awaitable[Response]) -> None:
        """Respond with what has to be waited for."""
        began = False
        try:
            ready = response if isinstance(response, Stream) else await response
            if isinstance(ready, Reply):
                exchange.reply(ready)
            elif type(ready) is BroadcastResponse:
                self._send(exchange, ready)
            else:
                began = True
                await self._stream(exchange, ready)
        except Exception as error:  # noqa: BLE001 — around a request
            if began:
                self._log("stream failed: %r %r", exchange.request, error)
                exchange.abort()
            else:
                self._failed(exchange, error)
        except asyncio.CancelledError:
            exchange.abort(cancelled=True)
            raise
        finally:
            self._serve()

    def _log(self, message: str, request: Request, error: Exception) -> None:
        self._host.shared.log.log(logging.ERROR, self.loop.time(), message, request.method, request.path, error=error)

    # room for streams

    def has_room(self, exchange: Exchange) -> bool:
        """Whether what the exchange sends next could leave, and not too much waits for this client already."""
        machine = self.machine
        return (
            not self.writer.full
            and exchange.writable()
            and machine is not None
            and machine.output.retained.size <= self._most_retained
        )

    async def _writable(self, exchange: Exchange) -> None:
        """Wait until what the exchange sends next could leave."""
        while not self.has_room(exchange):
            room = self.loop.create_future()
            self._room.append((exchange, room))
            await room

    def wake(self) -> None:
        """Let streams go on that wait for room and have it now."""
        waiting, self._room = self._room, []
        for exchange, room in waiting:
            if room.done():
                continue
            if self.has_room(exchange):
                room.set_result(None)
            else:
                self._room.append((exchange, room))
        if self._behind:
            behind, self._behind = self._behind, {}
            for sender in behind:
                sender.notify()

    def written(self, size: int) -> None:
        """Something was sent: see that it leaves, now or with what others send."""
        if size > GATHERED_BYTES:
            self.writer.flush()
        else:
            self.writer.flush_soon()

    # broadcasts

    def _send(self, exchange: Exchange, response: BroadcastResponse) -> None:
        """Respond with what is published, from now on."""
        if exchange.begin(response.status, response.headers):
            exchange.task = sender = BroadcastSender(self, exchange, response)
            self._tasks.add(sender)
            sender.begin(response.seconds)

    def notify_later(self, sender: BroadcastSender) -> None:
        """Notify a sender again when there may be room."""
        self._behind[sender] = None

    def done(self, sender: BroadcastSender) -> None:
        """Forget a sender."""
        self._tasks.discard(sender)
        self._behind.pop(sender, None)

    # streams that are pulled

    async def _stream(self, exchange: Exchange, stream: Stream) -> None:
        """Take chunks, each when the one before is on its way."""
        chunks = stream.chunks
        try:
            if exchange.begin(stream.status, stream.headers):
                self.writer.flush()
                await self._writable(exchange)
                async for chunk in chunks:
                    exchange.send(chunk)
                    self.written(len(chunk))
                    await self._writable(exchange)
                exchange.end(stream.trailers() if stream.trailers else ())
        finally:
            if close := getattr(chunks, "aclose", None):
                await close()
