"""The newest message for many streams: whoever posts it tells all readers, and none of them needs a task.

    post ─▶ Board ─▶ told ─▶ Reader ─ room? ─▶ the message in the reader's frame, made once for all who share it

A stream that is pulled keeps a task, generators and a future, only to find out that there is something new. A reader is
a small object that is told so. Invariant: a reader that has not seen the newest message is being told, or waits for
room to be told again; so it may skip messages, but it never ends on an old one.

`Posted` is what a stream handler returns for a board. It can be pulled like any other stream, so every protocol can
carry it; where the connection is HTTP/2 and the protocol gRPC, it is read without being pulled (see `reader`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

from wigwag.wire.rpc import RpcError

Frame: TypeAlias = Callable[[bytes], bytes]
"""Wraps a message for the wire. What it makes is kept by its identity, so it must not be made anew for each stream."""
Joining: TypeAlias = "Callable[[], tuple[Board, Callable[[], None]]]"
"""Begins to read: returns the board, and what to call at the end. `RpcError` if that is not allowed."""


class Reader(Protocol):
    """Who reads a board."""

    def told(self) -> None:
        """There is something new, or it is over: look at the board."""


class Board:
    """The newest message, if there is one, and its readers."""

    __slots__ = ("_framed", "_make", "_readers", "error", "serial")

    def __init__(self) -> None:
        self.serial = 0
        """How many messages there have been."""
        self.error: RpcError | None = None
        """How it ended; None: it goes on."""
        self._make: Callable[[], bytes] = bytes
        self._framed: dict[Frame, bytes] = {}
        self._readers: dict[Reader, None] = {}

    def __len__(self) -> int:
        return len(self._readers)

    def post(self, make: Callable[[], bytes]) -> None:
        """Replace the message; it is made when the first reader takes it."""
        self._make, self._framed = make, {}
        self.serial += 1
        self._tell()

    def end(self, error: RpcError) -> None:
        """End all streams with an error. The first one counts."""
        self.error = self.error or error
        self._tell()

    def join(self, reader: Reader) -> None:
        """Tell this reader, too, from now on."""
        self._readers[reader] = None

    def leave(self, reader: Reader) -> None:
        """Tell this reader no longer."""
        self._readers.pop(reader, None)

    def framed(self, frame: Frame) -> bytes:
        """Return the message in a frame: the same object for all who ask for the same frame."""
        found = self._framed.get(frame)
        if found is None:
            found = self._framed[frame] = frame(self._make())
        return found

    def _tell(self) -> None:
        for reader in list(self._readers):
            reader.told()


class Branch(Board):
    """Some readers of another board, the trunk, that can be ended without the others. Frames are the trunk's."""

    __slots__ = ("_trunk",)

    def __init__(self, trunk: Board) -> None:
        super().__init__()
        self._trunk = trunk
        trunk.join(self)
        self.told()

    def told(self) -> None:
        """Take over what is new on the trunk, and tell the readers."""
        self.serial, self.error = self._trunk.serial, self.error or self._trunk.error
        self._tell()

    def framed(self, frame: Frame) -> bytes:
        """Return the message in a frame, as the trunk has it."""
        return self._trunk.framed(frame)

    def cut(self) -> None:
        """Leave the trunk."""
        self._trunk.leave(self)


class Posted:
    """One stream of a board. It counts as a reader from its first pull, or from `join`: it may be dropped before."""

    __slots__ = ("_board", "_join", "_leave", "_news", "_seen")

    def __init__(self, join: Joining) -> None:
        self._join = join
        self._board: Board | None = None
        self._leave: Callable[[], None] | None = None
        self._news: asyncio.Future[None] | None = None
        self._seen = 0

    def join(self) -> tuple[Board, Callable[[], None]]:
        """Begin to read without pulling."""
        return self._join()

    def told(self) -> None:
        """Let the pull that is under way look."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def __aiter__(self) -> Posted:
        return self

    async def __anext__(self) -> bytes:
        if self._board is None:
            self._board, self._leave = self._join()
            self._board.join(self)
        board = self._board
        while board.error is None and board.serial == self._seen:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if board.error is not None:
            raise board.error
        self._seen = board.serial
        return board.framed(_as_it_is)

    async def aclose(self) -> None:
        """Read no longer."""
        leave, self._leave = self._leave, None
        if self._board is not None and leave is not None:
            self._board.leave(self)
            leave()


def _as_it_is(message: bytes) -> bytes:
    return message
