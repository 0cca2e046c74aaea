"""The page as a WSGI application, with wsgiref's validator between it and us."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from tests.dflag.page.asking import OPEN
from wigwag import dflag
from wigwag.dflag.page.messages import PageLimits
from wigwag.dflag.page.site import Site
from wigwag.dflag.page.wsgi import wsgi

BAD_LENGTHS = ["+13", "-1", "1_3", "x", "²", "9" * 5000]


def shop(**more: Any) -> tuple[Site, dflag.FlagSet]:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10)
    flags.int("größe", 1)
    return Site(flags, access=OPEN, **more), flags


def told(site: Site, method: str, path: str, body: bytes = b"", **more: Any) -> tuple[str, dict[str, str], bytes]:
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_HOST": "localhost", **more}
    environ = {"SCRIPT_NAME": "", "QUERY_STRING": "", **environ}
    if body:
        environ |= {"CONTENT_LENGTH": str(len(body)), "CONTENT_TYPE": "application/json", **more}
    environ.setdefault("wsgi.input", BytesIO(body))
    setup_testing_defaults(environ)
    environ.pop("SERVER_SOFTWARE", None)
    began: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        began.append((status, {name.lower(): value for name, value in headers}))
        return lambda data: None

    if environ.get("CONTENT_LENGTH") in BAD_LENGTHS:  # the validator would not let it through
        content = b"".join(wsgi(site)(environ, start_response))
        return *began[0], content
    chunks = validator(wsgi(site))(environ, start_response)
    try:
        content = b"".join(chunks)
    finally:
        chunks.close()  # type: ignore[attr-defined]
    [(status, headers)] = began
    return status, headers, content


def test_a_request_is_answered() -> None:
    site, flags = shop()
    status, headers, content = told(site, "PUT", "/flags/rate", b'{"value": 20}')
    assert (status, flags["rate"].get()) == ("200 OK", 20)
    assert headers["content-length"] == str(len(content))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_lists_are_given(method: str) -> None:
    status, headers, content = told(shop()[0], method, "/", HTTP_ACCEPT="text/html")
    assert (status, headers["content-type"]) == ("200 OK", "text/html; charset=utf-8")
    assert (content == b"") == (method == "HEAD")


def test_the_query_comes_through() -> None:
    assert told(shop()[0], "GET", "/", QUERY_STRING="type=nonsense")[0] == "400 Bad Request"


def test_paths_are_utf_8() -> None:
    path = "/flags/größe".encode().decode("latin-1")
    site, flags = shop()
    assert told(site, "PUT", path, b'{"value": 2}')[0] == "200 OK"
    assert flags["größe"].get() == 2


def test_it_can_be_a_part_of_something_larger() -> None:
    site, _ = shop()
    assert b'"set_url": "/debug/set"' in told(site, "GET", "/", SCRIPT_NAME="/debug")[2]
    assert told(site, "GET", "", SCRIPT_NAME="/debug")[0] == "200 OK"


@pytest.mark.parametrize("several", [True, False])
def test_a_server_with_several_processes_says_so(several: bool) -> None:
    site, _ = shop()
    content = told(site, "PUT", "/flags/rate", b'{"value": 20}', **{"wsgi.multiprocess": several})[2]
    assert (b'"warning": null' in content) != several


def test_a_body_that_is_too_long_is_refused() -> None:
    site, flags = shop(limits=PageLimits(body=100))
    assert told(site, "PUT", "/flags/rate", b"x" * 101)[0] == "413 Content Too Large"
    assert told(site, "PUT", "/flags/rate", b"x" * 100)[0] == "400 Bad Request"
    assert flags.generation == 0


@pytest.mark.parametrize("more", ["1", "100", "99999999"])
def test_a_body_that_was_cut_off_is_not_taken_for_a_whole_one(more: str) -> None:
    site, flags = shop()
    status, headers, content = told(site, "PUT", "/flags/rate", b'{"value": 20}', CONTENT_LENGTH=f"{13 + int(more)}")
    assert (status, flags["rate"].get()) == ("400 Bad Request", 10)
    assert b"the body ended after 13 of" in content
    assert headers["x-content-type-options"] == "nosniff"


class Broken(BytesIO):
    """What a server gives us to read from when the client has hung up."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError("request data read error")


def test_a_body_that_cannot_be_read_is_a_bad_request() -> None:
    site, flags = shop()
    status, _, _ = told(site, "PUT", "/flags/rate", b'{"value": 20}', **{"wsgi.input": Broken()})
    assert (status, flags["rate"].get()) == ("400 Bad Request", 10)


@pytest.mark.parametrize("length", BAD_LENGTHS)
def test_a_length_that_is_none_is_refused(length: str) -> None:
    site, flags = shop()
    status, _, content = told(site, "PUT", "/flags/rate", b'{"value": 20}', CONTENT_LENGTH=length)
    assert (status, flags["rate"].get()) == ("400 Bad Request", 10)
    assert b"Content-Length must be a number of bytes" in content


def test_a_body_of_unknown_length_is_read_only_where_it_ends() -> None:
    site, flags = shop()
    unknown = {"CONTENT_LENGTH": "", "CONTENT_TYPE": "application/json"}
    assert told(site, "PUT", "/flags/rate", b'{"value": 20}', **unknown)[0] == "400 Bad Request"
    status, _, _ = told(site, "PUT", "/flags/rate", b'{"value": 20}', **unknown, **{"wsgi.input_terminated": True})
    assert (status, flags["rate"].get()) == ("200 OK", 20)
