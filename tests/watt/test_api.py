"""The HTTP API, over real connections on loopback."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import h2.events
import pytest

from tests.pipeline.fakes import settle
from tests.watt.snapshots import consul, services, snapshot
from tests.wire.served import Http2Client, connected, run
from wigwag.errors import StartError
from wigwag.observe import Registry
from wigwag.serve.access.guard import TokenGuard
from wigwag.watt.api import ApiSettings, SnapshotApi, token_file
from wigwag.watt.snapshots.history import WattHistory
from wigwag.wire.server.listen import Listener
from wigwag.wire.server.server import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.wire.served import Reader
    from wigwag.watt.snapshots.snapshot import WattSnapshot

LARGE = tuple(("shop", f"s{each:04}") for each in range(4000))


class Answer:
    """What a server answered."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


class Api:
    """An API that is served, and what it serves."""

    def __init__(self, history: WattHistory, **settings: Any) -> None:
        self.history, self.ready, self.resyncs, self.address = history, True, 0, ""
        sources = {"services": {"state": "live", "age": 1.0, "error": None}}
        watches = [{"spec": "services", "state": "live"}]
        self.api = SnapshotApi(
            history, lambda: sources, lambda: {"watches": watches}, self._resync, ApiSettings(**settings)
        )

    def _resync(self) -> None:
        self.resyncs += 1

    def add(self, *keys: tuple[str, str], **fields: Any) -> WattSnapshot:
        return self.history.add(snapshot(services(*keys, **fields), consul({("dc1", "web"): "10.0.0.1"})))

    async def get(self, path: str, *headers: str, method: str = "GET", host: str = "localhost") -> Answer:
        async with connected(self.address) as (reader, writer):
            writer.write(request(path, *headers, "Connection: close", method=method, host=host))
            head, body = await head_of(reader), await reader.read()
        return Answer(*head, unchunked(body) if head[1].get("transfer-encoding") == "chunked" else body)

    @asynccontextmanager
    async def stream(self, path: str, *headers: str) -> AsyncIterator[Reader]:
        """Open an event stream, and read its head."""
        async with connected(self.address) as (reader, writer):
            writer.write(request(path, "Accept: text/event-stream", *headers))
            status, fields = await head_of(reader)
            assert (status, fields["content-type"]) == (200, "text/event-stream")
            assert await chunk(reader) == b": connected\n\n"
            yield reader


def request(path: str, *headers: str, method: str = "GET", host: str = "localhost") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]).encode()


async def head_of(reader: Reader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines)


async def chunk(reader: Reader) -> bytes:
    size = int(await reader.readline(), 16)
    return (await reader.readexactly(size + 2))[:-2]


def unchunked(body: bytes) -> bytes:
    found = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        found, body = found + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return found


def event(text: bytes) -> Any:
    """Return the data of an event, with its id."""
    fields = dict(line.split(": ", 1) for line in text.decode().strip().split("\n"))
    return json.loads(fields["data"]) | {"event": fields["id"]}


@asynccontextmanager
async def serving(guard: TokenGuard | None = None, count: int = 10, **settings: Any) -> AsyncIterator[Api]:
    served = Api(WattHistory(count, now=lambda: 0.0), **settings)
    handler = (guard or TokenGuard()).handler(served.api.handler(lambda: served.ready, Registry()))
    async with serve(handler, [Listener(host="127.0.0.1")]) as server:
        served.address = server.addresses[0]
        yield served


def test_the_list_is_of_links_as_in_the_original() -> None:
    async def test() -> None:
        async with serving(count=2) as api:
            assert (await api.get("/snapshots/")).text == "<html><body><ul>\n</ul></body></html>\n"
            for each in range(3):
                api.add(("shop", str(each)))
            answer = await api.get("/snapshots/")
            assert answer.headers["content-type"].startswith("text/html")
            assert answer.headers["x-snapshot-id"] == "3"
            assert '<li><a href="2">2</a></li>\n  <li><a href="3">3</a></li>' in answer.text
            listed = (await api.get("/snapshots/", "Accept: application/json")).json()
            assert [(each["id"], each["complete"]) for each in listed] == [(2, True), (3, True)]
            assert (await api.get("/snapshots")).headers["location"] == "/snapshots/"

    run(test)


