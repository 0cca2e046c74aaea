"""The page as an ASGI application, driven by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from tests.dflag.page.asking import OPEN
from tests.pipeline.fakes import run
from wigwag import dflag
from wigwag.dflag.page.asgi import asgi
from wigwag.dflag.page.messages import PageLimits
from wigwag.dflag.page.site import Site

HOST = (b"host", b"localhost")
JSON = (b"content-type", b"application/json")


def shop(**more: Any) -> tuple[Site, dflag.FlagSet]:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10)
    return Site(flags, access=OPEN, **more), flags


def http(method: str, path: str, *headers: tuple[bytes, bytes], **more: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "query_string": b"",
        "headers": [HOST, *headers],
        "client": ("192.0.2.1", 4711),
        "server": ("127.0.0.1", 80),
        **more,
    }


def told(site: Site, scope: dict[str, Any], messages: Iterable[dict[str, Any]] = ({"type": "http.request"},)) -> Any:
    """Return what the application sends; if it asks for more than there is, that is a fault."""
    waiting, sent = iter(messages), list[Any]()

    async def receive() -> Any:
        return next(waiting)

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        await asgi(site)(scope, receive, send)

    run(main)
    return sent


def body(*pieces: bytes) -> list[dict[str, Any]]:
    last = len(pieces) - 1
    return [{"type": "http.request", "body": each, "more_body": n < last} for n, each in enumerate(pieces)]


def test_a_request_is_answered() -> None:
    site, flags = shop()
    start, end = told(site, http("PUT", "/flags/rate", JSON), body(b'{"val', b'ue": ', b"20}"))
    assert (start["type"], start["status"], flags["rate"].get()) == ("http.response.start", 200, 20)
    headers = dict(start["headers"])
    assert headers[b"content-length"] == str(len(end["body"])).encode()
    assert all(name == name.lower() for name in headers)
    assert end["type"] == "http.response.body"
    assert not end.get("more_body")


def test_the_query_and_repeated_headers_come_through() -> None:
    site, _ = shop()
    start, _ = told(site, http("GET", "/", query_string=b"type=nonsense"))
    assert start["status"] == 400
    start, _ = told(site, http("GET", "/", (b"host", b"evil.example")))
    assert start["status"] == 400


@pytest.mark.parametrize("path", ["/debug/flags/rate", "/flags/rate"], ids=["root in the path", "root cut off"])
def test_it_can_be_a_part_of_something_larger(path: str) -> None:
    site, _ = shop()
    start, _ = told(site, http("GET", path, root_path="/debug"))
    assert start["status"] == 200
    _, end = told(site, http("GET", "/debug", (b"accept", b"text/html"), root_path="/debug"))
    assert b'action="/debug/flags/rate"' in end["body"]
    _, end = told(site, http("GET", "/", root_path="/debug"))
    assert b'"set_url": "/debug/set"' in end["body"]
    form = (b"content-type", b"application/x-www-form-urlencoded"), (b"accept", b"text/html")
    start, _ = told(site, http("POST", "/flags/rate", *form, root_path="/debug"), body(b"value=20"))
    assert dict(start["headers"])[b"location"] == b"/debug/#flag-rate"


def test_a_body_that_is_too_long_is_not_read_to_its_end() -> None:
    site, flags = shop(limits=PageLimits(body=100))
    pieces = iter(body(*([b"x" * 60] * 1000)))
    start, _ = told(site, http("PUT", "/flags/rate", JSON), pieces)
    assert (start["status"], flags.generation, len(list(pieces))) == (413, 0, 998)


def test_a_client_that_goes_away_gets_no_answer() -> None:
    site, flags = shop()
    begun: dict[str, Any] = {"type": "http.request", "body": b'{"value": 20}', "more_body": True}
    gone = [begun, {"type": "http.disconnect"}]
    assert told(site, http("PUT", "/flags/rate", JSON), gone) == []
    assert flags["rate"].get() == 10


def test_a_client_on_a_unix_socket_has_no_address() -> None:
    start, _ = told(shop()[0], http("GET", "/", client=None))
    assert start["status"] == 200


def test_a_slow_notifier_does_not_hold_up_the_loop() -> None:
    site, flags = shop()
    threads = []
    flags["rate"].on_change(lambda old, new: threads.append(threading.current_thread()), "sync")
    told(site, http("PUT", "/flags/rate", JSON), body(b'{"value": 20}'))
    assert threads != []
    assert threads != [threading.current_thread()]


def test_the_lifespan_is_a_polite_one() -> None:
    sent = told(shop()[0], {"type": "lifespan"}, [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_websocket_is_closed_and_anything_else_is_a_fault() -> None:
    sent = told(shop()[0], {"type": "websocket"}, [{"type": "websocket.connect"}])
    assert [message["type"] for message in sent] == ["websocket.close"]
    with pytest.raises(ValueError, match="not 'smoke'"):
        told(shop()[0], {"type": "smoke"})
