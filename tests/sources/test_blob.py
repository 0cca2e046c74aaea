"""A blob is followed, whatever its store does: S3, Google Cloud Storage and Azure, each as its own protocol has it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.clients.js_packages import announce, installed
from tests.pipeline.fakes import FakeClock, run, settle
from tests.sources.blob_stores import AWS, Scripted, Store, answer, azure, gcs, s3
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.sources.document import Document
from wigwag.sources.remote.blob import BlobDeps, BlobWatch, describe, watch_blob

FIRST, SECOND = b'{"flags": {}}', b'{"flags": {}, "metadata": {}}'


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What obstore reads by itself: credentials that are no secret, and nothing else that is set here."""
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_CA_BUNDLE", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module", params=["s3", "gcs", "azure"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "azure":
        opened = azure(installed(announce(request.config), Path(__file__).parent / "azurite"))
    else:
        opened = {"s3": s3, "gcs": gcs}[request.param]()
    with opened as found:
        yield found


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.stop()


class Followed:
    """A watcher whose time the test moves on."""

    def __init__(self, url: str, environment: dict[str, str], **settings: Any) -> None:
        self.clock = FakeClock()
        deps = BlobDeps(self.clock, self.clock.now, lambda: 1.0, environment, connect=5.0, total=5.0)
        self._stream = watch_blob(BlobWatch(url, **settings), deps)
        self.pause = 0.0

    async def next(self) -> Any:
        """Return what it yields next, having moved the time on to that; `pause` says how far."""
        coming = asyncio.ensure_future(anext(self._stream))
        await settle()
        (self.pause,) = self.clock.pending() or [0.0]
        await self.clock.advance(self.pause)
        return await coming

    async def close(self) -> None:
        await self._stream.aclose()  # type: ignore[attr-defined]


@asynccontextmanager
async def following(url: str, environment: dict[str, str] | None = None, **settings: Any) -> AsyncIterator[Followed]:
    followed = Followed(url, environment or {}, **settings)
    try:
        yield followed
    finally:
        await followed.close()


class TestEveryStore:
    def test_a_document_comes_when_it_changes(self, store: Store) -> None:
        async def test() -> None:
            store.put("team/flags.json", FIRST, "application/json")
            async with following(store.blob("team/flags.json"), store.environment) as blob:
                assert await blob.next() == Document(FIRST, "json")
                assert await blob.next() is UNCHANGED
                store.put("team/flags.json", SECOND, "application/json")
                assert await blob.next() == Document(SECOND, "json")
                assert await blob.next() is UNCHANGED

        run(test)

    def test_an_object_that_is_missing_is_trouble_until_it_comes(self, store: Store) -> None:
        async def test() -> None:
            async with following(store.blob("later.yaml"), store.environment) as blob:
                found = await blob.next()
                assert isinstance(found, Unavailable)
                assert found.reason.startswith(f"{store.url}/later.yaml: there is no such object; check its name (404")
                store.put("later.yaml", FIRST, "text/plain")
                assert await blob.next() == Document(FIRST, "yaml")

        run(test)

    def test_the_media_type_tells_the_format_where_the_name_does_not(self, store: Store) -> None:
        async def test() -> None:
            for media, expected in (("application/yaml", "yaml"), ("application/json", "json"), ("text/plain", None)):
                store.put("flags", FIRST + media.encode(), media)
                async with following(store.blob("flags"), store.environment) as blob:
                    assert (await blob.next()).format == expected

        run(test)

    def test_an_object_that_is_too_large_is_trouble(self, store: Store) -> None:
        async def test() -> None:
            store.put("large.json", b"x" * 3000, "application/json")
            async with following(store.blob("large.json"), store.environment, most=2999) as blob:
                found = await blob.next()
                assert found == Unavailable(
                    f"{store.url}/large.json: larger than the limit of 2999 bytes; raise maxBytes"
                )
                store.put("large.json", FIRST, "application/json")
                assert await blob.next() == Document(FIRST, "json")

        run(test)

    def test_names_may_be_strange(self, store: Store) -> None:
        async def test() -> None:
            store.put("a b/ü.json", FIRST, "application/json")
            for name in ("a%20b/%C3%BC.json", "a b/ü.json"):
                async with following(store.blob(name), store.environment) as blob:
                    assert await blob.next() == Document(FIRST, "json")

        run(test)


def status(number: int, body: bytes = b"") -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: answer(handler, number, body)


def cut(handler: BaseHTTPRequestHandler) -> None:
    """Promise more than comes."""
    answer(handler, 200, b'{"fla', length=1000, ETag='"x"')
    handler.connection.shutdown(socket.SHUT_RDWR)


def garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x16\x03\x01 what?\r\n\r\n")


DENIED = b"<Error><Code>AccessDenied</Code><Message>hush-hush</Message></Error>"
FAULTS: list[tuple[str, Callable[[BaseHTTPRequestHandler], None], str]] = [
    ("500", status(500), r"the store failed \(500 Internal Server Error\)"),
    ("503", status(503), r"the store failed \(503 Service Unavailable\)"),
    ("403", status(403, DENIED), r"the store denies access; check the permissions .*\(403 Forbidden, AccessDenied\)"),
    ("401", status(401), r"the store refuses the credentials; check them \(401 Unauthorized\)"),
    ("404", status(404), r"there is no such object; check its name \(404 Not Found\)"),
    ("truncated", cut, r"the response broke off"),
    ("garbage", garbage, r"the request failed|the response broke off|cannot connect"),
    ("silence", lambda handler: handler.connection.shutdown(socket.SHUT_RDWR), r"broke off|the request failed"),
]


class TestFaults:
    @pytest.mark.parametrize(("fault", "why"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
    def test_a_fault_is_trouble_of_the_moment(self, scripted: Scripted, fault: Any, why: str) -> None:
        async def test() -> None:
            scripted.start()
            scripted.content = FIRST
            async with following(f"s3://flags/a.json{scripted.query}") as blob:
                assert await blob.next() == Document(FIRST, "json")
                scripted.fault = fault
                found = [await blob.next() for _ in range(3)]
                assert found == [found[0]] * 3  # the same words each time: they are logged when they change
                assert re.search(f"^s3://flags/a.json: .*(?:{why})", found[0].reason), found[0].reason
                assert "hush" not in found[0].reason
                scripted.fault = None
                assert await blob.next() is UNCHANGED
                scripted.content = SECOND
                assert await blob.next() == Document(SECOND, "json")

        run(test)

    def test_a_store_that_is_away_is_asked_less_and_less_often(self, scripted: Scripted) -> None:
        async def test() -> None:
            async with following(f"s3://flags/a.json{scripted.query}", interval=3600.0, seed="x") as blob:
                pauses = []
                for _ in range(10):
                    found = await blob.next()
                    assert found == Unavailable("s3://flags/a.json: cannot connect (Connection refused)")
                    pauses.append(blob.pause)
                assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]
                scripted.start()
                assert await blob.next() == Document(b"{}", "json")
                await blob.next()
                assert 1800.0 <= blob.pause <= 3600.0

        run(test)

    def test_there_is_one_request_for_each_question(self, scripted: Scripted) -> None:
        async def test() -> None:
            scripted.start()
            async with following(f"s3://flags/a.json{scripted.query}") as blob:
                for fault in (None, status(500), status(503), cut, None):
                    scripted.fault = fault
                    await blob.next()
            assert len(scripted.requests) == 5

        run(test)

    def test_what_is_known_is_not_sent_again(self, scripted: Scripted) -> None:
        async def test() -> None:
            scripted.start()
            async with following(f"s3://flags/a.json{scripted.query}") as blob:
                await blob.next()
                assert await blob.next() is UNCHANGED
            known = [request.get("if-none-match") for request in scripted.requests]
            assert known[0] is None
            assert known[1]

        run(test)

    def test_a_store_that_takes_too_long_is_given_up(self, scripted: Scripted) -> None:
        async def test() -> None:
            done = asyncio.Event()
            loop = asyncio.get_running_loop()

            def drip(handler: BaseHTTPRequestHandler) -> None:
                answer(handler, 200, b"", length=1000, ETag='"x"')
                try:
                    while not handler.connection.recv(1):
                        break
                finally:
                    loop.call_soon_threadsafe(done.set)

            scripted.start()
            scripted.fault = drip
            clock = FakeClock()
            deps = BlobDeps(clock, clock.now, lambda: 1.0, {}, connect=5.0, total=0.2)
            stream = watch_blob(BlobWatch(f"s3://flags/a.json{scripted.query}"), deps)
            found = await anext(stream)
            assert isinstance(found, Unavailable)
            assert "took too long" in found.reason or "broke off" in found.reason
            await done.wait()  # the connection is closed
            await stream.aclose()  # type: ignore[attr-defined]

        run(test)

    def test_cancelling_a_question_leaves_nothing_behind(self, scripted: Scripted) -> None:
        async def test() -> None:
            asked, leave = asyncio.Event(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def hold(handler: BaseHTTPRequestHandler) -> None:
                loop.call_soon_threadsafe(asked.set)
                handler.connection.recv(1)
                loop.call_soon_threadsafe(leave.set)

            scripted.start()
            scripted.fault = hold
            task = asyncio.ensure_future(anext(watch_blob(BlobWatch(f"s3://flags/a.json{scripted.query}"))))
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await leave.wait()

        run(test)

    def test_a_wrong_authority_is_trouble_and_names_the_file(self, scripted: Scripted, tmp_path: Path) -> None:
        async def test() -> None:
            async with following(f"s3://flags/a.json{scripted.query}", ca_path=str(tmp_path / "no.pem")) as blob:
                found = await blob.next()
                assert found == Unavailable(f"s3://flags/a.json: {tmp_path / 'no.pem'}: No such file or directory")

        run(test)


def test_a_signature_in_an_error_is_not_shown() -> None:
    error = OSError(
        "Generic error: Error performing GET https://a.example/b?sig=hush in 1.2ms - odd\n\nDebug source: hush"
    )
    assert describe(error) == "the request failed: Generic error: Error performing GET - odd"