def test_a_snapshot_is_served_by_its_number_until_it_expires() -> None:
    async def test() -> None:
        async with serving(count=2) as api:
            for each in range(3):
                api.add(("shop", str(each)))
            found = await api.get("/snapshots/2")
            assert (found.status, found.headers["content-type"]) == (200, "application/json")
            assert found.headers["x-snapshot-id"] == "2"
            assert found.json()["Kubernetes"]["services"][0]["metadata"]["name"] == "1"
            assert found.text.startswith('{\n    "Consul": {')
            assert (await api.get("/snapshots/latest")).headers["x-snapshot-id"] == "3"
            for gone in ("1", "4", "-1", "+9", "0"):
                assert (await api.get(f"/snapshots/{gone}")).status == 404

    run(test)


@pytest.mark.parametrize("name", ["x", "1x", "1/2", "1.0", "9" * 30, "%31", "Latest"])
def test_a_name_that_is_no_number_is_refused_as_by_the_original(name: str) -> None:
    async def test() -> None:
        async with serving() as api:
            api.add()
            answer = await api.get(f"/snapshots/{name}")
            assert (answer.status, answer.text) == (400, "ID is not an integer\n")

    run(test)


def test_before_the_first_snapshot_the_latest_says_what_to_do() -> None:
    async def test() -> None:
        async with serving() as api:
            answer = await api.get("/snapshots/latest")
            assert answer.status == 404
            assert "/debug/watches" in answer.text

    run(test)


def test_a_query_chooses_format_and_projection() -> None:
    async def test() -> None:
        async with serving() as api:
            api.add(("shop", "a"), ("admin", "b"))
            found = (await api.get("/snapshots/latest?format=v2&kind=service&namespace=shop")).json()
            assert (found["id"], found["sources"]["services"]["state"]) == (1, "live")
            assert [each["metadata"]["name"] for each in found["Kubernetes"]["services"]] == ["a"]
            assert "Consul" not in found
            changes = (await api.get("/snapshots/1?deltas&section=Consul")).json()
            assert [each["name"] for each in changes["Deltas"]] == ["web"]
            assert "Consul" not in changes

    run(test)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("knd=services", "unknown parameter 'knd'; did you mean `kind`?"),
        ("format=wat1", "unknown format 'wat1'; did you mean `watt1`?"),
        ("format=yaml", "one of watt1, v2"),
        ("section=x", "unknown section 'x'; one of Kubernetes, Consul, Files, Documents"),
        ("kind=", "kinds: a value is empty"),
        ("kind=a,,b", "kinds: a value is empty"),
        ("deltas&format=watt1", "deltas: only a v2 document has them"),
        ("wait=soon", "wait: 'soon' is not a duration"),
        ("wait=-1s", "wait: a duration of 0 or more"),
        ("wait=", "wait: '' is not a duration"),
        ("wait=1s&index=x", "index: the number of a snapshot"),
        ("&".join(["kind=x"] * 101), "at most 100 parameters"),
        ("%ff=1", "unknown parameter"),
        ("=", "unknown parameter ''"),
    ],
)
def test_a_query_that_is_wrong_is_refused_with_a_hint(query: str, message: str) -> None:
    async def test() -> None:
        async with serving() as api:
            api.add()
            answer = await api.get(f"/snapshots/latest?{query}")
            assert answer.status == 400
            assert message in answer.text

    run(test)


def test_only_the_latest_can_be_waited_for() -> None:
    async def test() -> None:
        async with serving() as api:
            api.add()
            assert (await api.get("/snapshots/1?wait=1s")).status == 400
            assert (await api.get("/snapshots/?kind=services")).status == 400

    run(test)


