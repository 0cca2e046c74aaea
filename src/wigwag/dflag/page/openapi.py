"""The description of the page for programs: an OpenAPI document, written by hand; a test holds it to what is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wigwag.version import __version__

_TEXT, _FLAG, _NUMBER, _WHOLE = {"type": "string"}, {"type": "boolean"}, {"type": "number"}, {"type": "integer"}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(members: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """Describe an object; all members are required, unless some are named."""
    return {"type": "object", "properties": members, "required": [*(required or members)]}


def _all(names: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(names.split(), schema)


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _answer(description: str, **contents: Any) -> dict[str, Any]:
    types = {"json": "application/json", "html": "text/html", "text": "text/plain"}
    content = {types[name]: {"schema": schema} for name, schema in contents.items()}
    return {"description": description, **({"content": content} if content else {})}


def _parameter(name: str, description: str, schema: Mapping[str, Any], place: str = "query") -> dict[str, Any]:
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, "description": description, "schema": schema, **required}


_NAME = _parameter("name", "The name of a flag, or an alias.", _TEXT, "path")
_FORMAT = _parameter("format", "`json`: JSON, whatever `Accept` says.", {"type": "string", "enum": ["json"]})
_DRY = _parameter("validate_only", "Only tell what would happen.", {"type": "string", "enum": ["1", "0"]})
_IF_MATCH = _parameter(
    "If-Match", "The `etag` of the flag, or of all flags: refuse if it has changed.", _TEXT, "header"
)
_REFUSALS = {
    "400": "the request makes no sense",
    "401": "no token, or a wrong one",
    "403": "setting is disabled, or the request comes from another site",
    "404": "there is no such flag",
    "409": "the flag is static: a restart is required",
    "412": "it has changed since",
    "413": "the body is too large",
    "415": "the body is neither JSON nor a form",
    "421": "the page is not known by this host",
    "422": "the flag refuses the value",
    "503": "the token cannot be read",
}


def _refused(*statuses: str) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    return {status: {"description": _REFUSALS[status], "content": problem} for status in statuses}


def _operation(id: str, summary: str, *parameters: Any, answers: Any, body: Any = None) -> dict[str, Any]:
    operation = {"operationId": id, "summary": summary, "parameters": [*parameters], "responses": answers}
    return operation if body is None else {**operation, "requestBody": body}


def _writing(id: str, summary: str, *parameters: Any, body: Any = None, **contents: Any) -> dict[str, Any]:
    done = {"200": _answer("What was done, or would be.", json=_ref("Effect"), **contents), "303": _answer("A form.")}
    answers = {**done, **_refused(*_REFUSALS)}
    security: dict[str, Any] = {"security": [{"token": []}, {}]}
    return {**_operation(id, summary, *parameters, _DRY, _IF_MATCH, answers=answers, body=body), **security}


def _listing(id: str) -> dict[str, Any]:
    which = _parameter("type", "Only these.", {"type": "string", "enum": ["dynamic", "static"]})
    changed = _parameter("only_changed", "Any text: only flags that differ from their defaults.", _TEXT)
    answers = {"200": _answer("The flags.", json=_ref("Listing"), html=_TEXT), **_refused("400", "421")}
    return _operation(id, "List the flags", changed, which, _FORMAT, answers=answers)


def _reading(id: str, summary: str, answer: Any) -> dict[str, Any]:
    return _operation(id, summary, answers={"200": answer, **_refused("421")})


_VALUE = {
    "required": True,
    "content": {
        "application/json": {"schema": _ref("Value")},
        "application/x-www-form-urlencoded": {"schema": _ref("Form")},
    },
}
_SHOWN = _operation(
    "getFlag",
    "Show a flag",
    _NAME,
    _FORMAT,
    answers={"200": _answer("The flag.", json=_ref("Flag"), html=_TEXT), **_refused("400", "404", "421")},
)
_PATHS = {
    "/": {"get": _listing("listFlags")},
    "/flags": {"get": _listing("listFlagsToo")},
    "/flags/{name}": {
        "get": _SHOWN,
        "put": _writing("setFlag", "Set a dynamic flag", _NAME, body=_VALUE),
        "post": _writing("setFlagByPost", "Set a dynamic flag", _NAME, body=_VALUE),
        "delete": _writing("resetFlag", "Take back what was set over HTTP", _NAME),
    },
    "/flags/{name}/reset": {"post": _writing("resetFlagByPost", "The same, for forms", _NAME)},
    "/set": {
        "post": _writing(
            "setFlagByQuery",
            "Set a flag as with the original, but by POST",
            _parameter("name", "The name of a flag.", _TEXT),
            _parameter("value", "The value as text.", _TEXT),
            _parameter("ttl", "Seconds, or a duration.", _TEXT),
            text=_TEXT,
        )
    },
    "/openapi.json": {"get": _reading("describe", "This document", _answer("It.", json={"type": "object"}))},
    "/metrics": {"get": _reading("measure", "Numbers for Prometheus", _answer("They.", text=_TEXT))},
}
_SCHEMAS = {
    "Flag": _object(
        _all("name description current_value default_value", _TEXT)
        | _all("is_changed is_dynamic is_json", _FLAG)
        | {"type": _TEXT}
        | _all("aliases constraints", _list(_TEXT))
        | _all("is_secret is_overridden restart_required", _FLAG)
        | _all("origin place etag", _TEXT)
        | {
            "generation": _WHOLE,
            "set_at": _or_null({"type": "string", "format": "date-time"}),
            "expires_in": _or_null(_NUMBER),
        }
    ),
    "Listing": _object(
        _all("checksum_static checksum_dynamic set_url checksum etag", _TEXT)
        | {"flags": _list(_ref("Flag")), "generation": _WHOLE, "updater": _or_null(_ref("Updater"))}
        | {"warning": _or_null(_TEXT)}
    ),
    "Updater": _object(
        _all("generation warnings errors problem_count", _WHOLE)
        | {
            "running": _FLAG,
            "restart_required": _list(_TEXT),
            "problems": _list(_object(_all("level place key reason", _TEXT))),
        }
    ),
    "Value": _object({"value": {}, "ttl": {"type": ["number", "string", "null"]}}, "value"),
    "Form": _object(_all("value ttl if_match validate_only", _TEXT), "value"),
    "Effect": _object(
        _all("name old_value new_value", _TEXT)
        | _all("in_force validate_only", _FLAG)
        | {"changed": _or_null(_FLAG), "flag": _ref("Flag"), "warning": _or_null(_TEXT)}
    ),
    "Problem": _object({"title": _TEXT, "status": _WHOLE, "detail": _TEXT}),
}


def document(name: str, root: str) -> dict[str, Any]:
    """Return the document for the page of a set of flags."""
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Flags of {name}" if name else "Flags", "version": __version__},
        "servers": [{"url": root or "/"}],
        "paths": _PATHS,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
