"""Setting flags: how a value is given, what is answered, and what is refused."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests.dflag.kubelet import until
from tests.dflag.page.asking import BROWSER, FORM, OPEN, Answer, ask, put
from wigwag import dflag
from wigwag.dflag import Origin
from wigwag.dflag.page.messages import PageLimits
from wigwag.dflag.page.site import Access, Site

DISABLED = "setting flags over HTTP is disabled: configure a token, or unauthenticated access"
FORGED = "a\nforged line"


def shop(access: Access | None = OPEN, **more: Any) -> tuple[Site, dflag.FlagSet]:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10, validators=[dflag.in_range(0, 100)])
    flags.str("name", "x", dynamic=False)
    flags.str("text", "t")
    flags.duration("patience", "1m")
    return Site(flags, access=access, **more), flags


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("value", ["20", 20, " 0x14\n"])
def test_a_value_is_set_as_text_or_as_json(method: str, value: Any) -> None:
    site, flags = shop()
    body = json.dumps({"value": value})
    answer = ask(site, method, "/flags/rate", body, content_type="application/json; charset=utf-8")
    assert answer.status == 200
    assert (flags["rate"].get(), flags["rate"].held.origin) == (20, Origin.HTTP)
    told = answer.json
    assert told.pop("flag") == ask(site, "GET", "/flags/rate").json
    assert told == {
        "name": "rate",
        "old_value": "10",
        "new_value": "20",
        "changed": True,
        "in_force": True,
        "validate_only": False,
        "warning": None,
    }


KINDS: list[tuple[str, Any, Any, Any]] = [
    ("bool", False, True, True),
    ("float", 1.0, 2, 2.0),
    ("str", "a", "b", "b"),
    ("duration", "1m", "2m", timedelta(minutes=2)),
    ("list", ["a"], ["b", "c"], ["b", "c"]),
    ("list", ["a"], "b,c", ["b", "c"]),
    ("set", {"a"}, ["b", "b"], {"b"}),
    ("mapping", {"a": "b"}, {"c": "d"}, {"c": "d"}),
    ("bytes", b"a", "AAE=", b"\0\1"),
    ("decimal", Decimal(1), "1.10", Decimal("1.10")),
    ("json", {"a": 1}, {"b": [1.5, None]}, {"b": [1.5, None]}),
    ("json", {"a": 1}, '{"b": 2}', {"b": 2}),
]


@pytest.mark.parametrize(("kind", "default", "given", "expected"), KINDS)
def test_every_kind_takes_its_text_and_its_json(kind: str, default: Any, given: Any, expected: Any) -> None:
    flags = dflag.FlagSet("test")
    flag = getattr(flags, kind)("it", default)
    assert put(Site(flags, access=OPEN), "it", given).status == 200
    assert flag.get() == expected


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("rate", "many", "flag 'rate': 'many' is not a whole number"),
        ("rate", 101, "flag 'rate': must be from 0 to 100, got 101"),
        ("rate", 2.5, "flag 'rate': expected int, got float"),
        ("rate", None, "flag 'rate': expected int, got NoneType"),
        ("text", 5, "flag 'text': expected str, got int"),
        ("patience", 3, "flag 'patience': a duration is a text with its unit, such as \"3s\""),
    ],
)
def test_what_a_flag_refuses_is_422_with_the_reason(name: str, value: Any, reason: str) -> None:
    site, flags = shop()
    answer = put(site, name, value)
    assert (answer.status, answer.detail) == (422, reason)
    assert (flags["rate"].get(), flags.generation) == (10, 0)


def test_each_refusal_has_its_status() -> None:
    site, flags = shop()
    assert put(site, "other", 1).status == 404
    static = put(site, "name", "y")
    assert (static.status, "restart the program" in static.detail) == (409, True)
    assert ask(site, "DELETE", "/flags/name").status == 409
    assert ask(site, "PUT", "/flags/rate", "20", content_type="text/plain").status == 415
    assert ask(site, "PUT", "/flags/rate", "20").status == 415
    assert ask(site, "POST", "/set?name=rate", '{"value": 1}', content_type="application/json").status == 415
    assert ask(site, "PATCH", "/flags/rate").status == 405
    assert ask(site, "OPTIONS", "/flags/rate").headers["allow"] == "GET, PUT, POST, DELETE, HEAD"
    assert ask(site, "POST", "/").headers["allow"] == "GET, HEAD"
    assert put(shop(None)[0], "rate", 1).status == 403
    assert put(shop(Access(token="right"))[0], "rate", 1).status == 401
    assert put(shop(limits=PageLimits(body=10))[0], "rate", 1).status == 413
    assert flags.generation == 0


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "20",
        "{}",
        '{"value": 1, "other": 2}',
        '{"value": 1, "ttl": []}',
        '{"value": "\\ud800"}',
        b'{"value": "\xff"}',
        "[" * 5000,
        '{"value": ' + "[" * 5000,
        '{"value": 1}x',
    ],
)
def test_a_body_that_is_not_understood_is_400(body: str | bytes) -> None:
    site, flags = shop()
    assert ask(site, "PUT", "/flags/rate", body, content_type="application/json").status == 400
    assert flags.generation == 0


@pytest.mark.parametrize("body", ["", "other=1", "value=1&value=2", "value=%ff", b"value=\xff", "&".join(["a=1"] * 50)])
def test_a_form_that_is_not_understood_is_400(body: str | bytes) -> None:
    site, flags = shop()
    assert ask(site, "POST", "/flags/rate", body, **_under(FORM)).status == 400
    assert flags.generation == 0


def _under(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in headers.items()}


def form(site: Site, path: str, body: str, **headers: str) -> Answer:
    return ask(site, "POST", path, body, **_under(FORM), **headers)


def test_a_form_is_answered_with_json_unless_a_browser_sends_it() -> None:
    site, flags = shop()
    assert form(site, "/flags/rate", "value=20").json["new_value"] == "20"
    answer = form(site, "/flags/rate", "value=30&ttl=", **BROWSER)
    assert (answer.status, answer.headers["location"]) == (303, "/#flag-rate")
    assert flags["rate"].get() == 30


def test_the_lines_of_a_form_end_as_those_of_a_file() -> None:
    site, flags = shop()
    form(site, "/flags/text", "value=a%0D%0Ab+c%26d")
    assert flags["text"].get() == "a\nb c&d"


def test_a_form_that_is_refused_comes_back_with_the_reason_and_with_what_was_typed() -> None:
    site, _ = shop()
    answer = form(site, "/flags/rate", "value=1000", **BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (422, "text/html; charset=utf-8")
    assert "must be from 0 to 100, got 1000" in answer.text
    assert 'name="value" value="1000"' in answer.text


def test_a_form_can_ask_what_would_happen() -> None:
    site, flags = shop()
    answer = form(site, "/flags/rate", "value=20&validate_only=1", **BROWSER)
    assert (answer.status, flags["rate"].get()) == (200, 10)
    assert "Would change from 10 to 20" in answer.text
    assert "nothing would change" in form(site, "/flags/rate", "value=10&validate_only=1", **BROWSER).text


def test_scripts_of_the_original_work_with_another_method() -> None:
    site, flags = shop()
    answer = ask(site, "POST", "/set?name=rate&value=20")
    assert (answer.status, answer.text) == (200, 'Success "rate" -> "20"\n')
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert form(site, "/set", "name=rate&value=30").status == 200
    assert flags["rate"].get() == 30
    assert ask(site, "POST", "/set?name=rate&value=31", accept="application/json").json["new_value"] == "31"
    assert ask(site, "POST", "/set?name=other&value=1").status == 404
    assert ask(site, "POST", "/set?name=rate&value=x").status == 422
    assert ask(site, "POST", "/set?value=1").status == 400
    assert ask(site, "POST", "/set?name=rate").status == 400


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_get_sets_nothing(method: str) -> None:
    site, flags = shop()
    answer = ask(site, method, "/set?name=rate&value=20")
    assert (answer.status, answer.headers["allow"], flags["rate"].get()) == (405, "POST", 10)
    assert "POST to /set" in ask(site, "GET", "/set?name=rate&value=20").detail


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_an_override_is_taken_back(method: str) -> None:
    site, flags = shop()
    path = "/flags/rate" + ("/reset" if method == "POST" else "")
    flags.assign("rate", "20", Origin.ENVIRONMENT)
    put(site, "rate", 30)
    dry = ask(site, method, f"{path}?validate_only=1").json
    assert (dry["old_value"], dry["new_value"], flags["rate"].get()) == ("30", "20", 30)
    done = ask(site, method, path).json
    assert (done["new_value"], done["changed"], done["flag"]["origin"]) == ("20", True, "environment")
    again = ask(site, method, path)
    assert (again.status, again.json["changed"], flags["rate"].get()) == (200, False, 20)


def test_a_dry_run_tells_and_changes_nothing() -> None:
    site, flags = shop()
    told = put(site, "rate", 20, "?validate_only=1").json
    assert (told["changed"], told["new_value"], told["validate_only"], told["in_force"]) == (True, "20", True, True)
    assert (told["flag"]["current_value"], flags.generation) == ("10", 0)
    assert put(site, "rate", 10, "?validate_only=true").json["changed"] is False
    assert put(site, "rate", 1000, "?validate_only=1").status == 422
    assert put(site, "rate", 20, "?validate_only=maybe").status == 400
    assert flags.generation == 0
    assert put(site, "rate", 20, "?validate_only=0").json["changed"] is True
    assert flags["rate"].get() == 20


@pytest.mark.parametrize(
    "query", ["dry_run=1", "validateonly=1", "Validate_Only=1", "validate_only=1&ttl=5", "format="]
)
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_a_mistyped_dry_run_is_refused_and_not_done(method: str, query: str) -> None:
    site, flags = shop()
    body = '{"value": 20}' if method != "DELETE" else ""
    put(site, "rate", 15)
    answer = ask(site, method, f"/flags/rate?{query}", body, content_type="application/json")
    assert (answer.status, flags["rate"].get()) == (400, 15)
    assert "so nothing was changed; use validate_only" in answer.detail


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/flags/rate?dry_run=1", "value=20"),
        ("/flags/rate", "value=20&dry_run=1"),
        ("/flags/rate?name=rate", "value=20"),
        ("/flags/rate/reset", "dry_run=1"),
        ("/flags/rate/reset?value=1", ""),
        ("/set?name=rate&value=20&dry_run=1", ""),
        ("/set?dry_run=1", "name=rate&value=20"),
    ],
)
def test_so_it_is_in_forms_and_in_the_manner_of_the_original(path: str, body: str) -> None:
    site, flags = shop()
    put(site, "rate", 15)
    assert form(site, path, body).status == 400
    assert flags["rate"].get() == 15


@pytest.mark.parametrize("path", ["/flags/rate", "/set?name=rate"])
@pytest.mark.parametrize("body", ['{"value": 40}', ' [{"value": 40}]'])
def test_json_that_is_sent_as_a_form_is_told_what_is_missing(path: str, body: str) -> None:
    site, flags = shop()
    answer = form(site, path, body)
    assert (answer.status, flags.generation) == (400, 0)
    assert answer.detail == "the body looks like JSON but is sent as a form: send Content-Type: application/json"


@dataclass(frozen=True)
class Retry:
    """A value with defaults."""

    attempts: int = 3
    pause: float = 1.5


def test_what_is_shown_is_what_is_in_force_and_not_what_was_sent() -> None:
    flags = dflag.FlagSet("test")
    retry = flags.json("retry", Retry())
    site = Site(flags, access=OPEN)
    told = put(site, "retry", {"attempts": 1}).json
    assert retry.get() == Retry(1, 1.5)
    assert json.loads(told["new_value"]) == json.loads(told["flag"]["current_value"]) == {"attempts": 1, "pause": 1.5}
    same = put(site, "retry", {}).json
    assert (json.loads(same["new_value"]), same["flag"]["is_changed"]) == ({"attempts": 3, "pause": 1.5}, False)


@pytest.mark.parametrize("dry", ["", "?validate_only=1"])
def test_a_value_that_something_stronger_hides_is_said_to_be_hidden(dry: str) -> None:
    site, flags = shop()
    with flags.override(rate=50):
        told = put(site, "rate", 20, dry).json
        assert (told["in_force"], told["changed"], told["new_value"]) == (False, False, "50")
    assert flags["rate"].get() == (10 if dry else 20)


def test_the_last_writer_counts_where_that_is_the_order() -> None:
    flags = dflag.FlagSet("test", precedence=dflag.LAST_WRITER)
    rate = flags.int("rate", 10)
    site = Site(flags, access=OPEN)
    rate.set("20")
    assert put(site, "rate", 30, "?validate_only=1").json["in_force"] is True
    assert put(site, "rate", 30).json["in_force"] is True
    rate.set("40")
    assert rate.get() == 40


@pytest.mark.parametrize(
    ("ttl", "seconds"), [(90, 90.0), ("90", 90.0), ("1m30s", 90.0), (0.5, 0.5), (None, None), ("", None)]
)
def test_a_value_may_run_out(ttl: Any, seconds: float | None) -> None:
    now = [1000.0]
    flags = dflag.FlagSet("test", clock=lambda: now[0])
    rate = flags.int("rate", 10)
    site = Site(flags, access=OPEN, clock=lambda: now[0])
    assert put(site, "rate", 20, ttl=ttl).json["flag"]["expires_in"] == seconds
    now[0] += seconds or 0.0
    flags.expire()
    assert rate.get() == (20 if seconds is None else 10)


def test_a_value_runs_out_by_itself() -> None:
    site, flags = shop()
    assert put(site, "rate", 20, ttl=0.01).status == 200
    until(lambda: flags["rate"].get() == 10)


@pytest.mark.parametrize("ttl", [0, -1, "0s", "-5m", 1e300, "soon", "inf", "nan", "1000000w", 366 * 86400 + 1])
def test_a_life_that_is_none_is_refused(ttl: Any) -> None:
    site, flags = shop()
    assert put(site, "rate", 20, ttl=ttl).status == 422
    assert flags.generation == 0


def test_if_match_keeps_one_from_undoing_what_another_has_done() -> None:
    site, flags = shop()
    tag = ask(site, "GET", "/flags/rate").headers["etag"]
    everything = ask(site, "GET", "/").headers["etag"]
    assert put(site, "rate", 20, If_Match=tag).status == 200
    late = put(site, "rate", 30, If_Match=tag)
    assert (late.status, "has changed since" in late.detail) == (412, True)
    assert put(site, "rate", 30, If_Match=everything).status == 412
    assert ask(site, "DELETE", "/flags/rate", if_match=tag).status == 412
    assert form(site, "/flags/rate", f"value=30&if_match={tag.strip(chr(34))}").status == 412
    assert flags["rate"].get() == 20
    fresh = ask(site, "GET", "/").headers["etag"]
    assert put(site, "rate", 30, If_Match=f"W/{fresh}").status == 412
    assert put(site, "rate", 30, If_Match=f'"other", {fresh}').status == 200
    assert put(site, "rate", 40, If_Match="*").status == 200
    assert ask(site, "DELETE", "/flags/rate", if_match=ask(site, "GET", "/flags/rate").headers["etag"]).status == 200


def test_the_tag_of_all_flags_guards_against_changes_to_others() -> None:
    site, flags = shop()
    everything, own = ask(site, "GET", "/").headers["etag"], ask(site, "GET", "/flags/rate").headers["etag"]
    flags.assign("text", "other")
    assert put(site, "rate", 20, If_Match=everything).status == 412
    assert put(site, "rate", 20, If_Match=own).status == 200


def test_notifiers_are_called() -> None:
    site, flags = shop()
    heard: list[tuple[int, int]] = []
    flags["rate"].on_change(lambda old, new: heard.append((old, new)), "sync")
    put(site, "rate", 20)
    put(site, "rate", 30, "?validate_only=1")
    ask(site, "DELETE", "/flags/rate")
    assert heard == [(10, 20), (20, 10)]


def test_every_attempt_is_logged_with_who_made_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wigwag.dflag.page")
    site, _ = shop()
    put(site, "rate", 20)
    put(site, "rate", 30, ttl=60)
    put(site, "rate", 1000)
    put(site, "rate", 40, "?validate_only=1")
    ask(site, "DELETE", "/flags/rate")
    put(shop(None)[0], "rate", 1)
    ask(site, "PUT", f"/flags/{FORGED}", "", content_type="text/plain")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "flag 'rate' was set over HTTP by 192.0.2.1: '10' -> '20'"),
        ("INFO", "flag 'rate' was set over HTTP by 192.0.2.1: '20' -> '30' for 60 s"),
        (
            "WARNING",
            "a change of flag 'rate' by 192.0.2.1 was refused: 422 \"flag 'rate': must be from 0 to 100, got 1000\"",
        ),
        ("INFO", "flag 'rate' was reset over HTTP by 192.0.2.1: '30' -> '10'"),
        ("WARNING", f"a change of flag 'rate' by 192.0.2.1 was refused: 403 {DISABLED!r}"),
        ("WARNING", f"a change of flag {FORGED!r} by 192.0.2.1 was refused: 404 {f'there is no flag {FORGED!r}'!r}"),
    ]
