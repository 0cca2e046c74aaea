"""A page to ask, without a connection."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from wigwag import dflag
from wigwag.dflag.page.messages import PageRequest, Response
from wigwag.dflag.page.site import Access, Site

OPEN = Access(unauthenticated=True)
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
BROWSER = {"accept": "text/html,application/xhtml+xml"}


@dataclass(frozen=True)
class Answer:
    """What came back, with shorter ways to look at it."""

    response: Response

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def text(self) -> str:
        return self.response.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.response.body)

    @property
    def headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.response.headers}

    @property
    def detail(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json["status"] == self.status
        return str(self.json["detail"])


def ask(site: Site, method: str, target: str, body: bytes | str = b"", **headers: str) -> Answer:
    """Ask for something; in the names of headers, `_` stands for `-`."""
    path, _, query = target.partition("?")
    given = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    content = body.encode() if isinstance(body, str) else body
    return Answer(site(PageRequest(method, path, query, given, content, "192.0.2.1")))


def put(site: Site, name: str, value: Any, query: str = "", **more: Any) -> Answer:
    """Set a flag with JSON; what begins with a capital is a header."""
    headers = {key.lower(): more.pop(key) for key in list(more) if key[0].isupper()}
    body = json.dumps({"value": value, **more})
    return ask(site, "PUT", f"/flags/{name}{query}", body, content_type="application/json", **headers)


def example() -> dflag.FlagSet:
    """Flags as the tests of the original have them: static and dynamic, changed and not."""
    flags = dflag.FlagSet("foobar")
    flags.str("some_static_string", "trolololo", "static, at its default", dynamic=False)
    flags.str("some_static_changed", "a", "static, changed", dynamic=False)
    flags.float("some_dyn_float", 1.5, "dynamic, at its default")
    flags.list("some_dyn_list", ["foo", "bar"], "dynamic, changed")
    flags.json("some_dyn_json", {"ints": [1, 2]}, "dynamic, JSON, at its default")
    flags.assign("some_static_changed", "b")
    flags.assign("some_dyn_list", "car,bar")
    return flags


def names(answer: Answer) -> list[str]:
    return [flag["name"] for flag in answer.json["flags"]]