def test_what_the_client_has_is_not_sent_again() -> None:
    async def test() -> None:
        async with serving() as api:
            api.add(("shop", "a"))
            path = "/snapshots/latest?kind=services"
            etag = (await api.get(path)).headers["etag"]
            assert etag.startswith('w/"')
            match = f"If-None-Match: {etag.replace('w/', 'W/')}"
            api.history.add(snapshot(services(("shop", "a")), consul({("dc1", "web"): "10.0.0.2"})))
            same = await api.get(path, match)
            assert (same.status, same.body, same.headers["x-snapshot-id"]) == (304, b"", "2")
            assert (await api.get("/snapshots/latest", match)).status == 200
            assert (await api.get(f"{path}&format=v2", match)).status == 200
            api.add(("shop", "b"))
            assert (await api.get(path, match)).status == 200

    run(test)


def test_a_v2_document_is_another_one_when_a_watch_has_answered() -> None:
    async def test() -> None:
        async with serving(format="v2") as api:
            api.history.add(snapshot(services(("shop", "a")), waiting=("late",)))
            etag = (await api.get("/snapshots/latest")).headers["etag"]
            api.history.add(snapshot(services(("shop", "a"))))
            assert (await api.get("/snapshots/latest", f"If-None-Match: {etag}")).status == 200

    run(test)


def test_head_has_the_headers_only() -> None:
    async def test() -> None:
        async with serving() as api:
            api.add(*LARGE, data="x" * 100)
            answer = await api.get("/snapshots/latest", method="HEAD")
            assert (answer.status, answer.body, answer.headers["x-snapshot-id"]) == (200, b"", "1")
            assert answer.headers["etag"] == (await api.get("/snapshots/latest")).headers["etag"]

    run(test)


@pytest.mark.parametrize(("path", "method"), [("/snapshots/1", "POST"), ("/snapshots/", "DELETE"), ("/resync", "GET")])
def test_other_methods_are_refused(path: str, method: str) -> None:
    async def test() -> None:
        async with serving() as api:
            assert (await api.get(path, method=method)).status == 405
            assert api.resyncs == 0

    run(test)


def test_a_long_poll_returns_when_there_is_another_snapshot() -> None:
    async def test() -> None:
        async with serving() as api:
            poll = asyncio.create_task(api.get("/snapshots/latest?wait=10m&index=0"))
            while not api.api.waiting:
                await settle()
            api.add(("shop", "a"))
            assert (await poll).headers["x-snapshot-id"] == "1"
            poll = asyncio.create_task(api.get("/snapshots/latest?wait=99h&index=1"))
            while not api.api.waiting:
                await settle()
            api.add(("shop", "b"))
            assert (await poll).headers["x-snapshot-id"] == "2"
            assert api.api.waiting == 0

    run(test)


def test_a_long_poll_returns_at_once_if_there_is_another_snapshot_already() -> None:
    async def test() -> None:
        async with serving() as api:
            api.add(("shop", "a"))
            for index in ("", "&index=0", "&index=7"):  # 7 is from before a restart
                assert (await api.get(f"/snapshots/latest?wait=10m{index}")).headers["x-snapshot-id"] == "1"

    run(test)


def test_a_long_poll_returns_what_there_is_when_its_time_is_over() -> None:
    async def test() -> None:
        async with serving() as api:
            assert (await api.get("/snapshots/latest?wait=1ms")).status == 404
            api.add(("shop", "a"))
            answer = await api.get("/snapshots/latest?wait=1ms&index=1")
            assert (answer.status, answer.headers["x-snapshot-id"]) == (200, "1")

    run(test)


def test_waiting_ends_when_the_program_stops() -> None:
    async def test() -> None:
        async with serving() as api:
            api.add(("shop", "a"))
            poll = asyncio.create_task(api.get("/snapshots/latest?wait=10m&index=1"))
            async with api.stream("/snapshots/latest") as events:
                await chunk(events)
                while api.api.waiting < 2:
                    await settle()
                api.history.snapshots.end(StartError("stopping"))
                assert await events.readexactly(5) == b"0\r\n\r\n"
            assert (await poll).status == 200

    run(test)


