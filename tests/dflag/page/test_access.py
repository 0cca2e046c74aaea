"""Who may set flags, and whose browser may not be used for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dflag.page.asking import OPEN, ask, put
from wigwag import dflag
from wigwag.dflag.page.site import Access, Site
from wigwag.errors import UsageError


def site_with(access: Access | None) -> Site:
    flags = dflag.FlagSet("test")
    flags.int("rate", 10)
    return Site(flags, access=access)


def test_without_a_word_about_access_nothing_can_be_set_and_all_can_be_seen() -> None:
    for access in (None, Access()):
        site = site_with(access)
        refused = put(site, "rate", 20, Authorization="Bearer ")
        assert (refused.status, "disabled" in refused.detail) == (403, True)
        assert ask(site, "DELETE", "/flags/rate").status == 403
        assert ask(site, "POST", "/set?name=rate&value=1").status == 403
        assert ask(site, "GET", "/").status == 200


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ("Bearer right", 200),
        ("bearer   right ", 200),
        ("Bearer wrong", 401),
        ("Bearer righ", 401),
        ("Bearer right2", 401),
        ("Bearer r\xefght", 401),
        ("Bearer ", 401),
        ("Bearer", 401),
        ("right", 401),
        ("Basic right", 401),
        ("", 401),
    ],
)
def test_a_token_opens_the_door(shown: str, status: int) -> None:
    site = site_with(Access(token="right"))
    answer = put(site, "rate", 20, Authorization=shown)
    assert answer.status == status
    assert (site.flags["rate"].get() == 20) == (status == 200)
    if status == 401:
        assert answer.headers["www-authenticate"] == 'Bearer realm="flags"'


def test_a_token_file_is_read_each_time_and_may_have_several(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "token"
    site = site_with(Access(token_file=path))

    def status(token: str) -> int:
        return put(site, "rate", 20, Authorization=f"Bearer {token}").status

    missing = put(site, "rate", 20, Authorization="Bearer a")
    assert (missing.status, str(tmp_path) in missing.detail) == (503, False)
    assert f"{path}: No such file or directory" in caplog.text
    path.write_text("old\n")
    assert (status("old"), status("new")) == (200, 401)
    path.write_text("old\nnew\n\n")
    assert (status("old"), status("new"), status("")) == (200, 200, 401)
    path.write_text("new")
    assert (status("old"), status("new")) == (401, 200)
    path.write_text("\n \n")
    assert status("new") == 503


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": ""},
        {"token": "a b"},
        {"token": "a\n"},
        {"token": "a", "unauthenticated": True},
        {"token": "a", "token_file": "b"},
        {"token_file": "b", "unauthenticated": True},
        {"allowed_hosts": "example.org"},
        {"allowed_origins": "https://example.org"},
        {"allowed_origins": ["example.org"]},
        {"allowed_origins": ["*"]},
        {"allowed_origins": ["https://example.org/flags"]},
    ],
)
def test_an_access_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    """An empty token above all: a variable that was not set must not open the page."""
    with pytest.raises(UsageError):
        Access(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8080", 200),
        ("shop.localhost:8080", 200),
        ("127.0.0.1:8080", 200),
        ("10.1.2.3", 200),
        ("[::1]:8080", 200),
        ("flags.example.org", 200),
        ("Flags.Example.Org:443", 200),
        ("evil.example", 421),
        ("flags.example.org.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("xlocalhost", 421),
        ("", 400),
        ("localhost, evil.example", 400),
        ("localhost:x", 400),
        ("user@localhost", 400),
        ("localhost/", 400),
        ("[::1", 400),
    ],
)
def test_a_name_that_may_be_a_strangers_is_refused(host: str, status: int) -> None:
    site = site_with(Access(allowed_hosts=["flags.example.org"]))
    assert ask(site, "GET", "/", host=host).status == status
    assert ask(site, "GET", "/", host=host, accept="text/html").status == status


def test_any_name_will_do_if_that_is_said() -> None:
    site = site_with(Access(allowed_hosts=["*"], unauthenticated=True))
    assert ask(site, "GET", "/", host="whatever.example").status == 200
    assert put(site, "rate", 20, Host="a.example", Origin="http://b.example").status == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:8080", "Sec_Fetch_Site": "same-origin"}, 200),
        ({"Origin": "https://localhost:8080"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),
        ({"Origin": "https://proxy.example"}, 200),
        ({"Origin": "https://Proxy.Example:443"}, 200),
        ({"Origin": "https://proxy.example:8443"}, 403),
        ({"Origin": "http://proxy.example"}, 403),
        ({"Origin": "https://other.example"}, 403),
        ({"Origin": "https://other.example:9999"}, 403),
        ({"Origin": "http://user@localhost:8080"}, 403),
        ({"Origin": "http://localhost:8080/"}, 403),
        ({"Origin": "http://localhost"}, 403),
        ({"Origin": "http://localhost:9090"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "file://localhost:8080"}, 403),
        ({"Origin": "http://[bad"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Origin": "http://localhost:8080", "Sec_Fetch_Site": "cross-site"}, 403),
    ],
)
@pytest.mark.parametrize("access", [OPEN, Access(token="right")], ids=["open", "token"])
def test_a_page_elsewhere_sets_nothing(headers: dict[str, str], status: int, access: Access) -> None:
    hosts, origins = ["proxy.example", "other.example"], ["https://proxy.example"]
    chosen = Access(access.token, None, access.unauthenticated, hosts, origins)
    site = site_with(chosen)
    answer = put(site, "rate", 20, Host="localhost:8080", Authorization="Bearer right", **headers)
    assert answer.status == status
    assert site.flags["rate"].get() == (20 if status == 200 else 10)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("flags.example.org", "https://flags.example.org", 200),
        ("flags.example.org", "http://flags.example.org", 200),
        ("flags.example.org:443", "https://flags.example.org", 200),
        ("flags.example.org:443", "http://flags.example.org", 403),
        ("flags.example.org", "https://flags.example.org:9999", 403),
        ("flags.example.org:8443", "https://flags.example.org", 403),
        ("[::1]:8080", "http://[::1]:8080", 200),
        ("[::1]:8080", "http://[::1]:8081", 403),
    ],
)
def test_another_port_of_the_same_host_is_a_page_elsewhere(host: str, origin: str, status: int) -> None:
    site = site_with(Access(unauthenticated=True, allowed_hosts=["flags.example.org"]))
    assert put(site, "rate", 20, Host=host, Origin=origin).status == status


def test_a_page_elsewhere_may_link_here() -> None:
    assert ask(site_with(None), "GET", "/", sec_fetch_site="cross-site").status == 200
