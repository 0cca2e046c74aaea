"""Every fault, for every kind of source, as clients and the operator of an agent live through it.

The agent is the product's own, its sources talk to real servers of their protocols, and only the time is the test's:
a fault lasts for a minute, unless it takes real time. A row of the table is a fault; a cell says what the server does,
what the operator must be told, and how often the server may be asked. Where a fault cannot be, the cell says why.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import h2.events
import pytest

from tests.agent import seen
from tests.agent.laboratory import HASTY, PATIENT, Lab, laboratory, resolver, run
from tests.agent.process import write
from tests.agent.seen import evaluations, flags
from tests.agent.upstreams import KINDS, TOKEN, HttpUpstream, Upstream, upstream
from tests.sources.blob_stores import Store
from tests.sources.faulty import Authority, answer, drip, endless, raw, redirect, silence
from tests.sources.grpc_server import document
from tests.wire.client.server import Scripted, bytes_only

INTERVAL = 5.0
POLLS = round(60 / INTERVAL) + 1
"""Requests of a minute in which all is well. A server in trouble gets no more than that."""
RECOVERY = 30.0
"""The longest pause, in seconds, after which a server is asked again."""
LARGE = 100 << 20
PAGE = "<html>please log in</html>"
GARBAGE = b"\xde\xad\xbe\xefSSH-2.0 <html>" * 9
MEGABYTE = b"x" * (1 << 20)
META = b'ETag: "x"\r\nLast-Modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n'


class Cell(NamedTuple):
    """A fault of one kind of source."""

    impose: Callable[[Any], None]
    said: str
    """What the error must say, as a pattern."""
    most: int = POLLS
    """Requests in the time that it lasts."""
    stays: bool = False
    """Whether the stream stays open, so that nobody has to ask."""
    seconds: float = 60.0
    slow: bool = False
    """Whether it is one of taking too long, in real time."""
    secure: bool = False
    wordless: bool = False
    """Whether the server connects and says nothing."""
    name: str = ""
    """What the server is called, if not by its address."""
    sent: int = 1 << 62
    """Bytes of each answer that the network may take from the server, its buffers included."""


Table = dict[str, dict[str, "Cell | str"]]


def http_500(up: HttpUpstream) -> None:
    up.behave(answer(f"oops {TOKEN}".encode(), "500 Internal Server Error"))


def http_401(up: HttpUpstream) -> None:
    up.behave(answer(f"who is {TOKEN}?".encode(), "401 Unauthorized"))


def http_garbage(up: HttpUpstream) -> None:
    up.behave(raw(GARBAGE))


def truncated(up: HttpUpstream) -> None:
    up.behave(raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n" + META + b'\r\n{"flags": {'))


def large(up: HttpUpstream) -> None:
    up.behave(endless(MEGABYTE, 100, b"Content-Length: %d\r\n" % LARGE + META))


def refuse(up: Upstream) -> None:
    up.refuse()


def expire(up: Upstream) -> None:
    up.certify(days=-1)


async def cut_short(link: Scripted) -> None:
    """Promise a message, send a part, hang up."""
    link.greet()
    link.say(await link.asked(), document("x" * 1000)[:100])
    await link.writer.drain()


async def too_large(link: Scripted) -> None:
    """Begin a message of 100 MB."""
    link.greet()
    stream = await link.asked()
    link.say(stream, b"\0" + LARGE.to_bytes(4, "big"))
    while link.h2.local_flow_control_window(stream) >= 16_384:
        link.say(stream, bytes(16_384))
    await link.gone()


async def elsewhere(link: Scripted) -> None:
    """Answer as a web server that has moved."""
    link.greet()
    stream = (await link.until(h2.events.StreamEnded)).stream_id
    assert stream is not None
    link.h2.send_headers(stream, [(":status", "302"), ("location", "/")], end_stream=True)
    link.flush()
    await link.gone()


async def trickle(link: Scripted) -> None:
    """Promise a message; send a byte of it whenever asked for a sign of life."""
    link.greet()
    stream = await link.asked()
    link.say(stream, document("x" * 1000)[:7])
    while True:
        await link.until(h2.events.PingReceived)
        link.say(stream, b"x")


async def mute(link: Scripted) -> None:
    await link.gone()


async def proxy_page(link: Scripted) -> None:
    """Answer as a proxy whose server is broken."""
    link.greet()
    stream = (await link.until(h2.events.StreamEnded)).stream_id
    assert stream is not None
    link.h2.send_headers(stream, [(":status", "500"), ("content-type", "text/html")], end_stream=True)
    link.flush()
    await link.gone()


FAULTS: Table = {
    "500": {
        "http": Cell(http_500, r"answered 500 where a document is expected; look at the server"),
        "grpc": Cell(lambda up: up.script(proxy_page), r"not gRPC but HTTP 500 \(text/html\); is there a proxy"),
        "blob": Cell(http_500, r"the store failed \(500 Internal Server Error\)"),
    },
    "status INTERNAL": {
        "http": "that is 500",
        "grpc": Cell(lambda up: up.decline(grpc.StatusCode.INTERNAL), r"INTERNAL: not with '\*\*\*'"),
        "blob": "that is 500",
    },
    "401": {
        "http": Cell(http_401, r"answered 401 where a document is expected; check its credentials"),
        "grpc": Cell(lambda up: up.decline(grpc.StatusCode.UNAUTHENTICATED), r"UNAUTHENTICATED: not with '\*\*\*'"),
        "blob": Cell(http_401, r"the store refuses the credentials; check them \(401 Unauthorized\)"),
    },
    "garbage": {
        "http": Cell(http_garbage, r"the response is not HTTP/1\.1"),
        "grpc": Cell(lambda up: up.script(bytes_only(GARBAGE)), r"cannot connect: 127\.0\.0\.1:\d+: "),
        "blob": Cell(http_garbage, r"the request failed|broke off|cannot connect"),
    },
    "truncated": {
        "http": Cell(truncated, r"closed before the body was whole"),
        "grpc": Cell(lambda up: up.script(cut_short), r"UNAVAILABLE: the "),
        "blob": Cell(truncated, r"the response broke off"),
    },
    "wrong type": {
        "http": Cell(
            lambda up: up.behave(answer(PAGE.encode(), Content_Type="text/html")),
            r"the document must be a mapping with `flags`",
        ),
        "grpc": Cell(lambda up: up.say(PAGE), r"not valid JSON", stays=True),
        "blob": Cell(lambda up: up.put(PAGE), r"not valid JSON"),
    },
    "wrong document": {
        "http": Cell(lambda up: up.behave(answer(b'{"flags": 7}')), r"\$\.flags"),
        "grpc": Cell(lambda up: up.say('{"flags": 7}'), r"\$\.flags", stays=True),
        "blob": Cell(lambda up: up.put('{"flags": 7}'), r"\$\.flags"),
    },
    "100 MB": {
        "http": Cell(large, r"the body is larger than the limit of 67108864 bytes", sent=16 << 20),
        "grpc": Cell(lambda up: up.script(too_large), r"RESOURCE_EXHAUSTED: the message is larger than 67108864 bytes"),
        "blob": Cell(large, r"larger than the limit of 67108864 bytes; raise maxBytes", sent=16 << 20),
    },
    "redirect loop": {
        "http": Cell(lambda up: up.behave(redirect("/flags")), r"redirects more than 10 times", most=11 * POLLS),
        "grpc": Cell(lambda up: up.script(elsewhere), r"the response is not gRPC but HTTP 302"),
        "blob": Cell(lambda up: up.behave(redirect("/flags/team.json")), r"it redirects without end", most=11 * POLLS),
    },
    "slow drip": {
        "http": Cell(lambda up: up.behave(drip(0.01)), r"sends the body too slowly", seconds=4, slow=True),
        "grpc": Cell(
            lambda up: up.script(trickle),
            r"connected, but has not sent a document|after 60 s a message is still not whole",
            seconds=300,
            wordless=True,
        ),
        "blob": Cell(
            lambda up: up.behave(drip(0.01)), r"took too long|broke off|cannot be asked", seconds=4, slow=True
        ),
    },
    "silence": {
        "http": Cell(lambda up: up.behave(silence), r"does not answer in time", seconds=4, slow=True),
        "grpc": Cell(lambda up: up.script(mute), r"no answer within 0\.7 s", seconds=4, slow=True),
        "blob": Cell(lambda up: up.behave(silence), r"the store took too long", seconds=4, slow=True),
    },
    "connection refused": {
        "http": Cell(refuse, r"no connection: Connection refused; see that the server is up"),
        "grpc": Cell(refuse, r"cannot connect: 127\.0\.0\.1:\d+: Connection refused"),
        "blob": Cell(refuse, r"cannot connect \(Connection refused\)"),
    },
    "certificate expired": {
        "http": Cell(expire, r"not trusted: certificate has expired; renew the server's certificate", secure=True),
        "grpc": Cell(expire, r"its certificate is not accepted: certificate has expired", secure=True),
        "blob": Cell(expire, r"cannot connect .*certificate", secure=True),
    },
    "no address": {
        "http": Cell(refuse, r"no address: Name or service not known; check the name", name="flags.test"),
        "grpc": Cell(refuse, r"flags\.test cannot be resolved: Name or service not known", name="flags.test"),
        "blob": "the store's library resolves names by itself; see test_faults_process",
    },
}
CELLS = [(fault, kind) for fault, row in FAULTS.items() for kind in KINDS if isinstance(row[kind], Cell)]


def test_the_table_has_a_cell_or_a_reason_for_everything() -> None:
    for row in FAULTS.values():
        assert tuple(row) == KINDS
        assert all(row.values())


@pytest.mark.parametrize(("fault", "kind"), CELLS, ids=[f"{fault}-{kind}" for fault, kind in CELLS])
def test_a_fault_changes_nothing_is_seen_and_is_over_when_it_is_over(
    fault: str, kind: str, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cell, near = FAULTS[fault][kind], tmp_path / "near.json"
    assert isinstance(cell, Cell)
    caplog.set_level(logging.INFO)
    write(near, flags(1, "near"))

    async def main() -> None:
        with upstream(kind, store, Authority(tmp_path) if cell.secure else None) as up:
            up.serve(flags(1, "far"))
            resolver().known["flags.test"] = up.host
            sources = up.source(cell.name), {"uri": str(near), "provider": "file"}
            async with laboratory(*sources, patience=HASTY if cell.slow else PATIENT) as lab:
                trial = Trial(lab, up, cell, near)
                before = await trial.well()
                await trial.strike()
                assert await trial.look() == before
                await trial.as_operators_see_it(caplog)
                await trial.as_a_neighbour_sees_it()
                await trial.recovery()

    run(main)


class Trial:
    """One fault of one source."""

    def __init__(self, lab: Lab, up: Any, cell: Cell, near: Path) -> None:
        self.lab, self.up, self.cell, self.near = lab, up, cell, near
        self.tap = lab.taps[0]

    async def look(self) -> dict[str, Any]:
        """Evaluate on every surface."""
        self.lab.at_once("far")
        found: dict[str, Any] = await self.lab.ask(evaluations, "far")
        return found

    def asked(self) -> Counter[str]:
        """Count how often the server was asked: requests that came and, as none may arrive, tries to connect."""
        tries = self.tap.items if self.up.kind == "blob" else resolver().looked_up[self.up.port]
        return Counter(requests=self.up.asked, tries=tries)

    async def well(self) -> dict[str, Any]:
        """All is well, and has been for a while."""
        await self.lab.meanwhile(lambda: self.lab.state() == self.lab.state(1) == "live")
        await self.lab.lapse(32.0)
        await self.lab.until(lambda: self.lab.state() == "live")  # whoever is HASTY may have missed an answer
        told = await self.lab.source()
        assert (told["state"], told["error"], told["metrics"]["up"]) == ("live", None, 1)
        assert told["ageSeconds"] <= INTERVAL
        found = await self.look()
        assert {found[name][1]["value"] for name in ("v1", "v2", "OFREP")} == {"revision 1"}
        return found

    async def strike(self) -> None:
        """The fault, for as long as it lasts; the server is not asked more often than it may be."""
        moves = self.tap.moves
        resolver().known.clear()
        self.tap.wordless = self.cell.wordless
        self.cell.impose(self.up)
        if self.up.kind == "grpc":  # it learns at once; the others, when they ask next
            await self.lab.meanwhile(lambda: self.tap.moves > moves)
        await self.lab.until(lambda: self.lab.state() == "failing")
        count, sent = self.asked(), getattr(self.up, "sent", 0)
        await self.lab.lapse(self.cell.seconds)
        requests = max((self.asked() - count).values(), default=0)
        assert (0 if self.cell.stays else 2) <= requests <= self.cell.most
        assert getattr(self.up, "sent", 0) - sent <= self.cell.sent * requests

    async def as_operators_see_it(self, caplog: pytest.LogCaptureFixture) -> None:
        told = await self.lab.source()
        assert told["state"] == "failing"
        assert re.search(self.cell.said, told["error"]), told["error"]
        assert told["metrics"]["up"] == 0
        assert told["ageSeconds"] >= self.cell.seconds
        assert told["metrics"]["age_seconds"] >= self.cell.seconds
        logged = [record.getMessage() for record in caplog.records]
        assert f"source {told['source']}: {told['error']}" in logged
        assert "hush" not in told["text"] + caplog.text
        assert await self.lab.ask(seen.ready) == 200

    async def as_a_neighbour_sees_it(self) -> None:
        """Another source goes on as if nothing were."""
        write(self.near, flags(2, "near"))
        await self.lab.meanwhile(lambda: self.lab.value("near") == "revision 2")
        told = await self.lab.source(1)
        assert (told["state"], told["metrics"]["up"]) == ("live", 1)

    async def recovery(self) -> None:
        """The server is well again, and nobody else does anything about it."""
        resolver().known["flags.test"] = self.up.host
        self.tap.wordless = False
        self.up.serve(flags(2, "far"))
        if self.cell.stays:
            await self.lab.meanwhile(lambda: self.lab.value("far") == "revision 2")
        await self.lab.until(lambda: self.lab.value("far") == "revision 2", RECOVERY)
        found = await self.look()
        assert {found[name][1]["value"] for name in ("v1", "v2", "OFREP")} == {"revision 2"}
        assert found["sync"]["defaultVariant"] == "r2"
        told = await self.lab.source()
        assert (told["state"], told["error"], told["metrics"]["up"]) == ("live", None, 1)
        assert told["lastError"]
        assert max(told["ageSeconds"], told["metrics"]["age_seconds"]) < INTERVAL
