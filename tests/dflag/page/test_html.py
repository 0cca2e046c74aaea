"""The page for people: what is on it, that it is sound HTML, and that nothing can be smuggled into it."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.dflag.page.asking import BROWSER, OPEN, ask, put
from wigwag import dflag
from wigwag.dflag import Policy
from wigwag.dflag.page.site import Access, Site

EVIL = "\"'><script>alert(1)</script><!--&amp;"
VOID = {"meta", "link", "input"}


class Outline(HTMLParser):
    """Reads a page, and sees that what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        return [
            attributes
            for name, attributes in self.seen
            if name == tag and all(attributes.get(key) == value for key, value in wanted.items())
        ]


def page(site: Site, target: str = "/") -> Outline:
    answer = ask(site, "GET", target, **BROWSER)
    assert answer.status == 200
    assert answer.text.startswith('<!doctype html>\n<html lang="en">')
    return Outline(answer.text)


def shop(access: Access | None = OPEN) -> Site:
    flags = dflag.FlagSet("shop")
    flags.int("rate", 10, "requests per second", aliases=["r"], validators=[dflag.in_range(0, 100)])
    flags.bool("debug", True)
    flags.json("retry", {"attempts": 3})
    flags.str("key", "", secret=True)
    flags.str("port", "80", dynamic=False)
    return Site(flags, access=access)


def test_each_flag_is_there_with_what_it_is() -> None:
    site = shop()
    found = page(site)
    assert [each["id"] for each in found.all("article")] == [
        "flag-debug",
        "flag-key",
        "flag-port",
        "flag-rate",
        "flag-retry",
    ]
    for text in ("requests per second", "must be from 0 to 100", "r", "dynamic", "static", "secret", "shop"):
        assert text in found.texts


def test_each_dynamic_flag_has_a_form_of_its_kind() -> None:
    found = page(shop())
    assert [form["action"] for form in found.all("form")] == [
        f"/flags/{name}" for name in ("debug", "key", "rate", "retry")
    ]
    assert all(form["method"] == "post" for form in found.all("form"))
    assert [(each["value"], "checked" in each) for each in found.all("input", type="radio")] == [
        ("true", True),
        ("false", False),
    ]
    assert len(found.all("textarea", name="value")) == 1
    assert len(found.all("input", name="value", type="password")) == 1
    assert found.all("input", name="value", **{"aria-label": "New value of rate"})[0]["value"] == "10"


def test_every_field_has_a_label() -> None:
    found = page(shop(Access(token="x")))
    labelled = [each["for"] for each in found.all("label") if "for" in each]
    for each in found.all("input") + found.all("textarea"):
        hidden, inside_label = each.get("type") == "hidden", each.get("name") == "ttl" or each.get("type") == "radio"
        assert hidden or inside_label or each.get("aria-label") or each.get("id") in labelled, each


def test_what_can_be_done_depends_on_access() -> None:
    closed, open_, token = page(shop(None)), page(shop()), page(shop(Access(token="x")))
    assert closed.all("form") == []
    assert "Read only: setting flags over HTTP is disabled." in closed.texts
    assert open_.all("input", id="token") == []
    assert len(token.all("input", id="token", type="password")) == 1


def test_an_override_can_be_taken_back_without_a_script() -> None:
    site = shop()
    assert page(site).all("form", action="/flags/rate/reset") == []
    put(site, "rate", 20, ttl=3600)
    found = page(site)
    assert len(found.all("form", action="/flags/rate/reset")) == 1
    assert "overridden" in found.texts
    assert ", expires in " in found.texts
    answer = ask(site, "POST", "/flags/rate/reset", content_type="application/x-www-form-urlencoded", **BROWSER)
    assert (answer.status, site.flags["rate"].get()) == (303, 10)


