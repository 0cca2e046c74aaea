"""One flag on the page: its value, origin and constraints, and the forms that change it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from wigwag.dflag.page.view.markup import Html, joined, tag
from wigwag.dflag.values.numerals import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wigwag.dflag.page.access import Access

_SHOWN, _EDITED = 2000, 64 << 10
"""Characters of a value that are shown, and that a form can edit."""
_MOST_ROWS = 20


@dataclass(frozen=True, slots=True)
class Banner:
    """The result of a form, shown at its flag."""

    name: str
    text: str
    good: bool
    value: str | None = None
    """The text of the form, to show it again."""


def panel(flag: Mapping[str, Any], root: str, access: Access, banner: Banner | None) -> Html:
    """Return a flag as an article."""
    name = flag["name"]
    banner = banner if banner is not None and banner.name == name else None
    editable = flag["is_dynamic"] and access.enabled
    return tag(
        "article",
        tag("h2", tag("a", name, href=f"#flag-{quote(name)}"), " ", _badges(flag)),
        tag("p", flag["description"], class_="usage") if flag["description"] else None,
        _values(flag),
        tag("p", banner.text, class_=f"notice {'good' if banner.good else 'bad'}", role="alert") if banner else None,
        _form(flag, root, banner) if editable else None,
        _reset(flag, root) if editable and flag["is_overridden"] else None,
        id=f"flag-{name}",
        class_="changed" if flag["is_changed"] else None,
    )


def _badges(flag: Mapping[str, Any]) -> list[Html]:
    kinds = {
        "dynamic" if flag["is_dynamic"] else "static": True,
        "changed": flag["is_changed"],
        "overridden": flag["is_overridden"],
        "secret": flag["is_secret"],
        "restart required": flag["restart_required"],
    }
    shown = [tag("span", kind, class_=f"badge {kind.split()[0]}") for kind, there in kinds.items() if there]
    return [tag("span", flag["type"], class_="type"), *shown]


def _values(flag: Mapping[str, Any]) -> Html:
    rows = [("value", _value(flag["current_value"]))]
    if flag["is_changed"] and not flag["is_secret"]:
        rows.append(("default", _value(flag["default_value"])))
    rows.append(("from", _origin(flag)))
    if flag["constraints"]:
        rows.append(("rules", joined(tag("div", rule) for rule in flag["constraints"])))
    if flag["aliases"]:
        rows.append(("aliases", joined(", ".join(flag["aliases"]))))
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in rows])


def _value(text: str) -> Html:
    if not text:
        return tag("i", "empty")
    cut = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
    return tag("pre", cut) if "\n" in cut else tag("code", cut)


def _origin(flag: Mapping[str, Any]) -> Html:
    at, seconds = flag["set_at"], flag["expires_in"]
    readable = at.replace("T", " ").replace("+00:00", " UTC") if at else ""
    since = [" since ", tag("time", readable, datetime=at)] if at else []
    ends: list[str] = []
    if seconds is not None:
        left = tag("b", format_duration(timedelta(seconds=round(seconds))), data_left=f"{seconds:.0f}")
        ends = [", expires in ", left]
    return joined(f"{flag['origin']} {flag['place']}".rstrip(), since, ends)


def _form(flag: Mapping[str, Any], root: str, banner: Banner | None) -> Html:
    url = _url(flag, root)
    ttl = tag("input", name="ttl", placeholder="never", size="6", title="such as 10m or 1h30m")
    dry = {"name": "validate_only", "value": "1", "class_": "quiet", "title": "a dry run: changes nothing"}
    buttons = [tag("button", "Set", type="submit"), " ", tag("button", "Check", type="submit", **dry)]
    return tag(
        "form",
        _field(flag, banner.value if banner is not None else None),
        tag("label", "expires after ", ttl),
        tag("input", type="hidden", name="if_match", value=flag["etag"]),
        tag("span", buttons, class_="buttons"),
        method="post",
        action=url,
        data_set=url,
        aria_label=f"Set {flag['name']}",
    )


def _reset(flag: Mapping[str, Any], root: str) -> Html:
    button = tag("button", "Remove override", type="submit", class_="quiet")
    url = _url(flag, root)
    return tag("form", button, method="post", action=f"{url}/reset", data_reset=url, aria_label=f"Reset {flag['name']}")


def _url(flag: Mapping[str, Any], root: str) -> str:
    return f"{root}/flags/{quote(flag['name'], safe='')}"


def _field(flag: Mapping[str, Any], typed: str | None) -> Html:
    label, value = f"New value of {flag['name']}", flag["current_value"] if typed is None else typed
    if flag["is_secret"]:
        return tag("input", name="value", type="password", autocomplete="off", aria_label=label, class_="value")
    if flag["type"] == "bool":
        return _switch(flag["name"], value, label)
    value, hint = (value, None) if len(value) <= _EDITED else ("", "the value is too long to edit here")
    common = {"spellcheck": "false", "aria_label": label, "placeholder": hint, "class_": "value"}
    if flag["is_json"] or "\n" in value:
        rows = str(min(_MOST_ROWS, max(3, value.count("\n") + 1)))
        return tag("textarea", "\n" + value, name="value", rows=rows, **common)  # a browser drops the first newline
    return tag("input", name="value", value=value, autocomplete="off", **common)


def _switch(name: str, value: str, label: str) -> Html:
    def choice(text: str) -> Html:
        button = tag("input", type="radio", name="value", value=text, checked=value == text)
        return tag("label", button, tag("span", text))

    return tag("span", choice("true"), choice("false"), class_="switch", role="radiogroup", aria_label=label)
