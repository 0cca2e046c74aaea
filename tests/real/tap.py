"""A line to an API server that can be listened to and cut: every request, and how it was answered.

    agent ──TLS──▶ tap ──TLS──▶ API server

It has a certificate of its own and passes on what comes, byte for byte. A watch that ends with an error has the status
200 all the same, and the error is an event in it: so bodies are looked at, too. Tokens pass through and are not kept.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.agent.upstreams import Reader, Upstream, Writer
from tests.real.access import Access
from tests.sources.faulty import Authority
from tests.tunnel import until_either_ends

_REQUEST = re.compile(rb"(?:GET|POST|PUT|PATCH|DELETE) (/\S*) HTTP/1\.1\r\n((?:[^\r\n]+\r\n)*)\r\n")
_ANSWER = re.compile(rb'HTTP/1\.1 (?P<status>\d{3}) |"code":(?P<code>\d{3})\b')
_LONGEST = 4096
"""Longer than what either of these can match: so much is kept to be matched with what comes next."""


@dataclass
class Exchange:
    """A request, and what is known of its answer."""

    target: str
    status: int = 0
    """0: there was no answer."""
    codes: list[int] = field(default_factory=list)
    """Those of the errors in its body."""
    metadata: bool = False
    """Whether it asks for metadata alone, to compare."""

    @property
    def watch(self) -> bool:
        return "watch" in parse_qs(urlsplit(self.target).query)

    @property
    def whole(self) -> bool:
        """Whether it asks for all objects, and not only for what changes."""
        return not self.watch or "sendInitialEvents" in self.target


class Tap(Upstream):
    """`with Tap(cluster.access, folder) as tap:`; who comes with `tap.access` is heard."""

    def __init__(self, access: Access, folder: Path) -> None:
        super().__init__(self._pass, Authority(folder, "authority of the tap"))
        self._access, self._context_out = access, ssl.create_default_context(cadata=access.authority)
        self.exchanges: list[Exchange] = []
        self._passes = asyncio.Event()
        self._passes.set()

    def hold(self) -> None:
        """Pass nothing on, on any connection, and close none: what a dead server looks like behind a load balancer."""
        self._loop.call_soon_threadsafe(self._passes.clear)

    def release(self) -> None:
        """Pass on what has come meanwhile, and what comes."""
        self._loop.call_soon_threadsafe(self._passes.set)

    @property
    def access(self) -> Access:
        """Who `Tap` was made for, by this way."""
        return self.for_(self._access)

    def for_(self, access: Access) -> Access:
        """Return the access of somebody, by this way."""
        return Access(f"https://{self.address}", self.ca_path.read_text(), access.token)

    def since(self, number: int, resource: str = "featureflags") -> list[Exchange]:
        """Return the requests about a resource, without the first so many of all, and without comparisons."""
        return [each for each in self.exchanges[number:] if f"/{resource}" in each.target and not each.metadata]

    async def _pass(self, reader: Reader, writer: Writer) -> None:
        url = urlsplit(self._access.server)
        there_reader, there_writer = await asyncio.open_connection(url.hostname, url.port, ssl=self._context_out)
        try:
            mine: list[Exchange] = []
            await until_either_ends(
                _pump(reader, there_writer, self._passes, _REQUEST, lambda found: self._asked(found, mine)),
                _pump(there_reader, writer, self._passes, _ANSWER, lambda found: _answered(found, mine)),
            )
        finally:
            there_writer.transport.abort()

    def _asked(self, found: re.Match[bytes], mine: list[Exchange]) -> None:
        mine.append(Exchange(found[1].decode(), metadata=b"PartialObjectMetadata" in found[2]))
        self.exchanges.append(mine[-1])


def _answered(found: re.Match[bytes], mine: list[Exchange]) -> None:
    if found["status"]:
        mine[-1].status = int(found["status"])
    else:
        mine[-1].codes.append(int(found["code"]))


async def _pump(
    reader: Reader,
    writer: Writer,
    passes: asyncio.Event,
    wanted: re.Pattern[bytes],
    note: Callable[[re.Match[bytes]], None],
) -> None:
    """Pass on what comes; tell of what is wanted before whoever gets it can act on it."""
    text = b""
    while data := await reader.read(1 << 16):
        await passes.wait()
        text += data
        end = 0
        for found in wanted.finditer(text):
            note(found)
            end = found.end()
        text = text[end:][-_LONGEST:]
        writer.write(data)
        await writer.drain()
