"""An http source against a server that behaves: what is asked, what is yielded, and when."""

from __future__ import annotations

import gzip
import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.fakes import run
from tests.sources.faulty import FLAGS, Asked, Server, answer, serving, watching, whole
from tests.wire.served import run as run_on
from wigwag.errors import UsageError
from wigwag.golang import fnv1a32
from wigwag.pipeline.spec import UNCHANGED, Unavailable
from wigwag.pipeline.watch import closing
from wigwag.sources.document import Document
from wigwag.sources.fields import OAuthFields
from wigwag.sources.remote.http import HttpWatch, bounds, format_of, watch_http
from wigwag.sources.remote.polling import Schedule
from wigwag.wire.client.url import parse_url
from wigwag.wire.h1.client import ResponseLimits


def test_it_yields_the_document_at_once_news_when_they_come_and_otherwise_that_nothing_changed() -> None:
    async def main() -> None:
        async with serving(answer(b"1")) as server, watching(server.url) as watched:
            assert await watched.next() == Document(b"1")
            assert await watched.on() is UNCHANGED
            server.behaviour = answer(b"2")
            assert await watched.on() == Document(b"2")
            assert await watched.on() is UNCHANGED
            assert len(server.asked) == 4
            assert server.connections == 1

    run(main)


def test_it_asks_as_flagd_does_for_json_or_yaml() -> None:
    async def main() -> None:
        async with serving(answer()) as server, watching(server.url) as watched:
            await watched.next()
            [asked] = server.asked
            assert (asked.method, asked.target) == ("GET", "/flags")
            assert asked.headers["accept"] == "application/json, application/yaml"
            assert asked.headers["host"] == f"localhost:{server.port}"
            assert "authorization" not in asked.headers

    run(main)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ({"ETag": 'W/"1"'}, {"if-none-match": 'W/"1"'}),
        (
            {"Last_Modified": "Mon, 05 Oct 2020 10:00:00 GMT"},
            {"if-modified-since": "Mon, 05 Oct 2020 10:00:00 GMT"},
        ),
    ],
)
def test_it_asks_for_news_only_with_the_validators_of_the_last_document(said: Any, asked: dict[str, str]) -> None:
    async def main() -> None:
        async with serving(answer(**said)) as server, watching(server.url) as watched:
            await watched.next()
            server.behaviour = answer(b"", "304 Not Modified")
            assert await watched.on() is UNCHANGED
            assert asked.items() <= server.asked[1].headers.items()
            assert not asked.items() & server.asked[0].headers.items()
            assert await watched.on() is UNCHANGED  # and with the same ones again
            assert asked.items() <= server.asked[2].headers.items()
            server.behaviour = answer(b"new")
            assert await watched.on() == Document(b"new")
            server.behaviour = answer(b"new")
            await watched.on()
            assert not asked.keys() & server.asked[4].headers.keys()

    run(main)


def test_not_modified_is_trouble_if_it_was_not_asked() -> None:
    async def main() -> None:
        async with serving(answer(b"", "304 Not Modified")) as server, watching(server.url) as watched:
            assert "answered 304" in (await watched.next()).reason
            server.behaviour = answer()
            assert await watched.on() == Document(FLAGS)
            server.behaviour = answer(b"", "304 Not Modified")  # there was nothing to compare with
            assert "answered 304" in (await watched.on()).reason

    run(main)


def test_a_document_in_gzip_is_yielded_as_it_was() -> None:
    async def main() -> None:
        packed = answer(gzip.compress(FLAGS), Content_Encoding="gzip", Content_Type="application/json")
        async with serving(packed) as server, watching(server.url) as watched:
            assert await watched.next() == Document(FLAGS, "json")
            assert server.asked[0].headers["accept-encoding"] == "gzip"

    run(main)


