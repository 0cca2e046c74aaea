"""The published snapshots as event streams see them: each change, a sign of life in between, and the end.

Streams that are pulled wait on futures of their own, so a change costs each of them one wake-up. A stream that is busy
when several snapshots go by sees only the last of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from wigwag.wire.rpc import Code, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from wigwag.pipeline.broadcast import Broadcast
    from wigwag.serve.snapshot import Snapshot

NOT_YET = "there are no flags to hand out yet: not every required source has answered"
Step: TypeAlias = "tuple[Snapshot, Snapshot | None]"
"""(seen before, current): the same one twice when it is time for a sign of life, None for the current at the end."""


def stopping() -> RpcError:
    """Return how streams end when the agent stops: providers in JavaScript never reconnect after one that ends well."""
    return RpcError(Code.UNAVAILABLE, "stream closed because the server is stopping")


def timed_out() -> RpcError:
    """Return how streams end when `--stream-deadline` has passed."""
    return RpcError(Code.DEADLINE_EXCEEDED, "stream closed due to server-side timeout")


async def steps(
    snapshots: Broadcast[Snapshot], since: Snapshot, silence: float, deadline: float = 0.0
) -> AsyncGenerator[Step]:
    """Yield each step after a snapshot; after `silence` seconds a sign of life; `deadline` ends it with an error.

    Steps do not delay the sign of life: a client whose selection does not change is sent nothing else.
    """
    now = asyncio.get_running_loop().time
    seen = since
    del since  # so that a stream holds on to the last snapshot it saw, not to the first
    due, end = now() + silence, now() + deadline if deadline else float("inf")
    while snapshots.error is None:
        if snapshots.value is seen:
            await snapshots.changed(snapshots.serial, min(due, end))
            if now() >= end:
                raise timed_out()
        if snapshots.error is None:
            due = now() + silence if snapshots.value is seen else due
            previous, seen = seen, snapshots.value
            yield previous, seen
            del previous  # or a quiet stream would keep it alive
    yield seen, None
