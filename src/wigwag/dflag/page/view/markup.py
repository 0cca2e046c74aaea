"""HTML elements as strings. Every string that is not `Html` already is escaped, so values cannot inject markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

_VOID = ("input", "link", "meta")


class Html(str):
    """A string that is HTML already."""

    __slots__ = ()


Inside: TypeAlias = str | Iterable["str | None"] | None


def tag(name: str, /, *inside: Inside, **attributes: str | bool | None) -> Html:
    """Return an element. An attribute that is True has no value, one that is False or None is left out.

    >>> tag("p", "1 < 2", tag("input", type="text", data_name='"', required=True, disabled=False), class_="x")
    '<p class="x">1 &lt; 2<input type="text" data-name="&quot;" required></p>'
    """
    rendered = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    return Html(f"<{name}{rendered}>" + ("" if name in _VOID else f"{joined(*inside)}</{name}>"))


def joined(*inside: Inside) -> Html:
    """Join strings and elements.

    >>> joined("a & b", [tag("b", "c"), None])
    'a &amp; b<b>c</b>'
    """
    return Html("".join(_parts(inside)))


def _parts(inside: Iterable[Inside]) -> Iterable[str]:
    for part in inside:
        if part is None:
            continue
        if isinstance(part, str):
            yield part if isinstance(part, Html) else escape(part)
        else:
            yield from _parts(part)


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