@pytest.mark.parametrize(
    ("media", "path", "format"),
    [
        ("application/json", "/flags.yaml", "json"),
        ("Application/JSON; charset=utf-8", "/", "json"),
        ("application/problem+json", "/", "json"),
        ("application/yaml", "/", "yaml"),
        ("text/x-yaml", "/flags.json", "yaml"),
        ("text/plain", "/flags.json", "json"),
        ("application/octet-stream", "/a.b/flags.yml", "yaml"),
        ("text/html", "/a.json/flags", None),
        ("", "/flags", None),
    ],
)
def test_the_format_is_told_by_the_media_type_and_otherwise_by_the_name(
    media: str, path: str, format: str | None
) -> None:
    assert format_of(media, parse_url(f"https://flags.example{path}?x=.json")) == format


def test_headers_and_authorisation_are_sent_as_configured() -> None:
    async def main() -> None:
        given: dict[str, Any] = {
            "headers": (("X-Team", "blue"), ("Host", "flags.example")),
            "auth_header": "Bearer abc",
        }
        async with serving(answer()) as server, watching(server.url, **given) as watched:
            await watched.next()
            headers = server.asked[0].headers
            assert headers["x-team"] == "blue"
            assert headers["host"] == "flags.example"
            assert headers["authorization"] == "Bearer abc"

    run(main)


def test_credentials_in_the_url_are_sent_as_basic_authorisation_and_never_shown() -> None:
    async def main() -> None:
        async with serving(answer(b"", "401 Unauthorized")) as server:
            url = server.url.replace("localhost", "me:s%40cret@localhost")
            async with watching(f"{url}?sig=s%40cret") as watched:
                trouble = await watched.next()
                assert server.asked[0].headers["authorization"] == "Basic bWU6c0BjcmV0"
                assert server.asked[0].target == "/flags?sig=s%40cret"
                assert trouble == Unavailable(
                    f"HttpRefusedError: {server.url}?sig=***: the server answered 401 where a document is expected; "
                    "check its credentials"
                )

    run(main)


SECRET = HttpWatch(
    "https://me:hunter2@flags.example/f?sig=hunter2",
    headers=(("X-Key", "hunter2"),),
    auth_header="Bearer hunter2",
    oauth=OAuthFields("me", "hunter2", "https://me:hunter2@login.example/"),
)


