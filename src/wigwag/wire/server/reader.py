"""Reads a board onto one stream of a connection: sends the newest message whenever the stream has room for it.

It stands where a task would stand (`cancel` is called when the client goes away or the server cuts it off), but nothing
runs while nothing happens. What it has sent and the client has not taken is one message, the same bytes for everybody;
the next one is taken from the board when there is room, so a slow client costs no more than its own message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from wigwag.wire.http import Headers
from wigwag.wire.rpc import Code, RpcError
from wigwag.wire.rpcs.grpc import Broadcast
from wigwag.wire.server.board import Board
from wigwag.wire.server.exchange import Exchange

GATHERED_BYTES = 16 * 1024
"""Messages up to this size are written together with those of other streams."""


class Way(Protocol):
    """The connection, as far as its readers know it."""

    loop: asyncio.AbstractEventLoop

    def has_room(self, exchange: Exchange) -> bool:
        """Whether what the exchange sends next could leave."""

    def tell_later(self, reader: BoardReader) -> None:
        """Tell a reader again when there may be room."""

    def written(self, size: int) -> None:
        """Something was sent: see that it leaves, now or with what others send."""

    def done(self, reader: BoardReader) -> None:
        """Forget a reader."""


class BoardReader:
    """One stream."""

    __slots__ = ("_board", "_ending", "_exchange", "_frame", "_leave", "_seen", "_timer", "_way")

    def __init__(self, way: Way, exchange: Exchange, answer: Broadcast) -> None:
        self._way, self._exchange = way, exchange
        self._frame, self._ending = answer.frame, answer.ending
        self._seen = 0
        self._timer: asyncio.TimerHandle | None = None
        self._board: Board | None = None
        self._leave: Callable[[], None] | None = None

    def begin(self, answer: Broadcast) -> None:
        """Send what there is already, and be told of what follows."""
        try:
            self._board, self._leave = answer.posted.join()
        except RpcError as error:
            self._end(error)
            return
        self._board.join(self)
        if answer.seconds is not None:
            self._timer = self._way.loop.call_later(answer.seconds, self._late)
        self.told()

    def told(self) -> None:
        """Send the newest message if it is another one, and if it can leave."""
        board = self._board
        if board is None:
            return
        if board.error is not None:
            self._end(board.error)
        elif board.serial != self._seen:
            exchange, way = self._exchange, self._way
            if not way.has_room(exchange):
                way.tell_later(self)
                return
            self._seen = board.serial
            chunk = board.framed(self._frame)
            exchange.send(chunk)
            way.written(len(chunk))

    def cancel(self) -> None:
        """Stop, without a word to the client but that it is over."""
        self._forget()
        self._exchange.abort(cancelled=True)

    def _late(self) -> None:
        self._end(RpcError(Code.DEADLINE_EXCEEDED, "the deadline has passed"))

    def _end(self, error: RpcError) -> None:
        trailers: Headers = self._ending(error)
        self._forget()
        self._exchange.end(trailers)
        self._way.written(0)

    def _forget(self) -> None:
        board, leave, self._board, self._leave = self._board, self._leave, None, None
        if self._timer is not None:
            self._timer.cancel()
        if board is not None and leave is not None:
            board.leave(self)
            leave()
        self._way.done(self)
