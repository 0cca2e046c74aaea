"""The console of an agent in a real browser: every view, live, by keyboard, with many flags and with hostile ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_core_python.base import AXE_FILE_PATH  # type: ignore[import-untyped]

from tests.agent.process import AgentProcess
from tests.console.browser import Browser, Page
from tests.real.processes import claim_port

GOLD: dict[str, Any] = {"if": [{"==": [{"var": "tier"}, "gold"]}, "on", {"fractional": [["on", 10], ["off", 90]]}]}


def flag(default: str = "off", **more: Any) -> dict[str, Any]:
    return {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": default, **more}


def write(path: Path, flags: dict[str, Any], **more: Any) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"flags": flags, **more}))
    new.rename(path)


class Looked:
    """An agent with two sources, and a page that looks at it."""

    def __init__(self, agent: AgentProcess, page: Page, low: Path, high: Path) -> None:
        self.agent, self.page, self.low, self.high = agent, page, low, high

    def go(self, place: str) -> None:
        self.page.run(f"location.hash = {json.dumps('#/' + place)}")


LOW = {"banner": flag(), "limit": flag("on"), "unused-thing": flag(metadata={"owner": "web"})}
HIGH = {"banner": flag(targeting=GOLD), "broken": {**flag(), "targeting": {"iff": []}}}


@pytest.fixture
def looked(chrome: Browser, tmp_path: Path) -> Iterator[Looked]:
    low, high = tmp_path / "low.json", tmp_path / "high.json"
    write(low, LOW)
    write(high, HIGH)
    with AgentProcess("--uri", f"file:{low}", "--uri", f"file:{high}") as agent:
        page = chrome.open(f"{url(agent)}/console/")
        page.see("4 flags")
        yield Looked(agent, page, low, high)
        assert page.problems == []
        page.close()


def url(agent: AgentProcess) -> str:
    return f"http://{agent.address('management')}"


def test_a_flag_says_why_it_answers(looked: Looked) -> None:
    page = looked.page
    page.click("#row-0 .key")
    page.see("banner", "h2")
    page.see('if tier equals "gold"')
    page.see("10 % on, 90 % off, by targetingKey")
    page.fill("#context", '{"targetingKey": "user-7"}')
    page.wait("document.querySelector('.phrase.split.taken .here')")
    page.wait("document.querySelector('.phrase.if.tried')")
    page.fill("#context", '{"targetingKey": "user-7", "tier": "gold"}')
    page.wait("document.querySelector('.phrase.if.taken .phrase.answer.taken')")
    page.see("variant on, TARGETING_MATCH", ".verdict")
    page.see("on in every snapshot that is kept")
    page.fill("#context", '{"tier": ')
    page.wait("document.querySelector('#context-error').innerText")


def test_attributes_of_the_rule_are_completed_and_questions_can_be_copied(looked: Looked) -> None:
    page = looked.page
    looked.go("flag?key=banner&set=")
    page.see("The rule looks at")
    page.fill("#context", "{}")
    page.run("[...document.querySelectorAll('.chip')].find((chip) => chip.innerText === 'tier').click()")
    page.wait("JSON.parse(document.querySelector('#context').value).tier === ''")
    page.run("document.querySelector('.snippets').open = true")
    page.see("/ofrep/v1/evaluate/flags/banner", ".snippets")
    page.run("[...document.querySelectorAll('[role=tab]')].find((tab) => tab.innerText === 'Python').click()")
    page.see('client.get_boolean_value("banner", False, EvaluationContext("", {"tier": ""}))', ".snippets")


def test_who_gets_what(looked: Looked) -> None:
    page = looked.page
    looked.go("flag?key=banner&set=")
    page.see("Who gets what")
    page.run("document.querySelector('.distribution').open = true")
    page.fill("#contexts", "\n".join(f"user-{number}" for number in range(200)))
    page.see("200 contexts", "#distribution")
    counts = page.run("[...document.querySelectorAll('#distribution td:nth-child(2)')].map((cell) => +cell.innerText)")
    assert sum(counts) == 200
    assert max(counts) > 150


def test_what_a_flag_hides_what_is_wrong_and_how_it_came_to_be(looked: Looked) -> None:
    page = looked.page
    looked.go("flag?key=banner&set=")
    page.see("Hides a definition of lower priority")
    page.see("low.json")
    write(looked.high, HIGH | {"banner": flag("on")})
    page.see("defaultVariant off → on")
    page.see("targeting removed")
    looked.go("findings")
    page.see("unknown operator `iff`")
    page.see("did you mean `if`?")
    page.click(".scroll a")
    page.see("broken", "h2")


def test_a_change_is_seen_live_and_the_snapshots_say_what_it_was(looked: Looked) -> None:
    page = looked.page
    write(looked.low, LOW | {"fresh": flag()})
    page.see("5 flags")
    page.see("fresh")
    looked.go("snapshots")
    page.see("1 added")
    page.run("document.querySelector('.timeline details').open = true")
    page.see("fresh added", ".changes")


def test_sources_and_streams(looked: Looked) -> None:
    page = looked.page
    looked.go("sources")
    page.see("high.json")
    page.see("2 (1 hidden)")
    looked.low.write_text("{")
    page.see("failing")
    looked.go("streams")
    page.see("No provider is connected")


def test_what_if_says_what_a_document_would_change(looked: Looked) -> None:
    page = looked.page
    looked.go("whatif")
    page.see("What if", "h2")
    document = {
        "flags": {
            "banner": flag(
                targeting={"if": [{"==": [{"var": "tier"}, "gold"]}, "on", {"fractional": [["on", 60], ["off", 40]]}]}
            )
        }
    }
    page.fill("#document", json.dumps(document))
    page.fill("#whatif-contexts", "\n".join(f"user-{number}" for number in range(100)))
    page.see("50 % move from off to on")
    page.wait("/^[4-6][0-9] of 100/.test(document.querySelector('#whatif-moved')?.innerText)")
    page.fill("#document", "flags:\n  a:\n    state: ENABLED\n    variants: {on: 1}\n    defaultVariant: onn\n")
    page.see("line 5", "#whatif-findings")
    assert looked.page.run("fetch('api/v1/flags').then((r) => r.json()).then((d) => d.flags.length)") == 4


def test_everything_works_by_keyboard(looked: Looked) -> None:
    page = looked.page
    page.key("/")
    page.wait("document.activeElement.id === 'search'")
    page.type("gold")
    page.see("1 of 4 flags")
    page.key("Enter")
    page.see("banner", "h2")
    page.key("Escape")
    page.see("flags", ".count")
    page.key("/")
    page.wait("document.activeElement.id === 'search'")
    page.key("Escape")
    page.wait("document.activeElement.id === 'grid' || document.querySelector('#search').value === ''")
    page.run("document.querySelector('#grid').focus()")
    first = page.run("document.querySelector('.row.active').id")
    page.key("ArrowDown")
    page.wait(f"document.querySelector('.row.active').id !== {json.dumps(first)}")


def test_the_page_comes_back_when_the_agent_does(chrome: Browser, tmp_path: Path) -> None:
    path = tmp_path / "flags.json"
    write(path, {"before": flag()})
    ports = {"management-port": claim_port()}
    with AgentProcess("--uri", f"file:{path}", ports=ports) as agent:
        page = chrome.open(f"{url(agent)}/console/")
        page.see("before")
    page.see("reconnecting")
    write(path, {"after": flag()})
    with AgentProcess("--uri", f"file:{path}", ports=ports):
        page.see("after", "#grid")
        page.see("live")
    page.close()


def test_ten_thousand_flags_scroll(chrome: Browser, tmp_path: Path) -> None:
    path = tmp_path / "flags.json"
    write(path, {f"flag-{number:05}": flag() for number in range(10_000)})
    with AgentProcess("--uri", f"file:{path}") as agent:
        page = chrome.open(f"{url(agent)}/console/")
        page.see("10000 flags")
        assert page.run("document.querySelectorAll('.row').length") < 80
        page.run("document.querySelector('#grid').focus()")
        page.key("End")
        page.see("flag-09999")
        page.fill("#search", "flag-0777")
        page.see("10 of 10000 flags")
        assert page.received < 1_000_000
        assert page.problems == []
        page.close()


HOSTILE = {
    "<script>document.title='owned'</script>": flag(),
    "<img src=x onerror=document.title='owned'>": flag(metadata={"note": "<svg onload=document.title='owned'>"}),
    "javascript:document.title='owned'": flag(),
    "\u202eevil\u202c": flag(),
    "zero\u200bwidth": flag(),
    "quote\"'`${1+1}{{7*7}}": flag(),
    "__proto__": flag(),
    "constructor": flag(),
    "a" * 2000: flag(),
    "large": {"state": "ENABLED", "variants": {"x": "y" * 1_000_000}, "defaultVariant": "x"},
}


def test_hostile_names_and_values_are_text(chrome: Browser, tmp_path: Path) -> None:
    path = tmp_path / "flags.json"
    write(path, HOSTILE)
    with AgentProcess("--uri", f"file:{path}") as agent:
        page = chrome.open(f"{url(agent)}/console/")
        page.see(f"{len(HOSTILE)} flags")
        page.see("\\u202eevil\\u202c")
        page.see("zero\\u200bwidth")
        for key in HOSTILE:
            page.run(f"location.hash = '#/flag?' + new URLSearchParams({{key: {json.dumps(key)}, set: ''}})")
            page.wait(
                "document.querySelector('h2') && document.querySelector('.verdict') && document.title !== 'owned'"
            )
            page.see("History")
            page.wait("document.querySelectorAll('main script, main img, main svg[onload]').length === 0")
            page.go(f"{url(agent)}/console/")
            page.see("flags", ".count")
        assert page.problems == []
        page.close()


VIEWS = {
    "flags": "4 flags",
    "flag?key=banner&set=": "Try it",
    "sources": "high.json",
    "streams": "No provider",
    "snapshots": "snapshot 1",
    "findings": "What to do",
    "whatif": "Difference",
}
AXE = """axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }).then((result) =>
  result.violations.map((each) => [each.id, each.nodes.map((node) => node.html + node.failureSummary)]))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(looked: Looked, scheme: str) -> None:
    page, violations = looked.page, {}
    page.prefer(scheme)
    page.run(Path(AXE_FILE_PATH).read_text() + "; undefined")
    for width in (1280, 400):
        page.resize(width, 800)
        for view, sign in VIEWS.items():
            looked.go(view)
            page.see(sign)
            page.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            page.wait("document.getAnimations().length === 0")
            if result := page.run(AXE):
                violations[f"{view} {width}"] = result
    assert not violations, json.dumps(violations, indent=1)