def test_the_script_and_the_style_are_those_that_the_policy_allows() -> None:
    answer = ask(shop(), "GET", "/", **BROWSER)
    policy = answer.headers["content-security-policy"]
    for tag in ("script", "style"):
        [inside] = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = b64encode(sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not any(key.startswith("on") or key == "style" for _, each in Outline(answer.text).seen for key in each)


def test_nothing_comes_from_elsewhere() -> None:
    text = ask(shop(), "GET", "/", **BROWSER).text
    assert re.findall(r"(?:https?:)?//[a-z]", text.replace("// One flag", "")) == []
    for _, attributes in page(shop()).seen:
        for key in ("href", "src", "action"):
            assert (attributes.get(key) or "/").startswith(("/", "#", "data:,"))


def test_values_that_look_like_html_are_text(tmp_path: Path) -> None:
    flags = dflag.FlagSet(EVIL.replace(" ", ""))
    rule: dflag.Rule[str] = dflag.Rule(EVIL, lambda value: value != "refused")
    name = "x\"'><script>alert(1)<\\script>&amp;"
    flags.str(name, EVIL, EVIL, aliases=['"<b>'], validators=[rule])
    flags.json("json", {EVIL: "</textarea>" + EVIL})
    (tmp_path / "'><script>").write_text("x")
    (tmp_path / "json").write_text("</script>")
    updater = dflag.Updater(flags, tmp_path, policy=Policy(tolerant=True))
    updater.initialize()
    site = Site(flags, updater, OPEN)
    put(site, "json", {"a": EVIL})
    for target in ("/", "/flags/json"):
        assert len(page(site, target).all("script")) == 1
    assert EVIL in page(site).texts
    assert [each["id"] for each in page(site).all("article")] == ["flag-json", f"flag-{name}"]
    refused = ask(
        site, "POST", f"/flags/{name}", "value=refused", content_type="application/x-www-form-urlencoded", **BROWSER
    )
    assert refused.status == 422
    assert len(Outline(refused.text).all("script")) == 1
    missing = ask(site, "GET", "/flags/<script>alert(1)", **BROWSER)
    assert missing.status == 404
    assert len(Outline(missing.text).all("script")) == 1


def test_the_filters_keep_each_other() -> None:
    links = {each["href"]: "aria-current" in each for each in page(shop(), "/?type=static").all("a")}
    assert links["/?type=static"] is True
    assert links["/"] is False
    assert "/?only_changed=1&type=static" in links
    both = {each["href"]: "aria-current" in each for each in page(shop(), "/?type=static&only_changed=1").all("a")}
    assert both["/?only_changed=1&type=static"] is True
    assert both["/?type=static"] is True  # only changed is on; this takes it off
    assert "No flags match." in page(shop(), "/?only_changed=1").texts


def test_problems_and_restarts_are_on_the_page(tmp_path: Path) -> None:
    flags = dflag.FlagSet("test")
    flags.int("rate", 10)
    flags.int("port", 80, dynamic=False)
    (tmp_path / "rate").write_text("many")
    updater = dflag.Updater(flags, tmp_path, policy=Policy(tolerant=True))
    flags.freeze()
    (tmp_path / "port").write_text("81")
    updater.initialize()
    found = page(Site(flags, updater))
    assert "Restart required" in found.texts
    assert "restart required" in found.texts
    assert f"{tmp_path}/rate" in found.texts
    assert len(found.all("a", href="/#flag-port")) == 1


@pytest.mark.parametrize(("length", "editable"), [(60_000, True), (70_000, False)])
def test_a_long_value_is_cut_short_and_never_edited_in_part(length: int, editable: bool) -> None:
    flags = dflag.FlagSet("test")
    flags.str("long", "x" * length)
    found = page(Site(flags, access=OPEN))
    assert max(map(len, found.texts)) < 10_000
    field = found.all("input", name="value")[0]
    assert len(field["value"] or "") == (length if editable else 0)


def test_a_refusal_is_a_page_for_a_browser() -> None:
    answer = ask(shop(), "GET", "/flags/nothing", **BROWSER)
    assert (answer.status, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "there is no flag 'nothing'" in Outline(answer.text).texts
