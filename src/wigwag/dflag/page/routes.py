"""The paths of the page and their methods, and the OpenAPI document that describes them.

Names of flags have no slash in them. The document is `openapi.json`; a test compares it with the routes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from importlib.resources import files
from typing import Any, NamedTuple

from wigwag.dflag.page.messages import HttpError
from wigwag.version import __version__


class RouteOperation(Enum):
    """What a request does; the value is its `operationId` in the OpenAPI document."""

    LIST = "listFlags"
    SHOW = "getFlag"
    SET = "setFlag"
    RESET = "resetFlag"
    SET_BY_QUERY = "setFlagByQuery"
    DESCRIBE = "describe"
    MEASURE = "measure"


ROUTES: Mapping[str, Mapping[str, RouteOperation]] = {
    "/": {"GET": RouteOperation.LIST},
    "/flags": {"GET": RouteOperation.LIST},
    "/flags/{name}": {
        "GET": RouteOperation.SHOW,
        "PUT": RouteOperation.SET,
        "POST": RouteOperation.SET,
        "DELETE": RouteOperation.RESET,
    },
    "/flags/{name}/reset": {"POST": RouteOperation.RESET},  # for forms, which have no DELETE
    "/set": {"POST": RouteOperation.SET_BY_QUERY},
    "/openapi.json": {"GET": RouteOperation.DESCRIBE},
    "/metrics": {"GET": RouteOperation.MEASURE},
}
WRITES = (RouteOperation.SET, RouteOperation.RESET, RouteOperation.SET_BY_QUERY)


class Route(NamedTuple):
    """The operation of a request, and the flag that it names."""

    operation: RouteOperation
    name: str = ""


def route(method: str, path: str) -> Route:
    """Return the route of a request; 404 or 405 if there is none.

    >>> route("PUT", "/flags/rate")
    Route(operation=<RouteOperation.SET: 'setFlag'>, name='rate')
    """
    template, name = _template(path)
    methods = ROUTES.get(template)
    if methods is None:
        raise HttpError(404, f"there is no page {path[:100]!r}; the flags are at / and /flags/NAME")
    operation = methods.get("GET" if method == "HEAD" else method)
    if operation is None:
        allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        by_query = template == "/set" and method in ("GET", "HEAD")
        hint = "a GET changes nothing: POST to /set?name=NAME&value=VALUE, or PUT to /flags/NAME"
        wrong = hint if by_query else f"{template} supports {allowed}, not {method[:20]}"
        raise HttpError(405, wrong, ("Allow", allowed))
    return Route(operation, name)


def _template(path: str) -> tuple[str, str]:
    match path.removesuffix("/").split("/"):
        case ["", "flags", name]:
            return "/flags/{name}", name
        case ["", "flags", name, "reset"]:
            return "/flags/{name}/reset", name
    return path.removesuffix("/") or "/", ""


def document(name: str, root: str) -> dict[str, Any]:
    """Return the document for the page of a flag set that is mounted at `root`."""
    text: dict[str, Any] = json.loads(files("wigwag.dflag.page").joinpath("openapi.json").read_text())
    info = {"title": f"Flags of {name}" if name else "Flags", "version": __version__}
    return {**text, "info": info, "servers": [{"url": root or "/"}]}
