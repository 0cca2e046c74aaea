"""The two sides of a comparison: flags of a file, of anything that an agent can read, or of a running agent.

Documents are read first and loaded afterwards, because a file that is compared with an agent is loaded as that agent
would load it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

import wigwag
from wigwag.cli.documents import read_document, title
from wigwag.cli.terminal import remark
from wigwag.errors import DocumentError, UsageError
from wigwag.flags.dump import Dumped, restore
from wigwag.sources.kinds import kind_of_uri

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from wigwag.flags.document import Format
    from wigwag.flags.flagset import FlagSet
    from wigwag.flags.model import Fractional
    from wigwag.sources.document import AnyDocument
    from wigwag.sources.source import Source

T = TypeVar("T")
AGENT = "agent://"
PORT = 8014
PATIENCE = 30.0
_LONGEST = 500


class Side(NamedTuple):
    """What was read. `dumped` is what an agent said; otherwise there is one document."""

    name: str
    text: bytes = b""
    format: Format | None = None
    dumped: tuple[Dumped, ...] | None = None

    def load(self, fractional: Fractional) -> FlagSet:
        """Return the flags, and print which cannot be loaded: they are missing, and would look removed."""
        try:
            if self.dumped is not None:
                return restore(self.dumped, time.time)
            flags = wigwag.load(self.text, fractional, source=self.name, format=self.format)
        except DocumentError as error:
            raise UsageError(f"{self.name}: {error}") from error
        for problem in flags.layers[0].problems:
            remark(str(problem))
        return flags


class _AgentResponse(msgspec.Struct):
    """What an agent says of a snapshot."""

    sources: list[Dumped]


class _RequestRefused(msgspec.Struct):
    error: str


def load_sides(before: str, after: str, fractional: Fractional | None) -> tuple[FlagSet, FlagSet, bool]:
    """Return the flags of both sides, and whether both are agents'. Without a hashing version, that of an agent."""
    sides = read_side(before), read_side(after)
    dumped = [one for side in sides for one in side.dumped or ()]
    version = fractional or (dumped[0].fractional if dumped else "v2")
    return sides[0].load(version), sides[1].load(version), all(side.dumped is not None for side in sides)


def read_side(name: str) -> Side:
    """Read what one argument names."""
    if name.startswith(AGENT):
        return Side(name, dumped=_run(_ask(name)))
    if is_source(name):
        return _run(_read_once(name))
    text, kind = read_document(name)
    return Side(title(name), text, kind)


def is_source(name: str) -> bool:
    """Tell whether an argument is read as `--uri` would be, and not as a path.

    >>> is_source("unix:/run/flags.sock"), is_source("flags.json"), is_source("file:flags.json")
    (True, False, False)
    """
    kind = kind_of_uri(name)
    return "://" in name or (kind is not None and kind.name != "file")


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio  # files need no loop

    return asyncio.run(work)


async def _read_once(uri: str) -> Side:
    """Return the first document of a source."""
    import asyncio

    from wigwag.pipeline.spec import describe
    from wigwag.sources.kinds import parse_sources, prepare
    from wigwag.wire.rpc import RpcError

    (source,) = parse_sources((uri,), "", remark)
    try:
        prepare([source], remark)
        async with asyncio.timeout(PATIENCE):
            return await _first(source)
    except TimeoutError:
        raise UsageError(f"cannot read {source.name}: no answer within {PATIENCE:.0f} seconds") from None
    except (OSError, RpcError) as error:
        raise UsageError(f"cannot read {source.name}: {describe(error)}") from error


async def _first(source: Source) -> Side:
    from wigwag.pipeline.spec import Unavailable
    from wigwag.pipeline.watch import first
    from wigwag.sources.kinds import documents

    item: AnyDocument | Unavailable | None = await first(documents(source))
    if item is None or isinstance(item, Unavailable):
        raise UsageError(f"cannot read {source.name}: {item.reason if item else 'it has no document'}")
    return Side(source.name, item.content, item.format)


async def _ask(name: str) -> tuple[Dumped, ...]:
    """Ask an agent for the flags of a snapshot; without a name, for those in force."""
    from wigwag.wire.client.client import Client
    from wigwag.wire.client.proxies import Proxies
    from wigwag.wire.client.url import parse_url
    from wigwag.wire.h1.client import ClientRequest, ResponseLimits

    host, snapshot = _agent(name)
    url = parse_url(f"http://{host}/debug/flags?format=sources&snapshot={quote(snapshot, safe='')}")
    client = Client(
        proxies=Proxies.of(os.environ), limits=ResponseLimits(total=PATIENCE, body_bytes=1 << 30), keep=False
    )
    reply = await client.fetch(ClientRequest(url))
    if reply.status != 200:
        raise UsageError(f"{name}: {_refusal(reply.status, reply.body)}")
    try:
        return tuple(msgspec.json.decode(reply.body, type=_AgentResponse).sources)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{name}: {_STRANGER}") from error


_STRANGER = "the answer is not that of a wigwag agent; is this its management port?"


def _agent(name: str) -> tuple[str, str]:
    """Return host and port, and the snapshot, of `agent://HOST[:PORT][/SNAPSHOT]`."""
    try:
        parts = urlsplit(name)
        port = parts.port or PORT
    except ValueError as error:
        raise UsageError(f"{name!r} is not the address of an agent: {error}") from error
    if not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError("the address of an agent is agent://HOST:PORT, or agent://HOST:PORT/SNAPSHOT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}", unquote(parts.path.strip("/"))


def _refusal(status: int, body: bytes) -> str:
    """Say why an agent did not answer: in its own words if it has any."""
    try:
        reason = msgspec.json.decode(body, type=_RequestRefused).error[:_LONGEST]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _STRANGER if status == 404 else f"HTTP status {status}; {_STRANGER}"
    return "".join(character if character.isprintable() else "?" for character in reason)
