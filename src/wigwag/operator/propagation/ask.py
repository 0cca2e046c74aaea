"""One request to one agent or proxy: which digests it has. It is bounded in time and size, and follows no redirect.

An agent that does not answer tells nothing about its flags. Why it does not is put into words that hold nothing of what
came back: they end in the status of FeatureFlags, and whoever writes pods chooses where the request goes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from wigwag.observe import Counter
from wigwag.wire.client.client import Client
from wigwag.wire.client.errors import FetchError, SlowError, UnreachableError
from wigwag.wire.client.url import Url
from wigwag.wire.h1.client import ClientRequest, ResponseLimits

if TYPE_CHECKING:
    from wigwag.observe import Instrument

PATH = "/propagation"
LIMITS = ResponseLimits(connect=1.0, head=2.0, idle=2.0, total=3.0, head_bytes=8 << 10, body_bytes=1 << 20)
UNSUPPORTED = "its image cannot tell which flags it has"
_NOT_FOUND, _OK = 404, 200


class SourceAnswer(Struct, frozen=True):
    """What an agent says about one of its sources."""

    priority: int
    digest: str = ""
    """Of the document that it serves; empty if it has none yet."""
    state: str = ""


class TargetAnswer(Struct, frozen=True):
    """What a proxy says about one of its targets."""

    target: str
    provider: str = ""
    digest: str = ""
    """Of the document that it has; empty if there is none yet."""
    subscribers: int = 0
    sent: int = 0
    """How many of them have been sent that document."""


class AgentAnswer(Struct, frozen=True):
    """What an agent says, or a proxy."""

    sources: tuple[SourceAnswer, ...] = ()
    targets: tuple[TargetAnswer, ...] = ()

    def digests(self) -> dict[int, str]:
        """Return the digest of each source by its place in `--sources`."""
        return {each.priority: each.digest for each in self.sources}


class NoAnswer(Struct, frozen=True):
    """Why an agent could not be asked."""

    reason: str
    final: bool = False
    """Whether asking again soon is of no use."""


Asked: TypeAlias = AgentAnswer | NoAnswer
_decode = msgspec.json.Decoder(AgentAnswer).decode


class AskAgent(Protocol):
    """Asks an agent at an address."""

    async def ask(self, address: str, port: int) -> Asked:
        """Return what it says, or why it says nothing."""
        ...


class PropagationMetrics:
    """The numbers of propagation."""

    def __init__(self) -> None:
        self.asks = Counter(
            "wigwag_propagation_asks",
            "Agents that were asked which flags they have, by outcome: answered, silent, unsupported.",
            ("outcome",),
        )
        self.writes = Counter("wigwag_propagation_status_writes", "Writes of which agents have a FeatureFlag's flags.")

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """What a registry shows."""
        return self.asks, self.writes

    def count(self, asked: Asked) -> None:
        """Count a question."""
        if isinstance(asked, NoAnswer):
            self.asks.add(("unsupported" if asked.final else "silent",))
        else:
            self.asks.add(("answered",))


class AgentClient:
    """Asks agents over HTTP."""

    def __init__(self, limits: ResponseLimits = LIMITS) -> None:
        self._limits, self._client = limits, Client(limits=limits, keep=False)

    async def ask(self, address: str, port: int) -> Asked:
        """Return what the agent at an address says, or why it says nothing."""
        return await self._ask(Url("http", address, port, PATH))

    async def _ask(self, url: Url) -> Asked:
        try:
            async with asyncio.timeout(self._limits.total):
                response = await self._client.fetch(ClientRequest(url))
        except (SlowError, TimeoutError):
            return NoAnswer(f"it does not answer within {self._limits.head:g} s")
        except UnreachableError:
            return NoAnswer("there is no connection; see that a NetworkPolicy lets the operator reach it")
        except FetchError:
            return NoAnswer("its answer is no HTTP, or too large")
        if response.status != _OK:
            unsupported = response.status == _NOT_FOUND
            return NoAnswer(UNSUPPORTED if unsupported else f"it answers {response.status}", final=unsupported)
        try:
            return _decode(response.body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return NoAnswer("its answer cannot be read")