def test_a_tenant_sees_its_own_flags_and_no_trace_of_others(chrome: Browser, tmp_path: Path) -> None:
    """A request that a proxy passed on is not from this machine: it needs a token."""
    mine, theirs, rules = tmp_path / "mine.json", tmp_path / "their-source.json", tmp_path / "rules.json"
    write(mine, {"shared-key": flag(), "my-flag": flag()}, metadata={"flagSetId": "mine"})
    write(
        theirs,
        {"shared-key": flag("on"), "their-flag": {**flag(), "targeting": {"iff": []}}},
        metadata={"flagSetId": "theirs"},
    )
    rules.write_text(json.dumps([{"name": "me", "token": "my-token", "selectors": ["flagSetId=mine"]}]))
    arguments = ("--uri", f"file:{mine}", "--uri", f"file:{theirs}", "--auth-tokens", str(rules))
    with AgentProcess(*arguments) as agent:
        page = chrome.open("about:blank")
        page.send("Network.setExtraHTTPHeaders", headers={"x-forwarded-for": "192.0.2.1"})
        page.go(f"{url(agent)}/console/")
        page.see("say who asks")
        page.problems.clear()  # the browser logs each 401
        page.fill("input[name=token]", "my-token")
        page.key("Enter")
        page.see("2 flags")
        write(theirs, {"shared-key": flag(), "their-flag": flag()}, metadata={"flagSetId": "theirs"})
        write(mine, {"shared-key": flag(), "my-flag": flag("on")}, metadata={"flagSetId": "mine"})
        page.see("just now")
        for view in ("flags", "flag?key=shared-key&set=mine", "sources", "streams", "snapshots", "findings", "whatif"):
            page.run(f"location.hash = {json.dumps('#/' + view)}")
            page.wait("document.querySelector('main section')")
            assert "their" not in page.text()
        for path in (
            "",
            "/flags",
            "/flag?key=shared-key",
            "/evaluations",
            "/sources",
            "/streams",
            "/snapshots",
            "/findings",
            "/diff",
        ):
            told = page.run(
                f"fetch('api/v1{path}', {{headers: {{authorization: 'Bearer my-token'}}}}).then((r) => r.text())"
            )
            assert "their" not in told, path
        headers = "{authorization: 'Bearer my-token', 'flagd-selector': 'flagSetId=theirs'}"
        asked = f"fetch('api/v1/flag?key=their-flag', {{headers: {headers}}})"
        assert page.run(asked + ".then((r) => r.status)") == 403
        page.close()
