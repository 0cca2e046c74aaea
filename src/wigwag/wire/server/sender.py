"""Sends a broadcast on one stream of a connection: the newest message, whenever the stream has room for it.

A sender takes the place of a task (`cancel` is called when the client disconnects or the server cuts it off), but
nothing runs while nothing happens. What it has sent and the client has not read is one message, the same bytes for all
clients; it takes the next one from the broadcast when there is room, so a slow client costs no more than one message.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs.grpc import BroadcastResponse
from wigwag.wire.server.exchange import Exchange

GATHERED_BYTES = 16 * 1024
"""Messages up to this size are written together with those of other streams."""


class SenderConnection(Protocol):
    """What a sender needs of its connection."""

    loop: asyncio.AbstractEventLoop

    def has_room(self, exchange: Exchange) -> bool:
        """Whether what the exchange sends next can leave."""

    def notify_later(self, sender: BroadcastSender) -> None:
        """Notify a sender again when there may be room."""

    def written(self, size: int) -> None:
        """Something was sent: flush it, now or together with what others send."""

    def done(self, sender: BroadcastSender) -> None:
        """Forget a sender."""


class BroadcastSender:
    """One stream."""

    __slots__ = ("_connection", "_ending", "_exchange", "_frame", "_open", "_stream", "_timer")

    def __init__(self, connection: SenderConnection, exchange: Exchange, response: BroadcastResponse) -> None:
        self._connection, self._exchange = connection, exchange
        self._stream, self._frame, self._ending = response.messages, response.frame, response.ending
        self._timer: asyncio.TimerHandle | None = None
        self._open = True

    def begin(self, seconds: float | None) -> None:
        """Send the message that is there already, and those that follow; `seconds` is the client's deadline."""
        try:
            self._stream.open(self.notify)
        except RpcError as error:
            self._end(error)
            return
        if seconds is not None:
            self._timer = self._connection.loop.call_later(seconds, self._late)
        self.notify()

    def notify(self) -> None:
        """Send the newest message if it is another one, and if there is room for it."""
        stream = self._stream
        broadcast = stream.broadcast
        if not self._open or broadcast is None:
            return
        if broadcast.error is not None or stream.revoked is not None:
            self._end(stream.error)
        elif broadcast.serial != stream.seen:
            exchange, connection = self._exchange, self._connection
            if not connection.has_room(exchange):
                connection.notify_later(self)
                return
            stream.seen = broadcast.serial
            chunk = broadcast.value.framed(self._frame)
            exchange.send(chunk)
            connection.written(len(chunk))

    def cancel(self) -> None:
        """Stop, and tell the client nothing but that it is over."""
        self._close()
        self._exchange.abort(cancelled=True)

    def _late(self) -> None:
        self._end(RpcError(Code.DEADLINE_EXCEEDED, "the deadline has passed"))

    def _end(self, error: RpcError | None) -> None:
        assert error is not None
        self._close()
        self._exchange.end(self._ending(error))
        self._connection.written(0)

    def _close(self) -> None:
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        self._stream.close()
        self._connection.done(self)
