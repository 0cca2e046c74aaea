"""What a secret flag holds is nowhere to be found, and cannot be found out by asking."""

from __future__ import annotations

import json
import logging

import pytest

from tests.dflag.page.asking import BROWSER, FORM, OPEN, Answer, ask, put
from wigwag import dflag
from wigwag.dflag.page.site import Access, Site

SECRET, NEW, DEFAULT = "hunter2hunter2", "zwordfish99", "changeme42"


def vault() -> tuple[Site, dflag.FlagSet]:
    flags = dflag.FlagSet("vault")
    flags.str("key", DEFAULT, secret=True, validators=[dflag.length(5)])
    flags.json("map", {"password": DEFAULT}, secret=True)
    flags.int("rate", 10)
    flags.assign("key", SECRET)
    flags.assign("map", json.dumps({"password": SECRET}))
    return Site(flags, access=OPEN), flags


def test_it_is_in_no_answer_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    site, flags = vault()
    forms = {name.replace("-", "_"): value for name, value in (FORM | BROWSER).items()}
    answers: list[Answer] = [
        ask(site, "GET", "/"),
        ask(site, "GET", "/", accept="text/html"),
        ask(site, "GET", "/flags/key"),
        ask(site, "GET", "/flags/key", accept="text/html"),
        ask(site, "GET", "/metrics"),
        put(site, "key", NEW),
        put(site, "key", NEW, "?validate_only=1"),
        put(site, "map", {"password": NEW}),
        put(site, "map", '{"password": "' + NEW),
        put(site, "key", NEW[:4]),
        put(site, "key", [NEW]),
        ask(site, "POST", "/flags/key", f"value={NEW}", **forms),
        ask(site, "POST", "/flags/key", f"value={NEW}&validate_only=1", **forms),
        ask(site, "POST", "/flags/key", f"value={NEW[:4]}", **forms),
        ask(site, "POST", f"/set?name=key&value={NEW}"),
        ask(site, "DELETE", "/flags/key"),
    ]
    assert [answer.status for answer in answers] == [200] * 8 + [422, 422, 422, 303, 200, 422, 200, 200]
    everything = caplog.text + "".join(f"{answer.text}{answer.headers}" for answer in answers)
    for secret in (SECRET, NEW, NEW[:4], DEFAULT):
        assert secret not in everything
    assert "(secret)" in answers[0].text
    assert flags["map"].get() == {"password": NEW}


def test_checksums_and_tags_tell_nothing_about_it() -> None:
    def seen(value: str) -> list[str]:
        flags = dflag.FlagSet("vault")
        flags.str("key", DEFAULT, secret=True)
        flags.assign("key", value)
        told = ask(Site(flags), "GET", "/").json
        return [told["checksum"], told["checksum_dynamic"], told["etag"], told["flags"][0]["etag"]]

    assert seen(SECRET) == seen(NEW)


def test_a_right_guess_looks_like_a_wrong_one() -> None:
    site, _ = vault()
    for guess in (SECRET, NEW):
        assert put(site, "key", guess, "?validate_only=1").json["changed"] is None
        before = ask(site, "GET", "/flags/key").headers["etag"]
        told = put(site, "key", guess).json
        assert told["changed"] is None
        assert ask(site, "GET", "/flags/key").headers["etag"] != before
    assert put(site, "key", DEFAULT).json["flag"]["is_changed"] is True
    ask(site, "DELETE", "/flags/key")
    assert ask(site, "GET", "/flags/key").json["is_changed"] is True


def test_tags_work_for_it_all_the_same() -> None:
    site, _ = vault()
    tag = ask(site, "GET", "/flags/key").headers["etag"]
    assert put(site, "key", NEW, If_Match=tag).status == 200
    assert put(site, "key", SECRET, If_Match=tag).status == 412


def test_the_token_is_in_no_representation() -> None:
    access = Access(token="tell-nobody")
    assert "tell-nobody" not in repr(access)
    flags = dflag.FlagSet("test")
    assert "tell-nobody" not in ask(Site(flags, access=access), "GET", "/", accept="text/html").text