def test_only_so_many_may_wait() -> None:
    async def test() -> None:
        async with serving(most_waiting=2) as api, AsyncExitStack() as clients:
            for _ in range(2):
                await clients.enter_async_context(api.stream("/snapshots/latest"))
            for header in ("Accept: text/event-stream", "Accept: */*"):
                answer = await api.get("/snapshots/latest?wait=10m", header)
                assert (answer.status, answer.headers["retry-after"]) == (503, "5")
            api.add()
            assert (await api.get("/snapshots/latest")).status == 200
            await clients.aclose()
            while api.api.waiting:
                await settle()
            assert (await api.get("/snapshots/latest?wait=10m")).status == 200

    run(test)


def test_events_have_what_has_changed() -> None:
    async def test() -> None:
        async with serving() as api:
            first = api.add(("shop", "a"))
            async with api.stream("/snapshots/latest") as events:
                assert event(await chunk(events)) == {
                    "id": 1,
                    "digest": first.digest,
                    "complete": True,
                    "event": f"1-{first.digest[:8]}",
                }
                api.add(("shop", "a"), ("shop", "b"))
                found = event(await chunk(events))
                assert (found["id"], found["since"]) == (2, 1)
                assert [(each["name"], each["type"]) for each in found["deltas"]] == [("b", "add")]

    run(test)


def test_a_client_that_reconnects_gets_what_it_missed() -> None:
    async def test() -> None:
        async with serving() as api:
            first = api.add(("shop", "a"))
            api.add(("shop", "b"))
            latest = api.add(("shop", "b"), ("shop", "c"))
            path, seen = "/snapshots/latest", f"Last-Event-ID: 1-{first.digest[:8]}"
            async with api.stream(path, seen) as events:
                found = event(await chunk(events))
                assert (found["id"], found["since"]) == (3, 1)
                changes = [(each["name"], each["type"]) for each in found["deltas"]]
                assert changes == [("a", "delete"), ("b", "add"), ("c", "add")]
            for unknown in ("1-00000000", "3-00000000", "99-0", "x", "\xff"):
                async with api.stream(path, f"Last-Event-ID: {unknown}") as events:
                    found = event(await chunk(events))
                    assert (found["id"], "deltas" in found) == (3, False)
            async with api.stream(path, f"Last-Event-ID: 3-{latest.digest[:8]}") as events:
                api.add(("shop", "d"))
                assert event(await chunk(events))["id"] == 4

    run(test)


def test_events_of_a_projection_are_only_about_it() -> None:
    async def test() -> None:
        async with serving() as api:
            api.add(("shop", "a"))
            async with api.stream("/snapshots/latest?namespace=shop") as events:
                await chunk(events)
                api.add(("shop", "a"), ("admin", "x"))
                await settle()
                api.add(("shop", "a"), ("shop", "b"))
                found = event(await chunk(events))
                assert (found["id"], [each["name"] for each in found["deltas"]]) == (3, ["b"])

    run(test)


def test_a_quiet_stream_has_a_heartbeat() -> None:
    async def test() -> None:
        async with serving(heartbeat=0.001) as api, api.stream("/snapshots/latest") as events:
            assert await chunk(events) == b": heartbeat\n\n"

    run(test)


def test_over_http2_head_has_no_body() -> None:
    async def test() -> None:
        async with serving(TokenGuard(hosts=["*"])) as api, connected(api.address) as streams:
            api.add(*LARGE)
            client = Http2Client(*streams)
            client.get(1, "/snapshots/latest", "HEAD")
            headers = dict((await client.until(h2.events.ResponseReceived)).headers)
            assert (headers[b":status"], headers[b"x-snapshot-id"]) == (b"200", b"1")
            await client.until(h2.events.StreamEnded)
            assert not [each for each in client.events if isinstance(each, h2.events.DataReceived) and each.data]

    run(test)