def test_a_spec_is_shown_without_its_secrets() -> None:
    assert str(SECRET) == "https://flags.example/f?sig=***"
    assert "hunter2" not in repr(SECRET) + repr(SECRET.oauth) + str(SECRET)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"url": "ftp://flags.example/hunter2"}, "http source: the URL is not of the scheme http or https"),
        ({"url": "https:///hunter2"}, "has no host"),
        ({"url": "https://me:hunter2@h:x/"}, "host or port is malformed"),
        ({"url": "https://h/ hunter2"}, "spaces or control characters"),
        ({"headers": (("X Y", "hunter2"),)}, "'X Y' is not the name of a header"),
        ({"headers": (("X", "hunter2\r\nY: 1"),)}, "'X' has a line break"),
        ({"headers": (("Content-Length", "1"),)}, "'Content-Length' is not yours to set"),
        ({"auth_header": "hunter2\n"}, "'Authorization' has a line break"),
    ],
)
def test_what_cannot_be_asked_is_refused_when_it_is_configured(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        HttpWatch(**{"url": "https://flags.example/", **wrong})
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_timeout_bounds_everything_and_without_one_there_are_limits_still() -> None:
    assert bounds(HttpWatch("http://h/", most=7), ResponseLimits()) == ResponseLimits(body_bytes=7)
    long, short = (bounds(HttpWatch("http://h/", timeout=seconds), ResponseLimits()) for seconds in (300.0, 2.0))
    assert (long.connect, long.head, long.idle, long.total) == (10.0, 300.0, 300.0, 300.0)
    assert (short.connect, short.head, short.idle, short.total) == (2.0, 2.0, 2.0, 2.0)


# when


def test_polls_are_aligned_to_the_wall_clock_with_the_offset_of_the_seed() -> None:
    async def main() -> None:
        async with serving(answer()) as server, watching(server.url, seed="pod-7", interval=60.0) as watched:
            await watched.next()
            await watched.on()
            for _ in range(3):
                await watched.on()
                assert watched.wall() % 60 == pytest.approx(fnv1a32(["pod-7"]) % 60, abs=0.01)

    run(main)


def test_a_seed_means_the_same_offset_as_in_flagd() -> None:
    assert Schedule.of(60.0, "foobar", lambda: 0.9).offset == 0xBF9CF968 % 60


def test_without_a_seed_a_fleet_spreads() -> None:
    offsets = {Schedule.of(5.0, "", lambda part=part: part / 10).offset for part in range(10)}  # type: ignore[misc]
    assert len(offsets) == 10
    assert max(offsets) < 5


@pytest.mark.parametrize("jump", [-1e9, -86_400.0, -3600.0, -7.3, -0.01, 0.01, 3.0, 3600.0, 86_400.0, 1e9])
def test_a_jump_of_the_wall_clock_makes_it_neither_wait_nor_hurry(jump: float) -> None:
    async def main() -> None:
        async with serving(answer()) as server, watching(server.url, interval=10.0) as watched:
            await watched.next()
            await watched.on()
            watched.jump += jump
            began = watched.clock.now()
            for _ in range(10):
                await watched.on()
            assert max(watched.paused[1:]) <= 10.0 + 1e-6
            assert min(watched.paused[1:]) >= 5.0 - 1e-6
            assert watched.clock.now() - began >= 85

    run(main)


def test_a_wall_clock_that_jumps_every_time_does_not_make_it_poll_in_a_burst() -> None:
    schedule = Schedule(10.0, 0.0)
    assert [schedule.pause(wall, since=0.0) for wall in (9.4, 19.49, 1e9 + 9.49)] == [5.0, 5.0, 5.0]
    assert schedule.pause(9.51, since=0.0) == 10.0
    assert schedule.pause(9.4, since=30.0) == pytest.approx(0.6)


def test_clocks_that_drift_apart_do_not_make_it_ask_twice() -> None:
    async def main() -> None:
        async with serving(answer()) as server, watching(server.url, interval=10.0) as watched:
            await watched.next()
            await watched.on()
            for _ in range(20):
                watched.jump -= 0.001
                await watched.on()
            assert min(watched.paused[1:]) > 9.9

    run(main)


# an independent peer


def test_a_folder_served_by_the_standard_library_is_followed(tmp_path: Path) -> None:
    statuses: list[int] = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(tmp_path))

        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            statuses.append(int(code))

        def log_message(self, format: str, *args: Any) -> None:
            pass

    async def main(port: int) -> None:
        flags = tmp_path / "flags.json"
        async with watching(f"http://127.0.0.1:{port}/flags.json") as watched:
            assert "answered 404" in (await watched.next()).reason
            flags.write_bytes(FLAGS)
            assert await watched.on() == Document(FLAGS, "json")
            flags.write_bytes(FLAGS + b" ")  # within the same second, most likely
            assert await watched.on() == Document(FLAGS + b" ", "json")
            os.utime(flags, (1e9, 1e9))
            assert [await watched.on(), await watched.on()] == [UNCHANGED, UNCHANGED]
            assert statuses == [404, 200, 200, 200, 304]

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as peer:
        thread = threading.Thread(target=peer.serve_forever, args=(0.01,))
        thread.start()
        try:
            run(lambda: main(peer.server_address[1]))
        finally:
            peer.shutdown()
            thread.join()


def test_a_connection_that_the_server_has_given_up_is_replaced_in_silence() -> None:
    async def main() -> None:
        async def once(_asked: Asked, server: Server) -> bool:
            await server.write(whole(b"%d" % len(server.asked)))
            return False  # though the answer promised that the connection goes on

        async with serving(once) as server, watching(server.url) as watched:
            assert await watched.next() == Document(b"1")
            for number in (2, 3, 4):
                assert await watched.on() == Document(b"%d" % number)
            assert len(server.asked) == 4

    run(main)


def test_on_uvloop_with_the_real_clock_resolver_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # not for this machine itself

    async def main() -> None:
        async with serving(answer(b"1")) as server, closing(watch_http(HttpWatch(server.url, interval=0.02))) as stream:
            assert await anext(stream) == Document(b"1")
            assert await anext(stream) is UNCHANGED
            server.behaviour = answer(b"2")
            while (item := await anext(stream)) is UNCHANGED:
                pass
            assert item == Document(b"2")

    run_on(main, "uvloop")
