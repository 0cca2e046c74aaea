"""The HTML page: one document with its style and script inline, which loads nothing else.

Without the script, forms work if no token is required. The script adds a token, changes in place, and a search. The
content security policy allows only this style and this script, by their digests.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from wigwag.dflag.page.listing import Filter
from wigwag.dflag.page.view.markup import Html, joined, tag
from wigwag.dflag.page.view.panel import panel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.dflag.page.access import Access
    from wigwag.dflag.page.view.panel import Banner


@cache
def asset(name: str) -> Html:
    """Return a file that is inlined in the page."""
    return Html(files("wigwag.dflag.page").joinpath(name).read_text())


@cache
def policy() -> str:
    """Return the content security policy."""
    hashes = {name: b64encode(sha256(asset(name).encode()).digest()).decode() for name in ("page.css", "page.js")}
    return (
        f"default-src 'none'; style-src 'sha256-{hashes['page.css']}'; script-src 'sha256-{hashes['page.js']}'; "
        "connect-src 'self'; form-action 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
    )


def render(
    title: str, listing: Mapping[str, Any], access: Access, root: str, filter: Filter | None, banner: Banner | None
) -> str:
    """Return a page as HTML; `listing` is from `list_flags`, and `filter` is None on the page of one flag."""
    flags = [panel(flag, root, access, banner) for flag in listing["flags"]]
    named = [" of ", tag("strong", title)] if title else None
    none = tag("p", "No flags match.", class_="none") if not flags else None
    body = (
        tag("a", "Skip to the flags", href="#flags", class_="skip"),
        tag(
            "header",
            tag("h1", "Flags", named),
            _facts(listing),
            _access(access),
            class_="top",
        ),
        _alerts(listing, root),
        _tools(filter, root),
        tag("p", id="said", role="status"),
        tag("main", flags, none, id="flags"),
    )
    return _document(f"Flags of {title}" if title else "Flags", *body)


def render_error(title: str, detail: str, root: str) -> str:
    """Return an error page."""
    return _document(
        title, tag("main", tag("h1", title), tag("p", detail), tag("p", tag("a", "All flags", href=f"{root}/")))
    )


def _document(title: str, *body: Html | None) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", asset("page.css")),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", *body, tag("script", asset("page.js"))), lang="en")


def _facts(listing: Mapping[str, Any]) -> Html:
    facts = {
        "generation": str(listing["generation"]),
        "dynamic checksum": listing["checksum_dynamic"],
        "static checksum": listing["checksum_static"],
    }
    if (updater := listing["updater"]) is not None:
        facts |= {"reloads": str(updater["generation"]), "errors": str(updater["errors"])}
        facts |= {"warnings": str(updater["warnings"]), "updater": "watching" if updater["running"] else "not running"}
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items()], id="facts")


def _access(access: Access) -> Html:
    if not access.enabled:
        return tag("p", "Read only: setting flags over HTTP is disabled.", class_="door")
    if not access.by_token:
        return tag("p", "Anyone who can open this page can set flags.", class_="door")
    no_script = tag("noscript", "Setting flags here requires JavaScript: the token is sent in a header.")
    field = tag(
        "input", type="password", id="token", autocomplete="off", spellcheck="false", placeholder="to set flags"
    )
    return tag("p", tag("label", "Token", for_="token"), " ", field, no_script, class_="door")


def _alerts(listing: Mapping[str, Any], root: str) -> Html:
    warning = tag("p", listing["warning"], class_="alert warning") if listing["warning"] else None
    if (updater := listing["updater"]) is None:
        return tag("div", warning, id="alerts")
    restart = [joined(tag("a", name, href=f"{root}/#flag-{quote(name)}"), " ") for name in updater["restart_required"]]
    more = updater["problem_count"] - len(updater["problems"])
    return tag(
        "div",
        warning,
        tag("p", tag("b", "Restart required"), " for: ", restart, class_="alert warning") if restart else None,
        [_problem(each) for each in updater["problems"]],
        tag("p", f"and {more} more", class_="alert error") if more else None,
        id="alerts",
    )


def _problem(problem: Mapping[str, str]) -> Html:
    place = f"{problem['place']}/{problem['key']}" if problem["key"] else problem["place"]
    return tag(
        "p",
        tag("b", problem["level"]),
        " ",
        tag("code", place),
        " ",
        problem["reason"],
        class_=f"alert {problem['level']}",
    )


def _tools(shown: Filter | None, root: str) -> Html:
    if shown is None:
        return tag("nav", tag("a", "All flags", href=f"{root}/"), class_="tools")
    types = {"All": None, "Dynamic": True, "Static": False}
    links = [_link(name, Filter(shown.only_changed, dynamic), shown, root) for name, dynamic in types.items()]
    changed = _link("Only changed", Filter(not shown.only_changed, shown.dynamic), shown, root, on=shown.only_changed)
    search = tag("input", type="search", id="search", placeholder="Search", aria_label="Search the flags", hidden=True)
    return tag("nav", tag("span", links, class_="group"), tag("span", changed, class_="group"), search, class_="tools")


def _link(name: str, to: Filter, shown: Filter, root: str, on: bool | None = None) -> Html:
    query = [*(["only_changed=1"] if to.only_changed else [])]
    query += [] if to.dynamic is None else [f"type={'dynamic' if to.dynamic else 'static'}"]
    here = to == Filter(shown.only_changed, shown.dynamic) if on is None else on
    return tag(
        "a", name, href=f"{root}/" + ("?" + "&".join(query) if query else ""), aria_current="true" if here else None
    )