def test_the_other_pages() -> None:
    async def test() -> None:
        async with serving() as api:
            api.ready = False
            assert (await api.get("/healthz")).status == 200
            assert (await api.get("/readyz")).status == 412
            assert (await api.get("/metrics")).status == 200
            assert (await api.get("/debug/watches")).json() == {"watches": [{"spec": "services", "state": "live"}]}
            assert (await api.get("/resync", "Content-Length: 0", method="POST")).status == 202
            assert api.resyncs == 1
            assert (await api.get("/")).status == 404
            assert (await api.get("/x/snapshots/1")).status == 404

    run(test)


def test_with_a_token_everything_but_probes_needs_it(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "token"
        file.write_text("one\n")
        async with serving(TokenGuard(token_file(str(file)))) as api:
            api.add()
            for path in ("/snapshots/", "/snapshots/latest", "/metrics", "/debug/watches", "/none"):
                for headers in ([], ["Authorization: Bearer two"], ["Authorization: Basic one"]):
                    answer = await api.get(path, *headers)
                    assert (answer.status, answer.headers["www-authenticate"]) == (401, "bearer")
            assert (await api.get("/resync", "Content-Length: 0", method="POST")).status == 401
            assert (await api.get("/healthz")).status == (await api.get("/readyz")).status == 200
            assert (await api.get("/snapshots/1", "Authorization: Bearer one", host="watt.example")).status == 200
            file.write_text("one\ntwo\n")
            assert (await api.get("/snapshots/1", "Authorization: Bearer two")).status == 200
            file.write_text("two\n")
            assert (await api.get("/snapshots/1", "Authorization: Bearer one")).status == 401

    run(test)


@pytest.mark.parametrize("text", [None, "", "a b\n"])
def test_a_token_file_that_cannot_be_read_lets_nobody_in(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        file = tmp_path / "token"
        if text is not None:
            file.write_text(text)
        async with serving(TokenGuard(token_file(str(file)))) as api:
            assert (await api.get("/snapshots/", "Authorization: Bearer secret")).status == 503
            assert (await api.get("/healthz")).status == 200
        assert "no token is accepted" in caplog.text
        assert "secret" not in caplog.text

    run(test)


@pytest.mark.parametrize(
    ("host", "header", "status"),
    [
        ("localhost:7000", "Accept: */*", 200),
        ("127.0.0.1:7000", "Accept: */*", 200),
        ("[::1]:7000", "Accept: */*", 200),
        ("evil.example", "Accept: */*", 421),
        ("localhost.evil.example", "Accept: */*", 421),
        ("watt.example", "Accept: */*", 200),
        ("localhost", "Origin: https://evil.example", 403),
        ("localhost", "Origin: http://localhost", 200),
        ("localhost", "Sec-Fetch-Site: cross-site", 403),
    ],
)
def test_without_a_token_other_sites_are_kept_out(host: str, header: str, status: int) -> None:
    async def test() -> None:
        async with serving(TokenGuard(hosts=["watt.example"])) as api:
            api.add()
            assert (await api.get("/snapshots/latest", header, host=host)).status == status
            posted = await api.get("/resync", header, "Content-Length: 0", method="POST", host=host)
            assert posted.status == (202 if status == 200 else status)
            assert (await api.get("/healthz", header, host=host)).status == 200

    run(test)


def test_a_slow_reader_holds_up_nobody_and_gets_the_snapshot_that_it_asked_for() -> None:
    async def test() -> None:
        async with serving(count=1) as api, AsyncExitStack() as clients:
            api.add(*LARGE, data="old" * 1000)
            slow = []
            for _ in range(2):
                reader, writer = await clients.enter_async_context(connected(api.address))
                writer.write(request("/snapshots/1", "Connection: close"))
                slow.append(reader)
                assert (await head_of(reader))[0] == 200
            api.add(("shop", "new"))
            assert (await api.get("/snapshots/1")).status == 404
            assert b"new" in (await api.get("/snapshots/latest")).body
            for reader in slow:
                objects = json.loads(unchunked(await reader.read()))["Kubernetes"]["services"]
                assert len(objects) == len(LARGE)
                assert objects[-1]["data"] == "old" * 1000

    run(test)
