"""What a server's connection drives: `h1` and `h2` have the same three parts, and none knows a socket, task or clock.

- A machine `receive`s bytes. `ready` has exchanges to be responded to, `cancelled` those that need no response any
  more. While it is `crowded`, nothing more should be read. Once it is `closing`, the connection is over when `out` is
  sent; `half_closed`, `expire`, `drain` and `cut` are the ways there. `announce` asks the client to leave.
- Its `output` has the bytes to be sent in `out`, and counts in `retained` what waits for a window or for room. `room`
  is how much of large responses may be added before the transport has taken what is there. If it is `choked`, something
  waits for nothing but room, and `pump` sends it. If it is `widened`, exchanges may be writable again.
- An exchange is one `request`, and either one `reply`, or `begin` (false if the client wants the head only), `send` …,
  `end`; `abort` breaks the response off, so that the client cannot take it for whole. While it is `writable`, what is
  sent could leave at once. It is `gone` when the response is complete or not wanted any more. `task` is whoever works
  on a response that takes time; the machine only keeps it.
"""

from __future__ import annotations

from typing import TypeAlias

from wigwag.wire.h1.response import Http1Exchange
from wigwag.wire.h1.server import Http1
from wigwag.wire.h2.server import Http2
from wigwag.wire.h2.streams import Http2Stream

Machine: TypeAlias = Http1 | Http2
Exchange: TypeAlias = Http1Exchange | Http2Stream
