"""What is listed. The first tests are those of the original, by their names there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dflag.page.asking import OPEN, ask, example, names, put
from tests.pipeline.fakes import run
from wigwag import dflag
from wigwag.dflag import Origin, Policy
from wigwag.dflag.page.site import Access, Site

STATIC = ["some_static_changed", "some_static_string"]
DYNAMIC = ["some_dyn_float", "some_dyn_json", "some_dyn_list"]
ORIGINAL = ["name", "description", "current_value", "default_value", "is_changed", "is_dynamic", "is_json"]


@pytest.mark.parametrize("path", ["/", "/flags", "/flags/"])
def test_returns_all(path: str) -> None:
    """ReturnsAll."""
    assert names(ask(Site(example()), "GET", path)) == DYNAMIC + STATIC


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("only_changed=yes", ["some_dyn_list", "some_static_changed"], id="OnlyChanged"),
        pytest.param("type=static", STATIC, id="OnlyStatic"),
        pytest.param("type=dynamic", DYNAMIC, id="OnlyDynamic"),
        pytest.param("only_changed=true&type=dynamic", ["some_dyn_list"], id="DynamicAndChanged"),
        pytest.param("only_changed=1&type=static", ["some_static_changed"], id="StaticAndChanged"),
        pytest.param("only_changed=&type=&format=", DYNAMIC + STATIC, id="nothing given"),
        pytest.param("other=1", DYNAMIC + STATIC, id="something unknown"),
    ],
)
def test_filters(query: str, expected: list[str]) -> None:
    flags = example()
    answer = ask(Site(flags), "GET", f"/?{query}")
    assert names(answer) == expected
    assert answer.json["checksum_static"] == flags.checksum("static", legacy=True)
    assert answer.json["checksum_dynamic"] == flags.checksum("dynamic", legacy=True)


def test_correctly_represents_resources() -> None:
    """CorrectlyRepresentsResources."""
    answer = ask(Site(example()), "GET", "/?only_changed=1&type=dynamic")
    assert answer.headers["content-type"] == "application/json"
    assert '\n  "checksum_static": ' in answer.text
    assert list(answer.json)[:4] == ["checksum_static", "checksum_dynamic", "set_url", "flags"]
    [flag] = answer.json["flags"]
    assert list(flag)[:7] == ORIGINAL
    assert {key: flag[key] for key in ORIGINAL} == {
        "name": "some_dyn_list",
        "description": "dynamic, changed",
        "current_value": "car,bar",
        "default_value": "foo,bar",
        "is_changed": True,
        "is_dynamic": True,
        "is_json": False,
    }


@pytest.mark.parametrize(
    ("accept", "query", "expected"),
    [
        ("text/html,*/*", "", "text/html; charset=utf-8"),
        ("text/html", "?format=json", "application/json"),
        ("application/xhtml+xml", "", "text/html; charset=utf-8"),
        ("*/*", "", "application/json"),
        ("", "", "application/json"),
    ],
)
def test_serves_html(accept: str, query: str, expected: str) -> None:
    """ServesHTML."""
    answer = ask(Site(example()), "GET", f"/{query}", accept=accept)
    assert (answer.status, answer.headers["content-type"]) == (200, expected)


def test_json_is_written_on_several_lines_and_everything_is_text() -> None:
    flags = example()
    flags.bool("b", True)
    found = {flag["name"]: flag for flag in ask(Site(flags), "GET", "/").json["flags"]}
    assert found["some_dyn_json"]["current_value"] == '{\n  "ints": [\n    1,\n    2\n  ]\n}'
    assert found["some_dyn_json"]["is_json"] is True
    assert found["some_dyn_json"]["is_changed"] is False
    assert (found["b"]["current_value"], found["some_dyn_float"]["current_value"]) == ("true", "1.5")


@pytest.mark.parametrize("query", ["type=other", "format=xml", "type=static&type=static", "type=%ff", "a&" * 40 + "a"])
def test_a_query_that_makes_no_sense_is_refused(query: str) -> None:
    assert ask(Site(example()), "GET", f"/?{query}").status == 400


def test_one_flag_is_found_by_name_and_by_alias() -> None:
    flags = dflag.FlagSet("test")
    flags.int("rate", 10, aliases=["r"], validators=[dflag.in_range(0, 100)])
    site = Site(flags)
    one = ask(site, "GET", "/flags/rate")
    assert one.json == ask(site, "GET", "/flags/r").json == ask(site, "GET", "/").json["flags"][0]
    assert one.json["aliases"] == ["r"]
    assert one.json["type"] == "int"
    assert one.json["constraints"] == ["must be from 0 to 100"]
    assert one.headers["etag"] == f'"{one.json["etag"]}"'
    assert ask(site, "GET", "/flags/other").detail == "there is no flag 'other'"


def test_where_a_value_comes_from_is_told() -> None:
    now = [100.0]
    flags = dflag.FlagSet("test", clock=lambda: now[0], wall=lambda: 1767225600.0)
    rate = flags.int("rate", 10)
    site = Site(flags, access=OPEN, clock=lambda: now[0])
    told = ask(site, "GET", "/flags/rate").json
    assert (told["origin"], told["place"], told["generation"], told["set_at"]) == ("default", "", 0, None)
    flags.assign("rate", "20", Origin.ENVIRONMENT, "RATE")
    told = ask(site, "GET", "/flags/rate").json
    assert (told["origin"], told["place"], told["generation"]) == ("environment", "RATE", 1)
    assert (told["set_at"], told["expires_in"]) == ("2026-01-01T00:00:00+00:00", None)
    assert told["is_overridden"] is False
    assert put(site, "rate", 30, ttl=60).status == 200
    now[0] += 15
    told = ask(site, "GET", "/flags/rate").json
    assert (told["origin"], told["expires_in"], told["is_overridden"]) == ("HTTP override", 45.0, True)
    now[0] += 45
    flags.expire()
    assert (rate.get(), ask(site, "GET", "/flags/rate").json["origin"]) == (20, "environment")


def test_the_updater_is_reported(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    flags.int("rate", 10)
    flags.int("port", 80, dynamic=False)
    (tmp_path / "rate").write_text("many")
    (tmp_path / "unknown").write_text("1")
    updater = dflag.Updater(flags, tmp_path, policy=Policy(tolerant=True))
    updater.initialize()
    (tmp_path / "port").write_text("81")
    flags.freeze()
    updater.initialize()
    told = ask(Site(flags, updater), "GET", "/").json
    assert told["updater"] == {
        "running": False,
        "generation": 2,
        "warnings": 1,
        "errors": 1,
        "restart_required": ["port"],
        "problem_count": 2,
        "problems": [
            {"level": "error", "place": str(tmp_path), "key": "rate", "reason": "'many' is not a whole number"},
            {
                "level": "warning",
                "place": str(tmp_path),
                "key": "unknown",
                "reason": "there is no such flag in the set 'test'",
            },
        ],
    }
    assert [flag["restart_required"] for flag in told["flags"]] == [True, False]
    assert ask(Site(dflag.FlagSet("other")), "GET", "/").json["updater"] is None


def test_a_page_that_was_made_before_the_updater_finds_it(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    flags.int("rate", 10)
    (tmp_path / "rate").write_text("many")
    site = Site(flags)
    assert ask(site, "GET", "/").json["updater"] is None
    with dflag.setup(flags, tmp_path, policy=Policy(tolerant=True)):
        told = ask(site, "GET", "/").json["updater"]
        assert (told["running"], told["problem_count"]) == (True, 1)
        assert "dflag_updater_running 1" in ask(site, "GET", "/metrics").text
    assert ask(site, "GET", "/").json["updater"]["running"] is False


def test_a_page_finds_the_updater_of_a_loop(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    site = Site(flags)

    async def main() -> bool:
        async with dflag.watching(flags, tmp_path):
            return bool(ask(site, "GET", "/").json["updater"]["running"])

    assert run(main)


def test_of_many_problems_the_first_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    for number in range(150):
        (tmp_path / f"unknown{number}").write_text("")
    flags = dflag.FlagSet("test")
    updater = dflag.Updater(flags, tmp_path)
    updater.initialize()
    told = ask(Site(flags, updater), "GET", "/").json["updater"]
    assert (told["problem_count"], len(told["problems"])) == (150, 100)
    assert "and 50 more" in ask(Site(flags, updater), "GET", "/", accept="text/html").text


def test_set_url_is_empty_if_nothing_can_be_set() -> None:
    assert ask(Site(example()), "GET", "/").json["set_url"] == ""
    assert ask(Site(example(), access=OPEN), "GET", "/").json["set_url"] == "/set"
    assert ask(Site(example(), access=Access(token="x")), "GET", "/").json["set_url"] == "/set"


def test_checksums_and_tags_follow_the_values() -> None:
    flags = example()
    site = Site(flags)

    def seen() -> tuple[Any, ...]:
        told = ask(site, "GET", "/").json
        assert told["checksum"] == flags.checksum()
        assert f'"{told["etag"]}"' == ask(site, "GET", "/").headers["etag"]
        return told["checksum"], told["checksum_dynamic"], told["etag"]

    first = seen()
    flags.assign("some_dyn_float", "2")
    second = seen()
    assert all(a != b for a, b in zip(first, second, strict=True))
    flags.assign("some_dyn_float", "1.5")
    assert seen() == first


def test_a_flag_that_is_defined_later_is_listed() -> None:
    flags = example()
    site = Site(flags)
    assert len(names(ask(site, "GET", "/"))) == 5
    flags.int("another", 1)
    assert "another" in names(ask(site, "GET", "/"))


class Interrupted(dflag.FlagSet):
    """Flags that somebody wants to change while they are being looked at."""

    def __iter__(self) -> Iterator[dflag.DynFlag[Any]]:
        first, *others = super().__iter__()
        yield first
        self.change()
        yield from others

    def change(self) -> None:
        pass


def test_nothing_changes_while_a_list_is_made() -> None:
    flags = Interrupted("test")
    flags.int("a", 0)
    flags.int("b", 0)

    def both() -> None:
        dflag.load_texts(flags, {"a": "1", "b": "1"}, Origin.PROGRAM)

    thread = threading.Thread(target=both)

    def change() -> None:
        if thread.ident is None:
            thread.start()
            thread.join(0.2)

    flags.change = change  # type: ignore[method-assign]
    told = ask(Site(flags), "GET", "/").json["flags"]
    thread.join()
    assert [flag["current_value"] for flag in told] == ["0", "0"]
    assert flags["b"].get() == 1


def test_a_list_is_of_one_generation() -> None:
    flags = dflag.FlagSet("test")
    flags.int("a", 0)
    flags.int("b", 0)
    site, stop = Site(flags), threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            dflag.load_texts(flags, {"a": str(number), "b": str(number)}, Origin.PROGRAM)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(200):
            told = ask(site, "GET", "/").json
            first, second = told["flags"]
            assert first["current_value"] == second["current_value"]
            assert first["generation"] == second["generation"] == told["generation"]
    finally:
        stop.set()
        thread.join()


class Grumpy:
    """A value that cannot be shown."""


def test_a_value_that_cannot_be_shown_does_not_hide_the_others() -> None:
    from wigwag.dflag.values.kinds import ValueKind

    def fail(value: Grumpy) -> str:
        raise RuntimeError("no")

    flags = dflag.FlagSet("test")
    flags.define("grumpy", ValueKind("grumpy", lambda text: Grumpy(), fail, lambda value: value), Grumpy(), "", {})
    flags.int("rate", 10)
    told = ask(Site(flags), "GET", "/").json["flags"]
    assert [flag["current_value"] for flag in told] == ["(cannot be shown: RuntimeError)", "10"]


def test_half_a_surrogate_pair_is_no_trouble() -> None:
    flags = dflag.FlagSet("test")
    flags.str("odd", "a\ud800b")
    assert ask(Site(flags), "GET", "/").json["flags"][0]["current_value"] == "a\ud800b"
    assert ask(Site(flags), "GET", "/", accept="text/html").status == 200


def test_head_is_get_without_a_body() -> None:
    site = Site(example())
    head, got = ask(site, "HEAD", "/"), ask(site, "GET", "/")
    assert (head.status, head.text) == (200, "")
    assert head.headers == got.headers
    assert head.headers["content-length"] == str(len(got.response.body))


@pytest.mark.parametrize("path", ["/", "/flags/some_dyn_list", "/openapi.json", "/metrics", "/nothing"])
@pytest.mark.parametrize("accept", ["text/html", "*/*"])
def test_every_answer_is_guarded(path: str, accept: str) -> None:
    headers = ask(Site(example()), "GET", path, accept=accept).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_a_fault_of_ours_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(dflag.Updater):
        @property
        def restart_required(self) -> tuple[str, ...]:
            raise RuntimeError("a detail")

    flags = example()
    answer = ask(Site(flags, Broken(flags, "/nowhere")), "GET", "/")
    assert answer.status == 500
    assert "a detail" not in answer.text
    assert "RuntimeError: a detail" in caplog.text
